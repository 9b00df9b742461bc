"""Jobs that have stalled are suspects: each runs with nothing beside it, so that what crashes next is known to be
guilty, and those who would have shared its process are never punished."""

from enum import Enum, auto
from typing import Final

from toril.runtime.clock import Clock

__all__ = ["Quarantine", "Suspects"]

_MAKES_WAY: Final = 10.0  # seconds for which claims are held back so that a suspect can run alone
_GOES_ON: Final = 60.0  # seconds before that is tried again, if what runs did not end in time


class Suspects(Enum):
    """What a process does about them."""

    MAKE_WAY = auto()  # there is nobody else: claim nothing more until one can run alone
    WHEN_IDLE = auto()  # take one while nothing runs; for the rest there are spare processes
    LEAVE = auto()  # they are the spare processes'
    ONLY = auto()  # this is a spare process


class Quarantine:
    """When claims are held back. A job that has stalled runs with nothing beside it, so that what crashes next is known
    to be guilty; and while such jobs wait, the worker makes way for them, but not for ever."""

    def __init__(self, clock: Clock, suspects: Suspects = Suspects.MAKE_WAY) -> None:
        self._clock = clock
        self._suspects = suspects
        self._suspect_runs = False
        self.waiting = suspects is not Suspects.LEAVE  # for all that is known before the first claim
        self.until: float | None = None
        self._not_before = 0.0

    def holds_back(self) -> bool:
        """Whether a worker that runs something should claim nothing beside it."""
        return self._suspect_runs or (self.until is not None and self._clock.monotonic() < self.until)

    def note(self, *, waiting: int, taken: bool) -> None:
        """A claim brought a suspect, or saw that some wait."""
        self._suspect_runs = taken
        self.waiting = waiting > 0 and self._suspects is not Suspects.LEAVE
        if self._suspects is not Suspects.MAKE_WAY:
            return
        now = self._clock.monotonic()
        if taken or not waiting:
            self.until = None
        elif self.until is None and now >= self._not_before:
            self.until = now + _MAKES_WAY
        elif self.until is not None and now >= self.until:
            self.until, self._not_before = None, now + _GOES_ON
