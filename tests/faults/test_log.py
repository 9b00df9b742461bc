"""The log beside the file does not grow for ever."""

import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path

import pytest

from toril.engines.sqlite import SqliteEngine
from toril.engines.sqlite.url import parse
from toril.model import NewJob
from toril.testing import ManualClock


@pytest.fixture
async def engine(database: Path, clock: ManualClock) -> AsyncIterator[SqliteEngine]:
    store = SqliteEngine(parse(f"sqlite:///{database}"), clock=clock)
    await store.open()
    yield store
    await store.close()


def log_size(database: Path) -> int:
    return database.with_name("jobs.db-wal").stat().st_size


async def be_idle(engine: SqliteEngine, clock: ManualClock) -> None:
    """Let the time pass after which the engine puts its log in order, and let it look."""
    clock.advance(6000)
    for _ in range(2):  # it looks after serving the first, and before serving the second
        await engine.health()


async def add_much(engine: SqliteEngine) -> None:
    for _ in range(20):
        await engine.add("q", [NewJob(name="n", data=f'"{"x" * 1000}"')] * 500)


@pytest.mark.covers("F102")
async def test_the_log_is_written_back_once_nothing_goes_on(
    engine: SqliteEngine, database: Path, clock: ManualClock
) -> None:
    await engine.add("q", [NewJob(name="n")])
    assert log_size(database) > 0

    await be_idle(engine, clock)

    assert log_size(database) == 0


@pytest.mark.covers("F102")
async def test_a_long_reader_holds_the_log_up_only_while_it_reads(
    engine: SqliteEngine, database: Path, clock: ManualClock
) -> None:
    await engine.add("q", [NewJob(name="n")])
    with closing(sqlite3.connect(database, isolation_level=None)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM jobs").fetchone()
        await add_much(engine)
        grown = log_size(database)
        await be_idle(engine, clock)
        held_up = log_size(database)
        reader.execute("ROLLBACK")

        await be_idle(engine, clock)

    print(f"the log grew to {grown / 1e6:.1f} MB under the reader")
    assert held_up == grown > 10_000_000
    assert log_size(database) == 0


@pytest.mark.covers("F102")
async def test_the_log_has_a_bound_even_if_the_engine_is_never_idle(engine: SqliteEngine, database: Path) -> None:
    limit = await engine._read_now(lambda tx: tx.one("PRAGMA journal_size_limit"))
    for _ in range(5):
        await add_much(engine)

    assert limit == (64 * 1024 * 1024,)
    assert log_size(database) < 16_000_000


@pytest.mark.covers("F102")
async def test_pages_of_jobs_do_not_hold_up_the_log(engine: SqliteEngine, database: Path, clock: ManualClock) -> None:
    await engine.add("q", [NewJob(name="n")] * 10)
    await engine.counts("q")  # by the reader's own connection, which stays open

    await be_idle(engine, clock)

    assert log_size(database) == 0
