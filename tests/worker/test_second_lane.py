"""The second exchange of a loop, beside the first: what becomes of it when the worker is to stop."""

import asyncio
from collections.abc import Callable
from typing import Any, cast

import pytest

from toril.errors import EngineUnavailable, EngineUnusable
from toril.model import Claim, Claimed, Completed, Exchange, Lease, Limits, Settlement, Verdict
from toril.store.engine import Engine
from toril.testing import ManualClock
from toril.worker.loop import ClaimTerms, Loop

SLOTS = 16
SOON = 60  # seconds, for what does not end if it is wrong


class Held:
    """A store that has enough jobs, and whose answers to what is handed in are given by the test."""

    def __init__(self) -> None:
        self.calls: asyncio.Queue[tuple[list[Settlement], Claim, asyncio.Future[Exchange]]] = asyncio.Queue()

    async def exchange(self, _queue: str, batch: list[Settlement], claim: Claim, **_: Any) -> Exchange:
        if not batch:
            leases = [Lease("q", str(number), claim.token) for number in range(claim.want)]
            jobs = tuple(Claimed(each, "n", "1", 1, 1, 1, 0, 0, 0, 0, 0, None, None) for each in leases)
            return Exchange((), jobs, 0)
        answer: asyncio.Future[Exchange] = asyncio.get_running_loop().create_future()
        self.calls.put_nowait((batch, claim, answer))
        return await answer


class Running:
    """The jobs that run, which end when the test says so."""

    def __init__(self) -> None:
        self.jobs: list[Claimed] = []
        self.all_began = asyncio.Event()

    def free(self) -> int:
        return SLOTS - len(self.jobs)

    def idle(self) -> bool:
        return not self.jobs

    def start(self, job: Claimed, _asked_at: float) -> None:
        self.jobs.append(job)
        if not self.free():
            self.all_began.set()

    def end(self, count: int) -> list[Settlement]:
        ended, self.jobs = self.jobs[:count], self.jobs[count:]
        return [Settlement(job.lease, Completed("1")) for job in ended]

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *_, **__: None


async def both_lanes() -> tuple[Loop, Held, "asyncio.Task[None]", list[Any]]:
    """A loop with an exchange under way on each lane, nothing running, and told to stop."""
    store, slots = Held(), Running()
    terms = ClaimTerms(queue="q", worker="w", concurrency=SLOTS, lease=30_000, max_stalls=1, limits=Limits())
    loop = Loop(terms, cast("Engine", store), ManualClock(), cast("Any", slots), lambda _: None)
    running = asyncio.create_task(loop.run())
    await slots.all_began.wait()
    calls = []
    for _ in range(2):
        for settlement in slots.end(SLOTS // 2):
            loop.settle(settlement)
        calls.append(await store.calls.get())
    return loop, store, running, calls


def answered(call: Any) -> None:
    batch, _, answer = call
    answer.set_result(Exchange((Verdict.OK,) * len(batch), (), 0))


async def test_a_refusal_of_the_second_is_told_although_the_worker_is_to_stop() -> None:
    loop, _, running, (first, second) = await both_lanes()
    loop.stop()
    answered(first)
    second[2].set_exception(EngineUnusable("it has no room for answers"))

    async with asyncio.timeout(SOON):
        with pytest.raises(EngineUnusable, match="no room for answers"):
            await running


async def test_a_stop_wakes_both_where_the_store_is_away() -> None:
    loop, store, running, calls = await both_lanes()
    for _, _, answer in calls:
        answer.set_exception(EngineUnavailable("away"))
    await asyncio.sleep(0)
    await asyncio.sleep(0)

    loop.stop()  # no time passes here: who is not woken sleeps on

    async with asyncio.timeout(SOON):
        for _ in calls:
            answered(await store.calls.get())
        await running
