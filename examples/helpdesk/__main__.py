"""`python -m helpdesk`: a morning of the helpdesk in some seconds. One in five calls to external services fails.

The store is a temporary file, or what TORIL_URL names.
"""

import asyncio
import os
import sys
import tempfile
import time
from pathlib import Path

from helpdesk.fake_api import BROKEN, FakeApi
from toril import DeadLetterFilter

PATIENCE = 120.0  # seconds; it takes about ten


def main() -> int:
    folder = Path(tempfile.mkdtemp(prefix="helpdesk-"))
    with FakeApi(trouble=0.2) as api:
        os.environ.setdefault("TORIL_URL", f"sqlite:///{folder / 'jobs.db'}")
        os.environ.setdefault("HELPDESK_PACE", "0.02")  # a minute takes 1.2 seconds
        os.environ |= {"HELPDESK_DATABASE": str(folder / "helpdesk.db"), "HELPDESK_API": api.url}
        return asyncio.run(morning(api))


async def morning(api: FakeApi) -> int:
    """Work until everything that was requested is done, and return a summary."""
    from helpdesk import database  # noqa: PLC0415 - apps read the environment when they are imported
    from helpdesk.summary import summary  # noqa: PLC0415
    from helpdesk.worker import app  # noqa: PLC0415
    from helpdesk.workload import Workload  # noqa: PLC0415

    print(f"The helpdesk works {len(app.queues)} queues on {os.environ['TORIL_URL']} …")
    workload, start = Workload(size=8), time.monotonic()
    database.prepare()
    api.down["/oauth/letterbox"] = BROKEN  # one provider is down at first, and its circuit opens
    async with app:
        worker = asyncio.create_task(app.run(grace=5))
        await workload.add()
        while (missing := workload.missing(api)) and not worker.done() and time.monotonic() < start + PATIENCE:
            await asyncio.sleep(0.2)
            if any(circuit.state == "open" for circuit in await app.breakers.list()):
                api.down.clear()
            for failed in (DeadLetterFilter(queue="ai-agent"), DeadLetterFilter(error="status 503")):
                await app.dead_letters.replay(failed)  # as an operator does who knows that the provider is back
        app.stop()
        await worker
        doubles = await workload.doubles(app)
        print(await summary(app, time.monotonic() - start))
    for what, state in missing.items():
        print(f"missing: {what}: {state}")
    for job, times in doubles.items():
        print(f"{times} times: {job}")
    return 1 if missing or doubles else 0


if __name__ == "__main__":
    sys.exit(main())
