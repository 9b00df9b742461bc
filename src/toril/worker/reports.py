"""Sends an attempt's reports to the store; progress is written at most ten times a second."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from toril.context import RunsAs, Signal
from toril.errors import EngineUnavailable, Resting, TorilError
from toril.job import Job
from toril.model import (
    Checkpoint,
    Child,
    ChildCounts,
    Claimed,
    DataUpdate,
    FlowNode,
    JobRef,
    LogLine,
    Progress,
    Report,
    Verdict,
)
from toril.runtime.calls import Caller
from toril.runtime.clock import Clock, Timer
from toril.runtime.logs import Contact, log, outages
from toril.store.engine import Store
from toril.worker.steps import AttemptSteps, StepServices, StepWriting

__all__ = ["AttemptReports", "ReportServices"]

_INTERVAL: Final = 0.1
_NOUNS: Final[dict[type[Progress | LogLine], str]] = {Progress: "progress", LogLine: "log line"}


@dataclass(frozen=True, slots=True)
class ReportServices:
    """What the reports of all attempts of one queue need. `job` creates the `Job` that users see; `progressed` is
    called when progress was written."""

    queue: str
    engine: Store
    clock: Clock
    caller: Caller
    job: Callable[[Claimed], Job[Any]]
    progressed: Callable[[Claimed, str], None]
    steps: Callable[[], StepServices]


class AttemptReports:
    """Sends one attempt's reports to the store. If progress comes too fast, it is held back, and the latest value is
    written soon."""

    __slots__ = (
        "_claimed",
        "_contact",
        "_pending",
        "_repeated",
        "_rounds",
        "_sent",
        "_services",
        "_signal",
        "_timer",
        "_writing",
        "steps_used",
    )

    def __init__(self, services: ReportServices, claimed: Claimed, signal: Signal) -> None:
        self._services = services
        self._claimed = claimed
        self._signal = signal
        self.steps_used: AttemptSteps | None = None  # what the handler does by durable steps, once it has asked for one
        self._repeated = frozenset[str]()
        self._pending: Progress | None = None
        self._sent: float | None = None
        self._timer: Timer | None = None
        self._rounds = 0
        self._contact = Contact()
        self._writing: asyncio.Task[None] | None = None

    @property
    def unwritten(self) -> bool:
        """Whether there may be something to flush."""
        return self._sent is not None

    @property
    def steps(self) -> AttemptSteps:
        """The durable steps of this run."""
        if self.steps_used is None:
            steps = self._services.steps()
            self.steps_used = AttemptSteps(steps, self._claimed, self, self._signal, self._repeated)
        return self.steps_used

    @property
    def again(self) -> bool:
        """Whether the handler was left only to be called again at once."""
        return self.steps_used is not None and self.steps_used.again and not self._signal.aborted

    async def begin_again(self) -> Claimed:
        """Return the job with what this run has recorded, for the next call of its handler."""
        assert self.steps_used is not None  # noqa: S101 - who asks has looked at `again`
        rows: dict[str, str] = {}
        lease, cursor = self._claimed.lease, None
        while True:
            after = cursor
            page = await self._services.caller.send(
                lambda _, after=after: self._services.engine.steps.page(lease.queue, lease.id, cursor=after)  # type: ignore[misc]
            )
            rows |= page.items
            cursor = page.cursor
            if cursor is None:
                break
        recorded, self._repeated = self.steps_used.recorded(rows)
        self._claimed = replace(self._claimed, steps=recorded)
        self.steps_used, self._rounds = None, 0
        return self._claimed

    @property
    def step_writer(self) -> StepWriting:
        """Where the steps of a child process are written."""
        return self._services.steps().writer

    def set_aside(self, why: str) -> None:
        """A child process has read a signal that is not of its declared type."""
        self._services.steps().unfit(self._claimed, why)

    def left_unread(self, names: Sequence[str]) -> None:
        """A child process has ended without reading these signals."""
        self._services.steps().unread(self._claimed, names)

    async def end_steps(self, error: BaseException | None) -> None:
        """The handler has returned, or raised this. If it was told to rest, the job rests whatever it made of that."""
        steps = self.steps_used
        if steps is None:
            return
        await steps.end(returned=error is None)
        stopping = self._signal.aborted or isinstance(error, asyncio.CancelledError)
        if steps.rested is None or steps.again or stopping or isinstance(error, Resting | BaseExceptionGroup):
            return
        self.rests_anyway()
        raise Resting(steps.rested) from error

    def rests_anyway(self) -> None:
        """The handler has caught `Resting`, which changes nothing."""
        log.warning("job %s of queue %s rests, but its handler has caught Resting", *_names(self._claimed))

    def job(self, claimed: Claimed) -> Job[Any]:
        return self._services.job(claimed)

    async def report(self, report: Report) -> Verdict:
        """Write a report. Progress and log lines are best effort: a store that is away fails no job for them. Data and
        checkpoints are what a retry builds on, so they are written or an error is raised."""
        match report:
            case Progress():
                return await self._progress(report)
            case LogLine():
                return await self._try_to_write(report)
            case DataUpdate() | Checkpoint():
                return await self._write(report)

    async def family(self, claimed: Claimed) -> ChildCounts:
        return await self._services.caller.send(lambda _: self._services.engine.flows.child_counts(_ref(claimed)))

    async def children(self, claimed: Claimed) -> list[Child]:
        found: list[Child] = []
        cursor: str | None = None
        while True:
            after = cursor
            page = await self._services.caller.send(
                lambda _, after=after: self._services.engine.flows.children(_ref(claimed), cursor=after, limit=1000)  # type: ignore[misc]
            )
            found += page.items
            cursor = page.cursor
            if cursor is None:
                return found

    async def named_children(self, claimed: Claimed) -> list[Child]:
        names = await self._services.caller.send(lambda _: self._services.engine.flows.child_names(_ref(claimed)))
        known = {ref: (name, number) for number, (ref, name) in enumerate(names)}
        return [
            Child(child.ref, child.state, child.text, *known.get(child.ref, (None, None)))
            for child in await self.children(claimed)
        ]

    def runs_as(self, claimed: Claimed, handler: Any) -> list[RunsAs]:
        return self._services.job(claimed).queue.runs_as(handler)

    async def add_children(self, claimed: Claimed, nodes: Sequence[FlowNode]) -> Verdict:
        return await self._services.caller.send(
            lambda call: self._services.engine.flows.add_children(claimed.lease, nodes, call=call)
        )

    def children_round(self) -> int:
        self._rounds += 1
        return self._rounds - 1

    async def _progress(self, report: Progress) -> Verdict:
        now = self._services.clock.monotonic()
        if self._sent is None or now - self._sent >= _INTERVAL:
            self._sent, self._pending = now, None
            return await self._try_to_write(report)
        self._pending = report
        if self._timer is None:
            self._timer = self._services.clock.later(self._sent + _INTERVAL - now, self._catch_up)
        return Verdict.OK

    async def flush(self) -> None:
        """The attempt ends: write the progress that was held back."""
        if self._timer is not None:
            self._timer.cancel()
        if self._writing is not None:
            await asyncio.wait([self._writing])
        await self._write_pending()

    def _catch_up(self) -> None:
        self._timer = None
        if self._pending is not None and (self._writing is None or self._writing.done()):
            self._sent = self._services.clock.monotonic()
            self._writing = asyncio.ensure_future(self._write_pending())

    async def _write_pending(self) -> None:
        report, self._pending = self._pending, None
        if report is not None:
            await self._try_to_write(report)

    async def _try_to_write(self, report: Progress | LogLine) -> Verdict:
        try:
            verdict = await self._write(report)
        except EngineUnavailable as error:
            outages.tell(str(error))
            self._contact.lost()
            return Verdict.OK
        except TorilError as error:
            log.warning("the %s of job %s could not be stored: %s", _NOUNS[type(report)], report.lease.id, error)
            return Verdict.OK
        self._contact.made()
        return verdict

    async def _write(self, report: Report) -> Verdict:
        (verdict,) = await self._services.caller.send(
            lambda call: self._services.engine.report(self._services.queue, [report], call=call)
        )
        if isinstance(report, Progress) and verdict is Verdict.OK:
            self._services.progressed(self._claimed, report.value)
        return verdict


def _names(claimed: Claimed) -> tuple[str, str]:
    return claimed.lease.id, claimed.lease.queue


def _ref(claimed: Claimed) -> JobRef:
    return JobRef(claimed.lease.queue, claimed.lease.id)
