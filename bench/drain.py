"""No-op jobs through a whole worker process of Toril: one process, `app.run()`.

    python -m bench.drain URL [--jobs N] [--concurrency N]

Adds the jobs in bulk, then works them off, and prints one JSON object: seconds for adding, seconds from the first
handler to the last, and the processor time of working them off.
"""

import argparse
import asyncio
import json
import resource
import sys
from typing import Any

from toril import App, JobContext
from toril.clock import SYSTEM

DATA = {"user_id": 12345, "email": "someone@example.org", "text": "x" * 50}
QUEUE = "drain"


async def drain(url: str, jobs: int, concurrency: int) -> dict[str, float]:
    app = App(url)
    times: list[float] = []
    done = 0

    async def noop(_: JobContext[Any]) -> None:
        nonlocal done
        done += 1
        if done in (1, jobs):
            times.append(SYSTEM.monotonic())
        if done == jobs:
            app.stop()

    queue = app.queue(QUEUE, {"noop": noop}, concurrency=concurrency)
    async with app:
        began = SYSTEM.monotonic()
        await queue.add_many([("noop", DATA)] * jobs)
        added = SYSTEM.monotonic() - began
        before = _used()
        await app.run()
        used = _used() - before
        counts = await queue.counts()
    left = counts.waiting + counts.prioritized + counts.active + counts.delayed
    if left or done != jobs:
        sys.exit(f"{done} of {jobs} jobs ran, and {left} are left")
    return {"jobs": jobs, "add": added, "drain": times[-1] - times[0], "cpu": used}


def _used() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("url")
    parser.add_argument("--jobs", type=int, default=20_000)
    parser.add_argument("--concurrency", type=int, default=100)
    options = parser.parse_args()
    print(json.dumps(asyncio.run(drain(options.url, options.jobs, options.concurrency))))


if __name__ == "__main__":
    main()
