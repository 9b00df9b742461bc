"""A store of durable steps in memory, by the words of `StepStore`, and runs of a handler on it."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from toril.codec.steps import dump_received, dump_step, load_step
from toril.context import Signal
from toril.errors import EngineUnavailable, Resting
from toril.model import (
    Call,
    Child,
    ChildCounts,
    ChildState,
    Claimed,
    FlowNode,
    JobRef,
    Lease,
    LogLine,
    ReceivedSignal,
    RecordedSteps,
    Report,
    Rested,
    SignalRow,
    SignalWait,
    StepAnswer,
    StepKind,
    StepReport,
    StepRow,
    StepVerdict,
    Verdict,
)
from toril.testing.clock import ManualClock
from toril.worker.steps import AttemptSteps, StepServices, StepWriter

TIMED = {StepKind.SLEEP, StepKind.WAIT, StepKind.RETRY}
REPLACED = {
    StepKind.FAILED: set(StepKind) - {StepKind.RETRY},
    StepKind.RETRY: set(StepKind),
    StepKind.RECEIVED: {StepKind.WAIT},
}


@dataclass
class FakeSteps:
    """The rows, signals and children of one job."""

    clock: ManualClock
    rows: dict[str, str] = field(default_factory=dict)
    signals: list[tuple[SignalWait, str]] = field(default_factory=list)
    children: dict[JobRef, Child] = field(default_factory=dict)
    attempts_made: int = 0
    reruns: int = 0
    verdict: StepVerdict = StepVerdict.OK
    seq: int = 0
    calls: list[str] = field(default_factory=list)
    batches: list[int] = field(default_factory=list)
    lost: int = 0  # how many of the next calls are not answered
    answered: dict[Call, list[StepAnswer]] = field(default_factory=dict)

    def lose(self) -> None:
        if self.lost:
            self.lost -= 1
            raise EngineUnavailable("lost on the way")

    async def record(
        self, queue: str, reports: Sequence[StepReport], *, call: Call, now: int | None = None
    ) -> list[StepAnswer]:
        del queue, now
        self.batches.append(len(reports))
        if call not in self.answered:
            self.answered[call] = [self.write(report) for report in reports]
        self.lose()
        return self.answered[call]

    def write(self, report: StepReport) -> StepAnswer:
        self.calls.append(f"{report.kind} {report.key}")
        if self.verdict is not StepVerdict.OK:
            return StepAnswer(self.verdict)
        there = self.row(report.key)
        aside = there is not None and there.kind is StepKind.RECEIVED and report.until is None
        if there is not None and (aside or report.kind not in REPLACED.get(there.kind, set())):
            return self.answer(self.rows[report.key])
        until = self.clock.now() + report.delay if report.delay is not None else report.until
        self.put(report.key, report.kind, report.text, until, report.digest)
        return self.answer(self.rows[report.key] if report.kind in TIMED else None)

    def put(self, key: str, kind: StepKind, text: str, until: int | None, digest: str | None = None) -> None:
        self.seq += 1
        row = StepRow(key, kind, self.seq, self.clock.now(), 0, digest, self.reruns, self.attempts_made, until, text)
        self.rows[key] = dump_step(row)

    def answer(self, row: str | None) -> StepAnswer:
        size = sum(len(key) + len(text) for key, text in self.rows.items())
        return StepAnswer(StepVerdict.OK, self.clock.now(), row, len(self.rows), size)

    def row(self, key: str) -> StepRow | None:
        return load_step(key, self.rows[key]) if key in self.rows else None

    async def receive(
        self, lease: Lease, key: str, signals: Sequence[SignalWait], *, call: Call, digest: str | None = None
    ) -> StepAnswer:
        del lease, call, digest
        self.calls.append(f"receive {key}")
        self.lose()
        if self.verdict is not StepVerdict.OK:
            return StepAnswer(self.verdict)
        there = self.row(key)
        if there is not None and there.kind is not StepKind.WAIT:
            return self.answer(self.rows[key])
        until = None if there is None else there.until
        for signal, payload in self.signals:
            if signal in signals:
                self.signals.remove((signal, payload))
                self.put(key, StepKind.RECEIVED, dump_received(ReceivedSignal(signal, payload)), until)
                return self.answer(self.rows[key])
        if until is not None and until <= self.clock.now():
            self.put(key, StepKind.RECEIVED, dump_received(None), until)
            return self.answer(self.rows[key])
        return self.answer(None)

    async def inbox(self, queue: str, job_id: str) -> list[SignalRow]:
        del queue, job_id
        return [
            SignalRow(number, signal.name, payload, 0, None, signal.key)
            for number, (signal, payload) in enumerate(self.signals)
        ]

    def rest(self, rested: Rested) -> int | None:
        """Settle the job as resting; returns the time until which it does."""
        for rest in rested.rests:
            there = self.row(rest.key)
            if rest.recorded:
                continue
            if there is None or rest.kind in REPLACED.get(there.kind, set()):
                until = None if rest.delay is None else self.clock.now() + rest.delay
                self.put(rest.key, rest.kind, rest.text, until, rest.digest)
        for node in rested.children:
            self.children.setdefault(node.ref, Child(node.ref, ChildState.OPEN, None, node.job.name, None))
        times = [
            row.until for rest in rested.rests if (row := self.row(rest.key)) is not None and row.until is not None
        ]
        return min(times, default=None)


@dataclass
class Reports:
    """What the attempt reports beside its steps."""

    store: FakeSteps
    lines: list[str] = field(default_factory=list)

    async def report(self, report: Report) -> Verdict:
        if isinstance(report, LogLine):
            self.lines.append(report.line)
        return Verdict.OK

    async def children(self, claimed: Claimed) -> list[Child]:
        del claimed
        return list(self.store.children.values())

    async def named_children(self, claimed: Claimed) -> list[Child]:
        return await self.children(claimed)

    async def family(self, claimed: Claimed) -> ChildCounts:
        del claimed
        return ChildCounts()

    async def add_children(self, claimed: Claimed, nodes: Sequence[FlowNode]) -> Verdict:
        del claimed
        self.store.rest(Rested(tuple(nodes)))
        return Verdict.OK

    def children_round(self) -> int:
        return 0

    @property
    def steps(self) -> AttemptSteps:
        raise AssertionError(self)

    @property
    def steps_used(self) -> AttemptSteps | None:
        return None

    def job(self, claimed: Claimed) -> Any:
        raise AssertionError(claimed)

    def runs_as(self, claimed: Claimed, handler: Any) -> Any:
        raise AssertionError((claimed, handler))


Handler = Callable[[AttemptSteps], Awaitable[Any]]


class StepJob:
    """One job, whose handler is run by hand."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.store = FakeSteps(self.clock)
        self.reports = Reports(self.store)
        self.unfit: list[str] = []
        self.signal = Signal()
        self.steps: AttemptSteps | None = None
        self.runs = 0
        self.until: int | None = None  # until when the last run rests

    def begin(self) -> AttemptSteps:
        """The steps of a new run."""
        self.runs += 1
        recorded = RecordedSteps(dict(self.store.rows), self.store.reruns, 0, self.clock.now())
        made = self.store.attempts_made
        claimed = Claimed(Lease("q", "job", "token"), "job", "null", 1, self.runs, 5, made, 0, 0, 0, 0, None, None)
        services = StepServices(
            writer=StepWriter("q", self.store, self.clock, "w"),  # type: ignore[arg-type]
            clock=self.clock,
            loop=asyncio.get_running_loop(),
            unfit=lambda _, why: self.unfit.append(why),
        )
        self.signal = Signal()
        self.steps = AttemptSteps(services, replace(claimed, steps=recorded), self.reports, self.signal)
        return self.steps

    async def run(self, handler: Handler) -> Any:
        """Run the handler once: its value, or the rest in which it was left."""
        steps, returned = self.begin(), False
        try:
            value = await handler(steps)
            returned = True
        except Resting as resting:
            rested: Any = resting.rested
            self.until = self.store.rest(rested)
            return rested
        finally:
            await steps.end(returned=returned)
        return value

    async def finish(self, handler: Handler) -> Any:
        """Run it to its end, letting the time pass for which it rests."""
        while isinstance(outcome := await self.run(handler), Rested):
            self.clock.advance(0 if self.until is None else max(0, self.until - self.clock.now()))
        return outcome
