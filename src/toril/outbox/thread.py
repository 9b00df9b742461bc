"""A thread for a connection that blocks."""

import asyncio
import queue
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

__all__ = ["OwnThread"]

T = TypeVar("T")


class OwnThread:
    """Does one thing after another. An executor's threads are waited for when the process ends; this one is not, so
    that a database that does not answer cannot keep a process that is done."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._orders: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._begun = False

    async def do(self, work: Callable[..., T], *arguments: Any) -> T:
        """What `work` answers, or raises. If this is cancelled, what has begun goes on to its end."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()

        def order() -> None:
            if future.cancelled():
                return
            answer: Any = None
            error: BaseException | None = None
            try:
                answer = work(*arguments)
            except BaseException as raised:  # it is the caller's to deal with, and must not end the thread
                error = raised
            with suppress(RuntimeError):  # the loop is closed: nobody waits
                loop.call_soon_threadsafe(_deliver, future, answer, error)

        if not self._begun:
            self._begun = True
            threading.Thread(target=_main, args=(self._orders,), name=self._name, daemon=True).start()
        self._orders.put(order)
        return await future

    def close(self) -> None:
        """End after what was asked for already."""
        if self._begun:
            self._begun = False
            self._orders.put(None)
            self._orders = queue.SimpleQueue()


def _main(orders: "queue.SimpleQueue[Callable[[], None] | None]") -> None:
    while (order := orders.get()) is not None:
        order()
        del order  # and with it what it holds, while there is nothing to do


def _deliver(future: "asyncio.Future[T]", answer: T, error: BaseException | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(answer)
    else:
        future.set_exception(error)
