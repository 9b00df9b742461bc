"""The last hour as a small picture, drawn by the server. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

__all__ = ["Spark", "spark"]

_POINTS: Final = 20
_TOP, _FLOOR, _BOTTOM = 2, 22, 24


@dataclass(frozen=True, slots=True)
class Spark:
    """Two paths in a box of 100 by 24: a line of what completed, ticks of what failed."""

    line: str
    ticks: str = ""


def spark(completed: Sequence[int], failed: Sequence[int] = ()) -> Spark:
    """Of figures by the minute, without the minute under way."""
    good, bad = _put_together(completed[:-1]), _put_together(failed[:-1])
    top, worst = max(good, default=0) or 1, max(bad, default=0) or 1
    step = 100 / max(1, len(good) - 1)
    points = [f"{n * step:.0f} {_FLOOR - (_FLOOR - _TOP) * count / top:.0f}" for n, count in enumerate(good)]
    ticks = [f"M{n * step:.0f} {_BOTTOM}v-{3 + 15 * count / worst:.0f}" for n, count in enumerate(bad) if count]
    return Spark("M" + "L".join(points) if points else "", "".join(ticks))


def _put_together(counts: Sequence[int]) -> list[int]:
    size = max(1, -(-len(counts) // _POINTS))
    return [sum(counts[at : at + size]) for at in range(0, len(counts), size)]
