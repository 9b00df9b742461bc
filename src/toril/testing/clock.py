"""A clock for tests that you move by hand."""

import asyncio
import math
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from itertools import count

__all__ = ["ManualClock"]

_TURNS = 20  # of the loop before time jumps to the next event, so that tasks which are ready get as far as they can


class _Timer:
    """A call that is due at some time."""

    def __init__(self, due: int, callback: Callable[[], object]) -> None:
        self.due = due
        self.callback = callback
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class ManualClock:
    """Time that stands still until `advance`, and randomness that is the same in every run."""

    def __init__(self, now: int = 1_800_000_000_000, *, seed: int = 0) -> None:
        self._now = now
        self._start = now
        self._random = random.Random(seed)  # noqa: S311 - repeatable on purpose
        self._names = count(1)
        self._sleeping: list[tuple[int, asyncio.Future[None]]] = []
        self._timers: list[_Timer] = []

    def now(self) -> int:
        return self._now

    def monotonic(self) -> float:
        return (self._now - self._start) / 1000

    def moment(self, monotonic: float) -> int:
        """The first millisecond that is not before a time of the monotonic clock."""
        return self._start + math.ceil(monotonic * 1000 - 1e-3)

    async def sleep(self, seconds: float) -> None:
        """Sleep until the time has been advanced far enough."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._sleeping.append((self._due(seconds), future))
        await future

    def pause(self, seconds: float) -> None:
        self.advance(round(seconds * 1000))

    def later(self, seconds: float, callback: Callable[[], object]) -> "_Timer":
        timer = _Timer(self._due(seconds), callback)
        self._timers.append(timer)
        return timer

    def _due(self, seconds: float) -> int:
        """Every wait takes at least a millisecond: otherwise someone who sleeps for a smaller remainder would never get
        there."""
        return self._now + (max(1, round(seconds * 1000)) if seconds > 0 else 0)

    def random(self) -> float:
        return self._random.random()

    def unique(self) -> str:
        return f"{next(self._names):06d}-unique"  # unique at the beginning, which is what names use

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Let time pass by itself, from one due event to the next."""
        task = asyncio.get_running_loop().create_task(self._run())
        try:
            yield
        finally:
            task.cancel()

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(0.001)  # give other threads a moment of real time
            for _ in range(_TURNS):
                await asyncio.sleep(0)
            due = [due for due, _ in self._sleeping] + [timer.due for timer in self._timers if not timer.cancelled]
            if due:
                self.advance(max(0, min(due) - self._now))

    def advance(self, ms: int) -> None:
        """Let `ms` milliseconds pass: wake sleepers and run callbacks that become due."""
        self._now += ms
        due = sorted((timer for timer in self._timers if timer.due <= self._now), key=lambda timer: timer.due)
        self._timers = [timer for timer in self._timers if timer.due > self._now]
        for timer in due:
            if not timer.cancelled:
                timer.callback()
        over = [sleeper for sleeper in self._sleeping if sleeper[0] <= self._now]
        self._sleeping = [sleeper for sleeper in self._sleeping if sleeper[0] > self._now]
        for _, future in sorted(over, key=lambda sleeper: sleeper[0]):
            if not future.done():
                future.set_result(None)
