"""Who has changed what from outside."""

from dataclasses import dataclass
from typing import Final

AUDIT_LENGTH: Final = 10_000  # entries that are kept


@dataclass(frozen=True, slots=True, kw_only=True)
class Audited:
    """One change that was asked for over HTTP, and how that ended: `done` counts the jobs that were changed, `refused`
    those that could not be, where the answer told. `at` is the store's time, which gives it."""

    who: str
    address: str
    action: str
    target: str
    detail: str
    ended: str
    at: int = 0
    done: int | None = None
    refused: int | None = None
