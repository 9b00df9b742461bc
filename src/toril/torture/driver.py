"""One run: the fleet, the blows, then calm weather until all is done; and what came of it."""

import asyncio
import signal
from collections import Counter
from collections.abc import Coroutine, Iterator, Sequence
from contextlib import AsyncExitStack, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit, urlunsplit

from toril import App
from toril.runtime.clock import SYSTEM
from toril.torture.app import Ledger
from toril.torture.checker import TortureReport, acknowledged, check, open_jobs, refs_in
from toril.torture.cleanup import clean
from toril.torture.faults import Disk, OwnRedis, Proxy
from toril.torture.fleet import FleetMember, FleetRole
from toril.torture.plan import DISK, LINK, MUTE, SERVER, FaultType, PlannedFault, RunSettings, draw

__all__ = ["Torture", "blows_of", "possible", "torture"]

_WORKER = frozenset({FaultType.KILL, FaultType.FREEZE, FaultType.TERM, FaultType.TERM_GROUP, FaultType.INTERRUPT_GROUP})
_ALWAYS = frozenset(FaultType) - LINK - SERVER - DISK
_LOOK = 0.5  # seconds between two looks

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Torture:
    """What was asked for. `url` is a store's, or `redis` or `sqlite` for one of the run's own. Times are seconds."""

    seed: int
    url: str
    jobs: int
    seconds: float
    folder: Path
    tag: str
    workers: int = 4
    lease: float = 2.0
    every: float = 0.8
    drain: float = 180.0
    own_disk: bool = False


def possible(run: Torture) -> frozenset[FaultType]:
    """What can be struck there. A server that is not the run's own is left alone; so is its disk."""
    found = set(_ALWAYS)
    if run.url == "redis" or urlsplit(run.url).scheme == "redis":
        found |= LINK
    if run.url == "redis":
        found |= SERVER
    if run.own_disk:
        found |= DISK
    return frozenset(found)


async def torture(run: Torture) -> TortureReport:
    """Nothing of it is left behind, but for the ledgers in its folder."""
    async with AsyncExitStack() as stack:
        return await _Run(run, stack).run()


