"""HTTP beside a supervisor: the probes, open to everyone, and the API for those who may use it."""

import sys
from asyncio import CancelledError, Event, create_task
from collections.abc import Awaitable, Callable, Sequence
from logging import INFO
from typing import Final

from starlette.responses import PlainTextResponse, Response

from toril.app import App
from toril.errors import TorilError
from toril.runtime.clock import SYSTEM
from toril.runtime.logs import log
from toril.supervisor import Failed, Supervisor, Vitals
from toril.supervisor import serve as probes_alone
from toril.web.access import Access, Nobody, Role, Tokens, is_loopback
from toril.web.guard import Terms
from toril.web.problems import as_json
from toril.web.server import Server
from toril.web.sign_in import CODE_MINUTES, SignInLink
from toril.web.site import Site

__all__ = ["access_by", "address_of", "serving"]

_UNREADY: Final = 503


def access_by(host: str, token: str | None, read_token: str | None) -> Access:
    """Tokens where some are given. Without them, on loopback, everyone on this machine may look and whoever opens the
    printed link may act; elsewhere nobody may enter."""
    tokens = {given: role for given, role in ((read_token, Role.READ), (token, Role.ADMIN)) if given}
    if tokens:
        return Tokens(tokens)
    return SignInLink() if is_loopback(host) else Nobody()


def address_of(host: str, port: int) -> str:
    """The URL of a server that listens there."""
    return f"http://[{host}]:{port}/" if ":" in host else f"http://{host}:{port}/"


def serving(access: Access, hosts: Sequence[str], proxies: Sequence[str]) -> Callable[[Supervisor], Awaitable[None]]:
    """What a supervisor is to run beside its children, until it is cancelled."""

    async def serve(supervisor: Supervisor) -> None:
        listen = supervisor.plan.http
        if listen is None:
            return
        await supervisor.up.wait()
        if (supervisor.hello or {}).get("url", "memory:").startswith("memory:"):
            await probes_alone(supervisor)  # its jobs are in another process, and cannot be seen from here
            return
        vitals = Vitals(supervisor, SYSTEM)
        terms = Terms(access=access, hosts=(*hosts, listen.host), proxies=proxies)
        site = Site(
            _app(supervisor),
            terms,
            SYSTEM,
            probe=_probes(vitals),
            pages={"/health": lambda: _health(vitals, listen.origin)},
        )
        server = Server(site, listen.host, listen.port)
        try:
            port = await server.start()
        except (OSError, TorilError) as error:
            _refused(supervisor, str(error))
            return
        log.info("HTTP on %s:%s: the dashboard, /livez, /readyz, /health, /metrics, /api/v1", listen.host, port)
        if isinstance(access, SignInLink):
            access.start(address_of(listen.host, port), _tell_link)
        watching = create_task(vitals.watch())
        try:
            await Event().wait()
        except CancelledError:
            watching.cancel()
            await server.close()
            raise

    return serve


def _tell_link(link: str) -> None:
    """A log level that hides the line does not hide the link: nobody could act without it."""
    text = f"sign in with this link (once, within {CODE_MINUTES} minutes): {link}"
    if log.isEnabledFor(INFO):
        log.info("to act in the dashboard, %s", text)
    else:
        sys.stderr.write(f"To act in the dashboard, {text}\n")
        sys.stderr.flush()


def _app(supervisor: Supervisor) -> App:
    """The store that the workers use, without their code."""
    hello = supervisor.hello or {}
    return App(hello["url"], prefix=hello["prefix"], outbox=hello.get("outbox"))


def _refused(supervisor: Supervisor, reason: str) -> None:
    """An address that was asked for and cannot be had fails the boot."""
    listen = supervisor.plan.http
    assert listen is not None  # noqa: S101 - who serves has an address
    text = f"HTTP cannot be served on {listen.host}:{listen.port}: {reason}"
    if listen.asked_for:
        supervisor.fail(Failed(1, text))
    else:
        log.warning("%s; the workers go on without it", text)


def _probes(vitals: Vitals) -> Callable[[str], Response | None]:
    def probe(path: str) -> Response | None:
        match path:
            case "/livez":
                return PlainTextResponse("alive\n")
            case "/readyz":
                unready = bool(vitals.problems())
                return PlainTextResponse("not ready\n" if unready else "ready\n", _UNREADY if unready else 200)
            case _:
                return None

    return probe


def _health(vitals: Vitals, origin: str | None) -> Response:
    headers = {} if origin is None else {"access-control-allow-origin": origin, "vary": "Origin"}
    return as_json(vitals.document(), _UNREADY if vitals.problems() else 200, headers)
