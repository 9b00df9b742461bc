"""Which dead letters are meant, and where a walk over them goes on."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, Literal

from toril.errors import InvalidOption, shown
from toril.model import Cause, DeadLetter

__all__ = ["LetterFilter", "cursor_of", "place_of"]

_LAST: Final = 2**63 - 1
_AFTER_ALL: Final = "\U0010ffff"  # no id is greater


@dataclass(frozen=True, slots=True, kw_only=True)
class LetterFilter:
    """Dead letters of a queue, of a job name, with a text in their error, of an error type (by its name), of a cause,
    within a time, with values in their payload: `payload={"user.id": 7}`. What is not given is not asked for."""

    queue: str | None = None
    name: str | None = None
    error: str | None = None
    kind: str | None = None
    cause: Cause | None = None
    after: datetime | None = None
    before: datetime | None = None
    payload: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("after", "before"):
            at = getattr(self, name)
            if at is not None and (not isinstance(at, datetime) or at.tzinfo is None):
                raise InvalidOption(f"{name} must be a datetime with a time zone, not {shown(at)}")
        for name in ("queue", "name", "error", "kind"):
            text = getattr(self, name)
            if text is not None and not isinstance(text, str):
                raise InvalidOption(f"{name} must be a text, not {shown(text)}")

    def matches(self, letter: DeadLetter) -> bool:
        """Whether this one is meant. Of the error, upper and lower case are the same."""
        return (
            self.queue in {None, letter.queue}
            and self.name in {None, letter.name}
            and self.kind in {None, letter.failure.kind}
            and self.cause in {None, letter.cause}
            and (self.error is None or self.error.casefold() in letter.failure.reason.casefold())
            and (self.after is None or letter.failed_at >= self.after.timestamp() * 1000)
            and (self.before is None or letter.failed_at < self.before.timestamp() * 1000)
            and (not self.payload or self._has_payload(letter.data))
        )

    def _has_payload(self, text: str) -> bool:
        try:
            data = json.loads(text)
        except ValueError:
            return False
        return all(_at(data, path) == value for path, value in self.payload.items())


_MISSING: Final = object()


def _at(data: Any, path: str) -> Any:
    """What a payload has under a path of keys and places, parted by dots."""
    for step in path.split("."):
        if isinstance(data, dict):
            data = data.get(step, _MISSING)
        elif isinstance(data, list) and step.isdecimal() and int(step) < len(data):
            data = data[int(step)]
        else:
            return _MISSING
    return data


def cursor_of(letter: DeadLetter) -> str:
    """Where a page ended that ended with this one."""
    return f"{letter.failed_at}:{letter.id}"


def place_of(order: Literal["newest", "oldest"], cursor: str | None) -> tuple[int, str]:
    """The time and id after which a page begins."""
    if order not in ("newest", "oldest"):
        raise InvalidOption(f"the order must be 'newest' or 'oldest', not {shown(order)}")
    if cursor is None:
        return (_LAST, _AFTER_ALL) if order == "newest" else (-1, "")
    time, separator, identity = cursor.partition(":") if isinstance(cursor, str) else ("", "", "")
    known = separator and time.isdecimal() and time.isascii() and len(time) <= 15 and _is_text(identity)
    if not known:
        raise InvalidOption(f"{shown(cursor)} is not a cursor that was given out")
    return int(time), identity


def _is_text(identity: str) -> bool:
    try:
        return bool(identity.encode())
    except UnicodeEncodeError:
        return False
