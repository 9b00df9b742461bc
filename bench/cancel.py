"""How soon a running job sees that another process cancels it.

    python -m bench.cancel [--times N] [--pause SECONDS] [URL …]

The worker is a process of its own, `app.run()` with its defaults; one job at a time waits for its signal and writes
down when it came. Both processes read the machine's monotonic clock. Without a URL: a SQLite file and a Redis server
of its own. Prints one JSON object with milliseconds for each engine.
"""

import argparse
import asyncio
import json
import random
import statistics
import sys
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path

from tests.servers import RedisServer

from toril import App, JobCancelled, JobContext
from toril.runtime.clock import SYSTEM

QUEUE = "cancel"


async def wait(ctx: JobContext[None]) -> None:
    """Tell on the lines of a pipe when it began, and when it was told to stop."""
    print(json.dumps({"started": ctx.job_id}), flush=True)
    await ctx.signal.wait()
    print(json.dumps({"heard": SYSTEM.monotonic()}), flush=True)
    ctx.raise_if_cancelled()


async def work(url: str) -> None:
    app = App(url)
    app.queue(QUEUE, {"wait": wait})
    await app.run()


async def measure(url: str, times: int, pause: float) -> dict[str, object]:
    command = [sys.executable, "-m", "bench.cancel", "--work", url]
    child = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    assert child.stdout is not None
    try:
        found = await cancels(url, times, pause, child.stdout.readline)
    finally:
        if child.returncode is None:
            child.kill()
        await child.wait()
    return {"engine": url.partition(":")[0], **figures(found)}


async def cancels(url: str, times: int, pause: float, line: Callable[[], Awaitable[bytes]]) -> list[float]:
    """Seconds from the call of each cancel to the handler's signal."""
    found = []
    async with App(url) as app:
        queue = app.queue(QUEUE)
        for _ in range(times):
            job = await queue.add("wait")
            assert json.loads(await line()) == {"started": job.id}
            await SYSTEM.sleep(pause * random.random())  # so that it falls anywhere between two looks
            asked = SYSTEM.monotonic()
            await job.cancel("measured")
            found.append(json.loads(await line())["heard"] - asked)
            try:
                await job.result(30)
            except JobCancelled:
                continue
            raise RuntimeError(f"job {job.id} did not end as cancelled")
    return found


def figures(seconds: list[float]) -> dict[str, float]:
    """What is told of such times."""
    told = {"p50": statistics.median(seconds), "worst": max(seconds)}
    return {"cancels": len(seconds), **{name: round(value * 1000, 1) for name, value in told.items()}}


async def main(options: argparse.Namespace) -> None:
    with tempfile.TemporaryDirectory() as folder:
        server = None if options.url else RedisServer().start()
        try:
            own = [] if server is None else [f"sqlite:///{Path(folder, 'bench.db')}", server.url]
            for url in options.url or own:
                print(json.dumps(await measure(url, options.times, options.pause)), flush=True)
        finally:
            if server is not None:
                server.stop()


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("url", nargs="*")
    parser.add_argument("--times", type=int, default=20)
    parser.add_argument("--pause", type=float, default=1.0, help="seconds at most between a start and its cancel")
    parser.add_argument("--work", metavar="URL", help=argparse.SUPPRESS)
    return parser.parse_args()


if __name__ == "__main__":
    chosen = arguments()
    asyncio.run(work(chosen.work) if chosen.work else main(chosen))
