"""The clock and the source of randomness, which tests and the simulator replace."""

import asyncio
import os
import random
import sys
import time
import uuid
from collections.abc import Callable, Generator
from types import coroutine
from typing import Protocol

__all__ = ["SYSTEM", "Clock", "SystemClock", "Timer", "plain_asyncio", "yield_to_ready"]


class Timer(Protocol):
    """Something that will happen unless it is cancelled."""

    def cancel(self) -> None: ...


class Clock(Protocol):
    """Provides time, waiting and randomness to the rest of Toril."""

    def now(self) -> int:
        """Wall-clock milliseconds: for what people see and what the store compares."""

    def monotonic(self) -> float:
        """Seconds that never run backwards: for intervals and deadlines within a process."""

    async def sleep(self, seconds: float) -> None:
        """Wait without blocking the event loop."""

    def pause(self, seconds: float) -> None:
        """Wait in a thread of our own, never on an event loop."""

    def later(self, seconds: float, callback: Callable[[], object]) -> "Timer":
        """Call back on the running loop after this time, unless the timer is cancelled."""

    def random(self) -> float:
        """A number in [0, 1)."""

    def unique(self) -> str:
        """A name that no other process will ever get."""


class SystemClock:
    """The machine's own clock and randomness."""

    def __init__(self) -> None:
        self._random = random.SystemRandom()

    def now(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def pause(self, seconds: float) -> None:
        time.sleep(seconds)

    def later(self, seconds: float, callback: Callable[[], object]) -> "Timer":
        return asyncio.get_running_loop().call_later(seconds, callback)

    def random(self) -> float:
        return self._random.random()

    def unique(self) -> str:
        return uuid.uuid4().hex


SYSTEM = SystemClock()


@coroutine
def yield_to_ready() -> Generator[None, None, None]:
    """Let everything that is ready run first."""
    yield


def plain_asyncio() -> bool:
    """Whether to use asyncio's own futures and timers: if `TORIL_PLAIN_ASYNCIO` says so (`0`: no), or on a Python on
    which ours have not been tested."""
    given = os.environ.get("TORIL_PLAIN_ASYNCIO")
    return given != "0" if given else sys.implementation.name != "cpython" or sys.version_info >= (3, 15)
