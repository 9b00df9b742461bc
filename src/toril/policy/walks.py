"""In which order a store is looked over, and how a walk that was broken off goes on. Pure."""

import base64
import json
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from toril.errors import InvalidOption, shown

__all__ = ["Course", "Spot", "cursor_of", "unknown"]


class Spot(NamedTuple):
    """How far a walk has come."""

    queue: str  # empty for what is of no queue
    step: str
    at: Any = None  # where in the step; None at its beginning


class Course:
    """Some steps for each queue, in the order of their names, and then some for the store."""

    def __init__(self, queues: Iterable[str], steps: Sequence[str], last: Sequence[str]) -> None:
        self._queues = sorted({*queues})
        self._steps = steps
        self._last = last

    def first(self, cursor: str | None) -> Spot:
        """Where a walk begins, or goes on. A queue that is gone since is passed over."""
        if cursor is None:
            return self._queue(0)
        spot = _read(cursor)
        if spot is None or spot.step not in self._steps_of(spot):
            raise unknown(cursor)
        if spot.queue and spot.queue not in self._queues:
            return self._queue(bisect_right(self._queues, spot.queue))
        return spot

    def after(self, spot: Spot, at: Any) -> Spot | None:
        """What follows, where a look says that its step goes on `at`, or is over; None: nothing does."""
        if at is not None:
            return spot._replace(at=at)
        steps = self._steps_of(spot)
        following = steps.index(spot.step) + 1
        if following < len(steps):
            return Spot(spot.queue, steps[following])
        return self._queue(bisect_left(self._queues, spot.queue) + 1) if spot.queue else None

    def _steps_of(self, spot: Spot) -> Sequence[str]:
        return self._steps if spot.queue else self._last

    def _queue(self, number: int) -> Spot:
        return Spot(self._queues[number], self._steps[0]) if number < len(self._queues) else Spot("", self._last[0])


def cursor_of(spot: Spot | None) -> str | None:
    """A spot as it is given out."""
    if spot is None:
        return None
    return base64.urlsafe_b64encode(json.dumps(spot, ensure_ascii=False).encode()).decode().rstrip("=")


def unknown(cursor: object) -> InvalidOption:
    return InvalidOption(f"{shown(cursor)} is not a cursor that was given out")


def _read(cursor: str) -> Spot | None:
    try:
        text = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
        match json.loads(text):
            case [str() as queue, str() as step, at]:
                return Spot(queue, step, at)
            case _:
                return None
    except (ValueError, RecursionError):
        return None
