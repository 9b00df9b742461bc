"""Threads for plain functions. They are daemons: one that never ends does not keep the process from ending."""

import asyncio
import contextvars
import queue
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

from toril.calls import Run
from toril.errors import JobCancelled

__all__ = ["Threads", "blocking"]

T = TypeVar("T")

_Order = tuple["asyncio.Future[Any]", contextvars.Context, Callable[[Any], Any], Any]


class Threads:
    """Up to `size` threads, made as they are needed."""

    def __init__(self, name: str, size: int) -> None:
        self._name = name
        self._size = size
        self._orders: queue.SimpleQueue[_Order | None] = queue.SimpleQueue()
        self._threads = 0
        self._idle = threading.Semaphore(0)

    async def call(self, fn: Callable[[Any], Any], ctx: Any) -> Any:
        """The function's result. A thread cannot be stopped: if this is cancelled, it is left to end by itself."""
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        if not self._idle.acquire(blocking=False) and self._threads < self._size:
            self._threads += 1
            threading.Thread(target=self._main, name=f"toril-{self._name}-{self._threads}", daemon=True).start()
        self._orders.put((future, contextvars.copy_context(), fn, ctx))
        return await future

    def close(self) -> None:
        for _ in range(self._threads):
            self._orders.put(None)

    def _main(self) -> None:
        while (order := self._orders.get()) is not None:
            future, context, fn, ctx = order
            answer, error = None, None
            try:
                answer = context.run(fn, ctx)
            except BaseException as raised:
                error = raised
            self._idle.release()
            try:
                future.get_loop().call_soon_threadsafe(_deliver, future, answer, error)
            except RuntimeError:
                return  # the loop is closed: nobody waits any more


def _deliver(future: "asyncio.Future[Any]", answer: Any, error: BaseException | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(answer)
    elif isinstance(error, StopIteration):  # a future cannot hold it
        future.set_exception(RuntimeError("the handler raised StopIteration"))
    else:
        future.set_exception(error)


def blocking(loop: asyncio.AbstractEventLoop) -> Run:
    """Runs coroutines on `loop` for a thread that waits for them."""

    def run(coroutine: Coroutine[Any, Any, T]) -> T:
        future: Future[T] = asyncio.run_coroutine_threadsafe(coroutine, loop)
        try:
            return future.result()
        except asyncio.CancelledError:
            raise JobCancelled("the worker is shutting down") from None

    return run
