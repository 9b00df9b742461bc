"""One attempt: finds the handler, checks the payload, calls it, and reports the outcome. It never raises."""

import asyncio
import traceback
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from toril.codec.encoding import encode
from toril.context import Signal, StopReason
from toril.errors import JobCancelled, LeaseLost, StepFailed, error_text
from toril.handlers import RegisteredHandler, Registry
from toril.model import Cancelled, Claimed, Completed, Failed, Failure, Lease, Outcome, Released, Snoozed
from toril.model.attempts import Result
from toril.model.durations import milliseconds
from toril.policy.redaction import redacted
from toril.policy.retry import DEFAULTS, BackoffStrategy, ErrorTable, cause_of, judge, unwrapped
from toril.runtime.logs import log

__all__ = [
    "AttemptRules",
    "ChildFailed",
    "Invoke",
    "LeaseDropped",
    "UnsendableResult",
    "judged",
    "outcome_of",
    "outcome_of_stop",
]

# Calls the handler with its payload, wherever it runs.
Invoke = Callable[[RegisteredHandler, Any], Awaitable[Any]]

_NOTHING = Completed()  # the result of most handlers
# Delay until a job without a handler is offered again, perhaps to a worker that has one; doubled each time.
_FIRST_RELEASE = 1_000
_LONGEST_RELEASE = 60_000


class LeaseDropped(Exception):
    """The lease was lost: there is nothing to settle."""


class ChildFailed(Exception):
    """What a handler raised in a child process, or how that process died, as text."""

    def __init__(self, reason: str, *, kind: str, trace: str = "", lineage: tuple[str, ...] = ()) -> None:
        super().__init__(reason)
        self.kind = kind
        self.trace = trace
        self.lineage = lineage


@dataclass(frozen=True, slots=True)
class UnsendableResult:
    """A handler in a child process returned something that cannot be sent here."""

    why: str


@dataclass(frozen=True, slots=True)
class AttemptRules:
    """What decides the outcome besides the handler."""

    registry: Registry
    release_unknown: bool
    chance: Callable[[], float]
    table: ErrorTable = DEFAULTS
    strategies: Mapping[str, BackoffStrategy] = field(default_factory=dict)
    job: Callable[[Claimed], Any] = lambda job: job

    def table_for(self, name: str) -> ErrorTable:
        """Which errors of a job are retried: as its handler says, else as the queue says."""
        entry = self.registry.find(name)
        own = entry.handler.retry if entry else None
        return self.table if own is None else own.table


async def outcome_of(job: Claimed, signal: Signal, rules: AttemptRules, invoke: Invoke) -> Outcome:
    """The outcome of this attempt. Raises `LeaseDropped` if its lease was lost."""
    if job.unreadable is not None:
        return Failed(Failure(job.unreadable, "Undecodable"))
    entry = rules.registry.find(job.name)
    if entry is None:
        return _unknown(job, rules)
    try:
        if entry.handler.runs_if is not None and not entry.handler.runs_if():
            return _skipped(entry.handler.skip_reason.replace("{job}", job.name))
        result = entry.returned(await invoke(entry, entry.payload.decode(job.data)))
    except BaseException as raised:  # SystemExit and KeyboardInterrupt too are only failures of the handler
        error = unwrapped(raised)
        if isinstance(error, asyncio.CancelledError) and signal.kind is None and _torn_down():
            raise
        if signal.kind is not None and isinstance(error, asyncio.CancelledError | JobCancelled | LeaseLost):
            return outcome_of_stop(signal, job, rules)  # it was told to stop and did, whatever it raised
        return judged(error, job, rules)
    return _completed(entry, result, job.lease)


