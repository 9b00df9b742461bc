"""How much of a rate is used, and whether it is ever exceeded.

    python -m bench.rate URL [--max 100] [--per 1] [--windows 10] [--processes 3] [--window sliding]

Jobs wait from the beginning; the processes are `app.run()` at concurrency 20. Judged by the times at which the store
handed the jobs out. `used` is the share of the rate from when the first window's worth has started, which may be at
once, to the end. `late` is by how many ms a start comes after the time at which the rate allowed it, in the mean.
`most` is the most starts within any sliding window, and `calls` how often the store was asked for jobs, a job. Prints
one JSON object.
"""

import argparse
import asyncio
import json
import statistics
import sys
from collections import deque
from collections.abc import Iterable
from typing import Any

from toril import App, JobContext, RateLimit
from toril.model import ms_of

QUEUE = "rate"


def made(url: str, options: argparse.Namespace) -> App:
    async def noop(ctx: JobContext[Any]) -> None:
        """A handler."""

    app = App(url)
    limit = RateLimit(options.max, options.per, options.window)
    app.queue(QUEUE, {"noop": noop}, concurrency=20, rate_limit=limit, keep_completed=True)
    return app


def most_within(starts: Iterable[int], ms: float) -> int:
    """The most starts within any window of this length."""
    window: deque[int] = deque()
    most = 0
    for start in sorted(starts):
        window.append(start)
        while window[0] <= start - ms:
            window.popleft()
        most = max(most, len(window))
    return most


async def measure(url: str, options: argparse.Namespace) -> dict[str, float]:
    jobs = options.max * (options.windows + 1)
    app = made(url, options)
    queue = app.queues[QUEUE]
    async with app:
        await queue.add_many([("noop", None)] * jobs)
        command = [sys.executable, "-m", "bench.rate", *sys.argv[1:], "--work"]
        children = [
            await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
            for _ in range(options.processes)
        ]
        while (await queue.counts()).completed < jobs:  # noqa: ASYNC110 - they run elsewhere
            await asyncio.sleep(0.5)
        starts: list[int] = []
        cursor = None
        while True:
            page = await queue.jobs("completed", cursor=cursor, limit=1000)
            starts += [ms_of(job.started_at) or 0 for job in page.items]
            cursor = page.cursor
            if cursor is None:
                break
    calls = 0
    for child in children:
        child.terminate()
        calls += int((await child.communicate())[0])
    starts.sort()
    taken = starts[-1] - starts[options.max - 1]
    late = [after - before - options.per * 1000 for before, after in zip(starts, starts[options.max :], strict=False)]
    return {
        "jobs": jobs,
        "seconds": taken / 1000,
        "used": round(options.windows * options.per * 1000 / taken, 4),
        "late": round(statistics.mean(late), 1),
        "most": most_within(starts, options.per * 1000),
        "calls": round(calls / jobs, 2),
    }


async def work(url: str, options: argparse.Namespace) -> None:
    app = made(url, options)
    calls = 0
    async with app:
        exchange = app.store.exchange

        async def counted(*args: Any, **named: Any) -> Any:
            nonlocal calls
            calls += args[2].want > 0
            return await exchange(*args, **named)

        app.store.exchange = counted  # type: ignore[method-assign]
        await app.run()
    print(calls)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("url")
    parser.add_argument("--max", type=int, default=100)
    parser.add_argument("--per", type=float, default=1.0)
    parser.add_argument("--windows", type=int, default=10)
    parser.add_argument("--processes", type=int, default=3)
    parser.add_argument("--window", default="sliding")
    parser.add_argument("--work", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work:
        asyncio.run(work(options.url, options))
    else:
        print(json.dumps(asyncio.run(measure(options.url, options))))


if __name__ == "__main__":
    main()
