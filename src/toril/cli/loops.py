"""The event loops of worker processes."""

import asyncio
import importlib
import selectors
import sys
from collections.abc import Callable
from select import select
from typing import Final

from toril.runtime.clock import plain_asyncio

__all__ = ["loop_factory"]

_SHORT: Final = 0.1  # seconds: of longer waits a millisecond is nothing
_HIGHEST: Final = 1024  # descriptors that `select` knows

if sys.platform == "linux":

    class _Fine(selectors.EpollSelector):
        """Waits as long as it is told to. Python's own rounds up to whole milliseconds, in which many jobs could have
        gone on; here a call that counts microseconds waits, and the usual one then says what is ready."""

        def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
            if timeout is not None and 0 < timeout < _SHORT and self.fileno() < _HIGHEST:
                select([self.fileno()], [], [], timeout)
                timeout = 0
            return super().select(timeout)

    def _fine_loop() -> asyncio.AbstractEventLoop:
        return asyncio.SelectorEventLoop(_Fine())

else:  # what other systems have is not rounded
    _fine_loop = asyncio.new_event_loop


def loop_factory(name: str) -> Callable[[], asyncio.AbstractEventLoop]:
    """What makes the event loop of this name."""
    if name != "asyncio":
        made: Callable[[], asyncio.AbstractEventLoop] = importlib.import_module(name).new_event_loop
        return made
    return asyncio.new_event_loop if plain_asyncio() else _fine_loop
