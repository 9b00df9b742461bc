"""Figures of the last while, kept in a bounded space; the time is an argument."""

from collections import deque
from typing import Final

__all__ = ["Durations", "Tally"]

_SLOTS: Final = 20  # stretches of a window: what is counted leaves it at most a twentieth too late
_SAMPLES: Final = 1_000


class Tally:
    """How often something happened within a window that slides."""

    def __init__(self, window: int) -> None:
        self._window = window
        self._width = max(1, window // _SLOTS)
        self._counts: dict[int, int] = {}

    def add(self, now: int) -> None:
        slot = -(-now // self._width) * self._width
        self._counts[slot] = self._counts.get(slot, 0) + 1
        if len(self._counts) > 2 * _SLOTS:
            self._trim(now)

    def count(self, now: int) -> int:
        self._trim(now)
        return sum(self._counts.values())

    def _trim(self, now: int) -> None:
        self._counts = {slot: count for slot, count in self._counts.items() if slot > now - self._window}


class Durations:
    """The last run times of a window, a thousand at most."""

    def __init__(self, window: int) -> None:
        self._window = window
        self._runs: deque[tuple[int, int]] = deque(maxlen=_SAMPLES)

    def add(self, now: int, ms: int) -> None:
        self._runs.append((now, ms))

    def p95(self, now: int, *, minimum: int) -> int | None:
        """What one run in twenty exceeds; None while there are too few to tell."""
        recent = sorted(ms for time, ms in self._runs if time > now - self._window)
        return recent[-(len(recent) // 20) - 1] if len(recent) >= max(minimum, 1) else None
