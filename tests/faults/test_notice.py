"""Work that another process adds is noticed, and nothing is done while nobody waits."""

import asyncio
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
async def test_what_another_process_adds_ends_the_wait(children: Children, database: Path) -> None:
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
async def test_waiting_looks_some_twenty_times_a_second_and_reads_only_if_something_came(
    database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = replace_disk(monkeypatch)
    engine = await opened(database)
    await engine.wait(["q"], timeout=100)  # the first look of a connection always sees something new
    before = Counter(disk.statements)

    await engine.wait(["q"], timeout=1000)

    asked = disk.statements - before
    assert 1 <= asked.pop("PRAGMA data_version") <= 21
    assert sum(asked.values()) <= 2  # what the wait itself reads as it begins
    await engine.close()
