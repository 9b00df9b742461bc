"""Work that another process adds is noticed, and nothing is done while nobody waits."""

import asyncio
import random
import signal
import statistics
from collections import Counter
from pathlib import Path

import pytest

from tests.conformance.claims import claim
from tests.faults.children import opened
from tests.faults.doubles import replace_disk
from tests.faults.nursery import Children
from toril.model import NewJob
from toril.runtime.clock import SYSTEM

TIMES = 20


@pytest.mark.covers("F107", "P15")
@pytest.mark.parametrize("sockets", [True, False])
async def test_what_another_process_adds_ends_the_wait(
    children: Children, database: Path, sockets: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("toril.engines.sqlite.database.has_sockets", lambda: sockets)  # here; the other one has them
    engine = await opened(database)
    children.start("echo", path=database, times=TIMES)
    delays = []
    for _ in range(TIMES):
        await engine.add("ping", [NewJob(name="n")])
        async with asyncio.timeout(20):
            assert await engine.wait(["pong"], timeout=60_000) == {"pong"}
        noticed = SYSTEM.monotonic()
        (answer,) = (await claim(engine, queue="pong")).jobs
        delays.append(noticed - float(answer.data))
    await engine.close()

    print(f"noticed after {statistics.median(delays) * 1000:.0f} ms (median), {max(delays) * 1000:.0f} ms (longest)")
    assert max(delays) < 2


@pytest.mark.covers("F107", "P15")
async def test_no_wake_up_is_lost_where_nobody_looks(
    children: Children, database: Path, rounds: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two processes take turns, and neither would ever look into the file by itself."""
    never, times, chance = 3600.0, 50 * rounds, random.Random(107)
    for each in ("_CHECK_EVERY", "_CHECK_NOTIFIED_EVERY"):
        monkeypatch.setattr(f"toril.engines.sql.threads.{each}", never)
    engine = await opened(database)
    children.start("echo", path=database, times=times, looks=never)
    for _ in range(times):
        await engine.add("ping", [NewJob(name="n")])
        if chance.random() < 0.5:  # so that the answer comes at any moment of the wait, or before it
            await asyncio.sleep(chance.random() * 0.004)
        async with asyncio.timeout(40):
            assert await engine.wait(["pong"], timeout=60_000) == {"pong"}
        assert len((await claim(engine, queue="pong")).jobs) == 1
    await engine.close()

    print(f"{2 * times} adds of another process, 0 wake-ups lost")


@pytest.mark.covers("F107")
async def test_one_that_stood_still_takes_what_came_meanwhile(children: Children, database: Path) -> None:
    engine, times = await opened(database), 50
    child = children.start("echo", path=database, times=times + 1)
    await engine.add("ping", [NewJob(name="n")])
    await engine.wait(["pong"], timeout=60_000)
    child.freeze()
    for _ in range(times):
        await engine.add("ping", [NewJob(name="n")])
    child.send(signal.SIGCONT)

    assert await asyncio.to_thread(child.ended) == 0
    assert (await engine.counts("pong")).waiting == times + 1
    await engine.close()


@pytest.mark.covers("F107")
async def test_nothing_is_asked_of_the_store_while_nobody_waits(
    database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = replace_disk(monkeypatch)
    engine = await opened(database)
    await engine.wait(["q"], timeout=0)
    before = Counter(disk.statements)

    await asyncio.sleep(0.3)

    assert disk.statements - before == Counter()
    await engine.close()


@pytest.mark.covers("F107")
@pytest.mark.parametrize(("sockets", "most"), [(True, 5), (False, 21)])
async def test_waiting_looks_now_and_then_and_reads_only_if_something_came(
    database: Path, sockets: bool, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("toril.engines.sqlite.database.has_sockets", lambda: sockets)
    disk = replace_disk(monkeypatch)
    engine = await opened(database)
    await engine.wait(["q"], timeout=100)  # the first look of a connection always sees something new
    before = Counter(disk.statements)

    await engine.wait(["q"], timeout=1000)

    asked = disk.statements - before
    assert 1 <= asked.pop("PRAGMA data_version") <= most
    assert sum(asked.values()) <= 2  # what the wait itself reads as it begins
    await engine.close()
