"""How soon a job of another process starts to run: from the call that adds it to the first line of its handler.

    python -m bench.latency URL [--jobs N]

One job at a time, with a pause of 5 to 20 ms between them; the worker is `app.run()` at concurrency 10. Both processes
read the machine's monotonic clock. Prints one JSON object with milliseconds.
"""

import argparse
import asyncio
import json
import random
import statistics
import sys
from typing import Any

from toril import App, JobContext
from toril.clock import SYSTEM

QUEUE = "latency"


async def measure(url: str, jobs: int) -> dict[str, float]:
    app = App(url)
    found: list[float] = []

    async def noop(ctx: JobContext[Any]) -> None:
        found.append(SYSTEM.monotonic() - ctx.data["at"])
        if len(found) == jobs:
            app.stop()

    app.queue(QUEUE, {"noop": noop}, concurrency=10)
    command = [sys.executable, "-m", "bench.latency", url, "--jobs", str(jobs), "--produce"]
    child = await asyncio.create_subprocess_exec(*command)
    await app.run()
    await child.wait()
    return figures(found)


def figures(seconds: list[float]) -> dict[str, float]:
    """What is told of such times."""
    ordered = sorted(seconds)
    p99 = ordered[min(len(ordered) - 1, round(len(ordered) * 0.99))]
    return {"jobs": len(ordered), "p50": statistics.median(ordered) * 1000, "p99": p99 * 1000}


async def produce(url: str, jobs: int) -> None:
    app = App(url)
    queue = app.queue(QUEUE)
    async with app:
        await SYSTEM.sleep(1)  # the worker is there before the first job
        for _ in range(jobs):
            await queue.add("noop", {"at": SYSTEM.monotonic()})
            await SYSTEM.sleep(random.uniform(0.005, 0.02))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("url")
    parser.add_argument("--jobs", type=int, default=500)
    parser.add_argument("--produce", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.produce:
        asyncio.run(produce(options.url, options.jobs))
    else:
        print(json.dumps(asyncio.run(measure(options.url, options.jobs))))


if __name__ == "__main__":
    main()
