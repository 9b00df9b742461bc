"""An event loop that never waits: when nothing is ready, its time jumps to whatever is due next."""

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

__all__ = ["Deadlock", "SimLoop", "run", "until"]

T = TypeVar("T")


class Deadlock(BaseException):
    """Nothing is ready and nothing ever will be."""


class _NeverWaits(selectors.SelectSelector):
    """Says at once that the time is over, and moves the loop's clock by as much."""

    loop: "SimLoop"

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise Deadlock(f"nothing is left to happen after {self.loop.time():.3f} s")
        self.loop.virtual += max(0.0, timeout)
        return []


class SimLoop(asyncio.SelectorEventLoop):
    """A loop on virtual time, in seconds from 0. One thread, no sockets, nothing outside it that could wake it."""

    def __init__(self) -> None:
        self.virtual = 0.0
        selector = _NeverWaits()
        selector.loop = self
        super().__init__(selector)

    def time(self) -> float:
        return self.virtual

    def _write_to_self(self) -> None:
        """Nobody has to be woken from a wait that never takes place."""


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run to the end on a loop of its own; whatever is left over then is cancelled."""
    loop = SimLoop()
    try:
        return loop.run_until_complete(main)
    finally:
        left = asyncio.all_tasks(loop)
        for task in left:
            task.cancel()
        if left:
            loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
        loop.close()


async def until(done: Callable[[], bool], seconds: float) -> bool:
    """Let time pass until this is so, at most so long. To look often costs nothing here."""
    loop = asyncio.get_running_loop()
    end = loop.time() + seconds
    while not done() and loop.time() < end:  # noqa: ASYNC110 - the time is virtual
        await asyncio.sleep(0.1)
    return done()
