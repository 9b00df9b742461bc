"""Posts of worker processes, kept filled by the supervisor's own rules; and what is promised of those (`restart`).

A first death is made up for at once, and so is one that was asked for. A process that dies without having done anything
is started ever later, one that has worked after about a second; no post stays empty for longer than some 40 seconds.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from tests.sim.journal import Journal
from toril.policy.restarts import Restarts

__all__ = ["LONGEST", "Post", "Unfit", "booted"]

LONGEST: Final = 38.0  # seconds that a post may stay empty: half a minute, and a quarter of that by chance
_AT_ONCE: Final = 0.5
_ABOUT_A_SECOND: Final = 1.5
_LEAST: Final = 0.7  # of a first pause, which is doubled each time
_LONG_LIFE: Final = 60.0
_UPDATE: Final = 5.0  # seconds after which the application becomes one that cannot start, where it does


class Unfit(Exception):
    """The application cannot start."""


def booted(unfit: float) -> None:
    """A process starts, unless the application is for so many seconds one that cannot."""
    if _UPDATE <= _now() < _UPDATE + unfit:
        raise Unfit("its update is broken")


@dataclass(slots=True)
class _Gap:
    """Between which times the next process must be there, in seconds since the death."""

    died: float
    least: float
    most: float


class Post:
    """One place of the fleet. The rules say when it is filled again; the check looks at when that was."""

    def __init__(self, name: str, journal: Journal, random: Callable[[], float]) -> None:
        self._name = name
        self._journal = journal
        self._restarts = Restarts(random)
        self._born = 0.0
        self._deaths = 0  # in a row
        self._vain = 0  # lives in a row that ended no job
        self._gap: _Gap | None = None

    def filled(self) -> None:
        """A process begins."""
        self._born = _now()
        if self._gap is None:
            return
        empty, least, most = self._born - self._gap.died, self._gap.least, self._gap.most
        if not least <= empty <= most:
            self._journal.violated(
                "restart", f"{self._name} was empty for {empty:.2f} s, which should be {least:g} to {most:g} s"
            )

    def emptied(self, *, ended: int, requested: bool) -> float:
        """It has died or gone, after it ended so many jobs. Seconds until the next is started."""
        now = _now()
        lived = now - self._born
        fresh = requested or lived > _LONG_LIFE
        self._deaths = 1 if fresh else self._deaths + 1
        self._vain = 0 if ended else 1 if fresh else self._vain + 1
        if self._deaths == 1:
            self._gap = _Gap(now, 0.0, _AT_ONCE)
        elif ended:
            self._gap = _Gap(now, _LEAST, _ABOUT_A_SECOND)
        else:
            self._journal.tally["died again without having done anything"] += 1
            least, most = _LEAST * 2 ** max(0, self._vain - 2), _ABOUT_A_SECOND * 2 ** (self._deaths - 2)
            self._gap = _Gap(now, min(least, LONGEST / 2), min(most, LONGEST))
        return self._restarts.pause(lived=lived, ended=ended, requested=requested)


def _now() -> float:
    return asyncio.get_running_loop().time()
