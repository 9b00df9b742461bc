"""Inspector: pages and figures that are true, bounded, and hold still while jobs move."""

import pytest

from tests.conformance.jobs import LEASE, add, claim, claim_one, settle
from toril.model import (
    KEEP_ALL,
    Claim,
    Completed,
    Counts,
    EventKind,
    Failed,
    Failure,
    Gone,
    JobOptions,
    Lease,
    LogLine,
    NewJob,
    Refused,
    Retried,
    RunStatus,
    Settlement,
    Verdict,
)
from toril.model.states import State
from toril.store.engine import Store
from toril.testing import ManualClock


async def walk(engine: Store, state: State, limit: int) -> list[str]:
    seen: list[str] = []
    cursor: str | None = None
    while True:
        page = await engine.page("q", state, cursor=cursor, limit=limit)
        seen += [each.id for each in page.items]
        cursor = page.cursor
        if cursor is None:
            return seen


@pytest.mark.covers("R044")
async def test_counts_and_pages_agree_for_every_state(engine: Store) -> None:
    await add(
        engine, *(NewJob(name="n", options=JobOptions(keep_completed=KEEP_ALL, keep_failed=KEEP_ALL)) for _ in range(7))
    )
    a, b, _, d = (await claim(engine, 4)).jobs
    await settle(engine, a.lease)
    await settle(engine, b.lease, Failed(Failure("x")))
    await engine.recover("q", dead=[d.lease])
    await add(engine, NewJob(name="p", priority=1), NewJob(name="p", priority=2), NewJob(name="d", delay=1))

    counts = await engine.counts("q")

    assert counts == Counts(waiting=4, prioritized=2, active=1, delayed=1, completed=1, failed=1)
    for state in State:
        assert len(await walk(engine, state, 2)) == counts.of(state), state


async def test_pages_show_the_next_to_run_first(engine: Store) -> None:
    await add(engine, *(NewJob(name="n", id=i) for i in "abc"), NewJob(name="n", id="front", lifo=True))
    await add(engine, NewJob(name="n", id="p2", priority=2), NewJob(name="n", id="p1", priority=1))
    await add(engine, NewJob(name="n", id="late", delay=50), NewJob(name="n", id="soon", delay=5))

    assert await walk(engine, State.WAITING, 2) == ["front", "a", "b", "c"]
    assert await walk(engine, State.PRIORITIZED, 1) == ["p1", "p2"]
    assert await walk(engine, State.DELAYED, 1) == ["soon", "late"]


async def test_pages_show_the_last_to_end_first(engine: Store, clock: ManualClock) -> None:
    await add(engine, *(NewJob(name="n", options=JobOptions(keep_completed=KEEP_ALL)) for _ in range(5)))
    for claimed in (await claim(engine)).jobs:
        await settle(engine, claimed.lease)
        clock.advance(1)

    assert await walk(engine, State.COMPLETED, 2) == ["5", "4", "3", "2", "1"]


@pytest.mark.covers("R234", "S20")
async def test_a_walk_neither_repeats_nor_skips_while_jobs_move(engine: Store, clock: ManualClock) -> None:
    await add(engine, *(NewJob(name="n", attempts=9) for _ in range(100)))

    seen: list[str] = []
    cursor: str | None = None
    while True:
        page = await engine.page("q", State.WAITING, cursor=cursor, limit=7)
        seen += [each.id for each in page.items]
        cursor = page.cursor
        if cursor is None:
            break
        taken = (await claim(engine, 5)).jobs
        back = [Settlement(each.lease, Retried(Failure("x"))) for each in taken[:3]]
        done = [Settlement(each.lease, Completed()) for each in taken[3:]]
        await engine.exchange("q", back + done, Claim(want=0, token="t", lease=LEASE, worker="w"))
        await add(engine, NewJob(name="new"), NewJob(name="new", lifo=True))

    stayed = {each.id for each in (await engine.page("q", State.WAITING, limit=1000)).items if each.starts == 0}
    assert len(seen) == len(set(seen))
    assert {i for i in stayed if int(i) <= 100} <= set(seen)


