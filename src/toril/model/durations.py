"""Durations, given as seconds, a timedelta or a string such as "10m"."""

import re
from datetime import UTC, datetime, timedelta
from typing import Final, TypeAlias, overload

from toril.errors import InvalidOption, preview

__all__ = [
    "MAX_DELAY",
    "UNITS",
    "Duration",
    "checked_seconds",
    "milliseconds",
    "moment",
    "ms_of",
    "seconds_of",
    "seconds_written",
]

Duration: TypeAlias = float | timedelta | str
"""Seconds, a `timedelta` or a string: `90`, `timedelta(minutes=10)`, `"500ms"`, `"1.5s"`, `"10m"`, `"2h"`, `"7d"`."""

MAX_DELAY: Final = 10 * 366 * 86_400_000  # ten years
UNITS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
_WRITTEN: Final = re.compile(r"(\d{1,12}(?:\.\d{1,6})?)(ms|s|m|h|d)\Z", re.ASCII)


def seconds_of(duration: object) -> float | None:
    """A duration in seconds; None if it is not one. Text needs a unit: "5" could mean anything."""
    match duration:
        case bool():
            return None
        case int() | float():
            return duration
        case timedelta():
            return duration.total_seconds()
        case str():
            found = _WRITTEN.match(duration)
            return None if found is None else float(found[1]) * UNITS[found[2]]
        case _:
            return None


def seconds_written(text: str) -> float | None:
    """The same for input that is always text, as on a command line: there a bare number means seconds."""
    return seconds_of(f"{text}s" if text[-1:].isdigit() else text)


def milliseconds(what: str, value: Duration, low: int = 0, high: int = MAX_DELAY) -> int:
    """A duration in whole milliseconds, checked."""
    if isinstance(value, bool):
        raise TypeError(f'{what} must be seconds, a timedelta or a string such as "10m", not {value}')
    seconds = seconds_of(value)
    if seconds is None:
        raise InvalidOption(f'{what} must be seconds, a timedelta or a string such as "10m", not {preview(value)}')
    if not low / 1000 <= seconds <= high / 1000:  # NaN is in no range
        given = preview(value if isinstance(value, str) else seconds)
        raise InvalidOption(f"{what} must be between {_words(low)} and {_words(high)}, not {given}")
    return round(seconds * 1000)


def checked_seconds(what: str, value: Duration, low: int = 0, high: int = MAX_DELAY) -> float:
    """A duration in seconds, checked and rounded to the millisecond; an int if it has no fraction."""
    ms = milliseconds(what, value, low, high)
    return ms / 1000 if ms % 1000 else ms // 1000


def _words(ms: int) -> str:
    return f"{ms / 86_400_000:g} days" if ms >= 2 * 86_400_000 else f"{ms / 1000:g} s"


_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MS: Final = timedelta(milliseconds=1)
_FIRST: Final = -((_EPOCH - datetime.min.replace(tzinfo=UTC)) // _MS)
_LAST: Final = (datetime.max.replace(tzinfo=UTC) - _EPOCH) // _MS


@overload
def moment(ms: int) -> datetime: ...


@overload
def moment(ms: int | None) -> datetime | None: ...


def moment(ms: int | None) -> datetime | None:
    """A stored time as programs read it. If another program wrote one that no datetime can hold, the first or the last
    possible one."""
    return None if ms is None else _EPOCH + min(max(ms, _FIRST), _LAST) * _MS


@overload
def ms_of(at: datetime) -> int: ...


@overload
def ms_of(at: datetime | None) -> int | None: ...


def ms_of(at: datetime | None) -> int | None:
    """A time as stores keep it."""
    return None if at is None else round((at - _EPOCH) / _MS)
