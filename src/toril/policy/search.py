"""Which jobs are meant: by name, worker, a text, or what is in their payload. There are no patterns, only texts."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Literal, TypeAlias

from toril.errors import InvalidOption, shown
from toril.model import Ending, ms_of

__all__ = ["EndingName", "JobFilter", "PayloadKey", "Seen", "at_path"]

EndingName: TypeAlias = Literal["completed", "failed", "cancelled"]

_LONGEST: Final = 200  # characters of what is looked for
_MISSING: Final = object()


@dataclass(frozen=True, slots=True)
class PayloadKey:
    """A path of keys in a payload, parted by dots; there, or there with this value. `parse` reads `user.id` and
    `user.id=7`, whose value is JSON where it can be, and the same as text."""

    path: str
    values: tuple[Any, ...] = ()

    @classmethod
    def parse(cls, text: str) -> "PayloadKey":
        path, separator, value = text.partition("=")
        if not path:
            raise InvalidOption(f"a key is written like user.id or user.id=7, not {shown(text)}")
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
class Seen:
    """Of a job or a run, what a filter looks at: as it is shown, so that nothing can be found that is not shown."""

    id: str
    name: str
    error: str
    data: Any
    moment: int | None = None
    worker: str | None = None
    ending: Ending | None = None
    group: str | None = None
    subject: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFilter:
    """Jobs of a name; with a text in their error; with a text in their id, name, error, payload, group or subject; with
    a key in their payload, `user.id` or `user.id=7`; of a `group`, about a `subject`; that a `worker` runs or was the
    last to run; that ended in one way, as `ending` tells failed jobs from cancelled ones, which stand among them; that
    had ended, or for those that have not ended were added, by `until`. What is not given is not asked for. Upper and
    lower case are the same in an error and a text, and nowhere else."""

    name: str | None = None
    error: str | None = None
    text: str | None = None
    key: str | None = None
    worker: str | None = None
    ending: EndingName | Ending | None = None
    group: str | None = None
    subject: str | None = None
    until: datetime | None = None

    def __post_init__(self) -> None:
        for name in ("name", "error", "text", "key", "worker", "group", "subject"):
            given = getattr(self, name)
            if given is not None and (not isinstance(given, str) or len(given) > _LONGEST):
                raise InvalidOption(f"{name} must be a text of at most {_LONGEST} characters, not {shown(given)}")
        if self.ending is not None and self.ending not in tuple(Ending):
            raise InvalidOption(f"ending must be 'completed', 'failed' or 'cancelled', not {shown(self.ending)}")
        if self.until is not None and (not isinstance(self.until, datetime) or self.until.tzinfo is None):
            raise InvalidOption(f"until must be a datetime with a time zone, not {shown(self.until)}")
        if self.key is not None:
            PayloadKey.parse(self.key)

    @property
    def everything(self) -> bool:
        """Whether nothing is asked for."""
        return self == _EVERYTHING

    @property
    def looks_within(self) -> bool:
        """Whether payloads are looked at."""
        return self.key is not None or self.text is not None

    def fits(self, seen: Seen) -> bool:
        return (
            (self.name is None or seen.name == self.name)
            and (self.worker is None or seen.worker == self.worker)
            and (self.ending is None or seen.ending == self.ending)
            and (self.group is None or seen.group == self.group)
            and (self.subject is None or seen.subject == self.subject)
            and (self.until is None or (seen.moment is not None and seen.moment <= ms_of(self.until)))
            and (self.error is None or self.error.casefold() in seen.error.casefold())
            and (self.text is None or self._found_in(seen, self.text.casefold()))
            and (self.key is None or PayloadKey.parse(self.key).fits(seen.data))
        )

    def _found_in(self, seen: Seen, sought: str) -> bool:
        places = (seen.id, seen.name, seen.error, seen.group or "", seen.subject or "")
        if any(sought in text.casefold() for text in places):
            return True
        return sought in json.dumps(seen.data, ensure_ascii=False, default=str).casefold()


_EVERYTHING: Final = JobFilter()


def at_path(data: Any, path: str, missing: object = _MISSING) -> Any:
    """What a payload has under a path of keys and places, parted by dots."""
    for step in path.split("."):
        if isinstance(data, Mapping):
            data = data.get(step, _MISSING)
        elif isinstance(data, list) and step.isascii() and step.isdecimal() and int(step[:9]) < len(data):
            data = data[int(step[:9])]
        else:
            return missing
    return missing if data is _MISSING else data


def _same(found: Any, value: Any) -> bool:
    """Equal, and of one kind: to Python 1 is True."""
    return bool(found == value) and isinstance(found, bool) == isinstance(value, bool)
