"""Draws sparklines, slots, bars and state icons."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from toril.model import JobRow, RunStatus
from toril.model.states import State

__all__ = [
    "ENDINGS",
    "EVERY",
    "LOOKS",
    "RESTING",
    "Bar",
    "Bars",
    "RunBars",
    "SlotBar",
    "Spark",
    "StateLook",
    "bars",
    "last_runs",
    "look_of",
    "slots",
    "spark",
]


@dataclass(frozen=True, slots=True)
class StateLook:
    """How a state looks; `key` is its name in addresses and in the script."""

    key: str
    word: str
    cls: str
    icon: str


LOOKS: Final = {
    State.WAITING: StateLook("waiting", "Waiting", "wait", "wait"),
    State.PRIORITIZED: StateLook("prioritized", "Prioritized", "wait", "wait"),
    State.ACTIVE: StateLook("active", "Running", "active", "active"),
    State.DELAYED: StateLook("delayed", "Delayed", "delayed", "delayed"),
    State.WAITING_CHILDREN: StateLook("children", "Waiting for children", "children", "children"),
    State.COMPLETED: StateLook("completed", "Completed", "done", "done"),
    State.FAILED: StateLook("failed", "Failed", "failed", "failed"),
}
RESTING: Final = StateLook("resting", "Resting", "delayed", "rest")  # a part of those that are delayed
ENDINGS: Final = {
    RunStatus.COMPLETED: LOOKS[State.COMPLETED],
    RunStatus.FAILED: LOOKS[State.FAILED],
    RunStatus.CANCELLED: StateLook("cancelled", "Cancelled", "cancelled", "cancelled"),
}
EVERY: Final[Mapping[str, StateLook]] = {str(name): look for name, look in (*LOOKS.items(), *ENDINGS.items())}


def look_of(record: JobRow) -> StateLook:
    """How a job looks: cancelled jobs are among the failed ones, but look different."""
    return LOOKS[record.state] if record.ending is None else ENDINGS[record.ending]


_STEP: Final = 5  # a cell and the gap after it
_SMALL: Final = 4
_MANY: Final = 12  # slots above which cells are small
_MOST: Final = 40  # cells to draw at most
_RUNS: Final = 12
_TALLEST: Final = 13
_LOWEST: Final = 3
_THINNEST: Final = 0.6  # percent; anything shorter would be invisible


@dataclass(frozen=True, slots=True)
class SlotBar:
    """Cells, some of them filled. The text has the actual numbers."""

    width: int
    filled: int
    small: bool
    full: bool


def slots(busy: int, total: int) -> SlotBar:
    """`busy` of `total`; if there are more than can be drawn, their share."""
    small = total > _MANY
    step, cells = (_SMALL if small else _STEP), min(total, _MOST)
    on = min(cells, busy if total <= _MOST else -(-busy * cells // total))
    return SlotBar(max(0, cells * step - 1), max(0, on * step - 1) if on else 0, small, full=0 < total <= busy)


@dataclass(frozen=True, slots=True)
class RunBars:
    """The last runs as bars, the newest on the right: `good`, `bad` and `cancelled` are paths."""

    good: str
    bad: str
    cancelled: str
    said: str


def last_runs(runs: Sequence[tuple[int, int, RunStatus]]) -> RunBars | None:
    """Bars for runs given as (when, ms, ending), in any order; None without runs. The height of a bar is the run's
    duration."""
    if not runs:
        return None
    shown = sorted(runs)[-_RUNS:]
    longest = max(ms for _, ms, _ in shown) or 1
    bars_of = dict.fromkeys(RunStatus, "")
    for place, (_, ms, ending) in enumerate(shown, _RUNS - len(shown)):
        bars_of[ending] += f"M{2 + 6 * place} 16v-{_LOWEST + round((_TALLEST - _LOWEST) * ms / longest)}"
    counts = Counter(ending for _, _, ending in shown)
    many = "Last run" if len(shown) == 1 else f"Last {len(shown)} runs"
    said = f"{many}, {counts[RunStatus.FAILED] or 'none'} failed"
    if counts[RunStatus.CANCELLED]:
        said += f", {counts[RunStatus.CANCELLED]} cancelled"
    return RunBars(bars_of[RunStatus.COMPLETED], bars_of[RunStatus.FAILED], bars_of[RunStatus.CANCELLED], said)


@dataclass(frozen=True, slots=True)
class Bar:
    """A part of a bar, in percent of the whole."""

    look: str
    x: str
    width: str


Bars = tuple[Bar, ...]


def bars(parts: Sequence[tuple[str, float, float]], start: float, end: float) -> Bars:
    """Parts given as (look, from, to) on an axis from `start` to `end`; invisible ones are made just visible."""
    whole = max(1.0, end - start)
    found = []
    for look, first, last in parts:
        x = min(100.0, max(0.0, (first - start) / whole * 100))
        width = min(100 - x, max(_THINNEST, (last - first) / whole * 100))
        if width > 0:
            found.append(Bar(look, f"{x:.1f}%", f"{width:.1f}%"))
    return tuple(found)


_POINTS: Final = 20
_TOP, _FLOOR, _BOTTOM = 2, 22, 24


@dataclass(frozen=True, slots=True)
class Spark:
    """Two paths in a box of 100 by 24: a line of completed jobs, and ticks of failed ones."""

    line: str
    ticks: str = ""


def spark(completed: Sequence[int], failed: Sequence[int] = ()) -> Spark:
    """A sparkline from counts per minute, without the current minute."""
    good, bad = _put_together(completed[:-1]), _put_together(failed[:-1])
    top, worst = max(good, default=0) or 1, max(bad, default=0) or 1
    step = 100 / max(1, len(good) - 1)
    points = [f"{n * step:.0f} {_FLOOR - (_FLOOR - _TOP) * count / top:.0f}" for n, count in enumerate(good)]
    ticks = [f"M{n * step:.0f} {_BOTTOM}v-{3 + 15 * count / worst:.0f}" for n, count in enumerate(bad) if count]
    return Spark("M" + "L".join(points) if points else "", "".join(ticks))


def _put_together(counts: Sequence[int]) -> list[int]:
    size = max(1, -(-len(counts) // _POINTS))
    return [sum(counts[at : at + size]) for at in range(0, len(counts), size)]
