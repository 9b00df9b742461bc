"""The way of alerts to whoever is to hear of them. A sink may fail, block or hang: jobs do not wait for it."""

import asyncio
import inspect
import queue
import threading
from collections.abc import Callable
from typing import Any, Final

from toril.runtime.logs import log

__all__ = ["Delivery"]

_MOST: Final = 100  # under way at once; what comes while so many are is dropped
_SECONDS: Final = 30.0  # for one delivery, from when the sink is called


class Delivery:
    """One sink. It is called in a thread of its own, one alert after the other; if it answers with something that can
    be awaited, that is done on the loop."""

    def __init__(self, sink: Callable[[Any], Any]) -> None:
        self._sink = sink
        self._orders: queue.SimpleQueue[_Order] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._called = 0
        self._under_way = 0
        self.dropped = 0

    async def send(self, alert: Any, text: str) -> bool:
        """Whether it was delivered. Never raises; what goes wrong stands in the log."""
        if self._under_way >= _MOST:
            self.dropped += 1
            if self.dropped % _MOST == 1:
                log.warning("alerts are dropped, for %s are still being delivered: %s", _MOST, text)
            return False
        self._under_way += 1
        try:
            order = await self._turn(alert)
            async with asyncio.timeout(_SECONDS):
                answer = await order.answer
                if inspect.isawaitable(answer):
                    await answer
        except TimeoutError:
            log.error("an alert was not delivered within %s s: %s", _SECONDS, text)
        except Exception:
            log.exception("an alert could not be delivered: %s", text)
        else:
            return True
        finally:
            self._under_way -= 1
        return False

    async def _turn(self, alert: Any) -> "_Order":
        """An order that is being carried out. Others before it may take their time, unless one hangs."""
        if self._thread is None:
            # A daemon: a sink that hangs does not keep the process from ending.
            self._thread = threading.Thread(target=self._work, name="toril-alerts", daemon=True)
            self._thread.start()
        order = _Order(alert, asyncio.get_running_loop())
        self._orders.put(order)
        while True:
            before = self._called
            done, _ = await asyncio.wait([order.begun], timeout=_SECONDS)
            if done:
                return order
            if self._called == before:
                order.answer.cancel()
                raise TimeoutError

    def _work(self) -> None:
        while True:
            order = self._orders.get()
            self._called += 1
            order.carry_out(self._sink)


class _Order:
    def __init__(self, alert: Any, loop: asyncio.AbstractEventLoop) -> None:
        self._alert = alert
        self._loop = loop
        self.begun: asyncio.Future[None] = loop.create_future()
        self.answer: asyncio.Future[Any] = loop.create_future()

    def carry_out(self, sink: Callable[[Any], Any]) -> None:
        """In the thread."""
        if self.answer.cancelled():  # nobody waits for it any more
            return
        try:
            self._loop.call_soon_threadsafe(self._begin)
        except RuntimeError:  # the loop is closed
            return
        try:
            answer, error = sink(self._alert), None
        except BaseException as raised:  # SystemExit and the like are the sink's own failures
            answer, error = None, raised
        try:
            self._loop.call_soon_threadsafe(self._tell, answer, error)
        except RuntimeError:  # the loop is closed
            return

    def _begin(self) -> None:
        if not self.begun.done():
            self.begun.set_result(None)

    def _tell(self, answer: Any, error: BaseException | None) -> None:
        if self.answer.done():
            if inspect.iscoroutine(answer):
                answer.close()
        elif error is None:
            self.answer.set_result(answer)
        else:
            reason = error if isinstance(error, Exception) else RuntimeError(f"the sink raised {error!r}")
            self.answer.set_exception(reason)