async def test_renewals_do_not_disturb_a_walk_over_running_jobs(engine: Store, clock: ManualClock) -> None:
    await add(engine, *(NewJob(name="n") for _ in range(30)))
    taken = (await claim(engine, 30)).jobs

    seen: list[str] = []
    cursor: str | None = None
    while True:
        page = await engine.page("q", State.ACTIVE, cursor=cursor, limit=4)
        seen += [each.id for each in page.items]
        cursor = page.cursor
        if cursor is None:
            break
        clock.advance(5)
        await engine.renew([each.lease for each in taken[::3]], ttl=LEASE)

    assert sorted(map(int, seen)) == list(range(1, 31))


@pytest.mark.covers("R234", "R236")
async def test_run_records_are_walked_newest_first_while_jobs_finish(engine: Store) -> None:
    async def finish(count: int) -> None:
        await add(engine, *(NewJob(name="n") for _ in range(count)))
        batch = [Settlement(each.lease, Completed()) for each in (await claim(engine, count)).jobs]
        await engine.exchange("q", batch, Claim(want=0, token="t", lease=LEASE, worker="w"))

    await finish(40)
    seen: list[str] = []
    pages = 0
    cursor: str | None = None
    while True:
        page = await engine.runs("q", RunStatus.COMPLETED, cursor=cursor, limit=10)
        seen += [run.id for run in page.items]
        pages += 1
        cursor = page.cursor
        if cursor is None:
            break
        await finish(3)

    assert seen == [str(i) for i in range(40, 0, -1)]
    assert pages == 4, "the last page with something on it says that it is the last"


async def test_runs_of_both_endings_are_apart(engine: Store, clock: ManualClock) -> None:
    await add(engine, NewJob(name="good"), NewJob(name="bad", attempts=2))
    good, bad = (await claim(engine)).jobs
    clock.advance(5)
    await settle(engine, good.lease)
    await settle(engine, bad.lease, Failed(Failure("why")))

    (completed,) = (await engine.runs("q", RunStatus.COMPLETED)).items
    (failed,) = (await engine.runs("q", RunStatus.FAILED)).items

    assert (completed.name, failed.name, failed.text, failed.attempts_made) == ("good", "bad", "why", 1)
    assert failed.finished_at == clock.now()


async def test_events_are_read_on_from_where_one_was(engine: Store) -> None:
    await add(engine, *(NewJob(name="n") for _ in range(5)))
    first = await engine.events("q", limit=3)
    rest = await engine.events("q", after=first.last, limit=100)
    none = await engine.events("q", after=rest.last)
    await add(engine, NewJob(name="n"))
    news = await engine.events("q", after=none.last)

    places = [e.at for e in first.items + rest.items]
    assert len(places) == len(set(places)) == 10
    assert places == sorted(places, key=int)
    assert [e.job_id for e in first.items + rest.items if e.kind is EventKind.ADDED] == ["1", "2", "3", "4", "5"]
    assert none.items == ()
    assert [(e.kind, e.job_id) for e in news.items] == [(EventKind.ADDED, "6"), (EventKind.WAITING, "6")]
    assert not news.gap


@pytest.mark.covers("F79", "R180")
async def test_events_trimmed_away_unseen_leave_a_gap(engine: Store) -> None:
    await add(engine, *(NewJob(name="n") for _ in range(1000)))
    seen = (await engine.events("q", limit=5)).last
    for _ in range(6):
        await add(engine, *(NewJob(name="n") for _ in range(1000)))

    behind = await engine.events("q", after=seen, limit=1000)
    fresh = await engine.events("q", limit=1000)

    assert behind.gap
    assert not fresh.gap
    assert behind.items == fresh.items
    kept, last = len(fresh.items), fresh.last
    while more := (await engine.events("q", after=last, limit=1000)).items:
        kept, last = kept + len(more), more[-1].at
    assert 10_000 <= kept <= 12_000


