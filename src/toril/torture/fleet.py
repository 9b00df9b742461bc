"""The processes of a torture run, restarted when they are killed."""

import asyncio
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from toril.runtime.clock import SYSTEM
from toril.torture.app import Ledger, lines
from toril.torture.plan import RunSettings

__all__ = ["Disturbance", "FleetMember", "FleetRole", "is_excused"]

FleetRole = Literal["worker", "supervised", "producer"]
_RESTART = 0.2  # seconds
_STOP = 60.0  # seconds that a process may take to end when told to, or when its supervisor has died
_NOTICE = 5.0  # seconds for a supervisor to notice that a child was killed, before it is told to end
_CALM = 5.0  # seconds in a row in which an undisturbed process can end; its longest job takes three
_LOOK = 0.05
_PROCESSES = Path("/proc")
_NOT_OVER = float("inf")


@dataclass(slots=True)
class Disturbance:
    """A time in which a process could not continue: one of its own was stopped, or its store was away."""

    process: asyncio.subprocess.Process | None  # None: every process
    began: float
    ended: float = _NOT_OVER


class FleetMember:
    """One slot of the fleet. Under a supervisor, a fault hits a child of the supervisor, or the supervisor alone."""

    def __init__(self, role: FleetRole, setting: RunSettings, ledger: Ledger) -> None:
        self.role = role
        self.setting = setting
        self.forced: list[str] = []  # processes that did not end properly when told to, and how they ended
        self._ledger = ledger
        self._process: asyncio.subprocess.Process | None = None
        self._lives = 0
        self._disturbances: list[Disturbance] = []
        self._groups: list[int] = []  # of supervisors that have ended; their children may still be running
        self._kills: list[tuple[int, float]] = []  # process and time
        self._asked: asyncio.subprocess.Process | None = None
        self._left_alone: asyncio.subprocess.Process | None = None
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
                if self.role == "supervised":
                    self._groups.append(self._process.pid)
                if code == 0 and self.role == "producer":
                    return
            await SYSTEM.sleep(_RESTART)

    async def _born(self) -> None:
        self._lives += 1
        # A restarted producer continues its log; a restarted worker gets a new one.
        name = self.setting.name if self.role == "producer" else f"{self.setting.name}.{self._lives}"
        with (self.setting.logs / f"{self.setting.name}.err").open("ab") as errors:
            words, environment = self.command(replace(self.setting, name=name))
            self._process = await asyncio.create_subprocess_exec(
                *words,
                env=environment,
                stdin=asyncio.subprocess.PIPE,
                stdout=errors,
                stderr=errors,
                start_new_session=True,
            )

    def command(self, setting: RunSettings) -> tuple[list[str], dict[str, str]]:
        """The command and its environment."""
        return [sys.executable, "-m", "toril.torture.child", self.role], setting.environment()

    @property
    def done(self) -> bool:
        """Whether it has nothing more to do; only producers finish."""
        return self._keeper is not None and self._keeper.done()

    def pids(self) -> list[int]:
        """The processes that can be hit: workers that have booted, and producers."""
        process = self._process
        if process is None or process.returncode is not None:
            return []
        if self.role == "producer":
            return [process.pid]
        name = f"{self.setting.name}.{self._lives}.log"
        return [pid for pid in dict.fromkeys(_booted(self.setting, name)) if _belongs(pid, process.pid)]

    def signal_one(self, target: float, number: signal.Signals) -> int | None:
        """Send a signal to one of its processes, and return which."""
        pids = self.pids()
        if not pids or self._is_left_alone():
            return None
        pid = pids[int(target * 1000) % len(pids)]
        self._send(pid, number)
        return pid

    def signal_supervisor(self, number: signal.Signals) -> int | None:
        """Send a signal to the supervisor alone, once its children are ready; return which."""
        if self.role != "supervised" or self._process is None or not self.pids() or self._is_left_alone():
            return None
        self._send(self._process.pid, number)
        return self._process.pid

    def _is_left_alone(self) -> bool:
        """Whether its processes are no longer killed or stopped individually: of those told to end, some must show that
        they do, and most would be hit within their grace period."""
        return self._process is not None and self._process is self._left_alone

    def thaw(self, pid: int) -> None:
        """Resume a stopped process, unless it was killed meanwhile. Its supervisor may have been killed."""
        if any(_belongs(pid, group) for group in self._alive()):
            self._send(pid, signal.SIGCONT)

    def _send(self, pid: int, number: signal.Signals) -> None:
        with suppress(ProcessLookupError):
            os.kill(pid, number)
        if number == signal.SIGKILL:
            self._kills.append((pid, SYSTEM.monotonic()))

    def signal_all(self, number: signal.Signals) -> None:
        for group in self._alive():
            with suppress(ProcessLookupError):
                os.killpg(group, number)

    def _alive(self) -> list[int]:
        """Its process groups: the current one, and those that supervisors left behind."""
        process = self._process
        if process is None or (process.returncode is not None and self.role != "supervised"):
            return self._groups
        return [*self._groups, process.pid]

    async def term(self, number: signal.Signals = signal.SIGTERM, *, group: bool = False) -> int | None:
        """Tell it, or its whole group as a terminal does, to end, check that it does, and return which. It is told
        once: a second time would mean at once. A group that was told is left alone from then on."""
        process = self._process
        if process is None or process is self._asked or process.returncode is not None or not self.pids():
            return None
        self._asked = process
        await self._noticed(process)
        if process.returncode is not None:
            return None
        if group:
            self._left_alone = process
        asked_at = SYSTEM.monotonic()
        self._ledger.note("asked", self.setting.name, process.pid)
        with suppress(ProcessLookupError):
            if group:
                os.killpg(process.pid, number)
            else:
                process.send_signal(number)
        try:
            code = await asyncio.wait_for(process.wait(), _STOP)
        except TimeoutError:
            self.signal_all(signal.SIGKILL)
            self.forced.append(f"{self.setting.name}: process {process.pid} did not end")
        else:
            if code != 0 and not self._is_excused(process, asked_at, SYSTEM.monotonic()):
                self.forced.append(f"{self.setting.name}: process {process.pid} ended with code {code}")
        return process.pid

    async def _noticed(self, process: asyncio.subprocess.Process) -> None:
        """Give its supervisor time to notice every child that was killed before: a child told to stop after its death
        looks like one told before. If the supervisor does not notice, it is told anyway."""
        until = SYSTEM.monotonic() + _NOTICE
        while any(_belongs(pid, process.pid) for pid, _ in self._kills) and process.returncode is None:
            if SYSTEM.monotonic() > until:
                return
            await SYSTEM.sleep(_LOOK)

    def _is_excused(self, process: asyncio.subprocess.Process, asked: float, ended: float) -> bool:
        own = [each for each in self._disturbances if each.process in (None, process)]
        killed = any(asked <= at <= ended for _, at in self._kills)
        return is_excused(asked, ended, killed=killed, grace=self.setting.grace, disturbances=own)

    async def _orphans_gone(self) -> None:
        """Children whose supervisor was killed end by themselves."""
        until = SYSTEM.monotonic() + _STOP
        for group in self._groups:
            while _lives(group):
                if SYSTEM.monotonic() > until:
                    self.forced.append(f"{self.setting.name}: children of {group} did not end")
                    break
                await SYSTEM.sleep(_LOOK)

    @contextmanager
    def still(self) -> Iterator[None]:
        """One of its current processes is stopped meanwhile."""
        with self._disturbed(self._process):
            yield

    @contextmanager
    def cut_off(self) -> Iterator[None]:
        """It cannot reach its store meanwhile, or all of it is stopped."""
        with self._disturbed(None):
            yield

    @contextmanager
    def _disturbed(self, process: asyncio.subprocess.Process | None) -> Iterator[None]:
        disturbance = Disturbance(process, SYSTEM.monotonic())
        self._disturbances.append(disturbance)
        try:
            yield
        finally:
            disturbance.ended = SYSTEM.monotonic()

    async def close(self) -> None:
        """End it for good, properly if possible."""
        self._closing = True
        if self.role != "producer":
            await self.term()
            await self._orphans_gone()
        await self.kill()

    async def kill(self) -> None:
        """Kill everything."""
        self._closing = True
        self.signal_all(signal.SIGCONT)
        self.signal_all(signal.SIGKILL)
        if self._keeper is not None:
            self._keeper.cancel()
            await asyncio.gather(self._keeper, return_exceptions=True)
        if self._process is not None:
            await self._process.wait()


