"""A world of flows, on the real workers, under the same faults: no parent runs before its children have ended as their
policy says, none ends twice, and none is left waiting (I12).

It stands beside `agenda`, of which it is made: other jobs, other rules.
"""

from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from tests.sim.agenda import Agenda
from tests.sim.clock import SimClock, stream
from tests.sim.journal import Journal
from tests.sim.line import Line, Watch
from tests.sim.loop import until
from tests.sim.node import Node
from tests.sim.plan import AgendaPlan
from tests.sim.result import Result, played
from tests.sim.station import Home, KeptAside
from tests.sim.store import MemoryStore, SimStore
from toril.context import JobContext
from toril.errors import EngineUnavailable, PermanentError, TransientError, UsageError
from toril.events import Events
from toril.flow import Flow, Flowing, Policy
from toril.model import (
    REMOVE,
    AddOutcome,
    Call,
    Cancelled,
    Completed,
    Failed,
    FlowNode,
    RunStatus,
    Settlement,
    Verdict,
    WaitsForChildren,
)
from toril.model.states import State
from toril.policy.retry import Fixed, Retry
from toril.queue import PreparedJob, Queue, QueueOptions
from toril.runtime.clock import Clock
from toril.runtime.hooks import Hooks
from toril.store.engine import Store
from toril.worker.process import WorkerProcess

__all__ = ["LEAVES", "TOPS", "weave"]

T = TypeVar("T")

LEAVES: Final = "q"
TOPS: Final = "tops"
_POLICIES: Final[tuple[Policy, ...]] = ("fail", "fail", "continue", "ignore", "remove")


@dataclass
class Thread:
    """A job of a flow, as its effects tell: its parent, what its failure does, how it ended."""

    parent: str | None
    policy: str
    children: set[str] = field(default_factory=set)
    end: str | None = None
    ends: int = 0


class FlowWatch(Watch):
    """Follows each job of a flow from effect to effect, and holds every claim of a parent against its children."""

    def __init__(self, journal: Journal, store: SimStore, clock: Clock) -> None:
        super().__init__(journal, store, clock)
        self.threads: dict[str, Thread] = {}
        self._asked: set[str] = set()  # to stop: whatever their runs want, they do not run again

    def saw(self, node: str, what: str, args: tuple[Any, ...], call: Call | None, answer: Any) -> None:
        if call is None or self._newest.get(call.sender) != call.seq:
            match what:
                case "flows.add":
                    self._wove(args[0], answer)
                case "flows.add_children" if answer is Verdict.OK:
                    self._know(args[1])
                case "exchange":
                    self._exchanged(args[1], answer)
                case "recover":
                    self._ended((*answer.failed, *answer.cancelled), "failed")
                case "remove":
                    self._ended(answer.done, "removed")
                case "cancel":
                    self._ended(answer.done, "failed")
                    self._asked.update(answer.asked)
                case _:
                    pass
        super().saw(node, what, args, call, answer)

    def _wove(self, nodes: Sequence[FlowNode], answers: Sequence[Any]) -> None:
        self._know([
            node for node, answer in zip(nodes, answers, strict=True) if answer.outcome is AddOutcome.ADDED
        ])  # fmt: skip

    def _know(self, nodes: Sequence[FlowNode]) -> None:
        for node in nodes:
            parent = None if node.parent is None else node.parent.id
            self.threads.setdefault(node.ref.id, Thread(parent, node.on_failure.value))
            if parent is not None:
                self.threads.setdefault(parent, Thread(None, "fail")).children.add(node.ref.id)

    def _exchanged(self, batch: Sequence[Settlement], answer: Any) -> None:
        for settlement, verdict in zip(batch, answer.verdicts, strict=True):
            if verdict is Verdict.OK:
                self._settled(settlement)
        self._ended([each.id for each in answer.unstarted], "failed")
        for job in answer.jobs:
            self._started(job.lease.id)

    def _settled(self, settlement: Settlement) -> None:
        job, outcome = settlement.lease.id, settlement.outcome
        if job in self._asked and not isinstance(outcome, Completed):
            self._ended([job], "failed")
        elif isinstance(outcome, WaitsForChildren):
            self._know(outcome.children)
        elif isinstance(outcome, Completed):
            thread = self.threads.get(job)
            if thread is not None and self._doomed(thread):
                self._ended([job], "failed")  # which its children had decided before
                return
            self._ended([job], "completed")
        elif isinstance(outcome, Failed | Cancelled):
            self._ended([job], "failed")

    def _ended(self, jobs: Sequence[str], how: str) -> None:
        for job in jobs:
            thread = self.threads.get(job)
            if thread is not None:
                thread.ends += thread.end is not None or how != "removed"
                thread.end = thread.end or how

    def _doomed(self, thread: Thread) -> bool:
        return any(self._is(child, "failed", "fail") for child in thread.children)

    def _is(self, child: str, end: str, policy: str) -> bool:
        return self.threads[child].end == end and self.threads[child].policy == policy

    def _started(self, job: str) -> None:
        thread = self.threads.get(job)
        if thread is None or not thread.children:
            return
        if self._doomed(thread):
            self.journal.violated("I12", f"{job} runs, and a child has failed that it fails with")
        still = [child for child in thread.children if self.threads[child].end is None]
        if still and not any(self._is(child, "failed", "continue") for child in thread.children):
            self.journal.violated("I12", f"{job} runs before {sorted(still)} have ended")


