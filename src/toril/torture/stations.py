"""The processes of a run: each is started again when it was killed."""

import asyncio
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Literal

from toril.clock import SYSTEM
from toril.torture.ledger import Ledger, lines
from toril.torture.setting import Setting

__all__ = ["Role", "Station", "is_excused"]

Role = Literal["worker", "supervised", "producer"]
_RESTART = 0.2  # seconds
_FROZEN = 6.0  # seconds: no blow lasts longer
_STOP = 60.0  # seconds that a process may take to end when it is asked to
# Seconds for which a store has to be back before nobody is held up by it any more: up to two until it is tried again,
# one from the end of the grace to that of the process, and one because the machine is loaded.
_AGAIN = 4.0


class Station:
    """One place of the fleet. What is struck in a supervised one is a child of the supervisor."""

    def __init__(self, role: Role, setting: Setting, ledger: Ledger) -> None:
        self.role = role
        self.setting = setting
        self.forced: list[str] = []  # processes that did not end well when they were asked to, and how they ended
        self._ledger = ledger
        self._process: asyncio.subprocess.Process | None = None
        self._lives = 0
        self._struck_at = self._back_at = float("-inf")
        self._away = 0
        self._asked: asyncio.subprocess.Process | None = None
        self._closing = False
        self._keeper: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._keeper = asyncio.create_task(self._keep_alive())

    async def _keep_alive(self) -> None:
        while not self._closing:
            await self._born()
            if self._process is not None:
                code = await self._process.wait()
                self._ledger.note("ended", self.setting.name, self._process.pid, code)
                if code == 0 and self.role == "producer":
                    return
            await SYSTEM.sleep(_RESTART)

    async def _born(self) -> None:
        self._lives += 1
        # A producer goes on in its own ledger; a worker's new life has a ledger of its own.
        name = self.setting.name if self.role == "producer" else f"{self.setting.name}.{self._lives}"
        with (self.setting.logs / f"{self.setting.name}.err").open("ab") as errors:
            words, environment = self.command(replace(self.setting, name=name))
            self._process = await asyncio.create_subprocess_exec(
                *words, env=environment, stdin=asyncio.subprocess.PIPE, stdout=errors, stderr=errors,
                start_new_session=True,
            )  # fmt: skip

    def command(self, setting: Setting) -> tuple[list[str], dict[str, str]]:
        """What is started, and what it is told."""
        return [sys.executable, "-m", "toril.torture.child", self.role], setting.environment()

    @property
    def done(self) -> bool:
        """Whether it has nothing more to do, as a producer may."""
        return self._keeper is not None and self._keeper.done()

    def pids(self) -> list[int]:
        """Those that can be struck: workers that have booted, and any producer."""
        process = self._process
        if process is None or process.returncode is not None:
            return []
        if self.role == "producer":
            return [process.pid]
        name = f"{self.setting.name}.{self._lives}.log"
        return [pid for pid in dict.fromkeys(_booted(self.setting, name)) if _belongs(pid, process.pid)]

    def strike(self, target: float, number: signal.Signals) -> int | None:
        """Send a signal to one of its processes; which."""
        pids = self.pids()
        if not pids:
            return None
        pid = pids[int(target * 1000) % len(pids)]
        self._struck_at = SYSTEM.monotonic()
        with suppress(ProcessLookupError):
            os.kill(pid, number)
        return pid

    def strike_all(self, number: signal.Signals) -> None:
        self._struck_at = SYSTEM.monotonic()
        if self._process is not None and self._process.returncode is None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, number)

    async def term(self) -> int | None:
        """Ask it to end, and see that it does; which. It is asked once: a second time would mean at once."""
        process = self._process
        if process is None or process is self._asked or process.returncode is not None or not self.pids():
            return None
        self._asked, asked_at = process, SYSTEM.monotonic()
        self._ledger.note("asked", self.setting.name, process.pid)
        process.terminate()
        try:
            code = await asyncio.wait_for(process.wait(), _STOP)
        except TimeoutError:
            self.strike_all(signal.SIGKILL)
            self.forced.append(f"{self.setting.name} {process.pid} never")
        else:
            back = float("inf") if self._away else self._back_at
            facts = {"struck": self._struck_at, "back": back, "grace": self.setting.grace}
            if code != 0 and not is_excused(asked_at, SYSTEM.monotonic(), **facts):
                self.forced.append(f"{self.setting.name} {process.pid} {code}")
        return process.pid

    @contextmanager
    def cut_off(self) -> Iterator[None]:
        """Meanwhile it cannot reach its store."""
        self._away += 1
        try:
            yield
        finally:
            self._away -= 1
            self._back_at = SYSTEM.monotonic()

    async def close(self) -> None:
        """End it for good, and well if that can be."""
        self._closing = True
        if self.role != "producer":
            await self.term()
        await self.kill()

    async def kill(self) -> None:
        """Leave nothing of it."""
        self._closing = True
        self.strike_all(signal.SIGCONT)
        self.strike_all(signal.SIGKILL)
        if self._keeper is not None:
            self._keeper.cancel()
            await asyncio.gather(self._keeper, return_exceptions=True)
        if self._process is not None:
            await self._process.wait()


def is_excused(asked: float, ended: float, *, struck: float, back: float, grace: float) -> bool:
    """Whether a process may have ended badly: another blow held it up, or killed a child. Or it tried until its grace
    was over to hand in what it had, and its store was away, or had not been back for long enough to be found.

    All are seconds: `struck` is when the last blow ended that was its own, `back` when its store came back, infinity if
    that is still away."""
    if struck >= asked - _FROZEN:
        return True
    return ended - asked >= grace and back >= ended - _AGAIN


def _booted(setting: Setting, name: str) -> list[int]:
    return [line.pid for line in lines(setting.logs, name) if line.word == "hello"]


def _belongs(pid: int, group: int) -> bool:
    """Whether a process is alive and of this group: its number may be another's by now."""
    try:
        return os.getpgid(pid) == group
    except ProcessLookupError:
        return False
