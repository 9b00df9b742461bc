"""How urgently a process has to stop, combined from signals, its supervisor and its own code."""

import signal
from enum import IntEnum
from typing import Final

__all__ = ["StopRequests", "Urgency"]

# Seconds within which a signal counts as a repetition. `timeout` signals its child, and then the whole group; a
# terminal interrupts the group, and a process manager in it passes that on as SIGTERM.
_SAME_AGAIN: Final = 0.1
_PASSED_ON: Final = 1.0


class Urgency(IntEnum):
    """Each level includes everything that the previous one asks for."""

    NONE = 0
    DRAIN = 1  # claim nothing more; running jobs get the grace period
    HURRY = 2  # release running jobs now
    ABORT = 3  # end the process, whatever it is doing


class StopRequests:
    """The stop requests of one process. The urgency never decreases. A process without a supervisor counts signals: the
    second hurries, the third aborts. Under a supervisor only the supervisor counts. A signal to a whole group reaches
    both, and the supervisor then passes its request on; so a worker process treats any number of SIGTERMs as a request
    to drain, and ignores SIGINT. When its supervisor has died, it drains, and counts the signals that come from then
    on."""

    def __init__(self, *, supervised: bool = False) -> None:
        self._supervised = supervised
        self._signals = 0
        self._last: tuple[int, float] | None = None
        self.urgency = Urgency.NONE

    def signalled(self, number: int, at: float, requested: int = 0) -> Urgency:
        """A signal has arrived, at this time; `requested` is what the supervisor has requested so far."""
        if self._supervised:
            if number == signal.SIGTERM:
                self._signals = 1
        elif not self._repeats(number, at):
            self._signals += 1
        return self.requested(max(self._signals, requested))

    def requested(self, urgency: int) -> Urgency:
        """The supervisor, or the process itself, requests this. A repetition changes nothing."""
        self.urgency = Urgency(min(max(self.urgency, urgency), Urgency.ABORT))
        return self.urgency

    def orphaned(self) -> Urgency:
        """The supervisor has died."""
        self._supervised = False
        return self.requested(Urgency.DRAIN)

    def _repeats(self, number: int, at: float) -> bool:
        """Whether this signal belongs to the last one that was counted."""
        if self._last is not None:
            last, when = self._last
            if at - when < (_SAME_AGAIN if number == last else _PASSED_ON):
                return True
        self._last = (number, at)
        return False
