"""Looking for jobs and for what is remembered of them, on every engine, while jobs end."""

from typing import Any, cast

import pytest

from tests.conformance.jobs import add, claim, new_job, settle
from toril import App, InvalidOption, JobFilter
from toril.model import Completed, Failed, Failure, JobOptions, Keep, NewJob, moment
from toril.operate.search import scan_pages
from toril.queue import Queue
from toril.store.engine import Store
from toril.testing import ManualClock

KEPT = Keep(1000)


def queue_on(engine: Store, clock: ManualClock) -> Queue:
    app = App("memory://")
    vars(app.services).update(engine=engine, clock=clock, users=1)
    return app.queue("q")


async def fail(engine: Store, count: int, **options: Any) -> None:
    """Jobs that fail and are kept, numbered in their payload."""
    await add(
        engine,
        *(new_job(data=f'{{"n": {n}}}', keep_failed=KEPT, **options) for n in range(count)),
    )
    for n, job in enumerate((await claim(engine, count)).jobs):
        await settle(engine, job.lease, Failed(Failure(f"no user {10_000 + n}" if n % 3 else "timed out", "E")))


@pytest.mark.covers("R234")
async def test_a_search_meets_each_job_once_while_others_fail(engine: Store, clock: ManualClock) -> None:
    queue = queue_on(engine, clock)
    await fail(engine, 40)
    seen: list[str] = []
    cursor = None
    while True:
        page = await queue.search("failed", JobFilter(error="NO USER"), cursor=cursor, limit=4)
        seen += [job.id for job in page.items]
        clock.advance(5)
        await fail(engine, 3)
        cursor = page.cursor
        if cursor is None:
            break

    there = [job.id for job in (await queue.jobs("failed", limit=1000)).items if "no user" in (job.error or "")]
    assert len(set(seen)) == len(seen)
    assert set(seen) == set(there[-26:])  # those that were there when it began


@pytest.mark.covers("R234", "R093")
async def test_runs_are_found_by_name_error_and_payload_and_walked_while_jobs_end(
    engine: Store, clock: ManualClock
) -> None:
    queue = queue_on(engine, clock)
    await fail(engine, 30)
    walked: list[str] = []
    cursor = None
    while True:
        page = await queue.runs("failed", cursor, 4, where=JobFilter(error="timed"))
        walked += [run.id for run in page.items]
        await fail(engine, 3)
        cursor = page.cursor
        if cursor is None:
            break
    one = await queue.runs("failed", where=JobFilter(key="n=29"))
    none = await queue.runs("failed", where=JobFilter(name="other"))

    assert (len(walked), len(set(walked))) == (10, 10)
    assert [run.text for run in one.items] == ["no user 10029"]
    assert none.items == ()


async def test_jobs_and_runs_are_found_by_the_worker_that_ran_them_last(engine: Store, clock: ManualClock) -> None:
    queue = queue_on(engine, clock)
    await add(engine, *(NewJob(name="n", data=str(n), options=JobOptions(keep_completed=KEPT)) for n in range(6)))
    first = (await claim(engine, 2, worker="one")).jobs
    second = (await claim(engine, 2, worker="two")).jobs
    await settle(engine, first[0].lease, Completed("null"))
    await settle(engine, second[0].lease, Completed("null"))

    async def found(state: Any, worker: str) -> list[str]:
        return [job.id for job in (await queue.search(state, JobFilter(worker=worker))).items]

    assert await found("active", "one") == [first[1].lease.id]
    assert await found("active", "two") == [second[1].lease.id]
    assert await found("completed", "two") == [second[0].lease.id]
    assert await found("waiting", "one") == []
    assert await found("active", "ONE") == []  # the name, as it is
    assert [run.id for run in (await queue.runs(where=JobFilter(worker="one"))).items] == [first[0].lease.id]
    assert (await queue.count("active", JobFilter(worker="nobody"))).count == 0


async def test_jobs_are_found_by_their_group_and_subject(engine: Store, clock: ManualClock) -> None:
    queue = queue_on(engine, clock)
    await add(
        engine, NewJob(name="a", group="org:nordwind"), NewJob(name="b", group="org:nord"),
        NewJob(name="c", options=JobOptions(subject="app:7", keep_failed=KEPT)),
        NewJob(name="d", data='"org:nordwind"'),
    )  # fmt: skip

    async def found(**where: Any) -> list[str]:
        return sorted(job.name for job in (await queue.search("waiting", JobFilter(**where))).items)

    assert await found(group="org:nord") == ["b"]  # the name, as it is
    assert await found(subject="app:7") == ["c"]
    assert await found(text="NORD") == ["a", "b", "d"]
    assert await found(text="app:7", name="c") == ["c"]
    job = next(each for each in (await claim(engine, 4)).jobs if each.name == "c")
    await settle(engine, job.lease, Failed(Failure("no", "E")))
    assert [run.name for run in (await queue.runs("failed", where=JobFilter(subject="app:7"))).items] == ["c"]
    assert [run.name for run in (await queue.runs("failed", where=JobFilter(text="pp:7"))).items] == ["c"]


