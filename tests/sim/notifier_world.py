"""Processes on a file that wait and commit in a random order, over real sockets: nobody sleeps through a commit.

Unlike the other worlds this one needs no virtual clock, because nothing here depends on time: the regular check of the
file, which makes up for a notification that got lost, is left out. So every lost notification is a violation.
"""

import asyncio
import random
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar, Final

from toril.engines.sql.notifier import LocalNotifier, Waiter
from toril.engines.sqlite.socket_notifier import SocketNotifier
from toril.runtime.clock import SYSTEM

__all__ = ["NotifierWorld", "WaitingTask", "lost_wake_ups"]

_NAMES: Final = ("shop", "mail", "=shop")
_PROCESSES: Final = 3
_STEPS: Final = 120
_FLOOD: Final = 30  # notifications at once, more than a socket has room for
_TURNS: Final = 6  # of the loop, within which all that was sent is read


class WaitingTask:
    """A task that waits for one name: it listens, then checks, then sleeps until it is woken."""

    order: ClassVar[tuple[str, str]] = ("listen", "check")

    def __init__(self, process: "_Process", name: str) -> None:
        self.process = process
        self.name = name
        self.checked = 0  # what the store held when it last looked
        self._known = 0  # what it has dealt with
        self._steps = list(self.order)
        self._waiter: Waiter | None = None

    @property
    def asleep(self) -> bool:
        return not self._steps and self._waiter is not None and not self._waiter.done()

    def go_on(self, store: Counter[str]) -> None:
        """The next step."""
        if not self._steps:
            if not self.asleep:  # woken, so it looks again
                self.leave()
            return
        if self._steps.pop(0) == "listen":
            self._waiter = self.process.local.listen([self.name])
        else:
            self.checked = store[self.name]
            if self.checked != self._known:
                self._known = self.checked
                self.leave()

    def leave(self) -> None:
        if self._waiter is not None:
            self.process.local.forget([self.name], self._waiter)
        self._waiter, self._steps = None, list(self.order)


class _Process:
    def __init__(self, file: Path) -> None:
        self.sockets = SocketNotifier(file, 0o600, SYSTEM)
        self.local = LocalNotifier(self.sockets)
        self.tasks = [WaitingTask(self, name) for name in _NAMES]
        self.owed: list[str] = []  # committed, and not yet notified

    def notify(self) -> None:
        owed, self.owed = self.owed, []
        self.local.committed(owed)

    def die(self) -> None:
        """As by SIGKILL: the kernel closes its sockets, and their names stay."""
        for bound, _ in self.sockets._bound.values():
            asyncio.get_running_loop().remove_reader(bound)
            bound.close()
        self.sockets._bound.clear()
        self.sockets._paths.close()
        if self.sockets._sender is not None:
            self.sockets._sender.close()

    def fork(self) -> None:
        """What goes on is the child, on a loop that reads nothing yet; the sockets are its parent's, which is gone."""
        for bound, _ in self.sockets._bound.values():
            asyncio.get_running_loop().remove_reader(bound)
        self.sockets.abandon()
        self.local._waiting.clear()
        self.tasks = [WaitingTask(self, name) for name in _NAMES]


class NotifierWorld:
    """One run, by its seed."""

    def __init__(self, seed: int, folder: Path) -> None:
        self._chance = random.Random(seed)
        self._file = folder / "jobs.db"
        self._store = Counter[str]()
        self._processes = [_Process(self._file) for _ in range(_PROCESSES)]
        self.violations: list[str] = []

    async def run(self) -> list[str]:
        """What was lost."""
        acts: list[Callable[[_Process], object]] = [self._wait, self._commit, self._notify, self._flood, self._die,
                                                    self._fork, self._tidy]  # fmt: skip
        for _ in range(_STEPS):
            (act,) = self._chance.choices(acts, (30, 10, 10, 1, 1, 1, 1))
            act(self._chance.choice(self._processes))
            if self._chance.random() < 0.3:
                await asyncio.sleep(0)
            if self._chance.random() < 0.05:
                await self._check()
        await self._check()
        for process in self._processes:
            for task in process.tasks:
                task.leave()
            process.local.close()
        return self.violations

    def _wait(self, process: _Process) -> None:
        self._chance.choice(process.tasks).go_on(self._store)

    def _commit(self, process: _Process) -> None:
        name = self._chance.choice(_NAMES)
        self._store[name] += 1
        process.owed.append(name)

    def _notify(self, process: _Process) -> None:
        process.notify()

    def _flood(self, process: _Process) -> None:
        """So many commits that the others, which do not read meanwhile, have no room for the last of them."""
        for _ in range(_FLOOD):
            process.local.committed(["noise", "=noise"])
        self._commit(process)
        process.notify()

    def _die(self, process: _Process) -> None:
        process.notify()  # else the regular check would have to find what it committed
        process.die()
        self._processes[self._processes.index(process)] = _Process(self._file)

    def _fork(self, process: _Process) -> None:
        process.notify()
        process.fork()

    def _tidy(self, _: _Process) -> None:
        """Somebody deletes the folder while nobody waits: those who wait could not know of it."""
        for each in self._processes:
            for task in each.tasks:
                task.leave()
        shutil.rmtree(f"{self._file}-wake", ignore_errors=True)

    async def _check(self) -> None:
        for process in self._processes:
            process.notify()
        for _ in range(_TURNS):
            await asyncio.sleep(0)
        for number, process in enumerate(self._processes):
            for task in process.tasks:
                if task.asleep and task.checked < self._store[task.name]:
                    self.violations.append(f"process {number} sleeps, and {task.name} has changed")


def lost_wake_ups(seed: int, folder: Path) -> list[str]:
    """What a run of this seed loses. Half of them have a path that is too long for the address of a socket."""
    home = folder / (f"seed-{seed}" if seed % 2 else f"seed-{seed}-{'long' * 30}")
    home.mkdir()
    try:
        return asyncio.run(NotifierWorld(seed, home).run())
    finally:
        shutil.rmtree(home)
