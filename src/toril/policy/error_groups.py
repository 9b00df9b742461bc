"""Groups failures that differ only in ids or numbers."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from toril.model import moment, ms_of

__all__ = ["ErrorGroup", "FailureSample", "grouped", "likeness"]

_LONGEST: Final = 200
# What varies between failures: hexadecimal ids, numbers of five digits or more, and names in mail addresses.
# Shorter numbers are often the information, as in "451 greylisted" or "signal 9". Each pattern is bounded by its own
# signs.
_VARYING: Final = re.compile(
    r"\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b|\b0x[0-9a-f]+\b|\b(?=[0-9a-f]*[0-9])[0-9a-f]{8,}\b|[0-9]{5,}",
    re.IGNORECASE,
)
_ADDRESSEE: Final = re.compile(r"\b[\w.+-]{1,64}(?=@[\w-])")


@dataclass(frozen=True, slots=True)
class FailureSample:
    """One failure: its job, its error, and its time (ms)."""

    id: str
    kind: str
    reason: str
    at: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorGroup:
    """Similar failures. In `error`, `#` stands for what varies; `example` is the id of the latest of them."""

    kind: str
    error: str
    count: int
    first_at: datetime
    last_at: datetime
    example: str


def likeness(reason: str) -> str:
    """The first line of an error, with `#` in place of ids, long numbers and names in mail addresses."""
    line = reason.strip().partition("\n")[0][: 2 * _LONGEST]
    if "@" in line:
        line = _ADDRESSEE.sub("#", line)
    return _VARYING.sub("#", line)[:_LONGEST]


def grouped(failures: Iterable[FailureSample]) -> tuple[ErrorGroup, ...]:
    """The groups, largest first."""
    found: dict[tuple[str, str], list[FailureSample]] = {}
    for failed in failures:
        found.setdefault((failed.kind, likeness(failed.reason)), []).append(failed)
    made = [_made(kind, error, alike) for (kind, error), alike in found.items()]
    return tuple(sorted(made, key=lambda group: (-group.count, -ms_of(group.last_at), group.kind, group.error)))


def _made(kind: str, error: str, alike: list[FailureSample]) -> ErrorGroup:
    last = max(alike, key=lambda failed: failed.at)
    first_at = moment(min(failed.at for failed in alike))
    return ErrorGroup(
        kind=kind, error=error, count=len(alike), first_at=first_at, last_at=moment(last.at), example=last.id
    )
