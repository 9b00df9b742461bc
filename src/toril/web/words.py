"""Figures, durations, times and names as the pages write them. Pure."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final, TypeAlias

__all__ = [
    "NONE", "Name", "Words", "clock_time", "compact", "iso", "number", "percent", "plural", "rate", "size", "span",
    "terse",
]  # fmt: skip

NONE: Final = "\u2013"  # what is not known, or not there
_JOINT: Final = "\u00a0"  # between a number and its unit, which never break over lines


@dataclass(frozen=True, slots=True)
class Name:
    """A name that users have given, or a text from elsewhere: it stands out, as a link or as code. With `until` it is
    a moment (ms), which the page counts down to."""

    text: str
    to: Sequence[str] = ()
    query: Mapping[str, str] = field(default_factory=dict)
    until: int | None = None


Words: TypeAlias = tuple[str | Name, ...]  # a sentence, in parts


def number(value: float | None) -> str:
    """`1,284`."""
    return NONE if value is None else f"{round(value):,}"


def rate(value: float | None) -> str:
    """`1,284`, `4.2` or `0.05`, of something a minute: what is little is told more exactly."""
    if value is None:
        return NONE
    return f"{value:,.0f}" if value >= 10 else f"{value:.1f}" if value >= 1 else f"{value:.2g}"


def percent(value: float | None) -> str:
    """`28.4 %`, of a number in percent."""
    return NONE if value is None else f"{value:,.1f}{_JOINT}%"


def plural(count: int, one: str, many: str | None = None) -> str:
    """`1 job`, `2 jobs`."""
    return f"{count:,}{_JOINT}{one if count == 1 else many or one + 's'}"


def span(ms: float | None) -> str:
    """A duration in its two largest units: `420 ms`, `1.8 s`, `4m 12s`, `2h 06m`."""
    if ms is None:
        return NONE
    seconds = max(0.0, ms / 1000)
    if seconds < 1:
        return f"{round(seconds * 1000)}{_JOINT}ms"
    if seconds < 59.5:
        text = f"{seconds:.1f}".removesuffix(".0") if seconds < 10 else f"{round(seconds)}"
        return f"{text}{_JOINT}s"
    whole = round(seconds)
    if whole < 3600:
        return f"{whole // 60}m{_JOINT}{whole % 60:02}s"
    if whole < 86_400:
        return f"{whole // 3600}h{_JOINT}{whole % 3600 // 60:02}m"
    return f"{whole // 86_400}d{_JOINT}{whole % 86_400 // 3600}h"


def terse(ms: float | None) -> str:
    """A duration without a part that is nothing: `5m`, and not `5m 00s`."""
    return span(ms).removesuffix(f"{_JOINT}00s").removesuffix(f"{_JOINT}00m").removesuffix(f"{_JOINT}0h")


def iso(ms: float) -> str:
    """`2026-11-17T14:32:08.120Z`, as a `datetime` attribute has it."""
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def clock_time(ms: float | None) -> str:
    """`14:32:08`, in UTC."""
    return NONE if ms is None else f"{datetime.fromtimestamp(ms / 1000, UTC):%H:%M:%S}"


def size(count: int) -> str:
    """`310 B`, `1.9 kB`, of bytes."""
    if count < 1000:
        return f"{count}{_JOINT}B"
    return f"{count / 1000:,.1f}{_JOINT}kB" if count < 1_000_000 else f"{count / 1_000_000:,.1f}{_JOINT}MB"


def compact(value: Any, most: int = 160) -> str:
    """A payload on one line."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= most else text[: most - 1] + "…"
