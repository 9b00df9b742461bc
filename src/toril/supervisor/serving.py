"""HTTP from the supervisor: it opens when every worker is ready, and closes last."""

from asyncio import CancelledError, Event, create_task

from toril.runtime.clock import SYSTEM
from toril.runtime.logs import log
from toril.supervisor.child import Failed
from toril.supervisor.health import Vitals
from toril.supervisor.http import Probes
from toril.supervisor.supervisor import Supervisor

__all__ = ["serve"]


async def serve(supervisor: Supervisor) -> None:
    """Until cancelled. An address that was asked for and cannot be had fails the boot."""
    listen = supervisor.plan.http
    if listen is None:
        return
    vitals = Vitals(supervisor, SYSTEM)
    probes = Probes(listen, vitals.problems, vitals.document)
    await supervisor.up.wait()
    try:
        port = await probes.start()
    except OSError as error:
        reason = f"HTTP cannot be served on {listen.host}:{listen.port}: {error.strerror or error}"
        if listen.asked_for:
            supervisor.fail(Failed(1, reason))
        else:
            log.warning("%s; the workers go on without it", reason)
        return
    log.info("HTTP on %s:%s: /livez, /readyz, /health", listen.host, port)
    watching = create_task(vitals.watch())
    try:
        await Event().wait()
    except CancelledError:
        watching.cancel()
        await probes.close()
        raise
