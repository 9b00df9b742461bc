"""What a handler sees of its job: the payload, the signal to stop, and a way to report."""

import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Generic, NoReturn, Protocol, TypeVar

from toril.calls import Run
from toril.codec import decode, encode
from toril.errors import JobCancelled, LeaseLost, RateLimited
from toril.model import Checkpoint, Claimed, LogLine, Progress, Report, Rewrite, Verdict
from toril.policy.retry import Seconds
from toril.signal import Signal, Why

if TYPE_CHECKING:
    from toril.job import Job
    from toril.sync import SyncJob

__all__ = ["JobContext", "Reporter", "SyncJobContext"]

T = TypeVar("T", covariant=True)  # a handler of `int | None` takes jobs that carry an int
R = TypeVar("R")

MAX_PROGRESS = 64 * 1024


class Reporter(Protocol):
    """Carries an attempt's reports to the store, where each is checked against its lease."""

    async def report(self, report: Report) -> Verdict: ...

    def job(self, claimed: Claimed) -> "Job[Any]": ...


class _Facts(Generic[T]):
    """What both kinds of context know without asking anyone."""

    __slots__ = ("_claimed", "_reporter", "data", "signal", "state")

    def __init__(self, data: T, claimed: Claimed, reporter: Reporter, signal: Signal, state: Any) -> None:
        self.data = data
        self.signal = signal
        self.state = state
        self._claimed = claimed
        self._reporter = reporter

    @property
    def job(self) -> "Job[Any]":
        """The job itself, for all that a context does not offer."""
        return self._reporter.job(self._claimed)

    @property
    def job_id(self) -> str:
        """The same on every attempt: use it as an idempotency key."""
        return self._claimed.lease.id

    @property
    def job_name(self) -> str:
        return self._claimed.name

    @property
    def queue_name(self) -> str:
        return self._claimed.lease.queue

    @property
    def attempt(self) -> int:
        """Which attempt this is, from 1."""
        return self._claimed.attempts_made + 1

    @property
    def fence(self) -> int:
        """A number that grows with every start of this job, so that others can refuse an older one."""
        return self._claimed.fence

    @property
    def metadata(self) -> Mapping[str, Any]:
        """What the producer sent beside the payload."""
        text = self._claimed.metadata
        return {} if text is None else decode(text, what="metadata")

    def is_cancelled(self) -> bool:
        """Whether this attempt should stop, for whatever reason."""
        return self.signal is not None and self.signal.kind is not None

    def raise_if_cancelled(self) -> None:
        """A good breakpoint: raises `JobCancelled` (or `LeaseLost`) once the attempt should stop."""
        if self.is_cancelled():
            raise stopped(self.signal)

    def rate_limited(self, seconds: Seconds) -> NoReturn:
        """Give up this attempt, and start nothing of this queue for `seconds`, in no process: for a 429 of whom the job
        calls. No attempt is spent, and the job keeps its place."""
        raise RateLimited(seconds)


def stopped(signal: Signal) -> Exception:
    """What an attempt raises that was told to stop."""
    if signal.kind is Why.LEASE_LOST:
        return LeaseLost(signal.reason or "the lease was lost")
    return JobCancelled(signal.reason)


class JobContext(_Facts[T]):
    """The argument of an `async def` handler."""

    __slots__ = ()

    async def update_progress(self, value: Any) -> None:
        """How far the job has come: a number, or any JSON value. Frequent calls are written ten times a second."""
        await self._report(Progress(self._claimed.lease, encode(value, what="progress", limit=MAX_PROGRESS)))

    async def log(self, line: str) -> None:
        """One line for the job's own log."""
        await self._report(LogLine(self._claimed.lease, _one_line(line)))

    async def update_data(self, data: Any) -> None:
        """Replace the payload that a retry would get."""
        await self._report(Rewrite(self._claimed.lease, encode(data)))

    async def checkpoint(self, value: Any) -> None:
        """Remember how far it is; `last_checkpoint` has it when the job runs again."""
        await self._report(Checkpoint(self._claimed.lease, encode(value, what="checkpoint")))

    @property
    def last_checkpoint(self) -> Any:
        """What the last attempt of this job remembered, or None."""
        text = self._claimed.checkpoint
        return None if text is None else decode(text, what="checkpoint")

    async def _report(self, report: Report) -> None:
        if await self._reporter.report(report) is not Verdict.OK:
            raise LeaseLost(f"job {self.job_id} is no longer this attempt's to report on")


class SyncJobContext(_Facts[T]):
    """The argument of a plain `def` handler: the same methods, which block."""

    __slots__ = ("_run",)

    def __init__(
        self,
        data: T,
        claimed: Claimed,
        reporter: Reporter,
        signal: Signal,
        state: Any,
        run: Run,
    ) -> None:
        super().__init__(data, claimed, reporter, signal, state)
        self._run = run

    def update_progress(self, value: Any) -> None:
        self._run(self._twin().update_progress(value))

    def log(self, line: str) -> None:
        self._run(self._twin().log(line))

    def update_data(self, data: Any) -> None:
        self._run(self._twin().update_data(data))

    def checkpoint(self, value: Any) -> None:
        self._run(self._twin().checkpoint(value))

    @property
    def last_checkpoint(self) -> Any:
        return self._twin().last_checkpoint

    @property
    def job(self) -> "SyncJob[Any]":  # type: ignore[override]
        """The job itself, whose methods block too."""
        from toril.sync import SyncJob  # noqa: PLC0415 - it is made of what this module helps to make

        return SyncJob(self._reporter.job(self._claimed), self._run)

    def wait_for_cancel(self, timeout: float | None = None) -> bool:
        """Rest for `timeout` seconds, or until the attempt should stop; whether it should."""
        if self.signal is None:  # the queue was declared without cancellation
            return timeout is not None and threading.Event().wait(timeout)
        return self.signal.event().wait(timeout)

    def _twin(self) -> JobContext[T]:
        return JobContext(self.data, self._claimed, self._reporter, self.signal, self.state)


def _one_line(line: str) -> str:
    """A log entry stays one entry: what would break the line or drive a terminal is escaped."""
    text = line if isinstance(line, str) else str(line)
    return text if text.isprintable() else "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)
