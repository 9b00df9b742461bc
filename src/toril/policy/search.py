"""Filters for jobs and dead letters."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, Literal, TypeAlias

from toril.errors import InvalidOption, preview, unknown_cursor
from toril.model import Cause, DeadLetterRow, RunStatus, ms_of
from toril.policy.redaction import masked

__all__ = [
    "DeadLetterFilter",
    "EndingName",
    "JobFilter",
    "PayloadKey",
    "Searchable",
    "at_path",
    "cursor_of",
    "place_of",
]

EndingName: TypeAlias = Literal["completed", "failed", "cancelled"]

_LONGEST: Final = 200  # characters of a search term
_MISSING: Final = object()


@dataclass(frozen=True, slots=True)
class PayloadKey:
    """A path of keys in a payload, separated by dots, that must exist or have a given value. `parse` reads `user.id`
    and `user.id=7`; the value is JSON if it can be, and compared as text too."""

    path: str
    values: tuple[Any, ...] = ()

    @classmethod
    def parse(cls, text: str) -> "PayloadKey":
        path, separator, value = text.partition("=")
        if not path:
            raise InvalidOption(f"a key must look like user.id or user.id=7, not {preview(text)}")
        if not separator:
            return cls(path)
        try:
            return cls(path, (value, json.loads(value)))
        except (ValueError, RecursionError):
            return cls(path, (value,))

    def fits(self, data: Any) -> bool:
        found = at_path(data, self.path)
        return found is not _MISSING if not self.values else any(_same(found, value) for value in self.values)


@dataclass(frozen=True, slots=True, kw_only=True)
class Searchable:
    """The fields of a job or a run that a filter examines, as they are shown, so that nothing hidden can be found."""

    id: str
    name: str
    error: str
    data: Any
    moment: int | None = None
    worker: str | None = None
    ending: RunStatus | None = None
    group: str | None = None
    subject: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFilter:
    """Which jobs to find. Fields that you leave out match everything.

    `name` is the job's name; `error` is a text in its error; `text` is a text in its id, name, error, payload, group or
    subject; `key` is a key in its payload, `user.id` or `user.id=7`; `group`, `subject` and `worker` are compared as
    they are; `ending` tells failed jobs from cancelled ones; `until` leaves out jobs that ended later or, if they have
    not ended, were added later. Case is ignored in `error` and `text` only.
    """

    name: str | None = None
    error: str | None = None
    text: str | None = None
    key: str | None = None
    worker: str | None = None
    ending: EndingName | RunStatus | None = None
    group: str | None = None
    subject: str | None = None
    until: datetime | None = None

    def __post_init__(self) -> None:
        for name in ("name", "error", "text", "key", "worker", "group", "subject"):
            given = getattr(self, name)
            if given is not None and (not isinstance(given, str) or len(given) > _LONGEST):
                raise InvalidOption(f"{name} must be a string of at most {_LONGEST} characters, not {preview(given)}")
        if self.ending is not None and self.ending not in tuple(RunStatus):
            raise InvalidOption(f"ending must be 'completed', 'failed' or 'cancelled', not {preview(self.ending)}")
        if self.until is not None and (not isinstance(self.until, datetime) or self.until.tzinfo is None):
            raise InvalidOption(f"until must be a datetime with a time zone, not {preview(self.until)}")
        if self.key is not None:
            PayloadKey.parse(self.key)

    @property
    def everything(self) -> bool:
        """Whether the filter is empty."""
        return self == _EVERYTHING

    @property
    def looks_within(self) -> bool:
        """Whether the filter looks at payloads."""
        return self.key is not None or self.text is not None

    def fits(self, candidate: Searchable) -> bool:
        """Whether a job matches."""
        return (
            (self.name is None or candidate.name == self.name)
            and (self.worker is None or candidate.worker == self.worker)
            and (self.ending is None or candidate.ending == self.ending)
            and (self.group is None or candidate.group == self.group)
            and (self.subject is None or candidate.subject == self.subject)
            and (self.until is None or (candidate.moment is not None and candidate.moment <= ms_of(self.until)))
            and (self.error is None or self.error.casefold() in candidate.error.casefold())
            and (self.text is None or self._found_in(candidate, self.text.casefold()))
            and (self.key is None or PayloadKey.parse(self.key).fits(candidate.data))
        )

    def _found_in(self, candidate: Searchable, sought: str) -> bool:
        places = (candidate.id, candidate.name, candidate.error, candidate.group or "", candidate.subject or "")
        if any(sought in text.casefold() for text in places):
            return True
        return sought in json.dumps(candidate.data, ensure_ascii=False, default=str).casefold()


_EVERYTHING: Final = JobFilter()


def at_path(data: Any, path: str, missing: object = _MISSING) -> Any:
    """The value at a path of keys and indexes in a payload, separated by dots."""
    for step in path.split("."):
        if isinstance(data, Mapping):
            data = data.get(step, _MISSING)
        elif isinstance(data, list) and step.isascii() and step.isdecimal() and int(step[:9]) < len(data):
            data = data[int(step[:9])]
        else:
            return missing
    return missing if data is _MISSING else data


def _same(found: Any, value: Any) -> bool:
    """Whether two values are equal and have the same type; in Python, 1 == True."""
    return bool(found == value) and isinstance(found, bool) == isinstance(value, bool)


_LAST: Final = 2**63 - 1
_AFTER_ALL: Final = "\U0010ffff"  # no id is greater


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetterFilter:
    """Which dead letters to find. Fields that you leave out match everything.

    `queue`, `name`, `cause`, `group` and `subject` are compared as they are; `error` is a text in the error and `kind`
    its type; `since` and `until` limit when the job failed; `payload` has values that the payload must have, as in
    `payload={"user.id": 7}`; `key` is a key in it, `user.id` or `user.id=7`; `text` is a text in the id, name, error,
    payload, group or subject. Only what may be shown of a payload is searched.
    """

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
                raise InvalidOption(f"{name} must be a datetime with a time zone, not {preview(at)}")
        for name in ("queue", "name", "error", "kind"):
            text = getattr(self, name)
            if text is not None and not isinstance(text, str):
                raise InvalidOption(f"{name} must be a string, not {preview(text)}")
        JobFilter(key=self.key, text=self.text, group=self.group, subject=self.subject)  # validates the fields

    def matches(
        self,
        letter: DeadLetterRow,
        payload_of: Callable[[DeadLetterRow], Any] | None = None,
        error_of: Callable[[DeadLetterRow], str] = lambda letter: letter.failure.reason,
    ) -> bool:
        """Whether a dead letter matches. `payload_of` and `error_of` return a payload and an error as they may be
        shown; without the first, fields named like secrets are not searched."""
        return (
            self.queue in {None, letter.queue}
            and self.name in {None, letter.name}
            and self.kind in {None, letter.failure.kind}
            and self.cause in {None, letter.cause}
            and self.group in {None, letter.group}
            and self.subject in {None, letter.options.subject}
            and (self.error is None or self.error.casefold() in error_of(letter).casefold())
            and (self.after is None or letter.failed_at >= self.after.timestamp() * 1000)
            and (self.before is None or letter.failed_at < self.before.timestamp() * 1000)
            and (not self.payload or self._has_payload(letter.data))
            and (
                (self.text is None and self.key is None)
                or self._has_text(letter, (payload_of or _masked)(letter), error_of(letter))
            )
        )

    def _has_text(self, letter: DeadLetterRow, data: Any, error: str) -> bool:
        looked_at = Searchable(
            id=letter.id,
            name=letter.name,
            error=error,
            data=data,
            group=letter.group,
            subject=letter.options.subject,
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
    """The cursor of a page that ended with this item."""
    return f"{letter.failed_at}:{letter.id}"


def place_of(order: Literal["newest", "oldest"], cursor: str | None) -> tuple[int, str]:
    """The time and id after which a page begins."""
    if order not in ("newest", "oldest"):
        raise InvalidOption(f"order must be 'newest' or 'oldest', not {preview(order)}")
    if cursor is None:
        return (_LAST, _AFTER_ALL) if order == "newest" else (-1, "")
    time, separator, identity = cursor.partition(":") if isinstance(cursor, str) else ("", "", "")
    known = separator and time.isdecimal() and time.isascii() and len(time) <= 15 and _is_text(identity)
    if not known:
        raise unknown_cursor(cursor)
    return int(time), identity


def _is_text(identity: str) -> bool:
    try:
        return bool(identity.encode())
    except UnicodeEncodeError:
        return False
