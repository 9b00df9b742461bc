"""One simulation: a fleet, a store, a storm; then calm weather, in which everything has to come to its end."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from tests.sim.chaos import Chaos
from tests.sim.checker import check
from tests.sim.client import Worker
from tests.sim.clock import EPOCH, SimClock, stream
from tests.sim.crew import Operator, Orders, Producer, Reaper
from tests.sim.faults import Storm
from tests.sim.journal import Journal, Violation
from tests.sim.link import Link
from tests.sim.loop import Deadlock, run, until
from tests.sim.node import Node
from tests.sim.plan import QUEUE, Plan
from tests.sim.script import Kind
from tests.sim.store import MemoryStore, SimStore
from tests.sim.wire import Wire
from tests.sim.witness import Witness
from toril.clock import Clock
from toril.engine import Engine
from toril.model import Lease, Resume, SetConcurrency

__all__ = ["Result", "World", "simulate"]

_LOOK_EVERY: Final = 8  # effects between two looks into the store
_RESTART: Final = 0.15  # seconds until a killed process is started again


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What came of a seed."""

    seed: int
    hash: str
    violations: tuple[Violation, ...]
    tally: Counter[str]
    jobs: int
    effects: int
    seconds: float
    tail: tuple[str, ...]
    lines: tuple[str, ...]

    def __str__(self) -> str:
        found = "\n  ".join(str(violation) for violation in self.violations[:5])
        last = "\n  ".join(self.tail)
        return (
            f"seed {self.seed} violated\n  {found}\nlast steps\n  {last}\n"
            f"replay with  .venv/bin/python -m tests.sim.replay {self.seed} --trace"
        )


def simulate(
    seed: int, *, store: Callable[[Clock], SimStore] = MemoryStore, trace: bool = False, plan: Plan | None = None
) -> Result:
    """Run one seed to its end, on a loop of its own."""
    world = World(plan or Plan.draw(seed), store, trace=trace)
    try:
        run(world.run())
    except Deadlock as error:
        world.journal.violated("I15", str(error))
    journal = world.journal
    return Result(
        seed=seed,
        hash=journal.hash,
        violations=tuple(journal.violations),
        tally=journal.tally + world.storm.tally,
        jobs=len(world.witness.ledger.entries),
        effects=world.witness.effects,
        seconds=world.seconds,
        tail=tuple(journal.tail),
        lines=tuple(journal.lines or ()),
    )


