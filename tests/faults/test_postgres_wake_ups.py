"""Who waits on PostgreSQL is notified, and looks for itself where that fails."""

import asyncio
from collections.abc import AsyncIterator

import psycopg
import pytest

from tests.postgres import postgres
from toril.engines.postgres import PostgresEngine, database
from toril.model import Claim, Completed, Finished, Lease, NewJob, Settlement
from toril.runtime.clock import SYSTEM

LONG = 60_000


def claim(want: int = 1) -> Claim:
    return Claim(want=want, token=SYSTEM.unique(), lease=LONG, worker="w")


@pytest.fixture(params=["functions", "general"])
async def two(request: pytest.FixtureRequest) -> AsyncIterator[tuple[PostgresEngine, PostgresEngine]]:
    """One who waits, and one who adds and settles, as in two processes."""
    url, general = postgres().database(), request.param == "general"
    engines = PostgresEngine.from_url(url, general=general), PostgresEngine.from_url(url, general=general)
    for engine in engines:
        await engine.open()
    yield engines
    for engine in engines:
        await engine.close()


@pytest.fixture
def nobody_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is not notified is never found."""
    monkeypatch.setattr(database, "_CHECK_NOTIFIED_EVERY", 3600.0)


async def listening(engine: PostgresEngine) -> None:
    """Return once this one is notified."""
    while not engine._notifier.is_notified:
        await engine.wait(["other"], timeout=50)


@pytest.mark.usefixtures("nobody_looks")
async def test_an_add_wakes_who_waits_elsewhere(two: tuple[PostgresEngine, PostgresEngine]) -> None:
    waiting, adding = two
    await listening(waiting)
    await waiting.exchange("q", [], claim())

    for number in range(20):
        woken = asyncio.ensure_future(waiting.wait(["q"], timeout=LONG))
        await asyncio.sleep(0.02 * (number % 2))  # before it waits, and after
        await adding.add("q", [NewJob(name="n")])
        assert await woken == {"q"}
        assert len((await waiting.exchange("q", [], claim(2))).jobs) == 1


@pytest.mark.usefixtures("nobody_looks")
async def test_an_end_wakes_who_waits_for_the_result_elsewhere(two: tuple[PostgresEngine, PostgresEngine]) -> None:
    waiting, settling = two
    await listening(waiting)
    await settling.add("q", [NewJob(name="n")])
    (job,) = (await settling.exchange("q", [], claim())).jobs
    result = asyncio.ensure_future(waiting.finished("q", ["1"], timeout=LONG))
    for _ in range(1_000):  # until it has said that it waits
        if await awaited(waiting):
            break
        await asyncio.sleep(0.01)

    await settling.exchange("q", [Settlement(Lease("q", "1", job.lease.token), Completed('"r"'))], claim())

    assert await result == [Finished("1", Completed('"r"'))]


async def awaited(engine: PostgresEngine) -> bool:
    return bool(await engine._read_now(lambda tx: tx.value("SELECT max(results_awaited_till) FROM toril.queues")))


@pytest.mark.usefixtures("nobody_looks")
async def test_who_was_cut_off_looks_for_itself_once_it_listens_again(
    two: tuple[PostgresEngine, PostgresEngine],
) -> None:
    waiting, adding = two
    await listening(waiting)
    await waiting.exchange("q", [], claim())
    woken = asyncio.ensure_future(waiting.wait(["q"], timeout=LONG))
    await asyncio.sleep(0.05)
    with psycopg.connect(waiting._address.conninfo, autocommit=True) as connection:
        connection.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'LISTEN%'")

    await adding.add("q", [NewJob(name="n")])

    assert await woken == {"q"}


async def test_a_busy_queue_notifies_nobody(two: tuple[PostgresEngine, PostgresEngine]) -> None:
    waiting, adding = two
    await listening(waiting)
    heard: list[str] = []
    with psycopg.connect(waiting._address.conninfo, autocommit=True) as connection:
        connection.execute('LISTEN "toril.jobs"')
        await adding.add("q", [NewJob(name="n")] * 10)
        for _ in range(5):
            await adding.exchange("q", [], claim())
            await adding.add("q", [NewJob(name="n")])
        heard += [each.payload for each in connection.notifies(timeout=0.2)]

    assert heard == []
