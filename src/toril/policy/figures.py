"""Figures made of minutes: series short enough to draw, and the rate of failures. Pure."""

from collections.abc import Sequence
from typing import Final, Literal, TypeAlias

from toril.errors import InvalidOption, shown

__all__ = ["RANGES", "Range", "bucketed", "check_range", "failure_rate"]

Range: TypeAlias = Literal["1h", "4h", "12h", "1d", "7d"]

RANGES: Final[dict[str, int]] = {"1h": 60, "4h": 240, "12h": 720, "1d": 1440, "7d": 10_080}  # minutes
_POINTS: Final = 240


def check_range(given: object) -> int:
    """How many minutes a range has."""
    if not isinstance(given, str) or given not in RANGES:
        raise InvalidOption(f"a range is one of {', '.join(RANGES)}, not {shown(given)}")
    return RANGES[given]


def bucketed(first: int, counts: Sequence[int]) -> tuple[tuple[int, int], ...]:
    """At most 240 points `(start in ms, count)` of equal length, whose sum is that of the minutes; `first` is the
    number of the first minute."""
    size = -(-len(counts) // _POINTS)
    return tuple(((first + start) * 60_000, sum(counts[start : start + size])) for start in range(0, len(counts), size))


def failure_rate(completed: int, failed: int) -> float:
    """Percent of those that ended, to one decimal; 0 where none did."""
    ended = completed + failed
    return round(failed / ended * 100, 1) if ended else 0.0
