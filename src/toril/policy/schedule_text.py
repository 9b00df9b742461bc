"""Describes in plain words when a schedule runs. Schedules that have no plain description get none."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from toril.model import Schedule

__all__ = ["cron_in_words", "every_in_words", "in_words"]

_DAYS: Final = ("Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday")
_MONTHS: Final = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November",
    "December",
)  # fmt: skip
_UNITS: Final = ((86_400_000, "day"), (3_600_000, "hour"), (60_000, "minute"), (1000, "second"), (1, "millisecond"))
_MOST: Final = 6  # times or days to list one by one
_PART: Final = re.compile(r"(\*|\d+(?:-\d+)?)(?:/(\d+))?\Z")


@dataclass(frozen=True, slots=True)
class _Field:
    """One field of an expression: all its values, every `step` of them, from and to, or those that are listed."""

    values: tuple[int, ...]
    kind: str  # "all", "step", "range", "list"
    step: int = 1


def in_words(schedule: Schedule) -> str | None:
    """Describe a schedule, as in `Every day at 02:00`, without the zone; None if there are no plain words for it."""
    if schedule.every is not None:
        return every_in_words(schedule.every)
    return cron_in_words(schedule.cron or "")


def every_in_words(ms: int) -> str:
    """Describe an interval: `Every 5 minutes`, `Every hour`, `Every 90 seconds`."""
    size, unit = next((size, unit) for size, unit in _UNITS if ms % size == 0)
    return f"Every {unit}" if ms == size else f"Every {ms // size:,} {unit}s"


def cron_in_words(expression: str) -> str | None:
    """Describe an expression, as in `Monday to Friday at 10:00`; None if there are no plain words for it."""
    parts = expression.upper().split()
    if len(parts) not in (5, 6):
        return None
    second, minute, hour, day, month, weekday = parts if len(parts) == 6 else ["0", *parts]
    when = _days(day, month, weekday)
    if when is None:
        return None
    often = _often(second, minute, hour)
    if often is not None:
        return often if not when else f"{often}, {when.replace('The ', 'the ', 1)}"
    times = _times(second, minute, hour)
    return None if times is None else f"{_every(when)} at {times}"


def _every(when: str) -> str:
    return "Every day" if not when else f"Every {when}" if when in _DAYS else when


def _often(second: str, minute: str, hour: str) -> str | None:
    """Describe what recurs several times an hour, or every hour."""
    seconds, minutes, hours = _field(second, 0, 59), _field(minute, 0, 59), _field(hour, 0, 23)
    if seconds is None or minutes is None or hours is None:
        return None
    if seconds.kind in ("all", "step"):
        return _stepping(seconds, "second", 60) if minutes.kind == hours.kind == "all" else None
    if seconds.values != (0,):
        return None
    within = _within(hours)
    if minutes.kind in ("all", "step"):
        return None if within is None else _plus(_stepping(minutes, "minute", 60), within)
    return _hourly(minutes.values[0], hours) if len(minutes.values) == 1 else None


def _hourly(minute: int, hours: _Field) -> str | None:
    match hours.kind:
        case "range":
            return (
                f"Every hour at :{minute:02} from {hours.values[0]:02}:{minute:02} to {hours.values[-1]:02}:{minute:02}"
            )
        case "all" | "step":
            return _plus(_stepping(hours, "hour", 24), f" at :{minute:02}")
        case _:
            return None


def _within(hours: _Field) -> str | None:
    match hours.kind:
        case "all":
            return ""
        case "range":
            return f" from {hours.values[0]:02}:00 to {hours.values[-1]:02}:59"
        case "list" if len(hours.values) == 1:
            return f" from {hours.values[0]:02}:00 to {hours.values[0]:02}:59"
        case _:
            return None


def _stepping(field: _Field, unit: str, of: int) -> str | None:
    """Describe a step. One that does not divide its range evenly has no plain words."""
    if field.step == 1:
        return f"Every {unit}"
    return f"Every {field.step} {unit}s" if of % field.step == 0 else None


def _plus(text: str | None, more: str) -> str | None:
    return None if text is None else text + more


def _times(second: str, minute: str, hour: str) -> str | None:
    """List times: `02:00 and 14:00`."""
    fields = [_field(hour, 0, 23), _field(minute, 0, 59), _field(second, 0, 59)]
    found = [field.values for field in fields if field is not None]
    if len(found) < 3 or any(field is None or field.kind in ("all", "step") for field in fields):
        return None
    hours, minutes, seconds = found
    times = [
        f"{h:02}:{m:02}" + (f":{s:02}" if seconds != (0,) else "") for h in hours for m in minutes for s in seconds
    ]
    return _listed(times) if len(times) <= _MOST else None


def _days(day: str, month: str, weekday: str) -> str | None:
    """Describe the days: empty for all, None without plain words."""
    days, months = _field(day, 1, 31), _field(_named(month, _MONTHS, 1), 1, 12)
    weekdays = _field(_named(weekday, _DAYS, 0), 0, 7)
    of = _of_months(months)
    if of is None or weekdays is None or (weekdays.kind != "all" and day != "*"):
        return None
    if weekdays.kind != "all":
        return None if months is None or months.kind != "all" else _weekdays(weekdays)
    if day == "L":
        return f"The last day of {of}"
    if days is None or (days.kind == "all" and of != "each month"):
        return None
    if days.kind == "all":
        return ""
    ordinals = [_ordinal(value) for value in days.values]
    return f"The {_listed(ordinals)} of {of}" if len(ordinals) <= _MOST else None


def _of_months(months: _Field | None) -> str | None:
    if months is None:
        return None
    return "each month" if months.kind == "all" else _listed([_MONTHS[value - 1] for value in months.values])


def _weekdays(field: _Field) -> str | None:
    values = list(dict.fromkeys(value % 7 for value in field.values))
    names = [_DAYS[value] for value in values]
    if field.kind == "range" and len(values) > 2:
        return f"{names[0]} to {names[-1]}"
    return None if field.kind == "step" else _listed(names)


def _field(text: str, low: int, high: int) -> _Field | None:
    """Parse a field; None if there are no plain words for its kind."""
    values: list[int] = []
    parts = text.split(",")
    for part in parts:
        found = _PART.match(part)
        if found is None:
            return None
        which, step = found.group(1), int(found.group(2) or 1)
        first, _, last = which.partition("-")
        if step < 1 or (step > 1 and which != "*"):
            return None
        start, end = (low, high) if which == "*" else (int(first), int(last or first))
        if not low <= start <= end <= high:
            return None
        values += range(start, end + 1, step)
        if len(parts) == 1 and which == "*":
            return _Field(tuple(values), "all" if step == 1 else "step", step)
    kind = "range" if len(parts) == 1 and len(values) > 1 else "list"
    return None if "*" in text else _Field(tuple(sorted(set(values))), kind)


def _named(text: str, names: Sequence[str], first: int) -> str:
    """Replace names such as MON and JAN by their numbers."""
    for number, name in enumerate(names, first):
        text = text.replace(name[:3].upper(), str(number))
    return text


def _ordinal(number: int) -> str:
    tail = "th" if 10 < number < 14 else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{tail}"


def _listed(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
