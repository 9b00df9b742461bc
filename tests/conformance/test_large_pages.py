"""Pages of jobs with large payloads: a reader is not handed hundreds of megabytes at once."""

from tests.conformance.jobs import add, claim, settle
from toril.model import Failed, Failure, JobOptions, Keep, NewJob
from toril.model.states import State
from toril.store.engine import Store

LARGE = '"' + "x" * 1_000_000 + '"'
MOST = 6_000_000  # bytes of a page: four million, and the job with which that is passed


async def walked(engine: Store, state: State) -> list[str]:
    """The ids of all jobs in a state, page by page; each page is looked at."""
    found: list[str] = []
    cursor = None
    while True:
        page = await engine.page("q", state, cursor=cursor, limit=200)
        assert sum(len(job.data) for job in page.items) < MOST
        found += [job.id for job in page.items]
        cursor = page.cursor
        if cursor is None:
            return found


async def test_a_page_of_large_jobs_is_short_and_a_walk_meets_each_once(engine: Store) -> None:
    await add(engine, *(NewJob(name="n", data=LARGE, id=f"w{n}") for n in range(7)))
    await add(engine, *(NewJob(name="n", data=LARGE, id=f"p{n}", priority=n + 1) for n in range(6)))
    await add(engine, *(NewJob(name="n", data=LARGE, id=f"g{n}", group="one") for n in range(6)))

    assert await walked(engine, State.PRIORITIZED) == [f"p{n}" for n in range(6)]
    waiting = await walked(engine, State.WAITING)
    assert sorted(waiting) == sorted([f"w{n}" for n in range(7)] + [f"g{n}" for n in range(6)])

    taken = [job.lease.id for job in (await claim(engine, 7)).jobs]
    assert sorted(await walked(engine, State.ACTIVE)) == sorted(taken)


async def test_a_page_of_large_dead_letters_is_short_and_a_walk_meets_each_once(engine: Store) -> None:
    await add(
        engine,
        *(
            NewJob(name="n", data=LARGE, id=f"w{n}", options=JobOptions(keep_failed=Keep(0)), attempts=1)
            for n in range(6)
        ),
    )
    for job in (await claim(engine, 6)).jobs:
        await settle(engine, job.lease, Failed(Failure("no", "E")))

    found: list[str] = []
    cursor = None
    while True:
        page = await engine.dead_letters.page(cursor=cursor, limit=200)
        assert sum(len(letter.data) for letter in page.items) < MOST
        found += [letter.job_id for letter in page.items]
        cursor = page.cursor
        if cursor is None:
            break
    assert sorted(found) == [f"w{n}" for n in range(6)]
