"""Engine.drain, clean, obliterate, prune, and retention: many jobs removed, a bounded number a step."""

import pytest

from tests.conformance import jobs
from tests.conformance.dumps import dump
from tests.conformance.jobs import LEASE, add, claim, claim_one, ids, names, settle
from toril.errors import InvalidOption, WrongState
from toril.model import (
    KEEP_ALL,
    Call,
    Claim,
    Completed,
    Counts,
    EventKind,
    Failed,
    Failure,
    JobOptions,
    Keep,
    LogLine,
    NewJob,
    Pause,
    RunStatus,
    Settlement,
    Swept,
)
from toril.model.states import NOT_STARTED, State
from toril.store.engine import Store
from toril.testing import ManualClock


async def run(engine: Store, count: int, *, keep: Keep = KEEP_ALL, fail: bool = False) -> None:
    """Add, claim and finish this many jobs, in batches."""
    await add(
        engine, *(NewJob(name="n", options=JobOptions(keep_completed=keep, keep_failed=keep)) for _ in range(count))
    )
    outcome = Failed(Failure("x")) if fail else Completed()
    while taken := (await claim(engine, 100)).jobs:
        batch = [Settlement(each.lease, outcome) for each in taken]
        await engine.exchange("q", batch, Claim(want=0, token="t", lease=LEASE, worker="w"))


async def test_a_drain_removes_what_has_not_started(engine: Store) -> None:
    await add(engine, *(NewJob(name="n") for _ in range(3)), NewJob(name="p", priority=1), NewJob(name="d", delay=9))
    await claim(engine, 1)

    swept = await engine.drain("q", states=frozenset({State.WAITING, State.PRIORITIZED}))

    assert set(swept.ids) == {"2", "3", "4"}
    assert not swept.more
    assert await engine.counts("q") == Counts(active=1, delayed=1)
    assert (await engine.drain("q", states=NOT_STARTED)).ids == ("5",)


async def test_a_drain_also_takes_jobs_that_stalled(engine: Store) -> None:
    await add(engine, NewJob(name="n"))
    await engine.recover("q", dead=[(await claim_one(engine)).lease])

    assert (await engine.drain("q", states=frozenset({State.WAITING}))).ids == ("1",)


@pytest.mark.covers("F15")
async def test_a_drain_is_bounded_and_goes_on(engine: Store) -> None:
    await add(engine, *(NewJob(name="n") for _ in range(25)))

    sizes = []
    more = True
    while more:
        swept = await engine.drain("q", states=NOT_STARTED, limit=10)
        sizes.append(len(swept.ids))
        more = swept.more

    assert sizes == [10, 10, 5]
    assert await engine.counts("q") == Counts()


@pytest.mark.parametrize("state", [State.ACTIVE, State.COMPLETED, State.FAILED])
async def test_a_drain_leaves_started_jobs_alone(engine: Store, state: State) -> None:
    with pytest.raises(InvalidOption, match=f"not {state}"):
        await engine.drain("q", states=frozenset({state}))


async def test_a_sweep_sent_again_gets_the_first_answer(engine: Store) -> None:
    await add(engine, NewJob(name="n"))
    first = await engine.drain("q", states=NOT_STARTED, call=Call("me", 1))
    await add(engine, NewJob(name="m"))

    assert await engine.drain("q", states=NOT_STARTED, call=Call("me", 1)) == first == Swept(("1",))
    assert (await engine.counts("q")).waiting == 1


@pytest.mark.covers("X27")
async def test_clean_removes_what_ended_long_enough_ago(engine: Store, clock: ManualClock) -> None:
    await run(engine, 2)
    clock.advance(1000)
    await run(engine, 1)

    assert (await engine.clean("q", state=State.COMPLETED, grace=1001)).ids == ()
    swept = await engine.clean("q", state=State.COMPLETED, grace=1000)

    assert swept.ids == ("1", "2")
    assert (await engine.counts("q")).completed == 1
    cleaned = [e for e in (await engine.events("q")).items if e.kind is EventKind.CLEANED]
    assert [e.detail for e in cleaned] == [{"count": "2"}]


