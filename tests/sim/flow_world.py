"""A world of flows: no parent runs before its children have ended as their policy says, none ends twice, and none is
left waiting (I12)."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, TypeVar

from tests.sim.clock import SimClock
from tests.sim.journal import Journal
from tests.sim.loop import until
from tests.sim.plan import SmallPlan
from tests.sim.remote_store import RemoteStore, Watch
from tests.sim.result import Result, played
from tests.sim.small_world import SmallWorld
from tests.sim.store import MemoryStore, SimStore
from toril.context import JobContext
from toril.errors import EngineUnavailable, PermanentError, TransientError, UsageError
from toril.flow import Flow, Flows, Policy
from toril.model import (
    REMOVE,
    AddOutcome,
    Call,
    Cancelled,
    Completed,
    Failed,
    FlowNode,
    Rested,
    RunStatus,
    Settlement,
    Verdict,
)
from toril.model.states import State
from toril.policy.retry import Fixed, Retry
from toril.queue import PreparedJob, Queue
from toril.runtime.clock import Clock

__all__ = ["LEAVES", "TOPS", "run_flows"]

T = TypeVar("T")

LEAVES: Final = "q"
TOPS: Final = "tops"
_POLICIES: Final[tuple[Policy, ...]] = ("fail", "fail", "continue", "ignore", "remove")


@dataclass
class FlowJob:
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
        self.jobs: dict[str, FlowJob] = {}
        self._asked: set[str] = set()  # to stop: whatever their runs want, they do not run again

    def saw(self, node: str, what: str, args: tuple[Any, ...], call: Call | None, answer: Any) -> None:
        if call is None or self._newest.get(call.sender) != call.seq:
            match what:
                case "flows.add":
                    self._added_flow(args[0], answer)
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

    def _added_flow(self, nodes: Sequence[FlowNode], answers: Sequence[Any]) -> None:
        self._know([
            node for node, answer in zip(nodes, answers, strict=True) if answer.outcome is AddOutcome.ADDED
        ])  # fmt: skip

    def _know(self, nodes: Sequence[FlowNode]) -> None:
        for node in nodes:
            parent = None if node.parent is None else node.parent.id
            self.jobs.setdefault(node.ref.id, FlowJob(parent, node.on_failure.value))
            if parent is not None:
                self.jobs.setdefault(parent, FlowJob(None, "fail")).children.add(node.ref.id)

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
        elif isinstance(outcome, Rested):
            self._know(outcome.children)
        elif isinstance(outcome, Completed):
            known = self.jobs.get(job)
            if known is not None and self._fails(known):
                self._ended([job], "failed")  # which its children had decided before
                return
            self._ended([job], "completed")
        elif isinstance(outcome, Failed | Cancelled):
            self._ended([job], "failed")

    def _ended(self, jobs: Sequence[str], how: str) -> None:
        for job in jobs:
            known = self.jobs.get(job)
            if known is not None:
                known.ends += known.end is not None or how != "removed"
                known.end = known.end or how

    def _fails(self, job: FlowJob) -> bool:
        return any(self._is(child, "failed", "fail") for child in job.children)

    def _is(self, child: str, end: str, policy: str) -> bool:
        return self.jobs[child].end == end and self.jobs[child].policy == policy

    def _started(self, job: str) -> None:
        known = self.jobs.get(job)
        if known is None or not known.children:
            return
        if self._fails(known):
            self.journal.violated("I12", f"{job} runs, and a child has failed that it fails with")
        still = [child for child in known.children if self.jobs[child].end is None]
        if still and not any(self._is(child, "failed", "continue") for child in known.children):
            self.journal.violated("I12", f"{job} runs before {sorted(still)} have ended")


def run_flows(
    seed: int, *, store: Callable[[Clock], SimStore] = MemoryStore, plan: SmallPlan | None = None, trace: bool = False
) -> Result:
    """Run one seed to its end, on a loop of its own."""
    return played("flows", FlowWorld(plan or SmallPlan.draw(seed), store, trace=trace))


class FlowWorld(SmallWorld):
    """The fleet and its flows."""

    refusals: ClassVar[tuple[type[Exception], ...]] = (EngineUnavailable, UsageError)

    def __init__(self, plan: SmallPlan, store: Callable[[Clock], SimStore], *, trace: bool = False) -> None:
        super().__init__(plan, store, trace=trace, watch=FlowWatch)

    @property
    def watch(self) -> FlowWatch:
        assert isinstance(self.witness, FlowWatch)
        return self.witness

    async def _finish(self) -> None:
        bound = 20 * self._lateness + 60
        await until(lambda: self._is_broken() or self._all_ended(), bound)
        left = {name: job for name, job in self.watch.jobs.items() if job.end is None}
        if left and not self._is_broken():
            self.journal.violated("I12", f"stuck {bound:.0f} s after the last fault: {left}")

    def _all_ended(self) -> bool:
        return all(job.end is not None for job in self.watch.jobs.values())

    async def _check(self) -> None:
        """Nobody waits, and each has ended once."""
        store = self.store.view()
        for queue in (LEAVES, TOPS):
            counts = await store.counts(queue)
            if any(counts.of(state) for state in State if state not in {State.COMPLETED, State.FAILED}):
                self.journal.violated("I12", f"all have ended, and {queue} has {counts}")
        recorded: Counter[str] = Counter()
        for queue in (LEAVES, TOPS):
            for ending in RunStatus:
                recorded.update(each.id for each in (await store.runs(queue, ending, limit=1000)).items)
        for name, job in self.watch.jobs.items():
            if recorded[name] != (job.end != "removed") or job.ends > 1:
                self.journal.violated("I12", f"{name} has ended {recorded[name]} times, as {job}")

    def _queues(self, store: RemoteStore, clock: SimClock) -> list[Queue]:
        queues = self._declare(
            store, clock, LEAVES, TOPS, retry=Retry(2, Fixed(0.2)), keep_completed=REMOVE, keep_failed=REMOVE
        )
        leaves, _ = queues

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

        for queue in queues:
            queue.handlers.register_all({"leaf": leaf, "top": top, "plan": plan})
        return queues

    async def _add(self, clock: SimClock, queues: Sequence[Queue]) -> None:
        """A flow of one or two levels; some handlers add their children themselves."""
        leaves, tops = queues
        await Flows(tops.services).add(self._flow(clock, leaves, tops))

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

    async def _meddle(self, clock: SimClock, queues: Sequence[Queue]) -> None:
        """Remove or cancel a child."""
        leaves = queues[0]
        ids = [f"f{1 + int(clock.random() * max(1, self._added))}-{int(clock.random() * 3)}"]
        if clock.random() < 0.5:
            await leaves.services.call(lambda call: leaves.store.remove(LEAVES, ids, call=call))
        else:
            await leaves.services.call(lambda call: leaves.store.cancel(LEAVES, ids, reason="enough", call=call))