def _torn_down() -> bool:
    """Whether the worker itself is being cancelled, and not just something that a handler awaits."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def outcome_of_stop(signal: Signal, job: Claimed, rules: AttemptRules) -> Outcome:
    """The outcome of an attempt that was stopped."""
    match signal.kind:
        case StopReason.CANCELLED:
            return Cancelled(signal.reason or "No reason provided")
        case StopReason.TIMEOUT:
            error = TimeoutError(signal.reason)
            return judged(error, job, rules, Failure(str(error), "TimeoutError"))
        case StopReason.LEASE_LOST:
            raise LeaseDropped
        case StopReason.SHUTDOWN | None:
            return Released()


def _completed(entry: RegisteredHandler, result: Any, lease: Lease) -> Completed:
    """The work is done. A result that cannot be kept does not change that: it is dropped, and the record says so."""
    if result is None:
        return _NOTHING
    if isinstance(result, UnsendableResult):
        return _not_kept(entry, result.why, lease)
    try:
        summary = result.line() if isinstance(result, Result) else None
        return Completed(entry.result.encode(result), summary)
    except Exception as error:  # from our encoder, or from a serializer
        return _not_kept(entry, error_text(error), lease)


def _not_kept(entry: RegisteredHandler, why: str, lease: Lease) -> Completed:
    log.warning("%s/%s (%s) completed, but its result was dropped: %s", lease.queue, lease.id, entry.name, why)
    return Completed("null", summary=f"the result was dropped: {why}")


def _unknown(job: Claimed, rules: AttemptRules) -> Outcome:
    if rules.release_unknown:
        before = max(0, job.starts - 1 - job.attempts_made - job.stalls)
        return Snoozed(min(_FIRST_RELEASE << min(before, 30), _LONGEST_RELEASE))
    return Failed(Failure(f"Job function not found: {job.name}", "UnknownJob"))


def _skipped(reason: str) -> Completed:
    return Completed(encode({"skipped": True, "reason": reason}), summary=f"skipped: {reason}", skipped=reason)


def judged(error: BaseException, job: Claimed, rules: AttemptRules, failure: Failure | None = None) -> Outcome:
    """The outcome of an attempt that raised this. `failure` is the text to store, if it differs from the error's."""
    failure = failure or failure_of(error)
    try:
        delay = _own_delay(error, job, rules)
        return judge(error, failure, job, chance=rules.chance(), table=rules.table_for(job.name), delay=delay)
    except Exception as wrong:  # a Snooze or retry_after with an invalid time
        return judge(wrong, failure_of(wrong), job, chance=rules.chance())


def _own_delay(error: BaseException, job: Claimed, rules: AttemptRules) -> int | None:
    """The delay of the app's own strategy, if the job uses one. If the strategy fails, that is logged, and the job
    waits like jobs whose strategy is unknown."""
    name = job.options.backoff.strategy if job.options.backoff else None
    strategy = rules.strategies.get(name or "")
    if strategy is None:
        return None
    try:
        return milliseconds("a backoff", strategy(job.attempts_made + 1, error, rules.job(job)))
    except Exception:
        log.exception("the backoff strategy %s failed", name)
        return None


def failure_of(error: BaseException) -> Failure:
    """An error as text, whatever its own methods do, without recognizable secrets."""
    if isinstance(error, ChildFailed):
        return Failure(redacted(str(error)), error.kind, redacted(error.trace))
    if isinstance(error, StepFailed):
        return _failure_of_step(error)
    try:
        trace = "".join(traceback.format_exception(error, limit=-50))
    except Exception:  # the error's own methods may raise; keep its message
        trace = ""
    return Failure(redacted(error_text(error)), type(error).__name__, redacted(trace))


def _failure_of_step(error: StepFailed) -> Failure:
    """What the step has failed by, so that failures are grouped by the real error; the traceback has both."""
    cause = cause_of(error)
    shown = failure_of(cause) if cause is not error else Failure(redacted(error.reason), error.kind)
    try:
        trace = "".join(traceback.format_exception(error, limit=-50))
    except Exception:  # as above
        trace = shown.traceback
    return Failure(shown.reason, shown.kind, redacted(trace))