@pytest.mark.parametrize(
    ("state", "options"),
    [(State.WAITING, {}), (State.PRIORITIZED, {"priority": 1}), (State.DELAYED, {"delay": 9_000_000})],
)
async def test_clean_goes_by_the_time_of_adding_for_what_waits(
    engine: Store, clock: ManualClock, state: State, options: dict[str, int]
) -> None:
    await add(engine, NewJob(name="old", **options))  # type: ignore[arg-type]
    clock.advance(500)
    await add(engine, NewJob(name="new", **options))  # type: ignore[arg-type]

    assert (await engine.clean("q", state=state, grace=500)).ids == ("1",)


@pytest.mark.covers("B70")
@pytest.mark.parametrize(("grace", "limit"), [(-1, 10), (0, 0), (0, -1), (0, 10_001)])
async def test_clean_refuses_odd_numbers(engine: Store, grace: int, limit: int) -> None:
    with pytest.raises(InvalidOption):
        await engine.clean("q", state=State.FAILED, grace=grace, limit=limit)


@pytest.mark.covers("B70")
async def test_obliterate_refuses_while_jobs_run(engine: Store) -> None:
    await add(engine, NewJob(name="n"))
    await claim(engine)

    with pytest.raises(WrongState, match="'q' has 1 running jobs"):
        await engine.obliterate("q")

    assert await engine.counts("q") == Counts(active=1)


async def test_obliterate_leaves_no_trace(engine: Store) -> None:
    await run(engine, 3)
    await run(engine, 2, fail=True)
    await add(
        engine, NewJob(name="n", id="x"), NewJob(name="d", delay=9), NewJob(name="p", priority=1), NewJob(name="r")
    )
    lease = (await claim_one(engine)).lease
    await engine.report("q", [LogLine(lease, "x")])

    swept = await engine.obliterate("q", running="remove")

    assert len(swept.ids) == 9
    assert await engine.queues() == []
    assert (await engine.runs("q", RunStatus.COMPLETED)).items == ()
    assert (await engine.events("q")).items == ()
    assert (await add(engine, NewJob(name="n")))[0].id == "1"


async def test_obliterate_is_bounded_and_lets_nothing_start_meanwhile(engine: Store) -> None:
    await add(engine, *(NewJob(name="n") for _ in range(25)))

    first = await engine.obliterate("q", limit=20)

    assert (len(first.ids), first.more) == (20, True)
    assert (await claim(engine)).jobs == ()
    assert not (await engine.obliterate("q", limit=20)).more
    assert await engine.queues() == []


@pytest.mark.covers("R210")
async def test_trimming_removes_a_bounded_number_a_step(engine: Store) -> None:
    for _ in range(3):
        await run(engine, 500)

    await run(engine, 1, keep=Keep(count=1))
    after_one = await engine.counts("q")
    await run(engine, 1, keep=Keep(count=1))

    assert after_one.completed == 501, "a thousand at most"
    assert await engine.jobs("q", ["1", "1000"]) == [None, None]
    assert (await engine.counts("q")).completed == 1


@pytest.mark.covers("R206", "R207")
@pytest.mark.parametrize("fail", [False, True])
async def test_the_newest_n_are_kept(engine: Store, fail: bool) -> None:
    await run(engine, 150, keep=Keep(count=100), fail=fail)

    state = State.FAILED if fail else State.COMPLETED
    assert (await engine.counts("q")).of(state) == 100
    page = await engine.page("q", state, limit=1000)
    assert {int(each.id) for each in page.items} == set(range(51, 151))
    assert await engine.jobs("q", ["50"]) == [None]


@pytest.mark.covers("R209")
async def test_what_is_too_old_goes_at_the_next_finish(engine: Store, clock: ManualClock) -> None:
    await run(engine, 3, keep=Keep(age=60))
    clock.advance(60_001)
    await run(engine, 1, keep=Keep(age=60))

    assert [each.id for each in (await engine.page("q", State.COMPLETED)).items] == ["4"]


