"""What engines word or encode alike: flow refusals, audit entries."""

import json
import re
from dataclasses import asdict
from typing import Final, Literal, TypeAlias

from toril.errors import InvalidOption, NotFound, TorilError, WrongState, preview
from toril.model import AuditEntry

__all__ = ["CHILD_GONE", "Refusal", "child_failed", "dump", "load", "place_of", "refused"]

_PLACE: Final = re.compile(r"([0-9]{1,18})-([0-9]{1,18})\Z", re.ASCII)


def dump(entry: AuditEntry) -> str:
    return json.dumps(asdict(entry))


def load(text: str, at: int) -> AuditEntry:
    """An entry; `at` is when it was written, where it does not say that itself."""
    fields = json.loads(text)
    return AuditEntry(**{**fields, "at": fields["at"] or at})


def place_of(cursor: str) -> tuple[int, int]:
    """The entry before which a page begins."""
    found = _PLACE.match(cursor) if isinstance(cursor, str) else None
    if found is None:
        raise InvalidOption(f"{preview(cursor)} is not a cursor that was given out")
    return int(found[1]), int(found[2])


# What a parent that runs again is told of children that failed and do not run with it. Scripts have the same words.
CHILD_GONE: Final = "it failed, and nothing is left of it that could be run again"
_REASON: Final = 1_000  # characters of a child's reason in its parent's

Refusal: TypeAlias = Literal["no_parent", "parent_state", "taken", "has_children", "has_failed"]


def refused(why: Refusal, job: str, other: str) -> TorilError:
    """The error for a job, `queue:id`, that cannot be added; `other` is the parent, or the state, that forbids it."""
    match why:
        case "no_parent":
            return NotFound(f"job {job} cannot be added as a child: there is no job {other}")
        case "parent_state":
            return WrongState(f"job {job} is {other}: only a job that runs, or waits for children, can be given more")
        case "taken":
            return WrongState(f"job {job} is a child of {other} already, which has not ended; nothing was added")
        case "has_children":
            return WrongState(f"job {job} has children of its own and cannot be given to {other}; nothing was added")
        case "has_failed":
            return WrongState(f"job {job} has failed: retry or remove it before it becomes a child of {other}")


def child_failed(queue: str, child: str, reason: str) -> str:
    """Why a parent fails whose child did."""
    return f"child {queue}:{child} failed: {reason[:_REASON]}"
