"""`redis-server` killed with -9 under load, its log synced on every write: nothing that was acknowledged is lost."""

import asyncio
import os
from collections import Counter
from collections.abc import Callable

import pytest

from tests.servers import RedisServer
from toril import App, JobContext

ROUNDS = int(os.environ.get("TORIL_FAULT_ROUNDS", "0")) // 10 or 3


async def until(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not true():  # noqa: ASYNC110 - what is waited for has no event
            await asyncio.sleep(0.01)


@pytest.mark.covers("F43", "F70")
async def test_nothing_acknowledged_is_lost_when_the_server_is_killed() -> None:
    server = RedisServer("--appendonly", "yes", "--appendfsync", "always", "--save", "").start()
    loop = asyncio.get_running_loop()
    app, ran, acknowledged, producing = App(server.url), Counter[int](), set[int](), True

    async def handler(ctx: JobContext[int]) -> None:
        ran[ctx.data] += 1

    queue = app.queue("q", {"n": handler}, concurrency=50)

    async def produce(lane: int) -> None:
        number = lane
        while producing:
            await queue.add("n", number)
            acknowledged.add(number)
            number += 4

    try:
        async with app:
            working = asyncio.create_task(app.run())
            lanes = [asyncio.create_task(produce(lane)) for lane in range(4)]
            for _ in range(ROUNDS):
                before = len(acknowledged)
                await until(lambda before=before: len(acknowledged) >= before + 40)  # type: ignore[misc]
                await loop.run_in_executor(None, server.kill)
                await loop.run_in_executor(None, server.start)
            producing = False
            await asyncio.gather(*lanes)
            await until(lambda: not acknowledged - ran.keys())
            app.stop()
            assert await working == 0
            counts = await queue.counts()
    finally:
        server.stop()

    assert (counts.waiting, counts.active, counts.delayed) == (0, 0, 0)
    assert len(acknowledged) >= 40 * ROUNDS
    assert sum(ran.values()) - len(ran) <= 50 * ROUNDS  # a kill costs the runs that were under way, at most
