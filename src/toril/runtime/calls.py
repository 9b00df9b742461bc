"""Repeats calls until they are answered. The store recognizes a repeated call by its sender and number."""

import os
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final, Protocol, TypeVar

from toril.errors import AddUncertain, EngineFull, EngineRefused, EngineUnavailable, QueueFull
from toril.model import Call
from toril.runtime.clock import Clock

__all__ = ["Caller", "RunBlocking"]

T = TypeVar("T")

_FIRST_REST: Final = 0.05
_LONGEST_REST: Final = 1.0


class RunBlocking(Protocol):
    """Runs a coroutine on a loop elsewhere and blocks until it is done."""

    def __call__(self, coroutine: Coroutine[Any, Any, T]) -> T: ...


class Caller:
    """Sends calls for one process. Each call in flight has a lane, and a lane has one call at a time."""

    def __init__(self, name: str, clock: Clock, *, patience: float = 5.0) -> None:
        self._base = self._name = name
        self._clock = clock
        self._patience = patience
        self._free: list[_CallLane] = []
        self._lanes = 0
        self._process = os.getpid()

    async def send(self, make: Callable[[Call], Awaitable[T]]) -> T:
        """The answer to the call that `make` creates. The same call is repeated while the store does not answer, as
        long as the caller's patience lasts. A refusal is final."""
        if self._process != os.getpid():
            self._rename()
        lane = self._free.pop() if self._free else self._new_lane()
        lane.seq += 1
        call = Call(lane.sender, lane.seq)
        until, rest = self._clock.monotonic() + self._patience, _FIRST_REST
        try:
            while True:
                try:
                    return await make(call)
                except (EngineFull, EngineRefused, QueueFull, AddUncertain):
                    raise
                except EngineUnavailable:
                    if self._clock.monotonic() + rest > until:
                        raise
                await self._clock.sleep(rest * (0.5 + self._clock.random() / 2))
                rest = min(rest * 2, _LONGEST_REST)
        finally:
            self._free.append(lane)

    def _rename(self) -> None:
        """This process is a fork: with the parent's name, its calls would look like repeated calls of the parent."""
        self._process = os.getpid()
        self._name = f"{self._base}~{self._clock.unique()[:8]}"
        self._free = []

    def _new_lane(self) -> "_CallLane":
        self._lanes += 1
        return _CallLane(f"{self._name}/{self._lanes}")


class _CallLane:
    __slots__ = ("sender", "seq")

    def __init__(self, sender: str) -> None:
        self.sender = sender
        self.seq = 0
