"""How long to wait before restarting a worker process or a poller that died."""

from collections.abc import Callable
from typing import Final

__all__ = ["AT_ONCE", "Restarts"]

AT_ONCE: Final = 0.1  # seconds before a first restart: who takes over the jobs needs the processor more
_FIRST_PAUSE: Final = 1.0  # seconds before the second in a row
_LONGEST_PAUSE: Final = 30.0
_SETTLED: Final = 60.0  # seconds after which a child's death is not counted with those before it


class Restarts:
    """One post's deaths in a row. The pause grows while children die without having done anything, so that an app
    which cannot start, or crashes on every job, burns neither the processor nor the queue."""

    def __init__(self, random: Callable[[], float]) -> None:
        self._random = random
        self._deaths = 0

    def pause(self, *, lived: float, ended: int, requested: bool) -> float:
        """Seconds until the next is started: hardly any the first time, then ever longer, and never all at the same
        moment. A child that has ended jobs shows that the app works: what crashed it was one job."""
        if requested or lived > _SETTLED:
            self._deaths = 0
        elif ended:
            self._deaths = min(self._deaths, 1)
        deaths, self._deaths = self._deaths, self._deaths + 1
        if not deaths:
            return AT_ONCE
        return float(min(_FIRST_PAUSE * 2 ** min(deaths - 1, 16), _LONGEST_PAUSE) * (0.75 + self._random() / 2))
