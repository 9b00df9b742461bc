"""How urgently a process has to stop, combined from signals, its supervisor and its own code."""

import signal
from enum import IntEnum
from typing import Final

__all__ = ["StopRequests", "Urgency"]

# Seconds within which a signal repeats the one before it. `timeout` signals its child, and then the whole group; a
# terminal interrupts the group, and a process manager in it passes that on as SIGTERM.
_SAME_AGAIN: Final = 0.1
_PASSED_ON: Final = 1.0


class Urgency(IntEnum):
    """Each level asks for all that the one before it does."""

    NONE = 0
    DRAIN = 1  # claim nothing more; running jobs have the grace to end
    HURRY = 2  # give running jobs back now
    ABORT = 3  # end the process, whatever it does


class StopRequests:
    """One process's requests. The urgency never decreases.

    A process of its own counts signals: the second hurries, the third aborts. Below a supervisor only the supervisor
    counts. Whoever signals a whole group reaches both, and the supervisor then passes its request on; so a worker
    process takes a SIGTERM of its own for a request to drain, however many come, and ignores SIGINT. Once its
    supervisor is gone it drains, and counts the signals that come from then on.
    """

    def __init__(self, *, supervised: bool = False) -> None:
        self._supervised = supervised
        self._signals = 0
        self._last: tuple[int, float] | None = None
        self.urgency = Urgency.NONE

    def signalled(self, number: int, at: float, requested: int = 0) -> Urgency:
        """A signal has come, at this time; `requested` is what the supervisor has asked for so far."""
        if self._supervised:
            if number == signal.SIGTERM:
                self._signals = 1
        elif not self._repeats(number, at):
            self._signals += 1
        return self.requested(max(self._signals, requested))

    def requested(self, urgency: int) -> Urgency:
        """The supervisor, or the process itself, asks for this. The same again changes nothing."""
        self.urgency = Urgency(min(max(self.urgency, urgency), Urgency.ABORT))
        return self.urgency

    def orphaned(self) -> Urgency:
        """The supervisor is gone."""
        self._supervised = False
        return self.requested(Urgency.DRAIN)

    def _repeats(self, number: int, at: float) -> bool:
        """Whether this signal was sent along with the last one that counted."""
        if self._last is not None:
            last, when = self._last
            if at - when < (_SAME_AGAIN if number == last else _PASSED_ON):
                return True
        self._last = (number, at)
        return False
