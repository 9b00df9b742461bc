"""Threads for plain functions. They are daemons, so one that never ends cannot keep the process alive."""

import asyncio
import contextvars
import queue
import sys
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, TypeVar

from toril.errors import JobCancelled
from toril.runtime.calls import RunBlocking
from toril.worker.stacks import of_frame

__all__ = ["ThreadCall", "Threads", "blocking"]

T = TypeVar("T")


@dataclass(slots=True, eq=False)
class ThreadCall:
    """A call of a function, and the thread that runs it."""

    fn: Callable[[Any], Any]
    ctx: Any
    context: contextvars.Context
    future: "asyncio.Future[Any]"
    thread: threading.Thread | None = None

    def stack(self) -> str | None:
        """The function's stack; None if it is not running."""
        thread = self.thread
        frame = None if thread is None else sys._current_frames().get(thread.ident or 0)  # noqa: SLF001
        return None if frame is None else of_frame(frame)

    async def current_stack(self) -> str | None:
        return self.stack()


class Threads:
    """Up to `size` threads, created as they are needed."""

    def __init__(self, name: str, size: int) -> None:
        self._name = name
        self._size = size
        self._orders: queue.SimpleQueue[ThreadCall | None] = queue.SimpleQueue()
        self._threads = 0
        self._idle = threading.Semaphore(0)

    def order(self, fn: Callable[[Any], Any], ctx: Any) -> ThreadCall:
        """Have a thread call the function."""
        order = ThreadCall(fn, ctx, contextvars.copy_context(), asyncio.get_running_loop().create_future())
        if not self._idle.acquire(blocking=False) and self._threads < self._size:
            self._threads += 1
            threading.Thread(target=self._main, name=f"toril-{self._name}-{self._threads}", daemon=True).start()
        self._orders.put(order)
        return order

    async def result(self, order: ThreadCall) -> Any:
        """The function's result. A thread cannot be stopped: if this is cancelled, the thread is left to end by itself,
        and another may be created in its place."""
        try:
            return await order.future
        except asyncio.CancelledError:
            self._size += 1
            raise

    def close(self) -> None:
        for _ in range(self._threads):
            self._orders.put(None)

    def _main(self) -> None:
        while (order := self._orders.get()) is not None:
            future, answer, error = order.future, None, None
            if not future.done():
                order.thread = threading.current_thread()
                try:
                    answer = order.context.run(order.fn, order.ctx)
                except BaseException as raised:
                    error = raised
                order.thread = None
            self._idle.release()
            try:
                future.get_loop().call_soon_threadsafe(_deliver, future, answer, error)
            except RuntimeError:
                return  # the loop is closed, so nobody is waiting


def _deliver(future: "asyncio.Future[Any]", answer: Any, error: BaseException | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(answer)
    elif isinstance(error, StopIteration):  # a future cannot carry it
        future.set_exception(RuntimeError("the handler raised StopIteration"))
    else:
        future.set_exception(error)


def blocking(loop: asyncio.AbstractEventLoop) -> RunBlocking:
    """Run coroutines on `loop` for a thread that waits for them."""

    def run(coroutine: Coroutine[Any, Any, T]) -> T:
        future: Future[T] = asyncio.run_coroutine_threadsafe(coroutine, loop)
        try:
            return future.result()
        except asyncio.CancelledError:
            raise JobCancelled("the worker is shutting down") from None

    return run
