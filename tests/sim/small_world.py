"""What the smaller worlds share: a fleet on the real workers, a producer and a meddler, under the same faults.

They stand beside `world`, whose checks follow each single job: here the rules are about what the jobs come to. A world
says which queues there are, what is added, what is meddled with, and what must hold when all is over.
"""

import asyncio
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from contextvars import Context
from typing import Any, ClassVar, Final

from tests.sim.chaos import Chaos
from tests.sim.clock import SimClock, stream
from tests.sim.faults import Storm, Weather
from tests.sim.journal import Journal
from tests.sim.loop import until
from tests.sim.node import Node
from tests.sim.plan import SmallPlan
from tests.sim.remote_store import RemoteStore, Watch
from tests.sim.sim_worker import ApartKeeper, SimServices
from tests.sim.store import SimStore
from toril.errors import EngineUnavailable
from toril.events import Events
from toril.queue import Queue, QueueOptions
from toril.runtime.clock import Clock
from toril.runtime.hooks import Hooks
from toril.worker.process import WorkerProcess

__all__ = ["SmallWorld"]

_RESTART: Final = 0.15  # seconds until a killed process is started again


class SmallWorld(ABC):
    """The fleet, and who adds and meddles."""

    adds_within: ClassVar[float] = 0.5  # seconds between two adds, at most
    meddles_within: ClassVar[float] = 0.6
    refusals: ClassVar[tuple[type[Exception], ...]] = (EngineUnavailable,)  # what a meddler may be answered

    def __init__(
        self,
        plan: SmallPlan,
        store: Callable[[Clock], SimStore],
        *,
        trace: bool = False,
        watch: Callable[[Journal, SimStore, Clock], Watch] = Watch,
    ) -> None:
        self.plan = plan
        self.journal = Journal(lines=[] if trace else None)
        clock = self.store_clock = SimClock(stream(plan.seed, "store"))
        self.clocks: dict[str, SimClock] = {}
        self.store = store(clock)
        self.witness = watch(self.journal, self.store, clock)
        self.storm = Storm(stream(plan.seed, "calls"), plan.mix, patience=plan.patience, lateness=self._lateness)
        self.nodes: dict[str, Node] = {}
        self._weather: Weather = self.storm
        self._births: Counter[str] = Counter()
        self._tasks: list[asyncio.Task[None]] = []
        self._group = asyncio.TaskGroup()
        self._added = 0
        self._calm = False
        self._closing = False

    # what a world is

    @abstractmethod
    def _queues(self, store: RemoteStore, clock: SimClock) -> list[Queue]:
        """The queues as a process of this world declares them."""

    async def _boot(self, store: RemoteStore, queues: Sequence[Queue]) -> None:  # noqa: B027 - most need none
        """What a worker does before it works."""

    @abstractmethod
    async def _add(self, clock: SimClock, queues: Sequence[Queue]) -> None:
        """One thing that the producer adds."""

    @abstractmethod
    async def _meddle(self, clock: SimClock, queues: Sequence[Queue]) -> None:
        """One thing that somebody does by hand."""

    @abstractmethod
    async def _finish(self) -> None:
        """The faults are over, and what was on its way has arrived: wait until all is done that must be."""

    @abstractmethod
    async def _check(self) -> None:
        """All have stopped: what must hold now."""

    # one run

    @property
    def _lateness(self) -> float:
        return self.plan.terms.lease / 1000

    async def run(self) -> None:
        await self.store.open()
        async with self._group:
            try:
                await self._live()
            finally:
                self._closing = True
                for node in self.nodes.values():
                    node.kill()
                for task in self._tasks:
                    task.cancel()
        await self.store.close()

    async def _live(self) -> None:
        plan = self.plan
        for n in range(plan.workers):
            self._start(self._keep_alive(f"w{n}", self._work))
        self._start(self._keep_alive("p0", self._produce))
        if plan.meddler:
            self._start(self._keep_alive("op", self._meddle_on))
        chaos = Chaos(self)  # type: ignore[arg-type]
        for work in chaos.works():
            self._start(work)
        await until(self._is_broken, plan.storm)
        await until(lambda: self._is_broken() or self._added >= plan.tasks, 2 * plan.storm)
        await chaos.end()
        self._calm = True
        for name in ("op", "p0"):
            if name in self.nodes:
                self.nodes[name].kill()
        await until(self._is_broken, 2 * self._lateness + 1)  # for what is on its way
        await self._finish()
        self._closing = True
        for node in self.nodes.values():
            if node.stop is not None and not node.dead:
                node.stopping = True
                node.stop()
        await until(lambda: all(node.dead or node.over for node in self.nodes.values()), 30)
        if not self._is_broken():
            await self._check()

    def _is_broken(self) -> bool:
        return bool(self.journal.violations)

    # processes

    def _start(self, work: Coroutine[Any, Any, None], context: Context | None = None) -> asyncio.Task[None]:
        task = self._group.create_task(work, context=context)
        self._tasks.append(task)
        return task

    async def _keep_alive(self, name: str, work: Callable[[Node], Coroutine[Any, Any, None]]) -> None:
        while not self._closing and not (self._calm and work != self._work):
            self._births[name] += 1
            node = self.nodes[name] = Node(name if self._births[name] == 1 else f"{name}.{self._births[name]}")
            node.root = self._start(self._live_on(node, work), node.main.context())
            await asyncio.wait({node.root})
            self.journal.tally[f"process {'died' if node.dead else 'ended'}"] += 1
            await asyncio.sleep(_RESTART)

    async def _live_on(self, node: Node, work: Callable[[Node], Coroutine[Any, Any, None]]) -> None:
        try:
            await work(node)
        except EngineUnavailable:
            self.journal.tally["could not start"] += 1
        except Exception as error:
            if not node.dead:
                self.journal.violated("error", f"{node.name} crashed: {error!r} {getattr(error, 'exceptions', '')}")
        finally:
            node.over = True

    def _remote(self, node: Node, *, calm: bool = False) -> RemoteStore:
        """The store, as this process reaches it."""
        weather = self._weather
        if calm:
            weather = storm = Storm(stream(self.plan.seed, "calm"), self.plan.mix, patience=1.0, lateness=0.0)
            storm.end()
        return RemoteStore(
            node, self.store, weather, self.witness, lambda work: self._group.create_task(work, context=Context())
        )

    def _declare(self, store: RemoteStore, clock: Clock, *names: str, **options: Any) -> list[Queue]:
        """Queues of these names, on the terms of the plan."""
        terms, services = self.plan.terms, SimServices(store.node.name, store, clock)
        usual = QueueOptions(
            concurrency=terms.slots, lease=terms.lease, renew=terms.lease // 3, max_stalls=terms.max_stalls, **options
        )
        return [Queue(services, name, usual) for name in names]

    async def _work(self, node: Node) -> None:
        clock = SimClock(stream(self.plan.seed, node.name), name=node.name, node=node, skew=self.plan.skew)
        self.clocks[node.name] = clock
        store = self._remote(node)
        queues = self._queues(store, clock)
        await self._boot(store, queues)
        process = WorkerProcess(
            queues, store, clock, Events(), Hooks(), name=node.name, version="simulated",
            owner="sim", schedules=store.schedules, grace=self.plan.terms.grace,
        )  # fmt: skip
        node.stop = process.stop
        await process.run(ApartKeeper(self._remote(node), clock, node), None)

    async def _produce(self, node: Node) -> None:
        """Adds something, again and again."""
        clock = SimClock(stream(self.plan.seed, node.name), name=node.name, node=node)
        queues = self._queues(self._remote(node), clock)
        while self._added < self.plan.tasks:
            await clock.sleep(clock.random() * self.adds_within)
            self._added += 1
            try:
                await self._add(clock, queues)
            except EngineUnavailable:
                self.journal.tally["add given up"] += 1
        await clock.sleep(3600)

    async def _meddle_on(self, node: Node) -> None:
        clock = SimClock(stream(self.plan.seed, node.name), name=node.name, node=node)
        queues = self._queues(self._remote(node), clock)
        while True:
            await clock.sleep(clock.random() * self.meddles_within)
            try:
                await self._meddle(clock, queues)
            except self.refusals:
                self.journal.tally["control given up"] += 1
