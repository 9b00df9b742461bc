"""What groups cost: the same no-op jobs without groups, in many, in one, and each in one of its own.

    python -m bench.groups URL [--jobs N] [--concurrency N] [--groups N]

Prints one JSON object a shape: seconds for adding, and from the first handler to the last. The store must be empty.
"""

import argparse
import asyncio
import json
import sys
from typing import Any

from toril import App, JobContext
from toril.runtime.clock import SYSTEM


async def drain(url: str, jobs: int, concurrency: int, groups: int) -> dict[str, Any]:
    app, times, done = App(url), [], 0

    async def noop(_: JobContext[Any]) -> None:
        nonlocal done
        done += 1
        if done in (1, jobs):
            times.append(SYSTEM.monotonic())
        if done == jobs:
            app.stop()

    queue = app.queue(f"groups-{groups}", {"noop": noop}, concurrency=concurrency)
    async with app:
        began = SYSTEM.monotonic()
        options = [{"group": f"g{n}"} for n in range(groups)] or [{}]
        await queue.add_many(("noop", n, options[n % len(options)]) for n in range(jobs))
        added = SYSTEM.monotonic() - began
        await app.run()
    if done != jobs:
        sys.exit(f"{done} of {jobs} jobs ran")
    return {"groups": groups, "jobs": jobs, "add": round(added, 2), "drain": round(times[-1] - times[0], 2)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("url")
    parser.add_argument("--jobs", type=int, default=100_000)
    parser.add_argument("--concurrency", type=int, default=100)
    parser.add_argument("--groups", type=int, default=1_000)
    options = parser.parse_args()
    for groups in (0, options.groups, 1, options.jobs):
        print(json.dumps(asyncio.run(drain(options.url, options.jobs, options.concurrency, groups))), flush=True)


if __name__ == "__main__":
    main()
