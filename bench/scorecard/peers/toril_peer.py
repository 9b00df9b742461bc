"""Toril, as the others are: plain jobs, short leases."""

import asyncio
from typing import Any

from bench.scorecard.common import URL, add_all, ended, main, started
from toril import App, JobContext

app = App(URL)


async def do(ctx: JobContext[dict[str, Any]]) -> None:
    await asyncio.sleep(started(ctx.data))
    ended(ctx.data)


queue = app.queue("scorecard", [do], concurrency=8, lease=2, max_stalls=1000)


async def produce() -> None:
    async with app:
        await add_all(lambda data: queue.add(do, data))


def work(_: int) -> None:
    asyncio.run(app.run())


if __name__ == "__main__":
    main(produce, work)
