"""One simulation: a fleet, a store, a storm; then calm weather, in which everything has to come to its end."""

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from contextvars import Context
from dataclasses import replace
from functools import partial
from typing import Any, Final

from tests.sim.chaos import Chaos
from tests.sim.checker import check
from tests.sim.clock import EPOCH, SimClock, stream
from tests.sim.faults import Storm
from tests.sim.journal import Journal
from tests.sim.link import Link
from tests.sim.loop import until
from tests.sim.node import Node
from tests.sim.plan import QUEUE, Plan
from tests.sim.posts import LONGEST, Post, Unfit, booted
from tests.sim.producers import Clerk, Operator, Orders, Producer
from tests.sim.result import Result, played
from tests.sim.script import Kind
from tests.sim.sim_worker import SimServices, SimWorker, queue_of
from tests.sim.store import MemoryStore, SimStore
from tests.sim.wire import Wire
from tests.sim.witness import Witness
from toril.errors import EngineUnavailable
from toril.model import GroupLimits, Lease, Resume, SetConcurrency, SetGroups
from toril.runtime.clock import Clock
from toril.store.engine import Engine
from toril.supervisor.leases import FleetLeases
from toril.worker import loop

__all__ = ["Result", "World", "simulate"]

_RESTART: Final = 0.15  # seconds until a killed process is started again, where no supervisor decides
_PATIENCE: Final = 30.0  # seconds for which a supervisor tries to give jobs back


def simulate(
    seed: int, *, store: Callable[[Clock], SimStore] = MemoryStore, trace: bool = False, plan: Plan | None = None
) -> Result:
    """Run one seed to its end, on a loop of its own."""
    world = World(plan or Plan.draw(seed), store, trace=trace)
    with _crowd_of(world.plan.crowd_size):
        result = played("fleet", world)
    return replace(result, jobs=len(world.witness.ledger.entries), effects=world.witness.effects, seconds=world.seconds)


@contextmanager
def _crowd_of(jobs: int | None) -> Iterator[None]:
    default = loop._CROWD
    loop._CROWD = default if jobs is None else jobs  # type: ignore[misc]
    try:
        yield
    finally:
        loop._CROWD = default  # type: ignore[misc]


