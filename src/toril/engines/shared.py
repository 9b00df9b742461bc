"""Code that all engines share: the words of refusals, numbers in cursors, and audit entries."""

import json
import re
from dataclasses import asdict
from typing import Final, Literal, TypeAlias

from toril.errors import CallTooLate, NotFound, QueueFull, TorilError, WrongState, unknown_cursor
from toril.model import AuditEntry

__all__ = [
    "CHILD_GONE",
    "Refusal",
    "child_failed",
    "cursor_number",
    "cursor_numbers",
    "dump_audit",
    "full",
    "load_audit",
    "refused",
    "still_moving",
    "still_running",
    "too_late",
]

_NUMBER: Final = re.compile(r"[0-9]{1,16}\Z")
_NUMBERS: Final = re.compile(r"([0-9]{1,18})-([0-9]{1,18})\Z")


def dump_audit(entry: AuditEntry) -> str:
    return json.dumps(asdict(entry))


def load_audit(text: str, at: int) -> AuditEntry:
    """An entry; `at` is when it was written, where it does not say that itself."""
    fields = json.loads(text)
    return AuditEntry(**{**fields, "at": fields["at"] or at})


def cursor_number(cursor: str) -> int:
    """The number at which a page begins."""
    if not isinstance(cursor, str) or _NUMBER.match(cursor) is None:
        raise unknown_cursor(cursor)
    return int(cursor)


def cursor_numbers(cursor: str) -> tuple[int, int]:
    """The two numbers at which a page begins."""
    found = _NUMBERS.match(cursor) if isinstance(cursor, str) else None
    if found is None:
        raise unknown_cursor(cursor)
    return int(found[1]), int(found[2])


# What a parent that runs again is told of children that failed and do not run with it. Scripts have the same words.
CHILD_GONE: Final = "it failed, and nothing is left of it to run again"
_REASON: Final = 1_000  # characters of a child's reason in its parent's

Refusal: TypeAlias = Literal["no_parent", "parent_state", "taken", "has_children", "has_failed"]


def refused(why: Refusal, job: str, other: str) -> TorilError:
    """The error for a job, `queue:id`, that cannot be added; `other` is the parent, or the state, that forbids it."""
    match why:
        case "no_parent":
            return NotFound(f"job {job} cannot be added as a child of {other}: there is no such job")
        case "parent_state":
            return WrongState(
                f"job {job} is {other}; only a job that is running or waiting for children can be given children"
            )
        case "taken":
            return WrongState(f"job {job} is already a child of {other}, which has not ended; nothing was added")
        case "has_children":
            return WrongState(f"job {job} already has children and cannot become a child of {other}; nothing was added")
        case "has_failed":
            return WrongState(f"job {job} has failed and cannot become a child of {other}; retry or remove it first")


def too_late(last: int) -> CallTooLate:
    """The error for a call that arrives after a later one of its sender, which is `last`."""
    return CallTooLate(f"this call came too late: call {last} of the same sender has already been answered")


def still_running(queue: str, count: int) -> WrongState:
    """The error for a queue that cannot be obliterated."""
    return WrongState(f"queue {queue!r} has {count} running jobs; stop them first, or obliterate it with force")


def still_moving() -> WrongState:
    """The error for a move while a batch is on its way to another store."""
    return WrongState("an earlier move to another store is not finished; finish it first")


def full(queue: str, group: str | None = None, *, most: int, held: int, refused: int) -> QueueFull:
    """The error for jobs that a queue, or one of its groups, has no room for."""
    what = f"queue {queue!r}" if group is None else f"group {group!r} of queue {queue!r}"
    return QueueFull(f"{what} has {held} of at most {most} waiting jobs; {refused} more do not fit and were refused")


def child_failed(queue: str, child: str, reason: str) -> str:
    """Why a parent fails whose child did."""
    return f"child {queue}:{child} failed: {reason[:_REASON]}"
