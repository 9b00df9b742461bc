"""Who else is at work on the queue: producers, a supervisor, and an operator who presses buttons."""

import random
from collections.abc import Mapping
from typing import Any

from tests.sim.journal import Journal
from tests.sim.link import Link
from tests.sim.plan import QUEUE
from tests.sim.script import Kind, Order, draw_order
from toril.errors import EngineUnavailable
from toril.job import Job
from toril.model import Pause, Replay, Resume, SetDelay, SetPriority
from toril.model.states import State
from toril.queue import Queue
from toril.runtime.calls import Caller
from toril.runtime.clock import Clock
from toril.store.engine import Engine

__all__ = ["Clerk", "Operator", "Orders", "Producer"]


class Orders:
    """The batches that one producer has still to add; they outlive its process."""

    def __init__(
        self, chance: random.Random, name: str, weights: Mapping[Kind, float], *, jobs: int, lease: int,
        grouped: bool = False,
    ) -> None:  # fmt: skip
        self._chance = chance
        self._name = name
        self._weights = weights
        self._left = jobs
        self._lease = lease
        self._grouped = grouped
        self._drawn = 0
        self._out = False

    @property
    def done(self) -> bool:
        return self._left <= 0 and not self._out

    def take(self) -> list[Order]:
        """The next batch, if there is one. The one before it has been stored, or given up."""
        size = min(self._left, self._chance.randint(1, 6))
        self._left -= size
        self._out = size > 0
        return [self._draw() for _ in range(size)]

    def _draw(self) -> Order:
        self._drawn += 1
        # Few chosen ids for many jobs: some are taken, some are free again.
        chosen = f"order-{self._chance.randint(1, 9)}" if self._chance.random() < 0.2 else None
        nonce = f"{self._name}-{self._drawn}"
        order = draw_order(self._chance, nonce, self._weights, lease=self._lease, job_id=chosen)
        if self._grouped:
            order.options.update({"priority": 0, "lifo": False, "group": f"tenant:{self._chance.randint(1, 3)}"})
        return order


class Producer:
    """Adds its orders to the queue, batch by batch."""

    def __init__(self, queue: Queue, clock: Clock, orders: Orders, journal: Journal) -> None:
        self._queue = queue
        self._clock = clock
        self._orders = orders
        self._journal = journal

    async def run(self) -> None:
        while orders := self._orders.take():
            await self._clock.sleep(self._clock.random() * 0.6)
            self._journal.attempted.update(dict.fromkeys(order.script.nonce for order in orders))
            try:
                jobs = await self._add(orders)
            except EngineUnavailable:
                self._journal.tally["add given up"] += 1
                continue
            for order, job in zip(orders, jobs, strict=True):
                if job.added:
                    self._journal.acknowledged[order.script.nonce] = job.id

    async def _add(self, orders: list[Order]) -> list[Job[Any]]:
        if len(orders) == 1:
            (order,) = orders
            return [await self._queue.add(order.script.name, order.script.fields, **order.options)]
        return await self._queue.add_many(
            [self._queue.new(order.script.name, order.script.fields, **order.options) for order in orders]
        )


class Clerk:
    """Looks through the dead letters now and then, and has some of them run again or thrown away."""

    def __init__(self, name: str, engine: Link, clock: Clock, journal: Journal) -> None:
        self._engine = engine
        self._clock = clock
        self._journal = journal
        self._caller = Caller(f"{name}/letters", clock, patience=1.0)

    async def run(self) -> None:
        while True:
            await self._clock.sleep(self._clock.random() * 0.8)
            try:
                await self._act()
            except EngineUnavailable:
                self._journal.tally["replay given up"] += 1

    async def _act(self) -> None:
        engine, letters = self._engine, (await self._engine.dead_letters.page(limit=3)).items
        ids = [letter.id for letter in letters] + [f"{QUEUE}/no such"]
        if self._clock.random() < 0.2:
            await self._caller.send(lambda call: engine.dead_letters.discard(ids[-2:], call=call))
        else:
            replays = [Replay(each) for each in ids]
            await self._caller.send(lambda call: engine.dead_letters.replay(QUEUE, replays, call=call))


class Operator:
    """Does something to some jobs, now and then, without looking first."""

    def __init__(
        self, name: str, engine: Engine, clock: Clock, journal: Journal, *, top: int = 2, impatient: bool = False
    ) -> None:
        self._top = top  # priority that it gives to jobs
        self._impatient = impatient  # cancels more than anything else, and often
        self._engine = engine
        self._clock = clock
        self._journal = journal
        self._caller = Caller(f"{name}/controls", clock, patience=1.0)

    async def run(self) -> None:
        while True:
            await self._clock.sleep(self._clock.random() * (0.2 if self._impatient else 0.8))
            known = list(self._journal.acknowledged.values())
            if not known:
                continue
            try:
                await self._act([self._one_of(known), self._one_of(known[-5:])])
            except EngineUnavailable:
                self._journal.tally["control given up"] += 1

    def _one_of(self, known: list[str]) -> str:
        return known[int(self._clock.random() * len(known))]

    async def _act(self, ids: list[str]) -> None:
        engine, send = self._engine, self._caller.send
        match int(self._clock.random() * 10):
            case _ if self._impatient and self._clock.random() < 0.7:
                await send(lambda call: engine.cancel(QUEUE, ids, reason="operator", call=call))
            case 0 | 1:
                await send(lambda call: engine.retry(QUEUE, ids, call=call))
            case 2:
                await send(lambda call: engine.promote(QUEUE, ids, call=call))
            case 3 | 4:
                await send(lambda call: engine.cancel(QUEUE, ids, reason="operator", call=call))
            case 5:
                await send(lambda call: engine.remove(QUEUE, ids, call=call))
            case 6:
                changes = (SetPriority(ids[0], self._top), SetDelay(ids[1], 300))
                await send(lambda call: engine.update(QUEUE, changes, call=call))
            case 7:
                swept = frozenset({State.DELAYED})
                await send(lambda call: engine.drain(QUEUE, states=swept, limit=1, call=call))
            case 8:
                await send(lambda call: engine.clean(QUEUE, state=State.FAILED, grace=0, limit=1, call=call))
            case _:
                await self._hold_up()

    async def _hold_up(self) -> None:
        """Pause the queue for a moment; at the end of the faults somebody resumes it for good."""
        for setting in (Pause(), Resume()):
            await self._caller.send(lambda call, to=setting: self._engine.configure(QUEUE, [to], call=call))  # type: ignore[misc]
            await self._clock.sleep(0.2)
