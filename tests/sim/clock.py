"""Time and chance of a simulation."""

import asyncio
import random
from collections.abc import Callable
from itertools import count
from typing import Final

from tests.sim.node import Node
from toril.runtime.clock import Timer

__all__ = ["EPOCH", "SimClock", "stream"]

EPOCH: Final = 1_800_000_000_000  # the wall clock when a simulation begins


def stream(seed: int, name: str) -> random.Random:
    """Randomness for one purpose, apart from all other purposes of the same seed."""
    return random.Random(f"{seed}/{name}")


class SimClock:
    """The loop's time as a `Clock`. A node's own may be skewed."""

    def __init__(self, chance: random.Random, *, name: str = "store", node: Node | None = None, skew: int = 0) -> None:
        self._chance = chance
        self._name = name
        self._node = node
        self._skew = skew
        self._names = count(1)

    def step(self, ms: int) -> None:
        """Somebody sets the wall clock; the monotonic one goes on as before."""
        self._skew += ms

    def now(self) -> int:
        return EPOCH + self._skew + round(self.monotonic() * 1000)

    def monotonic(self) -> float:
        return asyncio.get_running_loop().time()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
        if self._node is not None:
            self._node.check()

    def pause(self, seconds: float) -> None:
        raise AssertionError(f"nothing blocks in a simulation, least of all for {seconds} s")

    def later(self, seconds: float, callback: Callable[[], object]) -> Timer:
        return asyncio.get_running_loop().call_later(seconds, self._call, callback)

    def _call(self, callback: Callable[[], object]) -> None:
        if self._node is None or not self._node.dead:
            callback()

    def random(self) -> float:
        return self._chance.random()

    def unique(self) -> str:
        return f"{self._name}.{next(self._names)}"
