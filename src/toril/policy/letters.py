"""Which dead letters are meant, and where a walk over them goes on."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, Literal

from toril.errors import InvalidOption, shown
from toril.model import Cause, DeadLetterRow
from toril.policy.masking import masked
from toril.policy.search import JobFilter, Seen, at_path

__all__ = ["LetterFilter", "cursor_of", "place_of"]

_LAST: Final = 2**63 - 1
_AFTER_ALL: Final = "\U0010ffff"  # no id is greater


@dataclass(frozen=True, slots=True, kw_only=True)
class LetterFilter:
    """Dead letters of a queue, of a job name, with a text in their error, of an error type (by its name), of a cause,
    within a time, with values in their payload: `payload={"user.id": 7}`; with a key there, `user.id` or `user.id=7`;
    of a `group`, about a `subject`; with a text in their id, name, error, payload, group or subject. What is not given
    is not asked for. A text or a key is looked for in what may be shown of a payload."""

    queue: str | None = None
    name: str | None = None
    error: str | None = None
    kind: str | None = None
    cause: Cause | None = None
    after: datetime | None = None
    before: datetime | None = None
    payload: Mapping[str, Any] = field(default_factory=dict)
    key: str | None = None
    text: str | None = None
    group: str | None = None
    subject: str | None = None

    def __post_init__(self) -> None:
        for name in ("after", "before"):
            at = getattr(self, name)
            if at is not None and (not isinstance(at, datetime) or at.tzinfo is None):
                raise InvalidOption(f"{name} must be a datetime with a time zone, not {shown(at)}")
        for name in ("queue", "name", "error", "kind"):
            text = getattr(self, name)
            if text is not None and not isinstance(text, str):
                raise InvalidOption(f"{name} must be a text, not {shown(text)}")
        JobFilter(key=self.key, text=self.text, group=self.group, subject=self.subject)  # which says what is wrong

    def matches(
        self,
        letter: DeadLetterRow,
        seen: Callable[[DeadLetterRow], Any] | None = None,
        told: Callable[[DeadLetterRow], str] = lambda letter: letter.failure.reason,
    ) -> bool:
        """Whether this one is meant. Of the error, upper and lower case are the same. `seen` gives a payload and `told`
        an error as they may be shown; without `seen`, what is named like a secret is not looked at."""
        return (
            self.queue in {None, letter.queue}
            and self.name in {None, letter.name}
            and self.kind in {None, letter.failure.kind}
            and self.cause in {None, letter.cause}
            and self.group in {None, letter.group}
            and self.subject in {None, letter.subject}
            and (self.error is None or self.error.casefold() in told(letter).casefold())
            and (self.after is None or letter.failed_at >= self.after.timestamp() * 1000)
            and (self.before is None or letter.failed_at < self.before.timestamp() * 1000)
            and (not self.payload or self._has_payload(letter.data))
            and (
                (self.text is None and self.key is None)
                or self._has_text(letter, (seen or _masked)(letter), told(letter))
            )
        )

    def _has_text(self, letter: DeadLetterRow, data: Any, error: str) -> bool:
        looked_at = Seen(
            id=letter.id, name=letter.name, error=error, data=data, group=letter.group, subject=letter.subject
        )
        return JobFilter(key=self.key, text=self.text).fits(looked_at)

    def _has_payload(self, text: str) -> bool:
        try:
            data = json.loads(text)
        except (ValueError, RecursionError):
            return False
        return all(at_path(data, path) == value for path, value in self.payload.items())


def _masked(letter: DeadLetterRow) -> Any:
    try:
        return masked(json.loads(letter.data))
    except (ValueError, RecursionError):
        return letter.data


def cursor_of(letter: DeadLetterRow) -> str:
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