def is_excused(asked: float, ended: float, *, killed: bool, grace: float, disturbances: Sequence[Disturbance]) -> bool:
    """Whether a process may end badly: one of its own was killed after it was told to end, or its grace period had no
    five seconds in a row in which all of its processes ran and its store could be reached. The time needed to kill it
    after the grace period does not count. Times are seconds."""
    over = asked + grace
    return killed or (ended >= over and _longest_calm(asked, over, disturbances) < _CALM)


def _longest_calm(since: float, until: float, disturbances: Sequence[Disturbance]) -> float:
    """The longest undisturbed time, in seconds."""
    longest, calm_from = 0.0, since
    for each in sorted(disturbances, key=lambda each: each.began):
        longest = max(longest, min(each.began, until) - calm_from)
        calm_from = max(calm_from, each.ended)
    return max(longest, until - calm_from)


def _booted(setting: RunSettings, name: str) -> list[int]:
    return [line.pid for line in lines(setting.logs, name) if line.word == "hello"]


def _belongs(pid: int, group: int) -> bool:
    """Whether a process is alive and in this group: its id may have been reused."""
    try:
        return os.getpgid(pid) == group
    except ProcessLookupError:
        return False


def _lives(group: int) -> bool:
    """Whether a process of the group is still running. A process that has ended stays in it until someone waits for
    it."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    if not _PROCESSES.is_dir():
        return True
    return any(_runs_in(group, path) for path in _PROCESSES.glob("[0-9]*/stat"))


def _runs_in(group: int, path: Path) -> bool:
    try:
        state, _, its_group, *_ = path.read_text("utf-8", "replace").rpartition(")")[2].split()
    except OSError:  # it is gone
        return False
    return int(its_group) == group and state not in "ZX"
