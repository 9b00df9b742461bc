"""One peer under the plan of a seed: its processes, a wire for each, a Redis of its own; and the count at the end."""

import asyncio
import os
import signal
import statistics
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from bench.installing import ROOT, interpreter, requirements
from toril.runtime.clock import SYSTEM
from toril.torture.app import Ledger, lines
from toril.torture.faults import OwnRedis, Proxy
from toril.torture.fleet import FleetMember, FleetRole
from toril.torture.plan import LINK, SERVER, FaultType, PlannedFault, RunSettings, draw

__all__ = ["PEERS", "Figures", "Run", "tortured", "version"]

Figures = dict[str, float]
# What every peer can be expected to live through. A polite end is for each of them another matter.
FAULTS = frozenset({FaultType.KILL, FaultType.FREEZE, FaultType.FREEZE_ALL}) | LINK | SERVER
# The peer, and the package that its requirements are named for; None: this very interpreter.
PEERS: dict[str, str | None] = {
    "Toril": None, "BullMQ (Python)": "bullmq", "arq": "arq", "Celery": "celery", "Dramatiq": "dramatiq",
    "SAQ": "saq",
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """Times are seconds. `drain` is how long a peer may take for the rest once the faults are over."""

    seed: int
    jobs: int
    seconds: float
    every: float = 0.8
    workers: int = 3
    drain: float = 300.0


class _Peer(FleetMember):
    """A process of a peer, in the peer's own environment."""

    def __init__(self, role: FleetRole, setting: RunSettings, ledger: Ledger, command: Sequence[str]) -> None:
        super().__init__(role, setting, ledger)
        self._words = [*command, role]

    def command(self, setting: RunSettings) -> tuple[list[str], dict[str, str]]:
        told = {
            "PORT": setting.url, "NAME": setting.name, "FOLDER": setting.folder, "SEED": setting.seed,
            "JOBS": setting.jobs, "SECONDS": setting.seconds, "LANE": setting.lane, "PRODUCERS": setting.producers,
        }  # fmt: skip
        path = f"{ROOT}{os.pathsep}{ROOT / 'src'}"
        return self._words, os.environ | {"PYTHONPATH": path} | {
            f"SCORECARD_{name}": str(value) for name, value in told.items()
        }


def _command(peer: str) -> list[str]:
    package = PEERS[peer]
    python = sys.executable if package is None else interpreter(package)
    return [python, "-m", f"bench.scorecard.peers.{package or 'toril'}_peer"]


def version(peer: str) -> str:
    package = PEERS[peer]
    if package is None:
        from toril import __version__

        return __version__
    return next(
        pin.split("==")[1] for pin in requirements(package).read_text().split() if pin.startswith(f"{package}==")
    )


async def tortured(peer: str, run: Run) -> Figures:
    with tempfile.TemporaryDirectory(prefix="scorecard-") as folder:
        async with AsyncExitStack() as stack:
            return await _Stand(peer, run, Path(folder), stack).run()


class _Stand:
    def __init__(self, peer: str, run: Run, folder: Path, stack: AsyncExitStack) -> None:
        self._command = _command(peer)
        self._run, self._folder, self._stack = run, folder, stack
        self._ledger = Ledger(folder / "driver.log")
        self._injected: Counter[str] = Counter()
        self._server = OwnRedis(folder / "redis")
        self._still = asyncio.Lock()
        self._proxies: list[Proxy] = []
        self._workers: list[_Peer] = []
        self._producers: list[_Peer] = []

    async def run(self) -> Figures:
        self._stack.push_async_callback(self._server.kill)
        await self._server.start()
        self._workers = [await self._member("worker", f"w{number}", 0) for number in range(self._run.workers)]
        await _until(lambda: all(worker.pids() for worker in self._workers), 60)
        self._producers = [await self._member("producer", f"p{lane}", lane) for lane in range(2)]
        await self._inject_all()
        await _until(lambda: all(each.done for each in self._producers), self._run.drain)
        calm = SYSTEM.monotonic()
        await _until(lambda: not count(self._folder)["lost"], self._run.drain)
        figures = count(self._folder)
        return figures | {
            "faults": sum(self._injected.values()),
            "seconds until the last had run": round(SYSTEM.monotonic() - calm),
        }

    async def _member(self, role: FleetRole, name: str, lane: int) -> _Peer:
        proxy = await Proxy("127.0.0.1", self._server.port).start()
        self._stack.push_async_callback(proxy.stop)
        self._proxies.append(proxy)
        setting = RunSettings(
            url=str(proxy.port), seed=self._run.seed, jobs=self._run.jobs, seconds=self._run.seconds,
            folder=str(self._folder), name=name, lane=lane, producers=2,
        )  # fmt: skip
        member = _Peer(role, setting, self._ledger, self._command)
        self._stack.push_async_callback(member.kill)
        member.start()
        return member

    async def _inject_all(self) -> None:
        start = SYSTEM.monotonic()
        async with asyncio.TaskGroup() as group:
            for fault in draw(self._run.seed, self._run.seconds, FAULTS, every=self._run.every):
                await SYSTEM.sleep(max(0.0, start + fault.at - SYSTEM.monotonic()))
                group.create_task(self._inject(fault))
            await SYSTEM.sleep(max(0.0, start + self._run.seconds - SYSTEM.monotonic()))
        for proxy in self._proxies:
            proxy.restore()

    async def _inject(self, fault: PlannedFault) -> None:
        self._injected[fault.kind.name] += 1
        worker = self._workers[fault.of(len(self._workers))]
        match fault.kind:
            case FaultType.KILL:
                self._ledger.note("fault", "KILL", worker.signal_one(fault.target, signal.SIGKILL) or 0)
            case FaultType.FREEZE:
                pid = worker.signal_one(fault.target, signal.SIGSTOP)
                await SYSTEM.sleep(fault.seconds)
                if pid is not None and pid in worker.pids():
                    os.kill(pid, signal.SIGCONT)
            case FaultType.FREEZE_ALL:
                await self._all_still(fault.seconds)
            case kind if kind in LINK:
                await self._proxies[fault.of(len(self._proxies))].inject(fault)
            case _:
                self._injected[fault.kind.name] -= not await self._server.inject(fault)

    async def _all_still(self, seconds: float) -> None:
        async with self._still:
            for member in (*self._workers, *self._producers):
                member.signal_all(signal.SIGSTOP)
            await SYSTEM.sleep(seconds)
            for member in (*self._workers, *self._producers):
                member.signal_all(signal.SIGCONT)


def count(folder: Path) -> Figures:
    """From the ledgers alone: what was acknowledged and has not run to its end, and what did so twice."""
    acknowledged: set[str] = set()
    attempted: set[str] = set()
    ends: Counter[str] = Counter()
    starts: dict[str, list[tuple[float, int]]] = defaultdict(list)
    over: set[tuple[str, int]] = set()
    kills: dict[int, float] = {}
    for line in sorted(lines(folder), key=lambda line: line.at):
        match line.word, line.facts:
            case "attempt", (nonce,):
                attempted.add(nonce)
            case "ack", (nonce,):
                acknowledged.add(nonce)
            case "start", (nonce,):
                starts[nonce].append((line.at, line.pid))
            case "end", (nonce,):
                ends[nonce] += 1
                over.add((nonce, line.pid))
            case "fault", ("KILL", pid):
                kills[int(pid)] = line.at
            case _:
                pass
    took = [
        again[0] - kills[run[1]]
        for nonce, runs in starts.items()
        for run, again in pairwise(runs)
        if run[1] in kills and (nonce, run[1]) not in over
    ]
    return {
        "attempted": len(attempted), "acknowledged": len(acknowledged), "lost": len(acknowledged - ends.keys()),
        "ran to its end twice": sum(times > 1 for times in ends.values()), "recovered after kills": len(took),
        "median recovery": round(statistics.median(took), 1) if took else 0,
        "longest recovery": round(max(took), 1) if took else 0,
    }  # fmt: skip


async def _until(done: Callable[[], bool], seconds: float) -> None:
    until = SYSTEM.monotonic() + seconds
    while not done() and SYSTEM.monotonic() < until:
        await SYSTEM.sleep(0.5)
