"""Figures made of minutes: series short enough to draw, and the rate of failures. Pure.

Points begin at multiples of their length, so that one that has been drawn stays as it is.
"""

from collections.abc import Sequence
from typing import Final, Literal, TypeAlias

from toril.errors import InvalidOption, shown
from toril.model import Window, whole

__all__ = [
    "AT_ONCE",
    "LEAP",
    "RANGES",
    "SLICES",
    "STEPS",
    "Range",
    "bucketed",
    "check_range",
    "check_window",
    "failure_rate",
    "window_of",
]

Range: TypeAlias = Literal["1h", "4h", "12h", "1d", "7d"]

RANGES: Final[dict[str, int]] = {"1h": 60, "4h": 240, "12h": 720, "1d": 1440, "7d": 10_080}  # minutes
STEPS: Final = {"1h": 1, "4h": 1, "12h": 3, "1d": 6, "7d": 42}  # minutes a point: at most 240 points
LEAP: Final = 60  # minutes that figures may lie ahead: by more, a clock was wrong for a while
SLICES: Final = 240  # that are kept of each length
AT_ONCE: Final = 50  # queues that one call asks about
_MINUTES: Final = RANGES["7d"]


def check_range(given: object) -> int:
    """How many minutes a range has."""
    if not isinstance(given, str) or given not in RANGES:
        raise InvalidOption(f"a range is one of {', '.join(RANGES)}, not {shown(given)}")
    return RANGES[given]


def window_of(given: object) -> Window:
    """What to ask of a store for a range."""
    minutes, step = check_range(given), STEPS[str(given)]
    return Window(minutes, step, minutes // step)


def check_window(queues: Sequence[str], window: Window) -> None:
    """Refuse what a store has no figures for, or cannot give at once."""
    if len(queues) > AT_ONCE:
        raise InvalidOption(f"one call asks for the figures of at most {AT_ONCE} queues, not {len(queues)}")
    whole("minutes", window.minutes, 1, _MINUTES)
    if window.step not in STEPS.values():
        raise InvalidOption(
            f"slices have {', '.join(map(str, sorted({*STEPS.values()})))} minutes, not {shown(window.step)}"
        )
    whole("slices", window.slices, 1, SLICES)


def bucketed(first: int, counts: Sequence[int], step: int) -> tuple[tuple[int, int], ...]:
    """Points `(start in ms, count)` of `step` minutes; `first` is the number of the first minute. Minutes before the
    first whole point are left out."""
    return tuple(
        ((first + start) * 60_000, sum(counts[start : start + step]))
        for start in range(-first % step, len(counts), step)
    )


def failure_rate(completed: int, failed: int) -> float:
    """Percent of those that ended, to one decimal; 0 where none did."""
    ended = completed + failed
    return round(failed / ended * 100, 1) if ended else 0.0
