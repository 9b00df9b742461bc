"""The errors of a job's earlier attempts, as text with one JSON line each, oldest first.

The last error is the job's own failure, complete; the others are shortened.
"""

import json
from collections.abc import Sequence
from typing import Final

from toril.model import (
    ATTEMPT_ERRORS,
    ATTEMPT_REASON_BYTES,
    ATTEMPT_TRACEBACK_BYTES,
    CANCELLED_KIND,
    EXPIRED_KIND,
    AttemptFailure,
    Failure,
    storable,
    storable_end,
)

__all__ = ["all_errors", "dump_errors", "error_line", "load_errors", "short_error"]

_NO_ATTEMPT: Final = frozenset({CANCELLED_KIND, EXPIRED_KIND})  # ended from outside, without an error


def short_error(failure: Failure) -> str:
    """The part of a line after attempt and time: kind, reason and traceback, shortened."""
    reason = storable(failure.reason, ATTEMPT_REASON_BYTES)
    traceback = storable_end(failure.traceback, ATTEMPT_TRACEBACK_BYTES)
    return json.dumps([failure.kind[:200], reason, traceback], ensure_ascii=False, separators=(",", ":"))[1:-1]


def error_line(attempt: int, at: int | None, failure: Failure) -> str:
    return f"[{attempt},{'null' if at is None else at},{short_error(failure)}]"


def dump_errors(errors: Sequence[AttemptFailure]) -> str | None:
    """The text for these errors; None if there are none."""
    return "\n".join(error_line(each.attempt, each.at, each.failure) for each in errors[-ATTEMPT_ERRORS:]) or None


def load_errors(text: str | None) -> tuple[AttemptFailure, ...]:
    """The errors in a text. Lines that cannot be read are left out."""
    found = []
    for line in (text or "").split("\n"):
        try:
            attempt, at, kind, reason, traceback = json.loads(line)
            found.append(
                AttemptFailure(int(attempt), None if at is None else int(at), Failure(reason, kind, traceback))
            )
        except (ValueError, TypeError, AttributeError, OverflowError, RecursionError):
            continue
    return tuple(found)


def all_errors(
    recorded: Sequence[AttemptFailure], last: Failure | None, *, made: int, at: int | None, traces: Sequence[str] = ()
) -> tuple[AttemptFailure, ...]:
    """The errors of all attempts in order: those recorded, and the job's current failure, of time `at`. Workers of
    other libraries record nothing but a stack trace per attempt (`traces`); if all of these are there, they tell of
    attempts that nothing else does."""
    found = {each.attempt: each for each in recorded}
    if last is not None and last.kind not in _NO_ATTEMPT:
        attempt = max(made, 1)
        if attempt not in found:
            found[attempt] = AttemptFailure(attempt, at, last)
        elif at is not None:
            found[attempt + 1] = AttemptFailure(attempt + 1, at, last)  # its worker died: no attempt was spent
        else:
            found[attempt] = AttemptFailure(attempt, found[attempt].at, last)
    if len(traces) == made:
        for attempt, trace in enumerate(traces, 1):
            if attempt not in found:
                found[attempt] = AttemptFailure(attempt, None, Failure(trace.partition("\n")[0], "", trace))
    return tuple(found[attempt] for attempt in sorted(found))
