"""Who waits for what, over threads and event loops."""

import asyncio
import threading
from collections.abc import Iterable

__all__ = ["Bell"]


class Bell:
    """Wakes those who wait for a name, in the order in which they came. Ringing is cheap when nobody listens."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: dict[str, dict[asyncio.Future[None], None]] = {}

    @property
    def names(self) -> list[str]:
        """What is being waited for now."""
        with self._lock:
            return list(self._waiting)

    def listen(self, names: Iterable[str]) -> asyncio.Future[None]:
        """A future of the running loop that the first ring of any of these names ends. Give it back to `forget`."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        with self._lock:
            for name in names:
                self._waiting.setdefault(name, {})[future] = None
        return future

    def forget(self, names: Iterable[str], future: asyncio.Future[None]) -> None:
        with self._lock:
            for name in names:
                waiting = self._waiting.get(name)
                if waiting is not None:
                    waiting.pop(future, None)
                    if not waiting:
                        del self._waiting[name]

    def ring(self, names: Iterable[str]) -> None:
        """Wake all who wait for any of these; callable from any thread."""
        if not self._waiting:
            return
        with self._lock:
            woken = dict.fromkeys(future for name in names for future in self._waiting.get(name, ()))
        for future in woken:
            loop = future.get_loop()
            if not loop.is_closed():
                loop.call_soon_threadsafe(_wake, future)


def _wake(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
