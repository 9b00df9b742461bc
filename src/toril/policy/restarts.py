"""How long to wait before restarting a worker process or a poller that died."""

from collections.abc import Callable
from typing import Final

__all__ = ["AT_ONCE", "Restarts"]

AT_ONCE: Final = 0.1  # seconds before a first restart: whoever takes over the jobs needs the processor first
_FIRST_PAUSE: Final = 1.0  # seconds before the second in a row
_LONGEST_PAUSE: Final = 30.0
_SETTLED: Final = 60.0  # seconds after which a child's death is not counted with those before it


class Restarts:
    """Consecutive deaths in one slot. The pause grows while processes die without having done anything, so that an app
    which cannot start, or crashes on every job, wears out neither the processor nor the queue."""

    def __init__(self, random: Callable[[], float]) -> None:
        self._random = random
        self._deaths = 0

    def pause(self, *, lived: float, ended: int, requested: bool) -> float:
        """Seconds until the next start: hardly any at first, then more and more, with some randomness. A process that
        has ended jobs shows that the app works: it was crashed by a single job."""
        if requested or lived > _SETTLED:
            self._deaths = 0
        elif ended:
            self._deaths = min(self._deaths, 1)
        deaths, self._deaths = self._deaths, self._deaths + 1
        if not deaths:
            return AT_ONCE
        return float(min(_FIRST_PAUSE * 2 ** min(deaths - 1, 16), _LONGEST_PAUSE) * (0.75 + self._random() / 2))
