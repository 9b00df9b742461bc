"""Who has changed what from outside."""

from dataclasses import dataclass
from typing import Final

AUDIT_LENGTH: Final = 10_000  # entries that are kept


@dataclass(frozen=True, slots=True, kw_only=True)
class Audited:
    """One change that was asked for over HTTP, and how that ended. `at` is the store's time, which gives it."""

    who: str
    address: str
    action: str
    target: str
    detail: str
    ended: str
    at: int = 0