def weave(
    seed: int, *, store: Callable[[Clock], SimStore] = MemoryStore, plan: AgendaPlan | None = None, trace: bool = False
) -> Result:
    """Run one seed to its end, on a loop of its own."""
    return played("flows", Loom(plan or AgendaPlan.draw(seed), store, trace=trace))


class Weaver(Flowing):
    """Who adds flows."""

    def __init__(self, queue: Queue, clock: SimClock) -> None:
        self._queue = queue
        self._clock = clock

    @property
    def store(self) -> Store:
        return self._queue.store

    async def call(self, make: Callable[[Call], Awaitable[T]]) -> T:
        return await self._queue.call(make)


class Loom(Agenda):
    """The fleet and its flows."""

    def __init__(self, plan: AgendaPlan, store: Callable[[Clock], SimStore], *, trace: bool = False) -> None:
        super().__init__(plan, store, trace=trace)
        clock = SimClock(stream(plan.seed, "store"))
        self.watch = FlowWatch(self.journal, self.store, clock)
        self.witness = self.watch

    async def _come_to_rest(self) -> None:
        self._calm = True
        for name in ("op", "p0"):
            if name in self.nodes:
                self.nodes[name].kill()
        await until(self._is_broken, 2 * self._lateness + 1)  # for what is on its way
        bound = 20 * self._lateness + 60
        await until(lambda: self._is_broken() or self._all_ended(), bound)
        left = {job: thread for job, thread in self.watch.threads.items() if thread.end is None}
        if left and not self._is_broken():
            self.journal.violated("I12", f"stuck {bound:.0f} s after the last fault: {left}")
        self._closing = True
        for node in self.nodes.values():
            if node.stop is not None and not node.dead:
                node.stopping = True
                node.stop()
        await until(lambda: all(node.dead or node.over for node in self.nodes.values()), 30)
        if not self._is_broken():
            await self._check(self.store.view())

    def _all_ended(self) -> bool:
        return all(thread.end is not None for thread in self.watch.threads.values())

    async def _check(self, store: Store) -> None:
        """Nobody waits, and each has ended once."""
        for queue in (LEAVES, TOPS):
            counts = await store.counts(queue)
            if any(counts.of(state) for state in State if state not in {State.COMPLETED, State.FAILED}):
                self.journal.violated("I12", f"all have ended, and {queue} has {counts}")
        recorded: Counter[str] = Counter()
        for queue in (LEAVES, TOPS):
            for ending in RunStatus:
                recorded.update(each.id for each in (await store.runs(queue, ending, limit=1000)).items)
        for job, thread in self.watch.threads.items():
            if recorded[job] != (thread.end != "removed") or thread.ends > 1:
                self.journal.violated("I12", f"{job} has ended {recorded[job]} times, as {thread}")

    def _pair(self, line: Line, clock: SimClock) -> tuple[Queue, Queue]:
        terms = self.plan.terms
        options = QueueOptions(
            concurrency=terms.slots, lease=terms.lease, renew=terms.lease // 3, max_stalls=terms.max_stalls,
            retry=Retry(2, Fixed(0.2)), keep_completed=REMOVE, keep_failed=REMOVE,
        )  # fmt: skip
        home = Home(line.node.name, line, clock)
        leaves, tops = (Queue(home, name, options) for name in (LEAVES, TOPS))

        async def leaf(ctx: JobContext[Any]) -> str:
            await clock.sleep(clock.random() * 0.3)
            if ctx.data["bad"]:
                raise PermanentError("by its script")
            if clock.random() < 0.1:
                raise TransientError("now and then")
            return ctx.job_id

        async def top(ctx: JobContext[Any]) -> int:
            await clock.sleep(clock.random() * 0.1)
            return len(await ctx.children_values())

        async def plan(ctx: JobContext[Any]) -> int:
            await ctx.wait_for_children([leaves.new("leaf", {"bad": False}) for _ in range(2)], on_failure="ignore")
            return len(await ctx.children_values())

        for queue in (leaves, tops):
            queue.handlers.register_all({"leaf": leaf, "top": top, "plan": plan})
        return leaves, tops

    async def _work(self, node: Node) -> None:
        clock = SimClock(stream(self.plan.seed, node.name), name=node.name, node=node, skew=self.plan.skew)
        line = self._line(node)
        process = WorkerProcess(
            list(self._pair(line, clock)), line, clock, Events(), Hooks(), name=node.name, version="simulated",
            owner="sim", schedules=line.schedules, grace=self.plan.terms.grace,
        )  # fmt: skip
        node.stop = process.stop
        await process.run(KeptAside(self._line(node), clock, node), None)

    async def _produce(self, node: Node) -> None:
        """Adds flows of one or two levels, again and again; some handlers add their children themselves."""
        clock = SimClock(stream(self.plan.seed, node.name), name=node.name, node=node)
        leaves, tops = self._pair(self._line(node), clock)
        weaver = Weaver(tops, clock)
        while self._added < self.plan.tasks:
            await clock.sleep(clock.random() * 0.5)
            self._added += 1
            try:
                await weaver.flow(self._flow(clock, leaves, tops))
            except EngineUnavailable:
                self.journal.tally["add given up"] += 1
        await clock.sleep(3600)

    def _flow(self, clock: SimClock, leaves: Queue, tops: Queue) -> Flow[Any]:
        number = self._added

        def leaf(n: int) -> Flow[Any]:
            bad = clock.random() < 0.2
            made = leaves.new("leaf", {"bad": bad}, job_id=f"f{number}-{n}", delay=0.5 if clock.random() < 0.1 else 0)
            return Flow(made, on_failure=_POLICIES[int(clock.random() * len(_POLICIES))])

        children: list[PreparedJob[Any] | Flow[Any]] = [leaf(n) for n in range(1 + int(clock.random() * 3))]
        if clock.random() < 0.4:
            children.append(Flow(tops.new("top", {}, job_id=f"f{number}-m"), [leaf(8), leaf(9)], "ignore"))
        if clock.random() < 0.3:
            children.append(Flow(tops.new("plan", {}, job_id=f"f{number}-p")))
        return Flow(tops.new("top", {}, job_id=f"f{number}"), children)

    async def _meddle(self, node: Node) -> None:
        """Removes and cancels children by hand."""
        clock = SimClock(stream(self.plan.seed, node.name), name=node.name, node=node)
        leaves, _ = self._pair(self._line(node), clock)
        while True:
            await clock.sleep(clock.random() * 0.6)
            ids = [f"f{1 + int(clock.random() * max(1, self._added))}-{int(clock.random() * 3)}"]
            try:
                if clock.random() < 0.5:
                    await leaves.call(lambda call, ids=ids: leaves.store.remove(LEAVES, ids, call=call))  # type: ignore[misc]
                else:
                    await leaves.call(
                        lambda call, ids=ids: leaves.store.cancel(LEAVES, ids, reason="enough", call=call)  # type: ignore[misc]
                    )
            except (EngineUnavailable, UsageError):
                self.journal.tally["control given up"] += 1
