"""Warns about queues that mix jobs with and without a priority."""

from toril.model import Claimed
from toril.runtime.logs import log

__all__ = ["MixedPriorities"]

_PLAIN = 1
_PRIORITISED = 2


class MixedPriorities:
    """Logs one warning when a queue turns out to have jobs with and without a priority, unless the queue says which of
    them run first. In BullMQ's order, those without run first, which surprises most people."""

    __slots__ = ("_own", "_queue", "_seen")

    def __init__(self, queue: str) -> None:
        self._queue = queue
        self._seen = 0
        self._own: set[str] = set()

    def leave_out(self, name: str) -> None:
        """Ignore jobs of this name: their priority comes from Toril, not from the user."""
        self._own.add(name)

    def see(self, job: Claimed) -> None:
        """Take note of a claimed job."""
        kind = _PRIORITISED if job.priority else _PLAIN
        if self._seen & kind or job.name in self._own:
            return
        self._seen |= kind
        if self._seen == _PLAIN | _PRIORITISED:
            log.warning(
                "queue %s has jobs with a priority and jobs without; those without run first, as in BullMQ. Declare "
                "the "
                "queue with priority_first=True to run jobs with a priority first, or with False to keep this order",
                self._queue,
            )
