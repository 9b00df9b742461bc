"""Who counts as cut off from its store: only those who cannot reach it, and only for as long as they cannot."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path

import pytest

from toril.torture.app import Ledger, lines
from toril.torture.driver import Torture, _Run
from toril.torture.faults import Disk, OwnRedis, Proxy
from toril.torture.fleet import FleetMember
from toril.torture.plan import LINK, SERVER, FaultType, PlannedFault, RunSettings

KEPT_AWAY = {FaultType.BLACKHOLE, FaultType.DEAF, FaultType.KILL_SERVER, FaultType.FREEZE_SERVER, FaultType.FILL_DISK}


class Watched(FleetMember):
    """Counts how often it was cut off, and how often at the same time."""

    def __init__(self, folder: Path, name: str) -> None:
        super().__init__("worker", RunSettings(folder=str(folder), name=name), Ledger(folder / f"{name}.log"))
        self.outages = self.away = self.deepest = 0

    @contextmanager
    def cut_off(self) -> Iterator[None]:
        with super().cut_off():
            self.outages += 1
            self.away += 1
            self.deepest = max(self.deepest, self.away)
            yield
            self.away -= 1


class NoDisk(Disk):
    """One that is neither filled nor emptied."""

    def __init__(self) -> None:
        pass

    async def fill(self) -> None:
        await asyncio.sleep(0)

    def empty(self) -> None:
        pass


@pytest.fixture
async def run(tmp_path: Path) -> AsyncIterator[_Run]:
    """Two processes that were never started, each with a wire that leads nowhere."""
    made = _Run(
        Torture(seed=1, url="redis", jobs=1, seconds=0.0, folder=tmp_path, tag="t", own_disk=True), AsyncExitStack()
    )
    made._workers = [Watched(tmp_path, "w0")]
    made._producers = [Watched(tmp_path, "p0")]
    made._proxies = [await Proxy("127.0.0.1", 1).start() for _ in range(2)]
    made._disk = NoDisk()
    yield made
    for proxy in made._proxies:
        await proxy.stop()


def outages(run: _Run) -> list[int]:
    return [member.outages for member in run._everyone if isinstance(member, Watched)]


@pytest.mark.parametrize("kind", sorted(LINK))
async def test_a_wire_cuts_off_its_own_process_while_it_is_mute(run: _Run, kind: FaultType) -> None:
    await run._on_store(PlannedFault(0, kind, 0.0, 0.01))

    assert outages(run) == [int(kind in KEPT_AWAY), 0]


async def test_a_full_disk_cuts_off_everyone_once_at_a_time(run: _Run) -> None:
    await asyncio.gather(*(run._on_store(PlannedFault(0, FaultType.FILL_DISK, 0.0, 0.01)) for _ in range(2)))

    assert outages(run) == [2, 2]
    assert [member.deepest for member in run._everyone if isinstance(member, Watched)] == [1, 1]


@pytest.mark.parametrize("kind", sorted(SERVER))
async def test_a_server_cuts_off_everyone_while_it_does_not_serve(run: _Run, tmp_path: Path, kind: FaultType) -> None:
    run._server = OwnRedis(tmp_path / "redis")
    try:
        await run._server.start()
        assert await run._on_store(PlannedFault(0, kind, 0.0, 0.05)) == "server"
    finally:
        await run._server.kill()

    away = int(kind in KEPT_AWAY)
    assert outages(run) == [away] * 2
    assert [line.word for line in lines(tmp_path, "driver.log")] == ["away", "back"] * away


async def test_a_server_that_does_not_serve_yet_is_not_struck_again(run: _Run, tmp_path: Path) -> None:
    """Else it would be killed as soon as it has read its log, for as long as faults wait for their turn."""
    run._server = OwnRedis(tmp_path / "redis")
    try:
        await run._server.start()
        fault = PlannedFault(0, FaultType.KILL_SERVER, 0.0, 0.05)
        assert await asyncio.gather(*(run._on_store(fault) for _ in range(3))) == ["server", None, None]
        assert await run._on_store(fault) == "server"
    finally:
        await run._server.kill()

    assert outages(run) == [2, 2]


async def test_who_has_no_such_store_is_not_cut_off(run: _Run) -> None:
    for kind in SERVER:
        assert await run._on_store(PlannedFault(0, kind, 0.0, 0.01)) is None

    assert outages(run) == [0, 0]
