"""Small drawings as SVG attributes: slots in use, the last runs of a schedule, bars on an axis of time. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

__all__ = ["Bar", "Bars", "Runs", "Slots", "bars", "last_runs", "slots"]

_STEP: Final = 5  # a cell and the gap after it
_SMALL: Final = 4
_MANY: Final = 12  # slots, above which the cells are small
_MOST: Final = 40  # cells that are drawn
_RUNS: Final = 12
_TALLEST: Final = 13
_LOWEST: Final = 3
_THINNEST: Final = 0.6  # percent: what is shorter could not be seen


@dataclass(frozen=True, slots=True)
class Slots:
    """Cells, some of them filled. The text says how many in truth."""

    width: int
    filled: int
    small: bool
    full: bool


def slots(busy: int, total: int) -> Slots:
    """`busy` of `total`; where there are more than can be drawn, the share of them."""
    small = total > _MANY
    step, cells = (_SMALL if small else _STEP), min(total, _MOST)
    on = min(cells, busy if total <= _MOST else -(-busy * cells // total))
    return Slots(max(0, cells * step - 1), max(0, on * step - 1) if on else 0, small, full=0 < total <= busy)


@dataclass(frozen=True, slots=True)
class Runs:
    """The last runs as bars, the newest at the right: `good` and `bad` are paths."""

    good: str
    bad: str
    said: str


def last_runs(runs: Sequence[tuple[int, int, bool]]) -> Runs | None:
    """Of runs as (when, ms, went well), in any order; None if there are none. A bar is as high as its run was long."""
    if not runs:
        return None
    shown = sorted(runs)[-_RUNS:]
    longest = max(ms for _, ms, _ in shown) or 1
    good, bad = "", ""
    for place, (_, ms, well) in enumerate(shown, _RUNS - len(shown)):
        bar = f"M{2 + 6 * place} 16v-{_LOWEST + round((_TALLEST - _LOWEST) * ms / longest)}"
        good, bad = (good + bar, bad) if well else (good, bad + bar)
    failed = sum(not well for _, _, well in shown)
    many = "The last run" if len(shown) == 1 else f"Last {len(shown)} runs"
    return Runs(good, bad, f"{many}, {failed or 'none'} failed")


@dataclass(frozen=True, slots=True)
class Bar:
    """A part of a bar, in percent of the whole."""

    look: str
    x: str
    width: str


Bars = tuple[Bar, ...]


def bars(parts: Sequence[tuple[str, float, float]], start: float, end: float) -> Bars:
    """Parts as (look, from, to) on an axis from `start` to `end`; those that cannot be seen are made just visible."""
    whole = max(1.0, end - start)
    found = []
    for look, first, last in parts:
        x = min(100.0, max(0.0, (first - start) / whole * 100))
        width = min(100 - x, max(_THINNEST, (last - first) / whole * 100))
        if width > 0:
            found.append(Bar(look, f"{x:.1f}%", f"{width:.1f}%"))
    return tuple(found)
