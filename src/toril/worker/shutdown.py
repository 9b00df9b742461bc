"""Signals that say stop. They are heard while the loop is blocked, and their deadline holds whatever the loop does."""

import asyncio
import os
import select
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Final

from toril.clock import SYSTEM

__all__ = ["MARGIN", "SECOND", "Watchdog"]

MARGIN: Final = 1.0  # seconds after the grace, for handing in what was given back and for the hooks
SECOND: Final = 2.0  # seconds that a second signal leaves
_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)


class Watchdog:
    """A thread that waits for signals. The first one sets the deadline and only then has the loop begin to stop; a
    second one shortens the deadline; a third one, or the deadline, ends the process with code 1."""

    def __init__(self, grace: float, stop: Callable[[], None], last: Callable[[], None] | None = None) -> None:
        self._grace = grace
        self._stop = stop
        self._last = last  # called in this thread before the process is ended by force
        self._heard = self._told = -1
        self._loop: asyncio.AbstractEventLoop | None = None

    @contextmanager
    def watching(self) -> Iterator[None]:
        """From now on, until the end of the block; afterwards all handlers are as they were."""
        self._loop = asyncio.get_running_loop()
        self._heard, self._told = os.pipe()
        # Made before any signal comes: a thread cannot safely be started from within a handler.
        thread = threading.Thread(target=self._main, name="toril-watchdog", daemon=True)
        thread.start()
        before = {number: signal.getsignal(number) for number in self._numbers()}
        for number in before:
            signal.signal(number, self._on_signal)
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
            os.write(self._told, b"\0")
            thread.join()
            heard, told, self._heard, self._told = self._heard, self._told, -1, -1
            os.close(told)
            os.close(heard)

    def rouse(self) -> None:
        """As if a signal had come."""
        if self._told < 0:  # nobody watches
            self._stop()
        else:
            os.write(self._told, b"\1")

    def _numbers(self) -> tuple[signal.Signals, ...]:
        """Only the main thread may have handlers."""
        return _SIGNALS if threading.current_thread() is threading.main_thread() else ()

    def _on_signal(self, _number: int, _frame: object) -> None:
        self.rouse()

    def _main(self) -> None:
        count, deadline = 0, None
        while True:
            left = None if deadline is None else max(0.0, deadline - SYSTEM.monotonic())
            if not select.select([self._heard], [], [], left)[0]:
                self._end("the grace is over, and something has not ended")
            for byte in os.read(self._heard, 64):
                if not byte:
                    return
                count += 1
                patience = self._grace + MARGIN if count == 1 else SECOND
                until = SYSTEM.monotonic() + patience
                deadline = until if deadline is None else min(deadline, until)
                if count > 2:
                    self._end("a third signal came")
                self._tell_the_loop()

    def _tell_the_loop(self) -> None:
        try:
            if self._loop is not None:
                self._loop.call_soon_threadsafe(self._stop)
        except RuntimeError:
            return  # it is closed already

    def _end(self, why: str) -> None:
        """Straight to the descriptor: whoever blocks the loop may hold the locks of logging."""
        with suppress(OSError):  # nor may a log that is full, closed, or read by nobody hold up the exit
            if select.select([], [2], [], 0)[1]:
                os.write(2, f"toril: {why}; exiting by force\n".encode())
        if self._last is not None:
            self._last()
        os._exit(1)