async def test_a_key_is_there_or_has_a_value(engine: Store, clock: ManualClock) -> None:
    queue = queue_on(engine, clock)
    payloads = ['{"user": {"id": 7}, "on": true}', '{"user": {"id": "7"}}', '{"user": null}', "[[1]]"]
    ids = [found.id for found in await add(engine, *(NewJob(name="n", data=data) for data in payloads))]

    async def meant(key: str) -> list[int]:
        return [ids.index(job.id) for job in (await queue.search("waiting", JobFilter(key=key))).items]

    assert await meant("user.id") == [0, 1]
    assert await meant("user.id=7") == [0, 1]
    assert await meant("user") == [0, 1, 2]
    assert await meant("user=null") == [2]
    assert await meant("on=1") == []
    assert await meant("on=true") == [0]
    assert await meant("0.0=1") == [3]


async def test_what_came_after_the_asking_is_not_meant(engine: Store, clock: ManualClock) -> None:
    queue = queue_on(engine, clock)
    await fail(engine, 3)
    asked_at = moment(clock.now())
    counted = await queue.count("failed")
    clock.advance(10)
    await fail(engine, 2)
    await add(engine, NewJob(name="n"))

    assert (counted.count, counted.cursor) == (3, None)
    assert (await queue.count("failed", JobFilter(until=asked_at))).count == 3
    assert (await queue.count("waiting", JobFilter(until=asked_at))).count == 0
    assert (await queue.count("failed")).count == 5


async def test_failures_are_put_together_by_their_error(engine: Store, clock: ManualClock) -> None:
    queue = queue_on(engine, clock)
    await fail(engine, 9)
    await add(engine, NewJob(name="n"))
    (job,) = (await claim(engine)).jobs
    await settle(engine, job.lease, Completed())

    found = await queue.failures()

    assert [(each.error, each.kind, each.count) for each in found.groups] == [
        ("no user #", "E", 6),
        ("timed out", "E", 3),
    ]
    assert (found.looked, found.of) == (9, 9)


async def test_a_look_is_bounded_and_goes_on(engine: Store, clock: ManualClock) -> None:
    queue = queue_on(engine, clock)
    await fail(engine, 30)
    reads = 0

    async def read(cursor: str | None, size: int) -> Any:
        nonlocal reads
        reads += 1
        return await engine.page("q", cast("Any", "failed"), cursor=cursor, limit=min(size, 10))

    async def choose(records: Any) -> list[int]:
        return [index for index, record in enumerate(records) if record.data == '{"n": 0}']

    first = await scan_pages(read, choose, cursor=None, limit=5, most=10)
    rest = await scan_pages(read, choose, cursor=first.cursor, limit=5, most=1000)

    assert (len(first.items), first.looked, reads) == (0, 10, 3)
    assert (len(rest.items), rest.looked, rest.cursor) == (1, 20, None)
    assert (await queue.search("failed", JobFilter(key="n=0"))).looked == 30


async def test_what_happened_to_one_job_is_found_among_many(engine: Store, clock: ManualClock) -> None:
    queue = queue_on(engine, clock)
    await fail(engine, 3)
    one = (await queue.jobs("failed")).items[0]
    await fail(engine, 20)

    kinds = [event.kind.value for event in await one.history()]
    look = await engine.events("q", limit=5, of="none")
    rest = await engine.events("q", after=look.last, limit=1000, of=one.id)

    assert kinds[0] == "added"
    assert "failed" in kinds
    assert (look.items, look.last != "0") == ((), True)
    assert {event.job_id for event in rest.items} <= {one.id}
    assert (await engine.events("q", after=rest.last, limit=1000, of=one.id)).last == rest.last


async def test_all_that_a_filter_means_are_cancelled_and_nothing_else(engine: Store, clock: ManualClock) -> None:
    queue = queue_on(engine, clock)
    await add(engine, *(NewJob(name="n", data=f'{{"org": {n % 2}}}') for n in range(250)))
    running = (await claim(engine, 2)).jobs
    asked_at = moment(clock.now())
    clock.advance(10)
    await add(engine, NewJob(name="n", data='{"org": 1}'))
    first = await queue.cancel_all("waiting", JobFilter(key="org=1", until=asked_at), reason="left us")
    asked = await queue.cancel_all("active", JobFilter(until=asked_at))
    second = await queue.cancel_all("waiting", JobFilter(until=asked_at))

    assert (first.cancelled, first.requested) == (124, 0)
    assert (asked.cancelled, asked.requested) == (0, 2)
    assert (second.cancelled, (await queue.counts()).waiting) == (124, 1)
    assert {run.text for run in (await queue.runs("cancelled", limit=124, where=JobFilter(error="left"))).items} == {
        "left us"
    }
    extended = await engine.renew([job.lease for job in running], ttl=30_000)
    assert len(extended.cancelled) == 2


@pytest.mark.parametrize("state", ["completed", "failed", "nowhere"])
async def test_what_has_ended_is_not_cancelled(engine: Store, clock: ManualClock, state: Any) -> None:
    with pytest.raises(InvalidOption):
        await queue_on(engine, clock).cancel_all(state)
