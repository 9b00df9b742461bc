"""Small drawings as SVG attributes: slots in use, the last runs of a schedule, bars on an axis of time. Pure."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from toril.model import Ending

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
    """The last runs as bars, the newest at the right: `good`, `bad` and `cancelled` are paths."""

    good: str
    bad: str
    cancelled: str
    said: str


def last_runs(runs: Sequence[tuple[int, int, Ending]]) -> Runs | None:
    """Of runs as (when, ms, ending), in any order; None if there are none. A bar is as high as its run was long."""
    if not runs:
        return None
    shown = sorted(runs)[-_RUNS:]
    longest = max(ms for _, ms, _ in shown) or 1
    bars_of = dict.fromkeys(Ending, "")
    for place, (_, ms, ending) in enumerate(shown, _RUNS - len(shown)):
        bars_of[ending] += f"M{2 + 6 * place} 16v-{_LOWEST + round((_TALLEST - _LOWEST) * ms / longest)}"
    counts = Counter(ending for _, _, ending in shown)
    many = "The last run" if len(shown) == 1 else f"Last {len(shown)} runs"
    said = f"{many}, {counts[Ending.FAILED] or 'none'} failed"
    if counts[Ending.CANCELLED]:
        said += f", {counts[Ending.CANCELLED]} cancelled"
    return Runs(bars_of[Ending.COMPLETED], bars_of[Ending.FAILED], bars_of[Ending.CANCELLED], said)


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
