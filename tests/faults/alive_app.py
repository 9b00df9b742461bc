"""An app for the tests of `toril run`: its handlers note what they do, and when, in a ledger outside of the store."""

import asyncio
import ctypes
import os
import socket
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from toril import App, JobContext, Retry

if Path(os.environ.get("ALIVE_BROKEN", "")).is_file():
    raise RuntimeError("the app does not load")

DURABILITY: Any = os.environ.get("ALIVE_DURABILITY")
app = App(dead_letter_queue=os.environ.get("ALIVE_LETTERS"), durability=DURABILITY)
LEASE = float(os.environ.get("ALIVE_LEASE", "30"))
LEDGER = Path(os.environ.get("ALIVE_LEDGER", os.devnull))
_leaked: list[bytes] = []
_ledger = os.open(LEDGER, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)


def note(word: str, job: str) -> None:
    """One line in one write: the word, the job, this process, and the time by a clock that all processes share."""
    os.write(_ledger, f"{word} {job} {os.getpid()} {time.monotonic():.4f}\n".encode())


async def hold(ctx: JobContext[float]) -> None:
    note("start", ctx.job_id)
    await asyncio.sleep(ctx.data)
    note("end", ctx.job_id)


async def once(ctx: JobContext[float]) -> None:
    """Long the first time, over at once when it runs again."""
    again = f"start {ctx.job_id} " in LEDGER.read_text()  # noqa: ASYNC240 - a line or two
    note("start", ctx.job_id)
    if not again:
        await asyncio.sleep(ctx.data)
    note("end", ctx.job_id)


async def hang(ctx: JobContext[float]) -> None:
    """Blocks the loop the first time, and is over at once when it runs again."""
    again = f"start {ctx.job_id} " in LEDGER.read_text()  # noqa: ASYNC240 - as above
    note("start", ctx.job_id)
    if not again:
        time.sleep(ctx.data)  # noqa: ASYNC251 - on purpose
    note("end", ctx.job_id)


async def busy(ctx: JobContext[float]) -> None:
    note("start", ctx.job_id)
    until = time.monotonic() + ctx.data
    while time.monotonic() < until:
        pass
    note("end", ctx.job_id)


async def deaf(ctx: JobContext[float]) -> None:
    """A call into C that does not let go of the interpreter."""
    note("start", ctx.job_id)
    ctypes.PyDLL(None).usleep(int(ctx.data * 1_000_000))
    note("end", ctx.job_id)


async def leak(ctx: JobContext[int]) -> None:
    """Memory that is never given back, in megabytes; and time for that to be seen."""
    note("start", ctx.job_id)
    _leaked.append(b"x" * (ctx.data << 20))
    await asyncio.sleep(1)
    note("end", ctx.job_id)


async def orphans(ctx: JobContext[int]) -> None:
    """Processes whose parent is gone before they are."""
    note("start", ctx.job_id)
    for _ in range(ctx.data):
        process = await asyncio.create_subprocess_exec("sh", "-c", "sleep 0.1 &")
        await process.wait()
    note("end", ctx.job_id)


async def mute(ctx: JobContext[float]) -> None:
    """Have the supervisor hear nothing more of this process, which goes on."""
    note("start", ctx.job_id)
    for entry in Path("/proc/self/fd").iterdir():  # noqa: ASYNC240 - as above
        with suppress(OSError), socket.socket(fileno=os.dup(int(entry.name))) as line:
            if line.family is socket.AF_UNIX and not line.getpeername():
                line.shutdown(socket.SHUT_WR)
    await asyncio.sleep(ctx.data)
    note("end", ctx.job_id)


async def deadly(ctx: JobContext[None]) -> None:
    note("start", ctx.job_id)
    await asyncio.sleep(0.2)
    os.kill(os.getpid(), 11)


q = app.queue(
    "q", [hold, once, hang, busy, deaf, leak, orphans, deadly, mute], lease=LEASE,
    concurrency=int(os.environ.get("ALIVE_CONCURRENCY", "2")),
    max_stalls=int(os.environ.get("ALIVE_STALLS", "1")), retry=Retry(attempts=1), keep_failed=1000,
)  # fmt: skip
if second := os.environ.get("ALIVE_SECOND"):

    async def hold_there(ctx: JobContext[float]) -> None:
        note("start", f"{second}:{ctx.job_id}")
        await asyncio.sleep(ctx.data)
        note("end", f"{second}:{ctx.job_id}")

    app.queue(second, {"hold": hold_there}, lease=LEASE)

if "ALIVE_POLLER" in os.environ:

    @app.poller
    async def inbox() -> None:
        """Dies for as long as there is a file of that name."""
        if Path(os.environ["ALIVE_POLLER"]).exists():  # noqa: ASYNC240 - a look
            raise OSError("the line is cut")
        await asyncio.Event().wait()
