"""Who else is at work on the queue: producers, a reaper, and an operator who presses buttons."""

import random
from collections.abc import Awaitable, Sequence
from functools import partial

from tests.sim.client import Caller
from tests.sim.journal import Journal
from tests.sim.script import draw_job, script_of
from toril.clock import Clock
from toril.engine import Engine
from toril.errors import EngineUnavailable
from toril.model import Added, AddOutcome, Call, Lease, NewJob, Pause, Resume, SetDelay, SetPriority
from toril.states import State

__all__ = ["Operator", "Orders", "Producer", "Reaper"]


class Orders:
    """The batches that one producer has still to add; they outlive its process."""

    def __init__(self, chance: random.Random, name: str, *, jobs: int, lease: int) -> None:
        self._chance = chance
        self._name = name
        self._left = jobs
        self._lease = lease
        self._drawn = 0
        self._out = False

    @property
    def done(self) -> bool:
        return self._left <= 0 and not self._out

    def take(self) -> list[NewJob]:
        """The next batch, if there is one. The one before it has been stored, or given up."""
        size = min(self._left, self._chance.randint(1, 6))
        self._left -= size
        self._out = size > 0
        return [self._draw() for _ in range(size)]

    def _draw(self) -> NewJob:
        self._drawn += 1
        # Few chosen ids for many jobs: some are taken, some are free again.
        chosen = f"order-{self._chance.randint(1, 9)}" if self._chance.random() < 0.2 else None
        return draw_job(self._chance, f"{self._name}-{self._drawn}", lease=self._lease, job_id=chosen)


class Producer:
    """Adds its orders, batch by batch."""

    def __init__(self, name: str, queue: str, engine: Engine, clock: Clock, orders: Orders, journal: Journal) -> None:
        self._queue = queue
        self._engine = engine
        self._clock = clock
        self._orders = orders
        self._journal = journal
        self._adds = Caller(f"{name}.a", clock, tries=3)

    async def run(self) -> None:
        while jobs := self._orders.take():
            await self._clock.sleep(self._clock.random() * 0.6)
            nonces = [script_of(job.data).nonce for job in jobs]
            self._journal.attempted.update(dict.fromkeys(nonces))
            answers = await self._adds.make(partial(self._add, jobs))
            if answers is None:
                self._journal.tally["add given up"] += 1
                continue
            for nonce, answer in zip(nonces, answers, strict=True):
                if answer.outcome is AddOutcome.ADDED:
                    self._journal.acknowledged[nonce] = answer.id

    def _add(self, jobs: list[NewJob], call: Call) -> Awaitable[list[Added]]:
        return self._engine.add(self._queue, jobs, call=call)


class Reaper:
    """Takes back what ran out, every `interval` ms or when the next lease runs out."""

    def __init__(self, queue: str, engine: Engine, clock: Clock, interval: int) -> None:
        self._queue = queue
        self._engine = engine
        self._clock = clock
        self._interval = interval

    async def run(self) -> None:
        while True:
            next_deadline = await self.take_back()
            rest = self._interval
            if next_deadline is not None:
                rest = min(rest, max(next_deadline - self._clock.now() + 1, self._interval // 4))
            await self._clock.sleep(rest / 1000)

    async def take_back(self, dead: Sequence[Lease] = (), cause: str | None = None) -> int | None:
        """One round. A lost one is made up for by the next."""
        try:
            return (await self._engine.recover(self._queue, dead=dead, cause=cause)).next_deadline
        except EngineUnavailable:
            return None


class Operator:
    """Does something to some jobs, now and then, without looking first."""

    def __init__(self, name: str, queue: str, engine: Engine, clock: Clock, journal: Journal) -> None:
        self._queue = queue
        self._engine = engine
        self._clock = clock
        self._journal = journal
        self._controls = Caller(f"{name}.c", clock, tries=4)

    async def run(self) -> None:
        while True:
            await self._clock.sleep(self._clock.random() * 1.0)
            known = list(self._journal.acknowledged.values())
            if known:
                await self._act([known[int(self._clock.random() * len(known))] for _ in range(2)])

    async def _act(self, ids: list[str]) -> None:
        engine, queue, make = self._engine, self._queue, self._controls.make
        match int(self._clock.random() * 10):
            case 0 | 1:
                await make(lambda call: engine.retry(queue, ids, call=call))
            case 2:
                await make(lambda call: engine.promote(queue, ids, call=call))
            case 3 | 4:
                await make(lambda call: engine.cancel(queue, ids, reason="operator", call=call))
            case 5:
                await make(lambda call: engine.remove(queue, ids, call=call))
            case 6:
                changes = (SetPriority(ids[0], 2), SetDelay(ids[1], 300))
                await make(lambda call: engine.update(queue, changes, call=call))
            case 7:
                swept = frozenset({State.DELAYED})
                await make(lambda call: engine.drain(queue, states=swept, limit=1, call=call))
            case 8:
                await make(lambda call: engine.clean(queue, state=State.FAILED, grace=0, limit=1, call=call))
            case _:
                await self._hold_up()

    async def _hold_up(self) -> None:
        """Pause the queue for a moment; at the end of the faults somebody resumes it for good."""
        for setting in (Pause(), Resume()):
            try:
                await self._engine.configure(self._queue, [setting])
            except EngineUnavailable:
                continue
            await self._clock.sleep(0.2)
