"""Which outcome a run of a handler must come to. Worked out anew, so that the worker's judgement is judged."""

import asyncio
from typing import TYPE_CHECKING, Final

from tests.sim.ledger import Entry
from tests.sim.script import Kind
from toril.errors import JobCancelled, PermanentError, Snooze, TransientError
from toril.model import Cancelled, Completed, Failed, Failure, Outcome, Released, Rested, Retried, Snoozed

if TYPE_CHECKING:
    from tests.sim.conduct import Run

__all__ = ["wrong"]

_GIVEN_UP: Final = 6.0  # seconds after its timeout at which an attempt that does not stop must have been given up


def wrong(run: "Run | None", outcome: Outcome, entry: Entry, now: float, *, stopping: bool) -> str | None:
    """What is wrong with an outcome, if anything is."""
    match outcome:
        case Released():
            return None if stopping else "given back, and nobody stops the worker"
        case Cancelled(reason):
            return (
                None if entry.cancelling == reason else f"cancelled for {reason!r}, the wish was {entry.cancelling!r}"
            )
        case Failed(Failure(kind="UnknownJob")):
            return None if entry.script.kind is Kind.UNKNOWN else "failed as unknown, and it has a handler"
        case _ if run is None:
            return f"{outcome} and it has not run"
        case Completed():
            return _completed(run, now)
        case Snoozed(delay):
            right = isinstance(run.error, Snooze) and delay == entry.script.delay
            return None if right else f"snoozed for {delay} ms, and it ended with {run.error!r}"
        case Rested():
            return "parked, and its handler does not ask for that"
        case Failed(failure):
            return _cause(run, failure, now) or _last(run, entry)
        case Retried(failure, delay):
            return _cause(run, failure, now) or _again(run, entry, failure, delay)


def _completed(run: "Run", now: float) -> str | None:
    if run.ended is None or run.error is not None:
        return f"completed, and it ended with {run.error!r}"
    timeout = run.script.timeout
    if timeout is not None and not run.held_up and now - run.began > timeout / 1000 + _GIVEN_UP:
        return f"completed {now - run.began:.1f} s after its start, with a timeout of {timeout} ms"
    return None


def _cause(run: "Run", failure: Failure, now: float) -> str | None:
    """Whether that is why it failed."""
    if failure.kind == "TimeoutError":
        timeout = run.script.timeout
        early = timeout is None or now - run.began < timeout / 1000
        return f"timed out after {now - run.began:.3f} s of {timeout} ms" if early else None
    right = run.error is not None and failure.kind == type(run.error).__name__
    if not right or isinstance(run.error, asyncio.CancelledError | JobCancelled):
        return f"failed for {failure.kind}, and it ended with {run.error!r}"
    return None


def _last(run: "Run", entry: Entry) -> str | None:
    left = entry.attempts - entry.made - 1
    return None if left <= 0 or isinstance(run.error, PermanentError) else f"failed with {left} attempts left"


def _again(run: "Run", entry: Entry, failure: Failure, delay: int) -> str | None:
    if entry.made + 1 >= entry.attempts:
        return f"tried again after {entry.made + 1} of {entry.attempts} attempts"
    backoff = run.job.options.backoff
    right = 0 if backoff is None else backoff.delay
    if backoff is not None and backoff.kind == "exponential":
        right *= 2**entry.made
    if isinstance(run.error, TransientError) and failure.kind == "TransientError":
        right = max(right, 300)
    return None if delay == right else f"tried again after {delay} ms, must be {right} ms"