class World:
    """The fleet and what befalls it."""

    def __init__(self, plan: Plan, store: Callable[[Clock], SimStore], *, trace: bool = False) -> None:
        self.plan = plan
        self.journal = Journal(lines=[] if trace else None)
        clock = self.store_clock = SimClock(stream(plan.seed, "store"))
        self.clocks: dict[str, SimClock] = {}
        self.store = store(clock)
        self.witness = Witness(self.journal, self.store, clock, every=plan.look_every)
        self.conduct = self.witness.conduct
        self.storm = Storm(
            stream(plan.seed, "calls"), plan.mix, patience=plan.patience, lateness=self._lateness, spared=plan.healthy
        )
        self.seconds = 0.0
        self.nodes: dict[str, Node] = {}
        self.workers: dict[str, SimWorker] = {}
        self._orders = [
            Orders(
                stream(plan.seed, f"orders {n}"),
                f"p{n}",
                plan.weights,
                jobs=jobs,
                lease=plan.terms.lease,
                grouped=plan.grouped,
            )
            for n, jobs in enumerate([plan.jobs // plan.producers] * plan.producers)
        ]
        self._births: Counter[str] = Counter()
        self._closing = False
        self._tasks: list[asyncio.Task[None]] = []
        self._group = asyncio.TaskGroup()

    @property
    def _lateness(self) -> float:
        """Seconds that a request may come late: two leases."""
        return self.plan.terms.lease / 500

    async def run(self) -> None:
        await self.store.open()
        async with self._group:
            try:
                await self._live()
            finally:
                self._closing = True
                for node in self.nodes.values():
                    node.kill()  # or what is held up would stay so
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
        if plan.grouped:
            await self._healer().configure(QUEUE, [SetGroups(GroupLimits(concurrency=1))])
        for n in range(plan.workers):
            self._start(self._keep_alive(f"w{n}", self._worker))
        for n, orders in enumerate(self._orders):
            self._start(self._keep_alive(f"p{n}", self._producer(orders), over=partial(getattr, orders, "done")))
        chaos = Chaos(self)
        if plan.operator:
            self._start(self._keep_alive("op", self._operator, over=lambda: self.storm.over))
        if plan.clerk:
            self._start(self._keep_alive("clerk", self._clerk, over=lambda: self.storm.over))
        for work in chaos.works():
            self._start(work)
        await self._until(self._drained if plan.healthy else lambda: False, plan.storm)
        if plan.healthy and not self._drained() and not self.journal.violations:
            left = [(entry.id, entry.script.kind, entry.stage) for entry in self.witness.ledger.entries if entry.open]
            self.journal.violated("liveness", f"two of three workers were well, and did not get on: {left}")
        await self._until(lambda: all(orders.done for orders in self._orders), plan.storm * 4)
        await chaos.end()
        await self._calm_down()
        await self._drain()
        if plan.late_jobs and not self.journal.violations:
            await self._add_late(plan.late_jobs)
        await self._close()

    async def _calm_down(self) -> None:
        """Wait for what is on its way: a pause may arrive after a later resume."""
        for name in [name for name in ("op", "clerk") if name in self.nodes]:
            self.nodes[name].kill()  # or nothing would ever be at its end
        if self.plan.operator or self.plan.clerk:
            await self._until(lambda: False, 1 + self._lateness + self.plan.patience)
        self.conduct.calm_at = self.conduct.now()
        await self._healer().configure(QUEUE, [Resume()])

    async def _drain(self) -> None:
        """While the rest is done one worker is stopped and comes back: it may keep nothing."""
        await self._farewell()
        await self._await_drained()

    async def _await_drained(self) -> None:
        bound = self._bound()
        await self._until(self._drained, bound)
        if not self._drained() and not self.journal.violations:
            left = [(e.id, e.script.kind, e.stage) for e in self.witness.ledger.entries if e.open]
            self.journal.violated("I15", f"not at its end {bound:.1f} s after the last fault: {left}")

    async def _add_late(self, jobs: int) -> None:
        """All workers rest, and jobs arrive. A worker that no longer hears of arrivals is found by that."""
        plan, node = self.plan, Node("late")
        chance = stream(plan.seed, "late jobs")
        orders = Orders(chance, "late", plan.weights, jobs=jobs, lease=plan.terms.lease, grouped=plan.grouped)
        self._orders.append(orders)
        clock = self._clock(node)
        queue = queue_of(SimServices(node.name, self._healer(), clock), plan.terms)
        self._start(Producer(queue, clock, orders, self.journal).run())
        await self._until(lambda: orders.done, 60)
        await self._await_drained()

    async def _farewell(self) -> None:
        await self._until(lambda: False, 1.0)
        node, worker = self.nodes["w0"], self.workers["w0"]
        if node.dead or node.over or node.stopping:
            return
        match self.plan.farewell:
            case "stop":
                worker.stop()
            case "force":
                worker.stop()
                worker.stop()
            case "order":
                await worker.order_stop(self._healer())
            case "none":
                pass

    async def _close(self) -> None:
        """Nothing is left to do. Every worker must know that, have told all, and stop when it is asked to."""
        if self.journal.violations:
            return
        await self._until(lambda: not self._leftovers(), 30)
        for name, found in self._leftovers().items():
            self.journal.violated("I16", f"all jobs have ended, and in {name} {', '.join(found)}")
        self.conduct.at_rest()
        self._closing = True
        for node, worker in self._living():
            if not node.stopping:
                worker.stop()
        await self._until(lambda: not self._living(), self.plan.terms.grace + 30)
        for node, _ in self._living():
            self.journal.violated("stop", f"{node.name} has nothing to do and does not stop")

    def _living(self) -> list[tuple[Node, SimWorker]]:
        pairs = [(self.nodes[name], worker) for name, worker in self.workers.items()]
        return [(node, worker) for node, worker in pairs if not node.dead and not node.over]

    def _leftovers(self) -> dict[str, list[str]]:
        return {node.name: found for node, worker in self._living() if (found := worker.leftovers())}

    async def _until(self, done: Callable[[], bool], seconds: float) -> None:
        """Wait for this, and no longer than until something is found wrong."""

        def over() -> bool:
            if self.conduct.calm_at is not None:
                self.conduct.hungry([node for node, _ in self._living()])
            return bool(self.journal.violations) or done()

        await until(over, seconds)

    def _drained(self) -> bool:
        return all(orders.done for orders in self._orders) and not any(e.open for e in self.witness.ledger.entries)

    def _bound(self) -> float:
        """Seconds that the rest may take on a single slot: three rounds of recovery, all work, all delays; claims held
        back for suspects; a job that kills needs a lease and a new process for each stall that it is allowed."""
        restart = LONGEST if self.plan.posted else _RESTART
        terms, cycle = self.plan.terms, self.plan.terms.lease / 1000 + restart + 1
        total = 3 * cycle + 90
        for entry in self.witness.ledger.entries:
            script = entry.script
            if entry.open:
                runs = script.times + entry.attempts + terms.max_stalls + 2
                total += runs * (script.ms / 1000 + 6) + max(0, entry.due - self.witness.now()) / 1000
            if entry.open and script.kind in {Kind.POISON, Kind.SCARE}:
                total += (terms.max_stalls + 2) * cycle
        return total

    def _start(self, work: Coroutine[Any, Any, None], context: Context | None = None) -> asyncio.Task[None]:
        task = self._group.create_task(work, context=context)
        self._tasks.append(task)
        return task

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Something that belongs to no process."""
        return self._group.create_task(work, context=Context())

    async def _keep_alive(
        self, name: str, work: Callable[[Node], Coroutine[Any, Any, None]], over: Callable[[], bool] = lambda: False
    ) -> None:
        """Start a process, and start another in its place when it has died or stopped, with nothing in its memory."""
        post = self._post(name) if self.plan.posted and work == self._worker else None
        while not over() and not self._closing:
            if post is not None:
                post.filled()
            self._births[name] += 1
            node = self.nodes[name] = Node(f"{name}.{self._births[name]}")
            node.root = self._start(self._live_on(node, work), node.main.context())
            await asyncio.wait({node.root})
            if not node.dead and not node.stopping and not node.failed:
                return
            how = "died" if node.dead else "could not start" if node.failed else "stopped"
            self.journal.tally[f"process {how}"] += 1
            self.journal.note(f"{self.witness.now() - EPOCH} {node.name} {how}")
            ended = self.workers[name].keeper.ended if post is not None else 0
            await asyncio.sleep(post.emptied(ended=ended, requested=node.stopping) if post is not None else _RESTART)

    def _post(self, name: str) -> Post:
        return Post(name, self.journal, stream(self.plan.seed, f"post {name}").random)

    async def _live_on(self, node: Node, work: Callable[[Node], Coroutine[Any, Any, None]]) -> None:
        try:
            await work(node)
        except (EngineUnavailable, Unfit) as error:
            node.failed = node.over = True  # its first call was not answered: whoever started it does so again
            self.journal.note(f"{node.name} could not start: {error}")
        except Exception as error:
            if not node.dead:
                self.journal.violated("error", f"{node.name} crashed: {error!r} {getattr(error, 'exceptions', '')}")

    def _link(self, node: Node) -> Link:
        return Link(node.name, Wire(node, self.store, self.storm, self.witness, self._spawn), self.witness)

    def _clock(self, node: Node) -> SimClock:
        clock = SimClock(stream(self.plan.seed, node.name), name=node.name, node=node, skew=self.plan.skew)
        self.clocks[node.name] = clock
        return clock

    def _healer(self) -> Engine:
        """Someone whom nothing befalls."""
        calm = Storm(stream(self.plan.seed, "healer"), self.plan.mix, patience=1.0, lateness=0.0)
        calm.end()
        return Link("healer", Wire(Node("healer"), self.store, calm, self.witness, self._spawn), self.witness)

    async def _worker(self, node: Node) -> None:
        worker = SimWorker(
            node, self._link(node), self._link(node), self._clock(node), self.plan.terms, self.conduct
        )  # fmt: skip
        self.workers[node.name.partition(".")[0]] = worker
        booted(self.plan.unfit)
        try:
            await worker.run()
        finally:
            if node.dead and self.plan.supervised and not self._closing:
                self._start(self._release(worker.held, node.name), Context())

    async def _release(self, leases: list[Lease], name: str) -> None:
        """The supervisor saw the process die and gives its jobs back before their leases run out."""
        try:
            link = self._link(Node(f"supervisor of {name}"))
            if self.plan.posted:
                await FleetLeases(link, self.store_clock, name, lambda: ()).recover(leases, "killed", _PATIENCE)
            else:
                await link.recover(QUEUE, dead=leases, cause="killed")
        except EngineUnavailable:
            self.journal.tally["burial failed"] += 1  # the leases run out by themselves

    def _producer(self, orders: Orders) -> Callable[[Node], Coroutine[Any, Any, None]]:
        def produce(node: Node) -> Coroutine[Any, Any, None]:
            clock = self._clock(node)
            queue = queue_of(SimServices(node.name, self._link(node), clock), self.plan.terms)
            return Producer(queue, clock, orders, self.journal).run()

        return produce

    def _clerk(self, node: Node) -> Coroutine[Any, Any, None]:
        return Clerk(node.name, self._link(node), self._clock(node), self.journal).run()

    def _operator(self, node: Node) -> Coroutine[Any, Any, None]:
        return Operator(
            node.name, self._link(node), self._clock(node), self.journal,
            top=0 if self.plan.grouped else 2, impatient=self.plan.impatient,
        ).run()  # fmt: skip
