"""Wakes waiting tasks, across threads and event loops; by way of the driver, those of other processes."""

import asyncio
import threading
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TypeAlias, TypeVar

from toril.engines.sql.driver import ProcessNotifier, Topic

__all__ = ["LocalNotifier", "Waiter", "hand_over"]

T = TypeVar("T")
Waiter: TypeAlias = "asyncio.Future[list[str]]"


class LocalNotifier:
    """Wakes those who wait for a name, in the order in which they came. Cheap when nobody waits."""

    def __init__(self, processes: ProcessNotifier | None = None) -> None:
        self._processes = processes
        self._lock = threading.Lock()
        self._waiting: dict[str, dict[Waiter, None]] = {}

    @property
    def names(self) -> list[str]:
        """The names that someone waits for now."""
        with self._lock:
            return list(self._waiting)

    @property
    def is_notified(self) -> bool:
        """Whether other processes' commits notify those who wait."""
        return self._processes is not None and self._processes.hears()

    def listen(self, names: Sequence[str]) -> Waiter:
        """A future of the running loop with the first of these names to be notified, and those notified with it. Pass
        it to `forget` afterwards."""
        future: Waiter = asyncio.get_running_loop().create_future()
        with self._lock:
            for name in names:
                self._waiting.setdefault(name, {})[future] = None
        if self._processes is not None:
            self._processes.listen({Topic.of(name) for name in names}, self._hear)
        return future

    def forget(self, names: Sequence[str], future: Waiter) -> None:
        self._drop(names, future)
        if self._processes is not None:
            self._processes.forget({Topic.of(name) for name in names}, future.get_loop())

    def _drop(self, names: Iterable[str], future: Waiter) -> None:
        with self._lock:
            for name in names:
                waiting = self._waiting.get(name)
                if waiting is not None:
                    waiting.pop(future, None)
                    if not waiting:
                        del self._waiting[name]

    def committed(self, names: Iterable[str]) -> None:
        """Wake all who wait for any of these names, here and in other processes. Called by the thread that commits."""
        if not names:
            return
        self._notify(names)
        if self._processes is not None:
            self._processes.notify(names)

    def _hear(self, names: list[str]) -> None:
        """Another process has committed."""
        if names:
            self._notify(names)
        else:
            self.notify_all()

    def _notify(self, names: Iterable[str]) -> None:
        if not self._waiting:
            return
        woken: dict[Waiter, list[str]] = {}
        with self._lock:
            for name in names:
                for future in self._waiting.get(name, ()):
                    woken.setdefault(future, []).append(name)
        self._wake(woken)

    def notify_all(self) -> None:
        """Something may have changed: wake all waiters, so that they check for themselves."""
        with self._lock:
            woken: dict[Waiter, list[str]] = {future: [] for waiting in self._waiting.values() for future in waiting}
        self._wake(woken)

    def close(self) -> None:
        """Nobody waits or commits any longer."""
        if self._processes is not None:
            self._processes.close()

    def _wake(self, woken: dict[Waiter, list[str]]) -> None:
        for future, heard in woken.items():
            if not hand_over(future.get_loop(), partial(_wake, future), heard):
                self._drop(list(self._waiting), future)


def hand_over(loop: asyncio.AbstractEventLoop, callback: Callable[[T], None], argument: T) -> bool:
    """Make the loop call this soon, from any thread. False: the loop is closed, so nobody waits there."""
    try:
        loop.call_soon_threadsafe(callback, argument)
    except RuntimeError:
        return False
    return True


def _wake(future: Waiter, heard: list[str]) -> None:
    if not future.done():
        future.set_result(heard)
