"""The disk is full: adds are refused, running jobs can still be finished."""

from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from itertools import count
from pathlib import Path

import pytest

from tests.conformance.jobs import claim, settle
from tests.faults.children import database_of, opened
from tests.faults.ledger import unsound
from tests.faults.mounts import mounted, resize
from toril.engines.sqlite import SqliteEngine
from toril.engines.sqlite.disk_space import BALLAST_BYTES, Ballast
from toril.errors import EngineFull
from toril.model import NewJob, Verdict


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    with mounted(tmp_path / "disk", "-t", "tmpfs", "-o", "size=2m", "tmpfs") as disk:
        yield disk


@pytest.fixture
async def engine(small_disk: Path) -> AsyncIterator[SqliteEngine]:
    store = await opened(small_disk / "jobs.db")
    yield store
    await store.close()


async def fill_up(engine: SqliteEngine, size: int) -> int:
    """Add until there is no room; how many went in."""
    for number in count():
        try:
            await engine.add("q", [NewJob(name="n", data=f'"{"x" * size}"')])
        except EngineFull:
            return number
    raise AssertionError


def fill_by_others(disk: Path) -> None:
    with (disk / "of-others").open("wb", buffering=0) as filler, suppress(OSError):
        while True:
            filler.write(b"x" * 4096)


@pytest.mark.covers("F98")
async def test_a_full_disk_refuses_adds_and_lets_jobs_finish(engine: SqliteEngine, small_disk: Path) -> None:
    await engine.add("running", [NewJob(name="n")] * 100)
    running = (await claim(engine, 100, queue="running")).jobs
    added = await fill_up(engine, 4000) + await fill_up(engine, 10)

    with pytest.raises(EngineFull):
        await engine.add("q", [NewJob(name="n")])
    health = await engine.health()
    verdicts = [await settle(engine, job.lease) for job in running]  # each in a commit of its own

    print(f"{added} jobs fitted; {len(verdicts)} finished one by one on the full disk")
    assert verdicts == [Verdict.OK] * 100
    assert not health.ok
    assert "full" in health.detail
    assert (await engine.counts("q")).waiting == added
    await engine.close()
    assert unsound(small_disk / "jobs.db") == []


@pytest.mark.covers("F98")
async def test_what_is_held_back_lets_jobs_finish_on_a_disk_that_others_filled(
    engine: SqliteEngine, small_disk: Path
) -> None:
    await engine.add("q", [NewJob(name="n")] * 100)
    running = (await claim(engine, 100)).jobs
    fill_by_others(small_disk)

    verdicts = [await settle(engine, job.lease) for job in running]

    assert verdicts == [Verdict.OK] * 100
    assert not (small_disk / "jobs.db-ballast").exists()
    with pytest.raises(EngineFull):
        await engine.add("q", [NewJob(name="n")])
    await engine.close()
    assert unsound(small_disk / "jobs.db") == []


@pytest.mark.covers("F98")
async def test_adds_work_again_once_there_is_room(engine: SqliteEngine, small_disk: Path) -> None:
    await fill_up(engine, 4000)

    resize(small_disk, "8m")

    await engine.add("q", [NewJob(name="n")])
    assert (await engine.health()).ok
    assert (small_disk / "jobs.db-ballast").stat().st_size == BALLAST_BYTES


@pytest.mark.covers("F98")
async def test_the_room_for_finishing_is_not_filled_by_another_process(engine: SqliteEngine, small_disk: Path) -> None:
    other = await opened(small_disk / "jobs.db")
    await fill_up(engine, 4000)
    database_of(other)._seen -= 2  # a second has passed since it last looked

    with pytest.raises(EngineFull):
        await other.add("q", [NewJob(name="n")])

    await other.close()


@pytest.mark.covers("F98")
async def test_the_last_to_close_takes_the_ballast_along(database: Path) -> None:
    ballast = database.with_name("jobs.db-ballast")
    first, second = await opened(database), await opened(database)
    assert ballast.stat().st_size == BALLAST_BYTES

    await first.close()
    assert ballast.exists()

    await second.close()
    assert [path.name for path in database.parent.iterdir()] == ["jobs.db"]


@pytest.mark.covers("F98", "B122")
def test_a_ballast_is_never_written_through_a_link(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.write_text("mine")
    (tmp_path / "jobs.db-ballast").symlink_to(precious)

    assert Ballast(tmp_path / "jobs.db-ballast").keep()

    assert precious.read_text() == "mine"
