"""What a job costs on a file, counted: statements, and pages that a commit writes."""

from collections import Counter
from pathlib import Path

import pytest

from tests.conformance.jobs import claim
from tests.faults.children import opened
from tests.faults.doubles import Disk, replace_disk
from toril import App
from toril.engines.sqlite import SqliteEngine
from toril.model import Call, Claim, Completed, NewJob, Settlement

JOBS = 100
FRAME = 4096 + 24  # bytes of a page in the log


class Cost:
    """Statements and pages since it was made."""

    def __init__(self, disk: Disk, database: Path) -> None:
        self._disk = disk
        self._log = Path(f"{database}-wal")
        self._before = Counter(disk.statements)
        self._size = self._log.stat().st_size

    def statements(self) -> int:
        spent = self._disk.statements - self._before
        return sum(spent.values())

    def pages(self) -> float:
        return (self._log.stat().st_size - self._size) / FRAME


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    return replace_disk(monkeypatch)


async def warmed_up(database: Path) -> SqliteEngine:
    """A store whose queue has had a job, and whose log has its final size for the first commits to come."""
    engine = await opened(database)
    await engine.add("q", [NewJob(name="n")], call=Call("me", 0))
    held = (await claim(engine)).jobs[0]
    done = Claim(want=0, token="t", lease=1, worker="w")
    await engine.exchange("q", [Settlement(held.lease, Completed())], done, call=Call("w", 0))
    return engine


async def test_a_lone_add_is_eight_statements_and_five_pages(database: Path, disk: Disk) -> None:
    engine = await warmed_up(database)
    cost = Cost(disk, database)

    for number in range(JOBS):
        await engine.add("q", [NewJob(name="n")], call=Call("me", number + 1))

    assert cost.statements() / JOBS <= 8
    assert cost.pages() / JOBS <= 5.2  # now and then a table takes another page
    await engine.close()


async def test_a_bulk_add_of_a_hundred_is_twelve_statements(database: Path, disk: Disk) -> None:
    engine = await warmed_up(database)
    cost = Cost(disk, database)

    await engine.add("q", [NewJob(name="n") for _ in range(JOBS)], call=Call("me", 1))

    assert cost.statements() <= 12  # the rows of a hundred jobs are inserted 64, 32 and 4 at a time
    await engine.close()


async def test_one_job_is_settled_and_the_next_claimed_by_sixteen_statements(database: Path, disk: Disk) -> None:
    engine = await warmed_up(database)
    await engine.add("q", [NewJob(name="n") for _ in range(JOBS + 1)])
    batch = [Settlement(job.lease, Completed()) for job in (await claim(engine, 1)).jobs]
    cost, commits = Cost(disk, database), disk.statements["COMMIT"]

    for turn in range(1, JOBS + 1):
        wanted = Claim(want=1, token=f"t{turn}", lease=30_000, worker="w")
        answer = await engine.exchange("q", batch, wanted, call=Call("w", turn))
        batch = [Settlement(job.lease, Completed()) for job in answer.jobs]

    assert disk.statements["COMMIT"] - commits == JOBS
    assert cost.statements() / JOBS <= 16
    assert cost.pages() / JOBS <= 9.5
    await engine.close()


async def test_a_hundred_are_settled_and_claimed_with_a_quarter_of_a_statement_each(database: Path, disk: Disk) -> None:
    engine = await warmed_up(database)
    await engine.add("q", [NewJob(name="n") for _ in range(2 * JOBS)])
    batch = [Settlement(job.lease, Completed()) for job in (await claim(engine, JOBS)).jobs]
    cost = Cost(disk, database)

    wanted = Claim(want=JOBS, token="next", lease=30_000, worker="w")
    answer = await engine.exchange("q", batch, wanted, call=Call("w", 1))

    assert len(answer.jobs) == JOBS
    assert cost.statements() <= 24
    assert cost.pages() <= 16
    await engine.close()


async def test_an_add_of_an_application_costs_what_an_add_of_the_engine_does(database: Path, disk: Disk) -> None:
    async with App(f"sqlite:///{database}") as app:
        queue = app.queue("q")
        await queue.add("n")
        cost = Cost(disk, database)

        for number in range(JOBS):
            await queue.add("n", number)

        assert cost.statements() / JOBS <= 8
