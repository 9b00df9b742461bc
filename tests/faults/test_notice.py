"""Work that another process adds is noticed, and nothing is done while nobody waits."""

import asyncio
import random
import signal
import statistics
from collections import Counter
from itertools import count
from pathlib import Path

import pytest

from tests.conformance.jobs import claim
from tests.faults.children import opened
from tests.faults.doubles import replace_disk
from tests.faults.nursery import Child, Children
from toril.engines.sqlite import SqliteEngine
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
    """Two processes take turns, and neither would ever look into the file by itself. The other one is replaced now and
    then, long before a child's deadline, which a slow machine would reach."""
    never, each, chance, stale = 3600.0, 100, random.Random(107), 0
    for constant in ("_CHECK_EVERY", "_CHECK_NOTIFIED_EVERY"):
        monkeypatch.setattr(f"toril.engines.sqlite.database.{constant}", never)
    engine = await opened(database)
    for start in range(0, 50 * rounds, each):
        child = children.start("echo", path=database, times=each, looks=never)
        for number in range(start, start + each):
            await engine.add("ping", [NewJob(name="n")])
            if chance.random() < 0.5:  # so that the answer comes at any moment of the wait, or before it
                await asyncio.sleep(chance.random() * 0.004)
            try:
                async with asyncio.timeout(40):
                    stale += await _take_answer(engine)
            except TimeoutError:
                pytest.fail(f"no answer to job {number + 1}: {await _state(engine, child, database)}")
        assert await asyncio.to_thread(child.ended) == 0
    await engine.close()

    print(f"{100 * rounds} adds of another process, 0 wake-ups lost, {stale} came after the job was taken")


async def _take_answer(engine: SqliteEngine) -> int:
    """Take one job from `pong`, and return how often the wait ended without one. It may, because the other process can
    be interrupted between its commit and the notification, and the job be taken meanwhile."""
    for stale in count():
        assert await engine.wait(["pong"], timeout=60_000) == {"pong"}
        taken = len((await claim(engine, queue="pong")).jobs)
        if taken:
            assert taken == 1
            return stale
    raise AssertionError


async def _state(engine: SqliteEngine, child: Child, database: Path) -> str:
    """What can be known of two processes that wait for each other."""
    counts = [f"{queue}: {await engine.counts(queue)}" for queue in ("ping", "pong")]
    return "; ".join([f"the child {child.state()}", *counts, f"sockets: {', '.join(_sockets(database))}"])


def _sockets(database: Path) -> list[str]:
    bound = Path("/proc/net/unix").read_text()
    folder = database.with_name(database.name + "-wake")
    return [f"{path.name} ({'open' if path.name in bound else 'dead'})" for path in folder.glob("*")]


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