@pytest.mark.covers("R232")
async def test_figures_a_minute_are_true_to_the_job(engine: Store, clock: ManualClock) -> None:
    clock.advance(60_000 - clock.now() % 60_000)
    for minute in range(3):
        await add(engine, *(NewJob(name="n") for _ in range(10)))
        for n, claimed in enumerate((await claim(engine, 10)).jobs):
            await settle(engine, claimed.lease, Failed(Failure("x")) if n < minute else Completed())
        clock.advance(60_000)

    figures = await engine.metrics.minutes("q", minutes=5)

    assert figures.first == clock.now() // 60_000 - 4
    assert figures.completed == (0, 10, 9, 8, 0)
    assert figures.failed == (0, 0, 1, 2, 0)
    view = await engine.queue("q")
    assert (view.completed_total, view.failed_total) == (27, 3)


async def test_logs_are_paged(engine: Store) -> None:
    await add(engine, NewJob(name="n"))
    lease = (await claim_one(engine)).lease
    await engine.report("q", [LogLine(lease, str(i)) for i in range(25)])

    lines: list[str] = []
    cursor: str | None = None
    while True:
        page = await engine.logs("q", "1", cursor=cursor, limit=10)
        lines += page.items
        cursor = page.cursor
        if cursor is None:
            break

    assert lines == [str(i) for i in range(25)]


async def test_an_exact_multiple_ends_without_an_empty_page(engine: Store) -> None:
    await add(engine, *(NewJob(name="n") for _ in range(10)))

    page = await engine.page("q", State.WAITING, limit=10)

    assert (len(page.items), page.cursor) == (10, None)


@pytest.mark.covers("B69")
async def test_a_page_is_clamped_to_a_thousand(engine: Store) -> None:
    for _ in range(2):
        await add(engine, *(NewJob(name="n") for _ in range(600)))

    page = await engine.page("q", State.WAITING, limit=10**9)

    assert len(page.items) == 1000
    assert page.cursor is not None


@pytest.mark.covers("B65")
async def test_reading_what_is_not_there_finds_nothing(engine: Store) -> None:
    assert await engine.jobs("never", ["1", "x"]) == [None, None]
    assert await engine.counts("never") == Counts()
    assert (await engine.page("never", State.WAITING)).items == ()
    assert (await engine.runs("never", RunStatus.FAILED)).items == ()
    assert (await engine.events("never")).items == ()
    assert (await engine.logs("never", "1")).items == ()
    assert sum((await engine.metrics.minutes("never", minutes=60)).completed) == 0
    assert await engine.queues() == []


@pytest.mark.covers("P13", "R169")
async def test_odd_ids_are_looked_up_and_told_as_they_are(engine: Store) -> None:
    odd = ["007", "repeat:x:5", "ünï", "a b", "-", "1e3", "٣"]
    await add(engine, *(NewJob(name="n", id=i) for i in odd))

    assert [each.id for each in await engine.jobs("q", odd) if each] == odd
    added = [each for each in (await engine.events("q")).items if each.kind is EventKind.ADDED]
    assert [each.job_id for each in added] == odd
    assert await engine.jobs("q", ["7", "999999999999999999999", "-1", "0", ""]) == [None] * 5


async def test_a_job_with_an_id_of_its_own_answers_to_no_number(engine: Store) -> None:
    await add(engine, NewJob(name="n", id="mine"))
    mine = (await claim_one(engine)).lease
    await engine.report("q", [LogLine(mine, "a line")])

    assert await engine.jobs("q", ["1"]) == [None]
    assert (await engine.logs("q", "1")).items == ()
    assert [each.ended for each in await engine.finished("q", ["1"], timeout=LEASE)] == [Gone()]
    assert await settle(engine, Lease("q", "1", mine.token)) is Verdict.MISSING
    assert (await engine.remove("q", ["1"])).refused == (Refused("1", None),)
    assert (await engine.logs("q", "mine")).items == ("a line",)
