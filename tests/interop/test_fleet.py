"""Workers of both kinds on one queue, killed one after the other.

TORIL_INTEROP_KILLS says how many are killed; each kill brings 300 jobs more, so that 10 are the full run of 3,000.
"""

import asyncio
import os
import sys
from asyncio.subprocess import Process
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from tests.interop.node import Driver, Node, NodeEvents
from tests.interop.side import KEPT, Toril
from tests.proof import prove
from tests.servers import RedisServer
from toril import Queue

KILLS = int(os.environ.get("TORIL_INTEROP_KILLS", "2"))
BATCH = 300
LOCK, OFTEN = 1000, 50  # ms; how often one job may lose its worker
WALK: list[dict[str, Any]] = [{"log": "a step"}, {"sleep": 100}, {"progress": 50}, {"echo": True}]
PROGRAM = f"""
import asyncio, sys
from toril import App

app = App(sys.argv[1])

async def walk(ctx):
    await ctx.log("a step")
    await asyncio.sleep(0.1)
    await ctx.update_progress(50)
    return ctx.data

kept = {{"keep_completed": True, "keep_failed": True}}
app.queue("q", {{"walk": walk}}, concurrency=5, lease={LOCK / 1000}, max_stalls={OFTEN}, **kept)
asyncio.run(app.run())
"""


class Fleet:
    """Two workers of each kind, in a process each; who is killed is replaced."""

    def __init__(self, server: RedisServer, another_node: Callable[[], Driver]) -> None:
        self._url = server.url
        self._another_node = another_node
        self._nodes: list[Driver] = []
        self._torils: list[Process] = []

    async def start(self) -> None:
        for _ in range(2):
            await self._start_node()
            await self._start_toril()

    async def kill_one(self, turn: int) -> None:
        """The longest serving one, by turns of Node's and of Toril's."""
        if turn % 2 == 0:
            self._nodes.pop(0).kill()
            await self._start_node()
        else:
            await _end(self._torils.pop(0))
            await self._start_toril()

    async def end(self) -> None:
        for process in self._torils:
            await _end(process)

    async def _start_node(self) -> None:
        self._nodes.append(self._another_node())
        options = {"concurrency": 5, "lockDuration": LOCK, "stalledInterval": 500, "maxStalledCount": OFTEN}
        await Node(self._nodes[-1]).worker("q", {"walk": WALK}, **options)

    async def _start_toril(self) -> None:
        self._torils.append(await asyncio.create_subprocess_exec(sys.executable, "-c", PROGRAM, self._url))


async def _end(process: Process) -> None:
    process.kill()
    await process.wait()
    process._transport.close()  # type: ignore[attr-defined]


async def add_batch(node: Node, queue: Queue, first: int) -> None:
    """Jobs of all kinds, half of them added by each side."""
    numbers = range(first, first + BATCH)
    await queue.add_many([("walk", {"n": n}, {"delay": (n % 7 == 0) * 0.2}) for n in numbers if n % 2 == 0])
    bulk = [{"name": "walk", "data": {"n": n}, "opts": {"priority": n % 3}} for n in numbers if n % 2 == 1]
    await node.queue("q").call("addBulk", bulk)


async def times(events: NodeEvents, event: str) -> Counter[str]:
    return Counter(entry["jobId"] for entry in await events.seen(event=event))


@pytest.mark.covers("F78")
async def test_a_mixed_fleet_loses_nothing_when_some_of_it_dies(
    node: Node, toril: Toril, server: RedisServer, another_node: Callable[[], Driver]
) -> None:
    await node.redis("HSET", "bull:q:meta", "opts.maxLenEvents", 1_000_000)
    events, fleet = await node.events("q"), Fleet(server, another_node)
    await fleet.start()
    try:
        async with toril.queue("q", **KEPT) as queue:
            async with asyncio.timeout(60):
                while len(await queue.workers()) < 2:  # noqa: ASYNC110 - they are other processes
                    await asyncio.sleep(0.05)
            for turn in range(KILLS):
                await add_batch(node, queue, turn * BATCH)
                await events.until("completed", times=turn * BATCH + BATCH // 6, deadline=120)
                await fleet.kill_one(turn)
        completed = await events.until("completed", times=KILLS * BATCH, deadline=60 + 15 * KILLS)
    finally:
        await fleet.end()

    starts, stalls = await times(events, "active"), await times(events, "stalled")
    assert set((await node.queue("q").counts()).values()) == {0, KILLS * BATCH}
    assert sorted(entry["returnvalue"]["n"] for entry in completed) == list(range(KILLS * BATCH))
    assert max((await times(events, "completed")).values()) == 1
    assert {job: starts[job] - 1 for job in starts if starts[job] > 1} == dict(stalls)
    prove("T15", jobs=KILLS * BATCH, kills=KILLS, lost=0)
    assert len(stalls) > 0, "nobody was killed while it ran something"