class World:
    """The fleet and what befalls it."""

    def __init__(self, plan: Plan, store: Callable[[Clock], SimStore], *, trace: bool = False) -> None:
        self.plan = plan
        self.journal = Journal(lines=[] if trace else None)
        clock = SimClock(stream(plan.seed, "store"))
        self.store = store(clock)
        self.witness = Witness(self.journal, self.store, clock, every=_LOOK_EVERY)
        lateness = plan.terms.lease / 500
        self.storm = Storm(stream(plan.seed, "calls"), plan.mix, patience=plan.patience, lateness=lateness)
        self.seconds = 0.0
        self.nodes: dict[str, Node] = {}
        self._orders = [
            Orders(stream(plan.seed, f"orders {n}"), f"p{n}", jobs=plan.jobs // plan.producers, lease=plan.terms.lease)
            for n in range(plan.producers)
        ]
        self._births: Counter[str] = Counter()
        self._late = 0
        self._tasks: list[asyncio.Task[None]] = []
        self._group = asyncio.TaskGroup()

    async def run(self) -> None:
        await self.store.open()
        async with self._group:
            try:
                await self._live()
            finally:
                for task in self._tasks:
                    task.cancel()
        if not self.journal.violations:
            await check(self.journal, self.witness, self.store.view(), QUEUE)
        self.seconds = asyncio.get_running_loop().time()
        await self.store.close()

    async def _live(self) -> None:
        """Storm first, then calm: whatever is still open then has to end within a bounded time (I15)."""
        plan = self.plan
        if plan.concurrency is not None:
            await self._healer().configure(QUEUE, [SetConcurrency(plan.concurrency)])
        for n in range(plan.workers):
            self._start(self._keep_alive(f"w{n}", self._worker))
        for n, orders in enumerate(self._orders):
            self._start(self._keep_alive(f"p{n}", self._producer(orders), over=partial(getattr, orders, "done")))
        self._start(self._keep_alive("reaper", self._reaper))
        chaos = Chaos(self)
        if plan.operator:
            self._start(self._keep_alive("op", self._operator, over=lambda: self.storm.over))
        for work in chaos.works():
            self._start(work)
        await self._until(lambda: False, plan.storm)
        await self._until(lambda: all(orders.done for orders in self._orders), plan.storm * 4)
        await chaos.end()
        if plan.operator:
            self.nodes["op"].kill()  # or nothing would ever be at its end
        await asyncio.sleep(1)  # for what is on its way: a pause has no number and may arrive after a later resume
        await self._until(lambda: not self._late, plan.terms.lease / 100 + plan.patience)
        await self._healer().configure(QUEUE, [Resume()])
        bound = self._bound()
        await self._until(self._drained, bound)
        if not self._drained() and not self.journal.violations:
            left = [(e.id, e.script.kind, e.stage) for e in self.witness.ledger.entries if e.open]
            self.journal.violated("I15", f"not at its end {bound:.1f} s after the last fault: {left}")

    async def _until(self, done: Callable[[], bool], seconds: float) -> None:
        """Wait for this, and no longer than until something is found wrong."""
        await until(lambda: bool(self.journal.violations) or done(), seconds)

    def _drained(self) -> bool:
        return all(orders.done for orders in self._orders) and not any(e.open for e in self.witness.ledger.entries)

    def _bound(self) -> float:
        """Seconds that the rest may take on a single slot: three rounds of recovery, all work, all delays; a job that
        kills needs a lease and a new process for each stall that it is allowed."""
        terms, cycle = self.plan.terms, self.plan.terms.lease + self.plan.interval + 1000 * _RESTART
        total = 3 * cycle + 1000
        for entry in self.witness.ledger.entries:
            script = entry.script
            if entry.open:
                total += (script.times + 2) * (script.ms + script.delay + 60) + max(0, entry.due - self.witness.now())
            if entry.open and script.kind in {Kind.POISON, Kind.SCARE}:
                total += (terms.max_stalls + 2) * (cycle + script.ms)
        return total / 1000

    def _start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = self._group.create_task(work)
        self._tasks.append(task)
        return task

    def _spawn(self, work: Awaitable[None]) -> None:
        """A request that outlives its caller."""

        async def late() -> None:
            self._late += 1
            try:
                await work
            finally:
                self._late -= 1

        self._start(late())

    async def _keep_alive(
        self, name: str, work: Callable[[Node], Coroutine[Any, Any, None]], over: Callable[[], bool] = lambda: False
    ) -> None:
        """Start a process, and start another in its place when it has died, with nothing in its memory."""
        while not over():
            self._births[name] += 1
            node = self.nodes[name] = Node(f"{name}.{self._births[name]}")
            node.root = self._start(work(node))
            await asyncio.wait({node.root})
            if not node.dead:
                return
            self.journal.tally["process died"] += 1
            self.journal.note(f"{self.witness.now() - EPOCH} {node.name} died")
            await asyncio.sleep(_RESTART)

    def _link(self, node: Node) -> tuple[Engine, SimClock]:
        chance = stream(self.plan.seed, node.name)
        wire = Wire(node, self.store, self.storm, self.witness, self._spawn)
        clock = SimClock(chance, name=node.name, node=node, skew=self.plan.skew)
        return Link(node.name, wire, self.witness), clock

    def _healer(self) -> Engine:
        """Someone whom nothing befalls."""
        calm = Storm(stream(self.plan.seed, "healer"), self.plan.mix, patience=1.0, lateness=0.0)
        calm.end()
        return Link("healer", Wire(Node("healer"), self.store, calm, self.witness, self._spawn), self.witness)

    async def _worker(self, node: Node) -> None:
        worker = Worker(node, *self._link(node), self.plan.terms, self.journal)
        try:
            await worker.run()
        finally:
            if node.dead and self.plan.supervised:
                self._start(self._bury(worker.held, node.name))

    async def _bury(self, leases: list[Lease], name: str) -> None:
        """The supervisor saw the process die and gives its jobs back before their leases run out."""
        engine, clock = self._link(Node(f"supervisor of {name}"))
        await Reaper(QUEUE, engine, clock, 0).take_back(leases, cause="killed")

    def _producer(self, orders: Orders) -> Callable[[Node], Coroutine[Any, Any, None]]:
        def produce(node: Node) -> Coroutine[Any, Any, None]:
            return Producer(node.name, QUEUE, *self._link(node), orders, self.journal).run()

        return produce

    def _reaper(self, node: Node) -> Coroutine[Any, Any, None]:
        return Reaper(QUEUE, *self._link(node), self.plan.interval).run()

    def _operator(self, node: Node) -> Coroutine[Any, Any, None]:
        return Operator(node.name, QUEUE, *self._link(node), self.journal).run()
