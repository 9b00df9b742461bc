"""Runs coroutines for blocking code, on an event loop in a thread of its own."""

import asyncio
import atexit
import concurrent.futures
import contextlib
import os
import threading
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from toril.errors import Closed, UsageError
from toril.events import Events
from toril.model import Call
from toril.runtime.calls import Caller
from toril.store.engine import Store

__all__ = ["Portal", "refuse_in_a_loop"]

T = TypeVar("T")


class Portal:
    """A thread with an event loop, and the store as used from there. It starts on first use, and ends with `close` or
    with the program; `leave` is then called to release the store."""

    def __init__(
        self, store: Store, leave: Callable[[], Coroutine[Any, Any, None]], caller: Caller, events: Events
    ) -> None:
        self.pid = os.getpid()
        self.store = store
        self.events = events
        self._leave = leave
        self._caller = caller
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._main, name="toril-portal", daemon=True)
        self._thread.start()
        try:
            self.run(store.open())
        except BaseException:
            self._end()
            raise
        atexit.register(self._close_at_exit)

    @property
    def open(self) -> bool:
        """Whether it can still be used here: a forked child does not have its parent's threads."""
        return self.pid == os.getpid() and not self._loop.is_closed()

    async def call(self, make: Callable[[Call], Awaitable[T]]) -> T:
        return await self._caller.send(make)

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """The coroutine's result. Raises if this would block an event loop."""
        refuse_in_a_loop(coroutine)
        future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        try:
            return future.result()
        except KeyboardInterrupt:
            future.cancel()
            raise
        except concurrent.futures.CancelledError:
            raise Closed("the app was closed while this call was waiting") from None

    def close(self) -> None:
        """Close the store and end the thread. Closing twice is fine."""
        if not self.open:
            return
        atexit.unregister(self._close_at_exit)
        try:
            self.run(self._leave())
        finally:
            self._end()

    def _close_at_exit(self) -> None:
        """Python has ended its thread pools by now: what a store cannot close without them ends with the process."""
        with contextlib.suppress(RuntimeError):
            self.close()

    def _end(self) -> None:
        asyncio.run_coroutine_threadsafe(_cancel_the_rest(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _main(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()


async def _cancel_the_rest() -> None:
    """Cancel calls of other threads that are still waiting: nobody would answer them."""
    rest = asyncio.all_tasks() - {asyncio.current_task()}
    for task in rest:
        task.cancel()
    await asyncio.gather(*rest, return_exceptions=True)


def refuse_in_a_loop(coroutine: Coroutine[Any, Any, Any]) -> None:
    """Raise if an event loop is running, which a blocking call would hold up."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    coroutine.close()
    raise UsageError("this call would block the running event loop: use `await queue.…` without `.sync`")
