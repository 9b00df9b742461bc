"""Stop signals. They are received even while the event loop is blocked, and their deadline always holds."""

import asyncio
import os
import select
import signal
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final

from toril.runtime.clock import SYSTEM
from toril.runtime.logs import output
from toril.runtime.stop_requests import StopRequests, Urgency

__all__ = ["MARGIN", "SECOND", "StopSignals", "run_until"]

MARGIN: Final = 1.0  # seconds after the grace period, for releasing jobs and for the hooks
SECOND: Final = 2.0  # seconds that remain after a second signal
_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)
_LOOK: Final = 0.25  # seconds between checks whether another watchdog still has time

# Messages to the thread, besides the numbers of signals, which are below 128.
_OVER: Final = 0
_ORPHANED: Final = 127
_REQUEST: Final = 128  # plus the urgency


class StopSignals:
    """A thread that waits for signals and other requests to stop. The first request sets the deadline, and then makes
    the loop stop; a more urgent one shortens the deadline; the most urgent one, or the deadline, ends the process with
    code 1. `supervisor` returns what a supervisor has requested so far; without one the process counts signals
    itself."""

    def __init__(
        self,
        grace: float,
        stop: Callable[[Urgency], None],
        last: Callable[[], None] | None = None,
        *,
        supervisor: Callable[[], int] | None = None,
    ) -> None:
        self._grace = grace
        self._stop = stop
        self._last = last  # called in this thread before a forced exit
        self._supervisor = supervisor
        self._requests = StopRequests(supervised=supervisor is not None)
        self._reader = self._writer = -1
        self._closing = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._deadline: float | None = None

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Watch until the end of the block; then restore all handlers."""
        self._loop = asyncio.get_running_loop()
        self._reader, self._writer = os.pipe()
        # Created before any signal comes: a thread cannot safely be started in a signal handler.
        thread = threading.Thread(target=self._main, name="toril-watchdog", daemon=True)
        thread.start()
        _handlers.add(self)
        try:
            yield
        finally:
            _handlers.remove(self)
            os.write(self._writer, bytes((_OVER,)))
            thread.join()
            with self._closing:
                reader, writer, self._reader, self._writer = self._reader, self._writer, -1, -1
                os.close(writer)
                os.close(reader)

    def request(self, urgency: Urgency) -> None:
        """Ask the process to stop; called on its loop. A repeated request changes nothing."""
        if self._writer < 0:  # nobody is watching
            self._stop(self._requests.requested(urgency))
        else:
            os.write(self._writer, bytes((_REQUEST + urgency,)))

    def orphaned(self) -> None:
        """The supervisor has died: stop, and count signals from now on. Called in any thread."""
        with self._closing:
            if self._writer >= 0:
                os.write(self._writer, bytes((_ORPHANED,)))

    def signalled(self, number: int) -> None:
        """A signal has arrived; called by its handler."""
        if self._writer >= 0:
            os.write(self._writer, bytes((number,)))

    def _main(self) -> None:
        while True:
            if not select.select([self._reader], [], [], self._left())[0]:
                if self._left() == 0:
                    self._end("the grace period is over, and something is still running")
                continue
            for byte in os.read(self._reader, 64):
                if byte == _OVER:
                    return
                before, urgency = self._requests.urgency, self._urgency_after(byte)
                if urgency == before:
                    continue
                if urgency is Urgency.ABORT:
                    self._end("received a third signal")
                until = SYSTEM.monotonic() + (self._grace + MARGIN if urgency is Urgency.DRAIN else SECOND)
                self._deadline = until if self._deadline is None else min(self._deadline, until)
                self._tell_the_loop(urgency)

    def _left(self) -> float | None:
        """Seconds until the forced exit. If several watchdogs are active, the one with the longest grace decides; it
        may finish sooner, so the others check again."""
        if self._deadline is None:
            return None
        now, own = SYSTEM.monotonic(), self._deadline
        latest = max([own, *(each._deadline or own for each in _handlers.watchdogs)])  # noqa: SLF001 - of this class
        return max(0.0, own - now) or max(0.0, min(latest - now, _LOOK))

    def _urgency_after(self, byte: int) -> Urgency:
        if byte >= _REQUEST:
            return self._requests.requested(byte - _REQUEST)
        if byte == _ORPHANED:
            return self._requests.orphaned()
        return self._requests.signalled(byte, SYSTEM.monotonic(), self._supervisor() if self._supervisor else 0)

    def _tell_the_loop(self, urgency: Urgency) -> None:
        try:
            if self._loop is not None:
                self._loop.call_soon_threadsafe(self._stop, urgency)
        except RuntimeError:
            return  # it is closed

    def _end(self, why: str) -> None:
        """Write straight to the descriptor: whoever blocks the loop may hold the locks of logging."""
        unwritten = output.writer.unwritten() if output.writer is not None else []
        for line in (*unwritten, f"toril: {why}; exiting by force\n"):
            with suppress(OSError):  # a log that is full or closed must not hold up the exit either
                if select.select([], [2], [], 0)[1]:
                    os.write(2, line.encode(errors="backslashreplace"))
        if self._last is not None:
            self._last()
        os._exit(1)


async def run_until(stopping: asyncio.Event, work: Coroutine[Any, Any, None]) -> None:
    """Run this until it must stop, then cancel it and wait for its cleanup. An error that ends it sooner is raised."""
    doing, stop = asyncio.ensure_future(work), asyncio.ensure_future(stopping.wait())
    try:
        await asyncio.wait([doing, stop], return_when=asyncio.FIRST_COMPLETED)
    finally:
        stop.cancel()
        doing.cancel()
        await asyncio.wait([doing])
    if not doing.cancelled():
        doing.result()


class _Handlers:
    """The signal handlers that all watchdogs of a process share: each watchdog gets every signal, whichever starts or
    ends first. When the last one ends, the previous handlers are restored."""

    def __init__(self) -> None:
        self.watchdogs: tuple[StopSignals, ...] = ()
        self._before: dict[signal.Signals, Any] = {}

    def add(self, watchdog: StopSignals) -> None:
        if threading.current_thread() is not threading.main_thread():
            return  # only the main thread may set handlers
        self.watchdogs += (watchdog,)
        for number in _SIGNALS:
            handler = signal.getsignal(number)
            if handler != self._on_signal:
                self._before[number] = handler
                signal.signal(number, self._on_signal)

    def remove(self, watchdog: StopSignals) -> None:
        if watchdog not in self.watchdogs:
            return
        self.watchdogs = tuple(each for each in self.watchdogs if each is not watchdog)
        if not self.watchdogs:
            for number, handler in self._before.items():
                signal.signal(number, handler)
            self._before.clear()

    def _on_signal(self, number: int, _frame: object) -> None:
        for watchdog in self.watchdogs:
            watchdog.signalled(number)


_handlers: Final = _Handlers()
