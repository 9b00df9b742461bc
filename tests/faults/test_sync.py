"""The disk refuses to sync: nothing is answered that is not kept, and no work is handed out until it is well again."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Literal

import pytest

from tests.conformance.jobs import claim
from tests.faults.children import opened
from tests.faults.doubles import Disk, replace_disk
from tests.faults.ledger import stored_ids, subjects, unsound
from tests.faults.tracing import needs_strace, under_strace
from toril.engines.sqlite import SqliteEngine, connect
from toril.engines.sqlite.disk_space import size_of
from toril.errors import EngineUnavailable
from toril.model import Call, NewJob


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    return replace_disk(monkeypatch)


@pytest.fixture
async def engine(disk: Disk, database: Path) -> AsyncIterator[SqliteEngine]:
    store = connect(f"sqlite:///{database}")
    await store.open()
    yield store
    disk.failing = 0
    await store.close()


async def add(engine: SqliteEngine, identity: str, call: Call | None = None) -> None:
    await engine.add("q", [NewJob(name="n", id=identity)], call=call)


@pytest.mark.covers("F99", "G1")
@pytest.mark.parametrize("effect", ["none", "done"])
async def test_a_failed_sync_is_never_answered_with_success(
    engine: SqliteEngine, disk: Disk, database: Path, effect: Literal["none", "done"]
) -> None:
    await add(engine, "before")
    disk.failing, disk.effect = 1, effect

    with pytest.raises(EngineUnavailable, match=r"could not complete the operation on .*: disk I/O error"):
        await add(engine, "unknown")
    await add(engine, "after")

    await engine.close()
    assert stored_ids(database) - {"unknown"} == {"before", "after"}
    assert unsound(database) == []


@pytest.mark.covers("F99", "F121")
@pytest.mark.parametrize("effect", ["none", "done"])
async def test_a_call_sent_again_after_a_failed_sync_happens_once(
    engine: SqliteEngine, disk: Disk, effect: Literal["none", "done"]
) -> None:
    disk.failing, disk.effect = 1, effect
    with pytest.raises(EngineUnavailable):
        await engine.add("q", [NewJob(name="n")], call=Call("sender", 1))

    (answer,) = await engine.add("q", [NewJob(name="n")], call=Call("sender", 1))

    assert (answer.id, (await engine.counts("q")).waiting) == ("1", 1)


@pytest.mark.covers("F99")
async def test_reading_goes_on_after_a_failed_sync(engine: SqliteEngine, disk: Disk) -> None:
    await add(engine, "before")
    disk.failing = 1
    with pytest.raises(EngineUnavailable):
        await add(engine, "unknown")

    assert await engine.wait(["q"], timeout=0) == {"q"}
    assert (await engine.counts("q")).waiting == 1
    assert (await engine.health()).ok


@pytest.mark.covers("F99")
async def test_after_two_failures_no_work_is_handed_out_until_a_probe_succeeds(
    engine: SqliteEngine, disk: Disk
) -> None:
    await add(engine, "job")
    disk.failing = 1000
    for _ in range(2):
        with pytest.raises(EngineUnavailable):
            await add(engine, "unknown")

    health = await engine.health()
    with pytest.raises(EngineUnavailable):
        await claim(engine)
    counts = await engine.counts("q")
    claims_tried = [sql for sql in disk.statements if sql.startswith("INSERT INTO active")]
    disk.failing = 0
    recovered = await claim(engine)

    assert not health.ok
    assert "the last 3 commits failed" in health.detail
    assert (counts.active, claims_tried) == (0, [])
    assert [job.lease.id for job in recovered.jobs] == ["job"]
    assert (await engine.health()).ok


@pytest.mark.covers("F99")
async def test_health_turns_green_by_itself_once_the_disk_is_well(
    engine: SqliteEngine, disk: Disk, database: Path
) -> None:
    disk.failing = 2
    for _ in range(2):
        with pytest.raises(EngineUnavailable):
            await add(engine, "unknown")
    commits, log = disk.commits, size_of(database.with_name("jobs.db-wal"))

    assert (await engine.health()).ok
    assert disk.commits == commits + 1
    assert size_of(database.with_name("jobs.db-wal")) > log  # a probe that writes nothing would prove nothing


@pytest.mark.covers("F99")
async def test_the_callers_of_one_commit_are_all_told_that_it_failed(engine: SqliteEngine, disk: Disk) -> None:
    disk.failing = 1000
    answers = await asyncio.gather(*(add(engine, f"job-{i}") for i in range(20)), return_exceptions=True)

    assert {type(answer) for answer in answers} == {EngineUnavailable}


async def test_a_store_in_memory_keeps_its_jobs_when_a_commit_fails(disk: Disk) -> None:
    engine = connect("memory://")
    await engine.open()
    await add(engine, "kept")
    disk.failing, disk.code = 1, 3082  # SQLITE_IOERR_NOMEM
    with pytest.raises(EngineUnavailable):
        await add(engine, "refused")

    assert [job.lease.id for job in (await claim(engine)).jobs] == ["kept"]
    await engine.remove("q", ["kept"])
    await engine.close()


@pytest.mark.covers("F99")
@needs_strace
@pytest.mark.parametrize("when", ["1", "2", "3", "4", "7", "8..9", "11..16", "20+", "25+2"])
async def test_a_real_sync_that_fails_loses_nothing_acknowledged(when: str, database: Path, logs: Path) -> None:
    log = logs / "writer.log"
    writer: dict[str, object] = {"path": str(database), "log": str(log), "name": "w", "batches": 20}
    code = await asyncio.to_thread(under_strace, f"fsync,fdatasync:error=EIO:when={when}", "produce", writer)

    kept = set(subjects(log, "kept"))
    unknown = {line.partition(" ")[0] for line in subjects(log, "unknown")}
    print(f"syncs {when} failed: {len(kept)} acknowledged, {len(unknown)} unknown, exit code {code}")
    assert code == 0
    await (await opened(database)).close()  # even where it could not be opened while the disk failed
    assert kept <= stored_ids(database) <= kept | unknown
    assert unsound(database) == []
