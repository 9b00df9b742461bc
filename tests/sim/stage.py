"""A small world for one scenario at a time: calm weather, but for the one call that the test has chosen."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from contextvars import Context
from dataclasses import dataclass
from typing import Any

from tests.sim.checker import check
from tests.sim.clock import SimClock, stream
from tests.sim.faults import CALM, Fate, Weather
from tests.sim.journal import Journal
from tests.sim.link import Link
from tests.sim.loop import until
from tests.sim.node import Node
from tests.sim.plan import QUEUE, Terms
from tests.sim.sim_worker import SimWorker
from tests.sim.store import MemoryStore, SimStore
from tests.sim.wire import Wire
from tests.sim.witness import Witness
from toril.model import Resume, RunStatus
from toril.model.states import State
from toril.runtime.clock import Clock
from toril.store.engine import Store

__all__ = ["LEASE", "SUBJECT", "OneFault", "Process", "Stage", "picture", "staged"]

LEASE = 60_000
SUBJECT = "subject"


class OneFault:
    """Calm, but for one call of the process under test."""

    patience = 0.1

    def __init__(self, at: int = -1, fate: Fate = CALM) -> None:
        self.calls: list[str] = []
        self._at = at
        self._fate = fate

    def fate(self, node: str, what: str) -> Fate:
        if node != SUBJECT:
            return CALM
        self.calls.append(what)
        return self._fate if len(self.calls) - 1 == self._at else CALM


@dataclass(frozen=True, slots=True)
class Process:
    """What a simulated process works with."""

    node: Node
    engine: Link
    clock: SimClock
    journal: Journal


class Stage:
    """Store, witness and processes of one scenario. The store is looked into after every effect."""

    def __init__(self, weather: Weather, store: Callable[[Clock], SimStore]) -> None:
        self.weather = weather
        self.journal = Journal()
        self.clock = SimClock(stream(0, "store"))
        self.store = store(self.clock)
        self.witness = Witness(self.journal, self.store, self.clock)
        self.group = asyncio.TaskGroup()

    def process(self, name: str = SUBJECT) -> Process:
        node = Node(name)
        return Process(node, self._link(node), SimClock(stream(0, name), name=name, node=node), self.journal)

    def _link(self, node: Node) -> Link:
        return Link(node.name, Wire(node, self.store, self.weather, self.witness, self._spawn), self.witness)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        return self.group.create_task(work, context=Context())

    def work(self, process: Process, terms: Terms) -> SimWorker:
        """Have it be a worker from now on."""
        node = process.node
        worker = SimWorker(node, process.engine, self._link(node), process.clock, terms, self.witness.conduct)
        self.start(process, worker.run())
        return worker

    def start(self, process: Process, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = self.group.create_task(work, context=process.node.main.context())
        process.node.root = task
        return task

    async def run(self, process: Process, work: Coroutine[Any, Any, None]) -> bool:
        """Until it is done, or its process has died on the way. Whether it was done."""
        await asyncio.wait({self.start(process, work)})
        self._check()
        return not process.node.dead

    async def take_over(self, *, lease: int = LEASE, name: str = "heir") -> None:
        """Fresh processes finish what is left, however long that takes."""
        heir = self.process(name)
        await heir.engine.configure(QUEUE, [Resume()])
        self.work(heir, Terms(slots=2, lease=lease))
        await until(lambda: bool(self.journal.violations) or not self.unfinished(), 5 * LEASE / 1000)
        heir.node.kill()

    def unfinished(self) -> list[str]:
        return [entry.id for entry in self.witness.ledger.entries if entry.open]

    async def judge(self) -> None:
        """Nothing is open, lost, unexpected, finished twice or unexplained, and no invariant is broken."""
        await check(self.journal, self.witness, self.store.view(), QUEUE)
        self._check()
        assert self.unfinished() == []

    def _check(self) -> None:
        assert self.journal.violations == [], "\n".join([*map(str, self.journal.violations), *self.journal.tail])


@asynccontextmanager
async def staged(
    weather: Weather | None = None, store: Callable[[Clock], SimStore] = MemoryStore
) -> AsyncIterator[Stage]:
    """A stage that is set up before and cleared away after."""
    stage = Stage(weather or OneFault(), store)
    await stage.store.open()
    try:
        async with stage.group:
            yield stage
    finally:
        await stage.store.close()


async def picture(store: Store) -> list[object]:
    """All that the store tells of its jobs, but for times: pages, run records and events, in their order."""
    seen: list[object] = []
    for state in State:
        for job in (await store.page(QUEUE, state, limit=1000)).items:
            kept = (job.attempts_made, job.stalls, job.fence, job.priority, job.progress, job.checkpoint, job.result)
            seen.append((state, job.id, job.data, kept, job.failure, job.cancelling, job.stall_cause))
    for ending in RunStatus:
        runs = (await store.runs(QUEUE, ending, limit=1000)).items
        seen += [(run.id, run.cause, run.attempts_made, run.stalls, run.text) for run in runs]
    letters = (await store.dead_letters.page(limit=1000)).items
    seen += [(each.id, each.data, each.attempts_made, each.stalls, each.failure, each.checkpoint) for each in letters]
    seen += [(event.kind, event.job_id) for event in (await store.events(QUEUE, limit=1000)).items]
    return seen
