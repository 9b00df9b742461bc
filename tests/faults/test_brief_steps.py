"""A brief step on a file is committed by its caller's thread if that takes no time, and otherwise by the writer's."""

import asyncio
import contextlib
import os
import sqlite3
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.faults.doubles import Disk, replace_disk
from tests.faults.ledger import unsound
from toril.engines.sql import threads
from toril.engines.sqlite import SqliteEngine, connect
from toril.errors import Closed
from toril.model import Added, Call, Claim, Completed, NewJob, Settlement
from toril.testing import ManualClock

JOB = NewJob(name="n")


async def emptied(log: Path) -> None:
    while os.path.getsize(log):  # noqa: ASYNC110, ASYNC240, PTH202 - nobody says when that happens
        await asyncio.sleep(0.01)


class Commits:
    """Which thread made each commit, and how long the clock says that it took."""

    def __init__(self, disk: Disk, clock: ManualClock) -> None:
        self.here: list[bool] = []
        self.seconds = 0.0
        self._own = threading.get_ident()
        self._clock = clock
        disk.before_commit = self._commit

    def _commit(self) -> None:
        self.here.append(threading.get_ident() == self._own)
        self._clock.pause(self.seconds)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    return replace_disk(monkeypatch)


@pytest.fixture
async def engine(
    database: Path,
    clock: ManualClock,
    disk: Disk,  # its connections are opened here
) -> AsyncIterator[SqliteEngine]:
    """A store with a queue, whose last commit was quick."""
    store = connect(f"sqlite:///{database}", clock=clock)
    await store.open()
    await store.add("q", [JOB])
    yield store
    await store.close()


@pytest.fixture
def commits(
    engine: SqliteEngine,  # it was opened before
    disk: Disk,
    clock: ManualClock,
) -> Commits:
    return Commits(disk, clock)


async def test_lone_adds_are_committed_where_they_are_made(engine: SqliteEngine, commits: Commits) -> None:
    for _ in range(10):
        await engine.add("q", [JOB])

    assert commits.here == [True] * 10


async def test_a_few_jobs_are_claimed_and_settled_where_they_run(engine: SqliteEngine, commits: Commits) -> None:
    batch: list[Settlement] = []
    for turn in range(5):
        wanted = Claim(want=10, token=f"t{turn}", lease=30_000, worker="w")
        answer = await engine.exchange("q", batch, wanted, call=Call("w", turn))
        batch = [Settlement(job.lease, Completed()) for job in answer.jobs]
        await engine.add("q", [JOB])
    many = Claim(want=100, token="many", lease=30_000, worker="w")
    await engine.exchange("q", [], many, call=Call("w", 5))

    assert commits.here == [True] * 10 + [False]


async def test_after_a_slow_commit_the_thread_commits_until_it_is_quick_again(
    engine: SqliteEngine, commits: Commits
) -> None:
    for commits.seconds in (0.0, 0.005, 0.02, 0.005, 0.0, 0.0):
        await engine.add("q", [JOB])

    assert commits.here == [True, True, False, False, False, True]


async def test_many_jobs_at_once_are_left_to_the_thread(engine: SqliteEngine, commits: Commits) -> None:
    await engine.add("q", [JOB] * 100)

    assert commits.here == [False]


async def test_adds_that_find_a_commit_under_way_share_the_next(
    engine: SqliteEngine, commits: Commits, disk: Disk
) -> None:
    reached, release = threading.Event(), threading.Event()

    def wait() -> None:
        reached.set()
        release.wait()

    note, disk.before_commit = disk.before_commit, wait
    first = asyncio.create_task(engine.add("q", [JOB] * 100))
    await asyncio.to_thread(reached.wait)
    disk.before_commit = note
    others = [asyncio.create_task(engine.add("q", [JOB])) for _ in range(20)]
    await asyncio.sleep(0)

    release.set()

    assert len(await first) == 100
    assert len({added.id for (added,) in await asyncio.gather(*others)}) == 20
    assert commits.here == [False]


async def test_an_add_beside_another_process_that_writes_holds_up_nobody(
    engine: SqliteEngine, commits: Commits, database: Path
) -> None:
    with contextlib.closing(sqlite3.connect(database, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        adding = asyncio.create_task(engine.add("q", [JOB]))
        for _ in range(100):
            await asyncio.sleep(0)
        assert not adding.done()
        other.execute("ROLLBACK")

        await adding

    assert commits.here == [False]


async def test_who_adds_one_job_after_another_lets_others_go_on(engine: SqliteEngine, commits: Commits) -> None:
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    beside = asyncio.create_task(others())
    for _ in range(100):
        await engine.add("q", [JOB])
    beside.cancel()

    assert commits.here == [True] * 100
    assert turns >= 100


async def test_a_signal_handler_may_fork_amid_a_commit(
    engine: SqliteEngine, commits: Commits, disk: Disk, database: Path
) -> None:
    def fork() -> None:
        disk.before_commit = lambda: None
        child = os.fork()
        if not child:
            os._exit(0)
        os.waitpid(child, 0)

    disk.before_commit = fork
    call, added = Call("me", 1), list[Added]()
    while not added:
        with contextlib.suppress(Exception):  # the connection was closed, so the call is sent again
            added = await engine.add("q", [JOB], call=call)

    assert (await engine.counts("q")).waiting == 2
    assert unsound(database) == []


async def test_adds_while_the_store_is_closed_are_stored_or_refused(
    engine: SqliteEngine, commits: Commits, database: Path
) -> None:
    async def add() -> bool:
        try:
            await engine.add("q", [JOB])
        except Closed:
            return False
        return True

    async def produce() -> int:
        return [await add() for _ in range(50)].count(True)

    producing = [asyncio.create_task(produce()) for _ in range(4)]
    await asyncio.sleep(0)
    await engine.close()
    stored = sum(await asyncio.gather(*producing))

    await engine.open()
    assert (await engine.counts("q")).waiting == 1 + stored
    assert unsound(database) == []


async def test_the_log_is_written_back_after_lone_adds_too(database: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "_IDLE", 0.02)
    log = database.with_name("jobs.db-wal")
    engine = connect(f"sqlite:///{database}")
    await engine.open()
    await engine.add("q", [JOB])
    for _ in range(3):
        await emptied(log)
        await engine.add("q", [JOB])
    await emptied(log)

    await engine.close()
