"""An app for processes of their own: what it does stands in the files of a folder, and files tell it what to do."""

import asyncio
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

from toril import App, Breaker, JobContext, Retry
from toril.events import WorkerEvent

URL, FOLDER = sys.argv[1], Path(sys.argv[2])


def write(name: str, line: object) -> None:
    with (FOLDER / name).open("a") as file:
        file.write(f"{line}\n")


async def appears(name: str) -> None:
    while not (FOLDER / name).exists():  # noqa: ASYNC110 - another process makes it
        await asyncio.sleep(0.01)


async def call(ctx: JobContext[dict[str, str]]) -> None:
    """Of host `a`: five fail at once, which is more than one process has slots for; later ones hold on until it is up.
    Others do well."""
    host = ctx.data["host"]
    if host != "a":
        return
    if (FOLDER / "probing").exists():
        write("probes", ctx.job_id)
        await appears("up")
        return
    write("failing", os.getpid())
    while len((FOLDER / "failing").read_text().splitlines()) < 5:  # noqa: ASYNC110 - others write them
        await asyncio.sleep(0.01)
    raise ConnectionError("down")


async def wait(ctx: JobContext[None]) -> None:
    write("started", ctx.job_id)
    reason = await ctx.signal.wait()
    write("heard", f"{time.time()} {ctx.signal.kind} {reason}")
    ctx.raise_if_cancelled()


async def dies(ctx: JobContext[None]) -> None:
    """Remembers how far it is, then brings its process down, once."""
    write("dies", f"{ctx.last_checkpoint} {ctx.fence}")
    if ctx.last_checkpoint is None:
        await ctx.checkpoint({"done": 3})
        os.kill(os.getpid(), signal.SIGKILL)


app = App(URL)
app.queue("calls", {"call": call}, concurrency=4, retry=Retry(5), breaker=Breaker(pause=1, by=lambda d: d["host"]))
app.queue("waits", {"wait": wait}, retry=Retry(5))
app.queue("deaths", {"dies": dies}, lease=1, max_stalls=3)


def changed(event: WorkerEvent) -> None:
    detail: Any = event.detail
    write("breaker", f"{detail['key']} {detail['state']}")


app.on("breaker", changed)
app.on("snoozed", lambda event: write("put-off", event.job_id))

if __name__ == "__main__":
    write("up-and-running", os.getpid())
    asyncio.run(app.run())