@pytest.mark.covers("R209")
async def test_what_is_too_old_goes_by_pruning(engine: Store, clock: ManualClock) -> None:
    await run(engine, 3, keep=Keep(age=60))
    await run(engine, 1, keep=KEEP_ALL)
    clock.advance(60_000)
    too_early = await engine.prune("q")
    clock.advance(1)

    assert too_early == 0
    assert await engine.prune("q", limit=2) == 2
    assert await engine.prune("q", limit=2) == 1
    assert [each.id for each in (await engine.page("q", State.COMPLETED)).items] == ["4"]


@pytest.mark.covers("R212")
async def test_a_job_that_its_count_has_removed_leaves_nothing_to_prune(engine: Store, clock: ManualClock) -> None:
    await run(engine, 20, keep=Keep(count=5, age=60))
    clock.advance(60_001)

    assert await engine.prune("q") == 5


async def test_pruning_spares_a_job_that_runs_again(engine: Store, clock: ManualClock) -> None:
    await run(engine, 1, keep=Keep(age=60))
    clock.advance(60_001)
    await engine.retry("q", ["1"])
    waiting = await engine.prune("q")
    lease = (await claim_one(engine)).lease
    await settle(engine, lease)

    assert waiting == 1
    assert await engine.prune("q") == 0
    assert (await jobs.job(engine, "1")).state is State.COMPLETED


@pytest.mark.covers("R208", "R212", "P25")
async def test_by_default_nothing_is_left_but_the_run_records(engine: Store) -> None:
    for _ in range(12):
        await add(engine, *(NewJob(name="n", id=f"x{i}") for i in range(100)))
        taken = (await claim(engine, 100)).jobs
        batch = [Settlement(each.lease, Completed()) for each in taken]
        await engine.exchange("q", batch, Claim(want=0, token="t", lease=LEASE, worker="w"))

    assert await engine.counts("q") == Counts()
    page = await engine.runs("q", RunStatus.COMPLETED, limit=1000)
    assert (len(page.items), page.cursor) == (1000, None)
    assert (await engine.queue("q")).completed_total == 1200


@pytest.mark.covers("R212")
async def test_what_a_store_holds_does_not_grow_with_the_jobs_that_went_through(engine: Store) -> None:
    async def held(times: int) -> int:
        """How many characters the store holds after so many more jobs, its last events aside."""
        for _ in range(times // 100):
            await add(engine, *(NewJob(name="n", id=f"x{i}") for i in range(100)))
            batch = [Settlement(each.lease, Completed("1")) for each in (await claim(engine, 100)).jobs]
            await engine.exchange("q", batch, Claim(want=0, token="t", lease=LEASE, worker="w"))
        found = await dump(engine)
        return sum(len(row) for name, rows in found.items() if "events" not in name for row in rows)

    full = await held(1_200)  # a thousand run records
    later = await held(1_200)

    assert later < 1.1 * full


async def test_a_kept_result_goes_when_its_time_is_up(engine: Store, clock: ManualClock) -> None:
    await add(engine, NewJob(name="n", options=JobOptions(result_ttl=1000)))
    await settle(engine, (await claim_one(engine)).lease, Completed('"' + "x" * 5000 + '"'))
    clock.advance(1000)

    assert await engine.prune("q") == 1


async def test_a_paused_queue_can_be_drained(engine: Store) -> None:
    await engine.configure("q", [Pause()])
    await add(engine, NewJob(name="n"))

    assert (await engine.drain("q", states=NOT_STARTED)).ids == ("1",)


async def test_sweeping_an_unknown_queue_finds_nothing(engine: Store) -> None:
    assert await engine.drain("never", states=NOT_STARTED) == Swept()
    assert await engine.clean("never", state=State.FAILED, grace=0) == Swept()
    assert await engine.obliterate("never") == Swept()
    assert await engine.prune("never") == 0
    assert await engine.queues() == []


async def test_removed_jobs_make_room_in_their_order(engine: Store) -> None:
    await add(engine, *(NewJob(name=n) for n in "abcd"))
    await engine.remove("q", ["2"])

    taken = (await claim(engine)).jobs

    assert (names(taken), ids(taken)) == (["a", "c", "d"], ["1", "3", "4"])