class _Run:
    def __init__(self, run: Torture, stack: AsyncExitStack) -> None:
        self._run = run
        self._stack = stack
        self._ledger = Ledger(run.folder / "driver.log")
        self._blows = draw(run.seed, run.seconds, possible(run), every=run.every)
        self._struck: Counter[str] = Counter()
        self._server: OwnRedis | None = None
        self._disk: Disk | None = None
        self._proxies: list[Proxy] = []
        self._workers: list[FleetMember] = []
        self._producers: list[FleetMember] = []
        self._cut_off: Counter[str] = Counter()
        self._still = asyncio.Lock()
        self._full = asyncio.Lock()

    async def run(self) -> TortureReport:
        url = await self._store()
        self._setting = RunSettings(
            url=url, tag=self._run.tag, seed=self._run.seed, jobs=self._run.jobs, seconds=self._run.seconds,
            lease=self._run.lease, folder=str(self._run.folder), name="driver", producers=2,
        )  # fmt: skip
        app = App(url, prefix=self._setting.prefix)
        await self._stack.enter_async_context(app)
        if url == self._run.url:  # what is ours alone goes with its folder
            self._stack.push_async_callback(clean, app, self._setting)
        began = SYSTEM.monotonic()
        await self._staff(url)
        await self._strike_all()
        produced = await self._produced()
        drained = produced and await self._drained(app)
        for station in (*self._producers, *self._workers):
            await station.close()
        forced = [each for station in self._workers for each in station.forced]
        report = await check(app, self._setting, struck=self._struck, cut_off=self._cut_off, forced=forced)
        return replace(
            report, seconds=round(SYSTEM.monotonic() - began, 1), drained=drained,
            blows=tuple(blow.document() for blow in self._blows),
        )  # fmt: skip

    # the store

    async def _store(self) -> str:
        if self._run.url == "redis":
            self._server = OwnRedis(self._run.folder / "redis")
            self._stack.push_async_callback(self._server.kill)
            await self._server.start()
            return f"redis://127.0.0.1:{self._server.port}/0"
        if self._run.url == "sqlite":
            return f"sqlite:///{await self._place() / 'jobs.db'}"
        return self._run.url

    async def _place(self) -> Path:
        if not self._run.own_disk:
            return self._run.folder
        self._disk = Disk()
        self._stack.push_async_callback(self._disk.stop)
        await self._disk.start()
        return self._disk.place

    # the fleet

    async def _staff(self, url: str) -> None:
        roles: list[FleetRole] = ["supervised" if number == 0 else "worker" for number in range(self._run.workers)]
        self._workers = [await self._station(role, f"w{number}", url) for number, role in enumerate(roles)]
        self._producers = [await self._station("producer", f"p{number}", url, lane=number) for number in range(2)]

    async def _station(self, role: FleetRole, name: str, url: str, lane: int = 0) -> FleetMember:
        setting = replace(self._setting, url=await self._wired(url), name=name, lane=lane)
        station = FleetMember(role, setting, self._ledger)
        self._stack.push_async_callback(station.kill)
        station.start()
        return station

    async def _wired(self, url: str) -> str:
        """The same store over a wire of its own, where there is one."""
        parts = urlsplit(url)
        if parts.scheme != "redis":
            return url
        proxy = await Proxy(parts.hostname or "127.0.0.1", parts.port or 6379).start()
        self._stack.push_async_callback(proxy.stop)
        self._proxies.append(proxy)
        who, at, _ = parts.netloc.rpartition("@")
        return urlunsplit(parts._replace(netloc=f"{who}{at}127.0.0.1:{proxy.port}"))

    # the blows

    async def _strike_all(self) -> None:
        start = SYSTEM.monotonic()
        async with asyncio.TaskGroup() as group:
            for blow in self._blows:
                await SYSTEM.sleep(max(0.0, start + blow.at - SYSTEM.monotonic()))
                group.create_task(self._strike(blow))
            await SYSTEM.sleep(max(0.0, start + self._run.seconds - SYSTEM.monotonic()))
        for proxy in self._proxies:
            proxy.heal()
        self._ledger.note("calm")

    async def _strike(self, blow: PlannedFault) -> None:
        struck = await self._dealt(blow)
        if struck is not None:
            self._struck[blow.strike.value] += 1
            self._ledger.note("blow", blow.strike.name, struck)

    async def _dealt(self, blow: PlannedFault) -> object | None:
        """Whom it struck; None if there was nobody."""
        match blow.strike:
            case strike if strike in _WORKER:
                return await self._on_worker(self._workers[blow.of(len(self._workers))], blow)
            case FaultType.KILL_SUPERVISOR | FaultType.FREEZE_SUPERVISOR:
                return await self._on_supervisor(blow)
            case FaultType.KILL_PRODUCER:
                return self._producers[blow.of(2)].strike(blow.target, signal.SIGKILL)
            case FaultType.FREEZE_ALL:
                return await self._all_still(_rest(blow.seconds))
            case _:
                return await self._on_store(blow)

    async def _on_worker(self, station: FleetMember, blow: PlannedFault) -> int | None:
        match blow.strike:
            case FaultType.KILL:
                return station.strike(blow.target, signal.SIGKILL)
            case FaultType.FREEZE:
                return await self._thawed(station, station.strike(blow.target, signal.SIGSTOP), blow)
            case FaultType.INTERRUPT_GROUP:
                return await station.term(signal.SIGINT, group=True)
            case _:
                return await station.term(group=blow.strike is FaultType.TERM_GROUP)

    async def _on_supervisor(self, blow: PlannedFault) -> int | None:
        stations = [station for station in self._workers if station.role == "supervised"]
        station = stations[blow.of(len(stations))]
        if blow.strike is FaultType.KILL_SUPERVISOR:
            return station.strike_supervisor(signal.SIGKILL)
        return await self._thawed(station, station.strike_supervisor(signal.SIGSTOP), blow)

    async def _on_store(self, blow: PlannedFault) -> object | None:
        if blow.strike in LINK:
            wire = blow.of(len(self._proxies))
            with self._everyone[wire].cut_off() if blow.strike in MUTE else nullcontext():
                await self._proxies[wire].struck(blow)
            return self._proxies[wire].port
        if blow.strike in DISK:
            return await self._on_disk(blow)
        if self._server is None:
            return None
        return "server" if await self._server.struck(blow, self._store_away) else None

    @property
    def _everyone(self) -> list[FleetMember]:
        """In the order of their wires, where they have some."""
        return [*self._workers, *self._producers]

    @contextmanager
    def _store_away(self) -> Iterator[None]:
        """For all; the ledger tells from when to when."""
        self._ledger.note("away")
        try:
            with self._all_cut_off():
                yield
        finally:
            self._ledger.note("back")

    @contextmanager
    def _all_cut_off(self) -> Iterator[None]:
        with ExitStack() as away:
            for station in self._everyone:
                away.enter_context(station.cut_off())
            yield

    async def _thawed(self, station: FleetMember, pid: int | None, blow: PlannedFault) -> int | None:
        """The one that was stopped goes on when the blow is over; which."""
        if pid is not None:
            with station.still():
                await SYSTEM.sleep(blow.seconds)
                async with self._still:
                    station.thaw(pid)
        return pid

    async def _all_still(self, meanwhile: Coroutine[Any, Any, T]) -> T:
        """As a machine that sleeps."""
        async with self._still:
            with self._all_cut_off():
                for station in self._everyone:
                    station.strike_all(signal.SIGSTOP)
                try:
                    return await meanwhile
                finally:
                    for station in self._everyone:
                        station.strike_all(signal.SIGCONT)

    async def _on_disk(self, blow: PlannedFault) -> str | None:
        disk = self._disk
        if disk is None:
            return None
        if blow.strike is FaultType.FILL_DISK:
            async with self._full:
                with self._store_away():
                    await disk.fill()
                    await SYSTEM.sleep(blow.seconds)
                    disk.empty()
        else:  # which strikes them all: they stand still meanwhile
            await self._cut_power(disk)
        return "disk"

    async def _cut_power(self, disk: Disk) -> None:
        """What was acknowledged by now must be on a disk that loses its power now."""
        promised: set[str] = set()

        async def cut() -> Path:
            promised.update(acknowledged(self._run.folder))
            return await disk.cut()

        place = await disk.opened(await self._all_still(cut()))
        kept = await refs_in(f"sqlite:///{place / 'jobs.db'}", self._run.tag)
        self._cut_off["acknowledged"] += len(promised)
        self._cut_off["lost"] += len(promised - kept)
        self._cut_off["cuts"] += 1
        await disk.discard(place)

    # the end

    async def _drained(self, app: App) -> bool:
        """A slow machine may take its time, as long as ever fewer are left."""
        fewest, until = None, SYSTEM.monotonic() + self._run.drain
        while left := await open_jobs(app, self._setting.tag):
            if fewest is None or left < fewest:
                fewest, until = left, SYSTEM.monotonic() + self._run.drain
            if SYSTEM.monotonic() > until:
                return False
            await SYSTEM.sleep(_LOOK)
        return True

    async def _produced(self) -> bool:
        """Nor are producers hurried, as long as they get on."""
        told, until = 0, SYSTEM.monotonic() + self._run.drain
        while not all(each.done for each in self._producers):
            now = sum(path.stat().st_size for path in self._run.folder.glob("p*.log"))
            if now > told:
                told, until = now, SYSTEM.monotonic() + self._run.drain
            if SYSTEM.monotonic() > until:
                return False
            await SYSTEM.sleep(_LOOK)
        return True


async def _rest(seconds: float) -> str:
    await SYSTEM.sleep(seconds)
    return "all"


def blows_of(run: Torture) -> Sequence[PlannedFault]:
    """The plan, for those who only want to see it."""
    return draw(run.seed, run.seconds, possible(run), every=run.every)
