"""Time and chance of a simulation."""

import asyncio
import random
from collections.abc import Callable
from itertools import count
from typing import Final

from tests.sim.node import Node
from toril.clock import Timer

__all__ = ["EPOCH", "SimClock", "stream"]

EPOCH: Final = 1_800_000_000_000  # the wall clock when a simulation begins


def stream(seed: int, name: str) -> random.Random:
    """Randomness for one purpose, apart from all other purposes of the same seed."""
    return random.Random(f"{seed}/{name}")


class SimClock:
    """The loop's time as a `Clock`. A node's own may be skewed, and stands still while the node is paused."""

    def __init__(self, chance: random.Random, *, name: str = "store", node: Node | None = None, skew: int = 0) -> None:
        self._chance = chance
        self._name = name
        self._node = node
        self._skew = skew
        self._names = count(1)

    def now(self) -> int:
        return EPOCH + self._skew + round(self.monotonic() * 1000)

    def monotonic(self) -> float:
        return asyncio.get_running_loop().time()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
        if self._node is not None:
            await self._node.awake()

    def pause(self, seconds: float) -> None:
        raise AssertionError(f"nothing blocks in a simulation, least of all for {seconds} s")

    def later(self, seconds: float, callback: Callable[[], object]) -> Timer:
        return _Timer(seconds, callback, self._node)

    def random(self) -> float:
        return self._chance.random()

    def unique(self) -> str:
        return f"{self._name}.{next(self._names)}"


class _Timer:
    """A call that is due at some time. While its process is paused it waits, and once that is dead it is off."""

    _AGAIN: Final = 0.05

    def __init__(self, seconds: float, callback: Callable[[], object], node: Node | None) -> None:
        self._callback = callback
        self._node = node
        self._handle = asyncio.get_running_loop().call_later(seconds, self._due)

    def cancel(self) -> None:
        self._handle.cancel()

    def _due(self) -> None:
        if self._node is not None and self._node.dead:
            return
        if self._node is not None and self._node.paused:
            self._handle = asyncio.get_running_loop().call_later(self._AGAIN, self._due)
        else:
            self._callback()
