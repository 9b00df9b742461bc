"""A doctor beside busy workers, and a reaper that mends by itself."""

import asyncio
import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests import servers
from tests.interop.side import running
from toril import App, Dedup, Fixed, JobContext, Retry
from toril.events import Events, WorkerEvent
from toril.model import NewJob, RepairOutcome
from toril.operate.doctor import Doctor
from toril.operate.reaper import Reaper
from toril.runtime.clock import SYSTEM
from toril.store.engine import connect

LOOKS = 4


@pytest.fixture(params=["sqlite", "redis"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'jobs.db'}"
    server = servers.running()
    server.tell("FLUSHALL")
    return server.url


async def work(ctx: JobContext[int]) -> None:
    if ctx.data % 7 == 0 and ctx.attempt == 1:
        raise ValueError("once more")
    if ctx.data % 11 == 0:
        raise ValueError("never")
    await asyncio.sleep(0.001 * (ctx.data % 5))


@asynccontextmanager
async def busy(url: str) -> AsyncIterator[App]:
    """An app whose workers have their hands full of jobs of all kinds, and a producer that brings more."""
    app = App(url)
    queue = app.queue(
        "busy", [work], concurrency=8, retry=Retry(attempts=2, backoff=Fixed(0.01)), keep_completed=50, keep_failed=50
    )
    queue.schedule("tick", work, 1, every=0.2)

    async def produce() -> None:
        for number in itertools.count(1):
            some = range(number, number + 10)
            await queue.add_many([(work, each, {"delay": each % 3 * 0.01, "priority": each % 4}) for each in some])
            await queue.add(work, number, dedup=Dedup(f"key-{number % 5}"))
            await asyncio.sleep(0.02)

    async with running(app), asyncio.TaskGroup() as group:
        producer = group.create_task(produce())
        try:
            yield app
        finally:
            producer.cancel()


async def test_a_doctor_beside_busy_workers_finds_nothing(url: str) -> None:
    async with busy(url):
        store = connect(url)
        await store.open()
        while not (await store.queue("busy")).completed_total:  # noqa: ASYNC110 - another process's doing
            await asyncio.sleep(0.01)
        seen = [
            finding
            for _ in range(LOOKS)
            for finding in await Doctor(store, SYSTEM, between=0.2).findings()
            if finding.fault is not None
        ]
        await store.close()

    assert seen == []


async def test_a_repair_beside_busy_workers_mends_the_fault_and_nothing_else(url: str) -> None:
    """What is planted is mended while jobs come and go, nothing else is taken for a fault, and none is left behind."""
    planted = "stray_lock" if url.startswith("redis") else "stale_id"
    async with busy(url) as app:
        store = app.store
        for _ in range(2):
            await _plant(url, store)
            repaired = await app.repair([each for each in await app.doctor() if each.fault is not None])
            assert [(each.finding.code, each.outcome) for each in repaired] == [(planted, RepairOutcome.REPAIRED)]
    store = connect(url)
    await store.open()
    assert [each for each in await Doctor(store, SYSTEM, between=0.1).findings() if each.fault is not None] == []
    await store.close()


async def _plant(url: str, store: object) -> None:
    if url.startswith("redis"):
        servers.running().tell("SET", "bull:busy:gone:lock", "token")
        return
    await store._write(  # type: ignore[attr-defined]
        lambda tx: tx.run("INSERT OR IGNORE INTO ids VALUES ((SELECT key FROM queues WHERE name = 'busy'), 'gone', 7)"),
        None,
    )


async def test_a_reaper_mends_what_needs_no_asking_and_says_so_once(url: str) -> None:
    store, events, told = connect(url), Events(), asyncio.Queue[WorkerEvent]()
    await store.open()
    await store.add("busy", [NewJob(name="n")])
    await _plant(url, store)
    events.on("repaired", told.put_nowait)

    reaper = asyncio.create_task(Reaper(store, SYSTEM, events, "reaper", elected=False, repair_interval=0.1).run())
    async with asyncio.timeout(30):
        event = await told.get()
    reaper.cancel()
    await asyncio.wait([reaper])

    assert event.faults in {"1 stray_lock", "1 stale_id"}
    assert told.empty()
    assert [each for each in await Doctor(store, SYSTEM, between=0.1).findings() if each.fault is not None] == []
    await store.close()
