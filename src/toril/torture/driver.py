"""One torture run: processes and faults, then a quiet period until everything is done, then the check."""

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

__all__ = ["Torture", "faults_of", "possible", "torture"]

_WORKER = frozenset({FaultType.KILL, FaultType.FREEZE, FaultType.TERM, FaultType.TERM_GROUP, FaultType.INTERRUPT_GROUP})
_ALWAYS = frozenset(FaultType) - LINK - SERVER - DISK
_LOOK = 0.5  # seconds between two checks

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Torture:
    """The parameters. `url` is a store's, or `redis` or `sqlite` for one of the run's own. Times are seconds."""

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
    """The faults that can be injected. A server that is not the run's own is left alone, and so is its disk."""
    found = set(_ALWAYS)
    if run.url == "redis" or urlsplit(run.url).scheme == "redis":
        found |= LINK
    if run.url == "redis":
        found |= SERVER
    if run.own_disk:
        found |= DISK
    return frozenset(found)


async def torture(run: Torture) -> TortureReport:
    """Run it. Nothing is left behind, except for the logs in its folder."""
    async with AsyncExitStack() as stack:
        return await _Run(run, stack).run()


class _Run:
    def __init__(self, run: Torture, stack: AsyncExitStack) -> None:
        self._run = run
        self._stack = stack
        self._ledger = Ledger(run.folder / "driver.log")
        self._faults = draw(run.seed, run.seconds, possible(run), every=run.every)
        self._injected: Counter[str] = Counter()
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
            url=url,
            tag=self._run.tag,
            seed=self._run.seed,
            jobs=self._run.jobs,
            seconds=self._run.seconds,
            lease=self._run.lease,
            folder=str(self._run.folder),
            name="driver",
            producers=2,
        )
        app = App(url, prefix=self._setting.prefix)
        await self._stack.enter_async_context(app)
        if url == self._run.url:  # a store of our own is deleted with its folder
            self._stack.push_async_callback(clean, app, self._setting)
        began = SYSTEM.monotonic()
        await self._staff(url)
        await self._inject_all()
        produced = await self._produced()
        drained = produced and await self._drained(app)
        for member in (*self._producers, *self._workers):
            await member.close()
        forced = [each for member in self._workers for each in member.forced]
        report = await check(app, self._setting, injected=self._injected, cut_off=self._cut_off, forced=forced)
        return replace(
            report,
            seconds=round(SYSTEM.monotonic() - began, 1),
            drained=drained,
            plan=tuple(fault.document() for fault in self._faults),
        )

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
        self._workers = [await self._member(role, f"w{number}", url) for number, role in enumerate(roles)]
        self._producers = [await self._member("producer", f"p{number}", url, lane=number) for number in range(2)]

    async def _member(self, role: FleetRole, name: str, url: str, lane: int = 0) -> FleetMember:
        setting = replace(self._setting, url=await self._wired(url), name=name, lane=lane)
        member = FleetMember(role, setting, self._ledger)
        self._stack.push_async_callback(member.kill)
        member.start()
        return member

    async def _wired(self, url: str) -> str:
        """The same store through a proxy of its own, if there is one."""
        parts = urlsplit(url)
        if parts.scheme != "redis":
            return url
        proxy = await Proxy(parts.hostname or "127.0.0.1", parts.port or 6379).start()
        self._stack.push_async_callback(proxy.stop)
        self._proxies.append(proxy)
        who, at, _ = parts.netloc.rpartition("@")
        return urlunsplit(parts._replace(netloc=f"{who}{at}127.0.0.1:{proxy.port}"))

    # the faults

    async def _inject_all(self) -> None:
        start = SYSTEM.monotonic()
        async with asyncio.TaskGroup() as group:
            for fault in self._faults:
                await SYSTEM.sleep(max(0.0, start + fault.at - SYSTEM.monotonic()))
                group.create_task(self._inject(fault))
            await SYSTEM.sleep(max(0.0, start + self._run.seconds - SYSTEM.monotonic()))
        for proxy in self._proxies:
            proxy.restore()
        self._ledger.note("calm")

    async def _inject(self, fault: PlannedFault) -> None:
        target = await self._apply(fault)
        if target is not None:
            self._injected[fault.kind.value] += 1
            self._ledger.note("fault", fault.kind.name, target)

    async def _apply(self, fault: PlannedFault) -> object | None:
        """Apply a fault, and return whom it hit; None if there was nobody."""
        match fault.kind:
            case kind if kind in _WORKER:
                return await self._on_worker(self._workers[fault.of(len(self._workers))], fault)
            case FaultType.KILL_SUPERVISOR | FaultType.FREEZE_SUPERVISOR:
                return await self._on_supervisor(fault)
            case FaultType.KILL_PRODUCER:
                return self._producers[fault.of(2)].signal_one(fault.target, signal.SIGKILL)
            case FaultType.FREEZE_ALL:
                return await self._all_still(_rest(fault.seconds))
            case _:
                return await self._on_store(fault)

    async def _on_worker(self, member: FleetMember, fault: PlannedFault) -> int | None:
        match fault.kind:
            case FaultType.KILL:
                return member.signal_one(fault.target, signal.SIGKILL)
            case FaultType.FREEZE:
                return await self._thawed(member, member.signal_one(fault.target, signal.SIGSTOP), fault)
            case FaultType.INTERRUPT_GROUP:
                return await member.term(signal.SIGINT, group=True)
            case _:
                return await member.term(group=fault.kind is FaultType.TERM_GROUP)

    async def _on_supervisor(self, fault: PlannedFault) -> int | None:
        members = [member for member in self._workers if member.role == "supervised"]
        member = members[fault.of(len(members))]
        if fault.kind is FaultType.KILL_SUPERVISOR:
            return member.signal_supervisor(signal.SIGKILL)
        return await self._thawed(member, member.signal_supervisor(signal.SIGSTOP), fault)

    async def _on_store(self, fault: PlannedFault) -> object | None:
        if fault.kind in LINK:
            wire = fault.of(len(self._proxies))
            with self._everyone[wire].cut_off() if fault.kind in MUTE else nullcontext():
                await self._proxies[wire].inject(fault)
            return self._proxies[wire].port
        if fault.kind in DISK:
            return await self._on_disk(fault)
        if self._server is None:
            return None
        return "server" if await self._server.inject(fault, self._store_away) else None

    @property
    def _everyone(self) -> list[FleetMember]:
        """All members, in the order of their proxies, if there are any."""
        return [*self._workers, *self._producers]

    @contextmanager
    def _store_away(self) -> Iterator[None]:
        """The store is away for all; the log tells from when to when."""
        self._ledger.note("away")
        try:
            with self._all_cut_off():
                yield
        finally:
            self._ledger.note("back")

    @contextmanager
    def _all_cut_off(self) -> Iterator[None]:
        with ExitStack() as away:
            for member in self._everyone:
                away.enter_context(member.cut_off())
            yield

    async def _thawed(self, member: FleetMember, pid: int | None, fault: PlannedFault) -> int | None:
        """Resume the stopped process when the fault is over, and return it."""
        if pid is not None:
            with member.still():
                await SYSTEM.sleep(fault.seconds)
                async with self._still:
                    member.thaw(pid)
        return pid

    async def _all_still(self, meanwhile: Coroutine[Any, Any, T]) -> T:
        """Stop everything, like a machine that sleeps."""
        async with self._still:
            with self._all_cut_off():
                for member in self._everyone:
                    member.signal_all(signal.SIGSTOP)
                try:
                    return await meanwhile
                finally:
                    for member in self._everyone:
                        member.signal_all(signal.SIGCONT)

    async def _on_disk(self, fault: PlannedFault) -> str | None:
        disk = self._disk
        if disk is None:
            return None
        if fault.kind is FaultType.FILL_DISK:
            async with self._full:
                with self._store_away():
                    await disk.fill()
                    await SYSTEM.sleep(fault.seconds)
                    disk.empty()
        else:  # which affects all: stop them meanwhile
            await self._cut_power(disk)
        return "disk"

    async def _cut_power(self, disk: Disk) -> None:
        """Cut the power: what has been acknowledged by now must be on the disk."""
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
        """Wait until all jobs have ended. A slow machine may take its time, as long as their number falls."""
        fewest, until = None, SYSTEM.monotonic() + self._run.drain
        while left := await open_jobs(app, self._setting.tag):
            if fewest is None or left < fewest:
                fewest, until = left, SYSTEM.monotonic() + self._run.drain
            if SYSTEM.monotonic() > until:
                return False
            await SYSTEM.sleep(_LOOK)
        return True

    async def _produced(self) -> bool:
        """Wait for the producers, as long as they make progress."""
        written, until = 0, SYSTEM.monotonic() + self._run.drain
        while not all(each.done for each in self._producers):
            now = sum(path.stat().st_size for path in self._run.folder.glob("p*.log"))
            if now > written:
                written, until = now, SYSTEM.monotonic() + self._run.drain
            if SYSTEM.monotonic() > until:
                return False
            await SYSTEM.sleep(_LOOK)
        return True


async def _rest(seconds: float) -> str:
    await SYSTEM.sleep(seconds)
    return "all"


def faults_of(run: Torture) -> Sequence[PlannedFault]:
    """The plan of faults, to be shown."""
    return draw(run.seed, run.seconds, possible(run), every=run.every)
