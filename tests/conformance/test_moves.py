"""Moving: whatever a store holds arrives in another as it was, once, and is claimable in one of them at a time."""

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from tests.conformance.jobs import EVERY_OPTION, add, claim, claim_one, ids, job, new_job, settle
from tests.conformance.plants import tell
from toril import WrongState
from toril.engines.redis import RedisEngine
from toril.engines.redis.layout import KEYS
from toril.engines.sqlite import SqliteEngine
from toril.engines.sqlite.url import parse
from toril.model import (
    HEADROOM,
    KEEP_ALL,
    Cancelled,
    Checkpoint,
    ChildState,
    CircuitSample,
    CircuitTerms,
    Completed,
    Dedup,
    Failed,
    Failure,
    FlowNode,
    GroupLimits,
    ImportOutcome,
    JobOptions,
    JobRef,
    JobRow,
    Keep,
    LogLine,
    MetricsWindow,
    NewJob,
    OnFailure,
    Overlap,
    Pause,
    Progress,
    RateLimit,
    Replay,
    Rested,
    Resume,
    Retried,
    RunStatus,
    Schedule,
    SetConcurrency,
    SetGroup,
    SetGroups,
    SetMaxWaiting,
    SetRateLimit,
    TransferBatch,
    TransferDeadLetter,
    TransferJob,
    TransferPart,
    run_id,
)
from toril.model.states import State
from toril.operate.transfer import Transfer
from toril.store.engine import Store
from toril.testing import ManualClock

WHY = Failure("no such user", "LookupError", "Traceback: here")
MINUTE = 60_000
PARTS = (
    TransferPart.SETTINGS,
    TransferPart.SCHEDULES,
    TransferPart.JOBS,
    TransferPart.LETTERS,
    TransferPart.LEDGER,
    TransferPart.FACTS,
)


@pytest.fixture
async def other(clock: ManualClock) -> AsyncIterator[Store]:
    """The other end of the move."""
    store = SqliteEngine(parse("memory://"), clock=clock)
    await store.open()
    yield store
    await store.close()


@pytest.fixture(params=["from", "to"])
def ends(request: pytest.FixtureRequest, engine: Store, other: Store) -> tuple[Store, Store]:
    """From the engine to another, and from another to it."""
    return (engine, other) if request.param == "from" else (other, engine)


async def packed(source: Store, target: Store, part: TransferPart, queue: str = "q") -> TransferBatch | None:
    return await source.transfers.export_batch(part, queue, to=await target.transfers.store_id(), mark="mark")


async def carried(source: Store, target: Store, *queues: str) -> list[TransferBatch]:
    """All loads of these queues, each put into the target."""
    loads = []
    for part in PARTS:
        for queue in queues or ("q",):
            while (load := await packed(source, target, part, queue)) is not None:
                assert (
                    await target.transfers.import_batch(load, sender=await source.transfers.store_id())
                ).outcome is ImportOutcome.STORED
                assert await source.transfers.confirm_export(load)
                loads.append(load)
    return loads


async def records(store: Store, queue: str = "q") -> dict[str, JobRow]:
    found = {}
    for state in State:
        for each in (await store.page(queue, state, limit=1000)).items:
            found[each.id] = each
    return found


async def sound(store: Store, *queues: str) -> None:
    async for look in store.repairs.scan(queues):
        assert list(look) == []


FULL = NewJob(
    name="greet",
    data='{"to": "é\\u0000"}',
    id="full",
    attempts=4,
    priority=3,
    options=EVERY_OPTION,
    expires=3_600_000,
    metadata='{"a": 1}',
    trace="00-x",
)


async def test_jobs_of_every_state_arrive_as_they_were(ends: tuple[Store, Store], clock: ManualClock) -> None:
    source, target = ends
    await add(source, NewJob(name="done", id="done", options=JobOptions(keep_completed=KEEP_ALL)))
    await settle(source, (await claim_one(source)).lease, Completed('{"r": 1}'))
    await add(source, NewJob(name="bad", id="bad", options=JobOptions(keep_failed=Keep(9, 100.0))))
    await settle(source, (await claim_one(source)).lease, Failed(WHY))
    await add(source, replace(FULL, id="again", priority=0))
    started = await claim_one(source)
    lease = started.lease
    await source.report("q", [Progress(lease, "7"), LogLine(lease, "one"), LogLine(lease, "två")])
    await source.report("q", [Checkpoint(lease, '"here"')])
    clock.advance(5)
    await settle(source, started.lease, Retried(WHY, 90_000))
    await add(source, NewJob(name="lost"))
    await claim_one(source, lease=10)
    clock.advance(20)
    assert (await source.recover("q")).returned == ("4",)
    await add(source, FULL, NewJob(name="plain"), NewJob(name="later", delay=50_000), NewJob(name="first", lifo=True))
    before = await records(source)
    assert {each.state for each in before.values()} == set(State) - {State.ACTIVE, State.WAITING_CHILDREN}

    await carried(source, target)

    assert await records(target) == before
    assert await records(source) == {}
    assert (await target.logs("q", "again")).items == ("one", "två")
    await sound(source, "q")
    await sound(target, "q")
    assert ids((await claim(target, alone=True)).jobs) == ["4"], "which has stalled, and runs alone"
    assert ids((await claim(target)).jobs) == [
        next(each.id for each in before.values() if each.name == name) for name in ("first", "plain", "greet")
    ]  # fmt: skip
    assert (await claim(source)).jobs == ()


async def test_the_order_of_the_line_is_kept_over_many_loads(ends: tuple[Store, Store]) -> None:
    source, target = ends
    await add(source, *(NewJob(name="n", priority=n % 3) for n in range(60)))
    loads = 0
    to, sender = await target.transfers.store_id(), await source.transfers.store_id()
    while (
        load := await source.transfers.export_batch(TransferPart.JOBS, "q", to=to, mark=f"m{loads}", limit=7)
    ) is not None:
        assert len(load.items) <= 7
        await target.transfers.import_batch(load, sender=sender)
        await source.transfers.confirm_export(load)
        loads += 1

    assert loads == 9
    order = [str(n + 1) for remainder in range(3) for n in range(60) if n % 3 == remainder]
    assert ids((await claim(target, 60)).jobs) == order


async def test_a_load_is_the_same_until_it_is_forgotten_and_stored_once(ends: tuple[Store, Store]) -> None:
    source, target = ends
    await add(source, NewJob(name="a"), NewJob(name="b"))
    sender, to = await source.transfers.store_id(), await target.transfers.store_id()
    first = await source.transfers.export_batch(TransferPart.JOBS, "q", to=to, mark="m1", limit=1)
    assert first is not None

    assert await source.transfers.export_batch(TransferPart.SETTINGS, "q", to=to, mark="m2") == first, (
        "whatever is asked for"
    )
    assert (await claim(source)).jobs[0].lease.id == "2", "the other one is where it was"
    assert (await target.transfers.import_batch(first, sender=sender)).outcome is ImportOutcome.STORED
    taken = await claim_one(target)
    await settle(target, taken.lease)
    assert (await target.transfers.import_batch(first, sender=sender)).outcome is ImportOutcome.AGAIN, (
        "though nothing of it is left"
    )
    assert await source.transfers.confirm_export(first)
    assert not await source.transfers.confirm_export(first)
    assert (await claim(target)).jobs == ()


async def test_a_load_for_one_store_is_not_given_to_another(ends: tuple[Store, Store]) -> None:
    source, target = ends
    await add(source, NewJob(name="a"))
    load = await packed(source, target, TransferPart.JOBS)
    assert load is not None

    with pytest.raises(WrongState, match="finish it first"):
        await source.transfers.export_batch(TransferPart.JOBS, "q", to="elsewhere", mark="m")


async def test_an_older_load_than_the_last_is_not_stored(ends: tuple[Store, Store]) -> None:
    source, target = ends
    await add(source, NewJob(name="a"))
    load = (await carried(source, target))[-1]

    late = await target.transfers.import_batch(replace(load, mark="another"), sender=await source.transfers.store_id())

    assert late.outcome is ImportOutcome.STALE
    assert len(await records(target)) == 1


async def test_a_number_that_is_taken_is_a_clash_and_nothing_is_stored(ends: tuple[Store, Store]) -> None:
    source, target = ends
    await add(source, NewJob(name="a"), NewJob(name="b"))
    await add(target, NewJob(name="mine"))
    load = await packed(source, target, TransferPart.JOBS)
    assert load is not None

    arrival = await target.transfers.import_batch(load, sender=await source.transfers.store_id())

    assert (arrival.outcome, arrival.taken) == (ImportOutcome.CLASH, (JobRef("q", "1"),))
    assert [each.name for each in (await records(target)).values()] == ["mine"]
    await target.remove("q", ["1"])
    assert (
        await target.transfers.import_batch(load, sender=await source.transfers.store_id())
    ).outcome is ImportOutcome.STORED


async def test_a_chosen_id_that_is_taken_is_left_out_as_an_add_would(ends: tuple[Store, Store]) -> None:
    source, target = ends
    await add(source, NewJob(name="a", id="x"), NewJob(name="b", id="y"))
    await add(target, NewJob(name="mine", id="x"))
    load = await packed(source, target, TransferPart.JOBS)
    assert load is not None

    arrival = await target.transfers.import_batch(load, sender=await source.transfers.store_id())

    assert (arrival.outcome, arrival.taken) == (ImportOutcome.STORED, (JobRef("q", "x"),))
    assert {each.id: each.name for each in (await records(target)).values()} == {"x": "mine", "y": "b"}


async def test_what_runs_stays_until_it_has_ended(ends: tuple[Store, Store]) -> None:
    source, target = ends
    await add(source, NewJob(name="a", attempts=2), NewJob(name="b"))
    running = await claim_one(source)

    await carried(source, target)
    assert set(await records(target)) == {"2"}
    assert (await job(source, "1")).state is State.ACTIVE
    await settle(source, running.lease, Retried(WHY, 1_000))
    await carried(source, target)

    assert set(await records(target)) == {"1", "2"}
    again = await job(target, "1")
    assert (again.attempts_made, again.starts, again.failure) == (1, 1, WHY)


async def test_a_queue_leaves_paused_and_arrives_as_it_was_set(ends: tuple[Store, Store], clock: ManualClock) -> None:
    source, target = ends
    rate = RateLimit(5, 60.0)
    await add(source, *(NewJob(name="n") for _ in range(3)))
    await source.configure("q", [SetMaxWaiting(900), SetRateLimit(rate)])
    await settle(source, (await claim_one(source)).lease)
    clock.advance(10)
    before = await source.configure("q", [])

    await carried(source, target)

    assert await target.configure("q", []) == before
    assert (await source.configure("q", [])).paused
    assert await source.transfers.destination("q") == await target.transfers.store_id()
    (added,) = await add(target, NewJob(name="new"))
    assert int(added.id) > 3 + HEADROOM, "there may still come some from the source"
    taken = await claim(target, 10)
    assert len(taken.jobs) == 3, "of five in a minute, one has started there"
    assert taken.jobs[0].fence == 2, "fences go on"


async def test_a_pause_is_carried_and_what_the_target_sets_later_is_not_undone(ends: tuple[Store, Store]) -> None:
    source, target = ends
    await add(source, NewJob(name="a"))
    await source.configure("q", [Pause(), SetConcurrency(3)])

    await carried(source, target)
    assert (await target.configure("q", [])).paused
    await target.configure("q", [Resume(), SetConcurrency(4)])
    await add(source, NewJob(name="late"))
    await carried(source, target)

    after = await target.configure("q", [])
    assert (after.paused, after.concurrency) == (False, 4)
    assert len((await claim(target)).jobs) == 2


async def test_what_comes_back_goes_on_where_it_was(ends: tuple[Store, Store]) -> None:
    source, target = ends
    await add(source, NewJob(name="a"))
    await carried(source, target)

    await carried(target, source)

    assert not (await source.configure("q", [])).paused
    assert await source.transfers.destination("q") is None
    assert ids((await claim(source)).jobs) == ["1"]


async def test_groups_keep_their_turns_limits_and_pauses(ends: tuple[Store, Store]) -> None:
    source, target = ends
    await source.configure("q", [SetGroups(GroupLimits(concurrency=1))])
    for name in ("a", "b", "a", "c", "a"):
        await add(source, NewJob(name=name, group=name, attempts=2))
    await source.groups.set("q", SetGroup(name="c", paused=True, limits=GroupLimits(weight=3)))
    first = await claim_one(source)
    await carried(source, target)
    assert await records(target) == {}, "while something runs nothing leaves that may have to wait for it"
    await settle(source, first.lease, Retried(WHY, 0))

    await carried(source, target)

    await sound(target, "q")
    started = (await claim(target)).jobs
    assert sorted(each.name for each in started) == ["a", "b"], "one of each that is not paused"
    assert next(each.lease.id for each in started if each.name == "a") == first.lease.id, "the oldest of its group"
    stopped = await target.groups.get("q", "c")
    assert (stopped.paused, stopped.own.weight, stopped.limits.concurrency, stopped.waiting) == (True, 3, 1, 1)
    assert (await target.groups.get("q", "a")).waiting + (await target.groups.get("q", "a")).running == 3


async def test_a_key_goes_with_its_owner(ends: tuple[Store, Store], clock: ManualClock) -> None:
    source, target = ends
    await add(source, NewJob(name="n", dedup=Dedup("open")), NewJob(name="n", dedup=Dedup("timed", 60.0, "extend")))
    await add(source, NewJob(name="gone", dedup=Dedup("throttle", 60.0), lifo=True))
    await settle(source, (await claim_one(source)).lease)
    await add(source, NewJob(name="last", attempts=2, dedup=Dedup("last", mode="keep_last"), lifo=True))
    runs = await claim_one(source)
    trace, due = '{"traceparent": "00-ab-cd-01"}', clock.now() + 5000
    await add(source, NewJob(name="kept", data='"kept"', due=due, trace=trace, dedup=Dedup("last", mode="keep_last")))
    await settle(source, runs.lease, Retried(WHY, 0))

    await carried(source, target)

    keys = [Dedup("open"), Dedup("timed", 60.0, "extend"), Dedup("throttle", 60.0)]
    answers = await add(target, *(NewJob(name="n", dedup=key) for key in keys))
    assert [answer.outcome for answer in answers] == ["deduplicated"] * 3
    for each in (await claim(target)).jobs:
        await settle(target, each.lease)
    assert (await claim(target)).jobs == ()
    clock.advance(5000)
    (following,) = (await claim(target)).jobs
    assert (following.name, following.data, following.trace) == ("kept", '"kept"', trace)
    clock.advance(56_000)
    answers = await add(target, *(NewJob(name="n", dedup=key) for key in keys))
    assert [answer.outcome for answer in answers] == ["added"] * 3


def node(name: str, queue: str, under: str | None = None, **options: object) -> FlowNode:
    ref = None if under is None else JobRef("p", under)
    policy = OnFailure(str(options.pop("on_failure", "fail")))
    new = new_job(name, id=name, **options)
    return FlowNode(queue=queue, job=new, parent=ref, waits=queue == "p", on_failure=policy)


async def test_a_family_leaves_together_and_goes_on_together(ends: tuple[Store, Store]) -> None:
    source, target = ends
    await source.flows.add(
        [node("top", "p"), node("mid", "p", "top"), node("a", "q", "mid"), node("b", "q", "top", attempts=2)]
    )
    await settle(source, (await claim_one(source)).lease, Completed('"a"'))
    await settle(source, (await claim_one(source, queue="p")).lease, Rested())
    running = await claim_one(source)
    assert running.lease.id == "b"
    await carried(source, target, "q", "p")
    assert await records(target, "p") == {}, "one of them runs"
    await settle(source, running.lease, Retried(WHY, 0))

    await carried(source, target, "q", "p")

    for store in ends:
        await sound(store, "q", "p")
    children = {each.ref.id: each.state for each in (await target.flows.children(JobRef("p", "top"))).items}
    assert children == {"mid": ChildState.OPEN, "b": ChildState.OPEN}
    assert (await target.flows.children(JobRef("p", "mid"))).items[0].text == '"a"'
    await settle(target, (await claim_one(target)).lease, Completed('"b"'))
    await settle(target, (await claim_one(target, queue="p")).lease, Completed('"mid"'))
    top = await claim_one(target, queue="p")
    assert top.lease.id == "top"
    texts = {each.ref.id: each.text for each in (await target.flows.children(JobRef("p", "top"))).items}
    assert texts == {"mid": '"mid"', "b": '"b"'}


async def test_a_flow_that_is_still_being_added_stays(ends: tuple[Store, Store]) -> None:
    source, target = ends
    top = JobRef("p", "top")
    await source.flows.add([node("top", "p"), node("a", "q", "top")], held=[top])

    await carried(source, target, "q", "p")
    assert await records(target, "q") == {}
    await source.flows.add([node("b", "q", "top")], closed=[top])
    await carried(source, target, "q", "p")

    assert set(await records(target, "q")) == {"a", "b"}
    assert (await target.flows.child_counts(top)).open == 2


async def test_a_letter_that_is_waited_for_leaves_with_who_waits(ends: tuple[Store, Store]) -> None:
    source, target = ends
    await source.flows.add([node("top", "p"), node("a", "q", "top", on_failure="wait")])
    await settle(source, (await claim_one(source)).lease, Failed(WHY))
    assert await packed(source, target, TransferPart.LETTERS, "") is None

    loads = await carried(source, target, "q", "p")

    (together,) = [load for load in loads if any(isinstance(each, TransferDeadLetter) for each in load.items)]
    assert {type(each) for each in together.items} == {TransferDeadLetter, TransferJob}
    assert await target.prune("p") == 0, "nothing is taken for gone"
    assert (await target.dead_letters.replay("q", [Replay("q/a")])).done == ("q/a",)
    await settle(target, (await claim_one(target)).lease, Completed('"better"'))
    assert (await claim_one(target, queue="p")).lease.id == "top"


LETTER = replace(FULL.options, keep_failed=Keep(0))


async def test_dead_letters_arrive_whole_and_can_be_replayed(ends: tuple[Store, Store], clock: ManualClock) -> None:
    source, target = ends
    await add(source, replace(FULL, attempts=1, expires=None, trace=None, options=LETTER), NewJob(name="two"))
    await add(source, NewJob(name="grouped", data="no json {", group="g"))
    for each in (await claim(source)).jobs:
        await settle(source, each.lease, Failed(WHY))
        clock.advance(7)
    before = (await source.dead_letters.page()).items
    assert len(before) == 3

    await carried(source, target)

    assert (await target.dead_letters.page()).items == before
    assert await source.dead_letters.count() == 0
    assert (await target.dead_letters.replay("q", [Replay(each.id) for each in before])).refused == ()
    assert {each.name for each in (await claim(target)).jobs} == {"greet", "two", "grouped"}
    await sound(target, "q")


async def test_the_log_the_errors_and_the_flow_of_a_letter_go_with_it(
    ends: tuple[Store, Store], clock: ManualClock
) -> None:
    source, target = ends
    await source.flows.add([node("top", "p"), node("bad", "q", "top", attempts=2)])
    for outcome in (Retried(Failure("once", "E", "here")), Failed(WHY)):
        lease = (await claim_one(source)).lease
        await source.report("q", [Progress(lease, "7"), LogLine(lease, "en rad")])
        await settle(source, lease, outcome)
        clock.advance(10)
    await claim(source, queue="p")
    letters = (await source.dead_letters.page()).items
    errors = await source.errors("q", "bad", where="dead_letters")
    children = (await source.flows.children(JobRef("p", "top"), where="dead_letters")).items
    assert (len(letters), len(errors), len(children)) == (2, 2, 1)

    await carried(source, target, "q", "p")

    assert (await target.dead_letters.page()).items == letters
    assert await target.errors("q", "bad", where="dead_letters") == errors
    assert (await target.logs("q", "bad", where="dead_letters")).items == ("en rad", "en rad")
    assert (await target.flows.children(JobRef("p", "top"), where="dead_letters")).items == children
    assert (await source.logs("q", "bad", where="dead_letters")).items == ()
    assert (await source.flows.child_counts(JobRef("p", "top"), where="dead_letters")).total == 0
    assert (await target.dead_letters.replay("p", [Replay("p/top")])).done == ("q/bad", "p/top")
    assert (await target.logs("q", "bad")).items == ("en rad", "en rad")


async def test_the_errors_of_its_attempts_go_with_a_job(ends: tuple[Store, Store]) -> None:
    source, target = ends
    await add(source, NewJob(name="n", attempts=5))
    for n in range(3):
        await settle(source, (await claim_one(source)).lease, Retried(Failure(f"no {n}", "E", f"here {n}")))
    before = await source.errors("q", "1")
    assert [each.attempt for each in before] == [1, 2, 3]

    await carried(source, target)

    assert await target.errors("q", "1") == before
    await settle(target, (await claim_one(target)).lease, Failed(WHY))
    assert (await target.errors("q", "1", where="dead_letters"))[:3] == before


async def test_a_job_that_arrives_under_the_number_of_a_letter_leaves_that_alone(ends: tuple[Store, Store]) -> None:
    source, target = ends
    await add(target, NewJob(name="n"))
    lease = (await claim_one(target)).lease
    await target.report("q", [LogLine(lease, "the letter's")])
    await settle(target, lease, Failed(WHY))
    await add(source, NewJob(name="n", attempts=2))
    lease = (await claim_one(source)).lease
    await source.report("q", [LogLine(lease, "the job's")])
    await settle(source, lease, Retried(WHY, 90_000))

    await carried(source, target)

    assert (await target.logs("q", "1")).items == ("the job's",)
    assert (await target.logs("q", "1", where="dead_letters")).items == ("the letter's",)


async def test_schedules_go_on_without_a_slot_twice_or_left_out(ends: tuple[Store, Store], clock: ManualClock) -> None:
    source, target = ends
    start = clock.now() // MINUTE * MINUTE + MINUTE
    tick = Schedule(
        id="tick", job=NewJob(name="n", data='{"v": 1}', priority=2, attempts=2), every=MINUTE, overlap=Overlap.SKIP,
        owner="jobs",
    )  # fmt: skip
    await source.schedules.put("q", tick, start, expects=None)
    still = Schedule(id="still", job=NewJob(name="s"), cron="0 2 * * *", tz="Europe/Berlin")
    await source.schedules.put("q", still, start + 60 * MINUTE, expects=None)
    await source.schedules.pause("q", "still")
    clock.advance(MINUTE)
    first = await claim_one(source)
    await source.schedules.advance("q", "tick", since=start, to=start + MINUTE, started=first.lease.id)
    await carried(source, target)
    assert (await target.schedules.get("q", "tick")).view is None, "its run is still running"
    await settle(source, first.lease, Retried(WHY, 5_000))
    before = (await source.schedules.get("q", "tick")).view
    assert before is not None
    assert (before.busy, before.schedule.owner) == (True, "jobs")

    await carried(source, target)

    assert (await source.schedules.page("q")).items == ()
    assert (await target.schedules.get("q", "tick")).view == before, "even that the last run has not ended"
    paused = (await target.schedules.get("q", "still")).view
    assert paused is not None
    assert (paused.paused, paused.schedule) == (True, still)
    assert set(await records(target)) == {run_id("tick", start), run_id("tick", start + MINUTE)}
    clock.advance(MINUTE)
    assert sorted(ids((await claim(target)).jobs)) == [run_id("tick", start), run_id("tick", start + MINUTE)]


async def test_a_schedule_that_is_declared_again_where_it_left_is_dropped(
    ends: tuple[Store, Store], clock: ManualClock
) -> None:
    source, target = ends
    slot = clock.now() + 5 * MINUTE
    tick = Schedule(id="tick", job=NewJob(name="n"), every=MINUTE)
    await target.schedules.put("q", tick, slot + MINUTE, expects=None)  # by a worker that is there already
    await source.schedules.put("q", tick, slot, expects=None)
    await carried(source, target)
    assert set(await records(target)) == {run_id("tick", slot)}

    await source.schedules.put("q", tick, slot + 9 * MINUTE, expects=None)
    await carried(source, target)

    assert await records(source) == {}
    assert (await source.schedules.page("q")).items == ()
    assert set(await records(target)) == {run_id("tick", slot)}


async def test_a_schedule_that_was_changed_in_the_target_stays_as_it_is_there(
    ends: tuple[Store, Store], clock: ManualClock
) -> None:
    source, target = ends
    slot = clock.now() + 5 * MINUTE
    await source.schedules.put("q", Schedule(id="tick", job=NewJob(name="n"), every=MINUTE), slot, expects=None)
    newer = Schedule(id="tick", job=NewJob(name="n"), every=2 * MINUTE)
    await target.schedules.put("q", newer, slot + MINUTE, expects=None)

    await carried(source, target)

    view = (await target.schedules.get("q", "tick")).view
    assert view is not None
    assert (view.schedule.every, view.slot) == (2 * MINUTE, slot + MINUTE)
    assert await records(source) == {}


async def figures(store: Store) -> tuple[object, ...]:
    (found,) = (await store.metrics.snapshot(["q"], MetricsWindow(60, 3, 240))).queues
    totals = (found.completed_total, found.failed_total, (await store.queue("q")).cancelled_total)
    return *totals, found.minutes, found.slices, found.total


async def test_records_figures_and_results_are_added_up(ends: tuple[Store, Store], clock: ManualClock) -> None:
    source, target = ends
    for n in range(6):
        await add(source, NewJob(name=f"n{n}", id=f"j{n}", options=JobOptions(result_ttl=10 * MINUTE)))
        clock.advance(MINUTE // 2 + 100 * n)
        taken = await claim_one(source)
        clock.advance(50 * n)
        await settle(source, taken.lease, Failed(WHY) if n % 3 == 2 else Completed(f'"r{n}"'))
    await add(source, NewJob(name="not", id="not"))
    await source.cancel("q", ["not"], reason="not wanted")
    before = await figures(source)
    runs = {ending: (await source.runs("q", ending, limit=50)).items for ending in RunStatus}
    await carried(source, target)
    assert await figures(target) == before
    assert {ending: (await target.runs("q", ending, limit=50)).items for ending in RunStatus} == runs
    (ended,) = await target.finished("q", ["j1"], timeout=0)
    assert ended.ended == Completed('"r1"')

    await add(target, NewJob(name="there"))
    await settle(target, (await claim_one(target)).lease)
    clock.advance(1)
    await add(source, NewJob(name="late"), NewJob(name="not", id="nor"))
    await source.cancel("q", ["nor"], reason="not wanted")
    await carried(source, target)
    await settle(target, (await claim_one(target)).lease)

    assert (await figures(target))[:3] == (6, 2, 2)
    names = [run.name for run in (await target.runs("q", RunStatus.COMPLETED, limit=50)).items]
    assert names == ["late", "there", "n4", "n3", "n1", "n0"]
    assert [run.id for run in (await target.runs("q", RunStatus.CANCELLED)).items] == ["nor", "not"]
    assert (await figures(source))[:3] == (0, 0, 0)


async def every_end(store: Store, clock: ManualClock) -> None:
    """One job for each way in which a job may end, of queue `q`; the records have some of their values only."""
    await add(store, NewJob(name="done", id="done", options=JobOptions(subject="acme")), NewJob(name="bad", id="bad"))
    good, bad = (await claim(store)).jobs
    await settle(store, good.lease, Completed('"r"'))
    await settle(store, bad.lease, Failed(WHY))
    clock.advance(1)
    await add(store, NewJob(name="asked", id="asked", options=JobOptions(subject="acme")))
    await settle(store, (await claim_one(store)).lease, Cancelled("asked to stop"))
    await add(store, NewJob(name="late", id="late", expires=10))
    clock.advance(20)
    assert (await claim(store)).jobs == ()
    await add(store, NewJob(name="stuck", id="stuck"))
    await claim(store, lease=10)
    clock.advance(20)
    await store.recover("q", cause="signal 9")
    await claim(store, lease=10, alone=True)
    clock.advance(20)
    await store.recover("q", cause="signal 9")
    await add(
        store,
        NewJob(name="unstarted", id="unstarted", delay=5000),
        NewJob(name="gone", id="gone", options=JobOptions(subject="x")),
    )
    await store.cancel("q", ["unstarted", "gone"], reason="not wanted")
    clock.advance(1)
    top = FlowNode(queue="q", job=NewJob(name="top", id="top"), parent=None, waits=True)
    child = FlowNode(queue="other", job=NewJob(name="child", id="child"), parent=JobRef("q", "top"))
    await store.flows.add([top, child])
    await settle(store, (await claim_one(store, queue="other")).lease, Failed(WHY))
    clock.advance(1)
    assert (await claim(store)).jobs == (), "the parent fails instead"


async def test_how_jobs_ended_reads_alike_wherever_it_was_moved(ends: tuple[Store, Store], clock: ManualClock) -> None:
    source, target = ends
    await every_end(source, clock)
    runs = {ending: (await source.runs("q", ending)).items for ending in RunStatus}
    (child,) = others = (await source.runs("other", RunStatus.FAILED)).items
    assert (child.id, child.parent) == ("child", JobRef("q", "top"))
    causes = {
        run.id: run.cause.value for ending in RunStatus for run in runs[ending] if ending is not RunStatus.COMPLETED
    }
    assert causes == {
        "bad": "failed", "asked": "cancelled", "late": "expired", "stuck": "stalled", "unstarted": "cancelled",
        "gone": "cancelled", "top": "failed",
    }  # fmt: skip
    assert {run.cause.value for run in runs[RunStatus.CANCELLED]} == {"cancelled"}
    unstarted = {run.id for ending in RunStatus for run in runs[ending] if run.started_at is None}
    assert unstarted == {"late", "unstarted", "gone", "top"}
    letters = (await source.dead_letters.page()).items
    ended = [each.ended for each in await source.finished("q", [*causes, "done"], timeout=0)]

    for one, two in ((source, target), (target, source), (source, target)):  # records that came are moved on
        await carried(one, two, "q", "other")

        assert {ending: (await two.runs("q", ending)).items for ending in RunStatus} == runs
        assert (await two.runs("other", RunStatus.FAILED)).items == others
        assert (await two.dead_letters.page()).items == letters
        assert [each.ended for each in await two.finished("q", [*causes, "done"], timeout=0)] == ended
    for ending in (RunStatus.FAILED, RunStatus.CANCELLED):
        page = await target.runs("q", ending, limit=2)
        rest = await target.runs("q", ending, cursor=page.cursor)
        assert page.items + rest.items == runs[ending], "page by page"


@pytest.mark.parametrize("engine", ["redis"], indirect=True)  # the other engines wrote them rightly
async def test_records_that_an_older_move_has_written_can_be_read_and_moved_on(
    engine: RedisEngine, other: Store, clock: ManualClock
) -> None:
    await every_end(engine, clock)
    runs = {ending: (await engine.runs("q", ending)).items for ending in RunStatus}
    holes = (  # as it was written before: what there is none of was left out
        "local all = redis.call('LRANGE', KEYS[1], 0, -1) redis.call('DEL', KEYS[1])"
        "for i = 1, #all do local run = cmsgpack.unpack(all[i])"
        " for n = 1, 13 do if run[n] == false and n ~= 12 then run[n] = nil end end"
        " redis.call('RPUSH', KEYS[1], cmsgpack.pack(run)) end"
    )
    for key in ("runs_failed", "runs_cancelled"):
        await tell(engine, "EVAL", holes, 1, f"bull:q:{KEYS[key]}")

    assert {ending: (await engine.runs("q", ending)).items for ending in RunStatus} == runs
    await carried(engine, other, "q", "other")
    assert {ending: (await other.runs("q", ending)).items for ending in RunStatus} == runs


async def test_records_of_both_are_kept_by_their_time(ends: tuple[Store, Store], clock: ManualClock) -> None:
    source, target = ends
    for name, store in (("1", source), ("2", target), ("3", source), ("4", target)):
        await add(store, NewJob(name=name, id=f"job-{name}"))
        await settle(store, (await claim_one(store)).lease)
        clock.advance(70_000)

    await carried(source, target)

    assert [run.name for run in (await target.runs("q", RunStatus.COMPLETED)).items] == ["4", "3", "2", "1"]
    minutes = (await target.metrics.minutes("q", minutes=10)).completed
    assert (sum(minutes), max(minutes)) == (4, 1)


async def test_what_belongs_to_the_whole_store_comes_too(ends: tuple[Store, Store]) -> None:
    source, target = ends
    terms = CircuitTerms(failures=2, window=300_000, pause=60_000, probes=1)
    await source.dead_letters.keep(Keep(7, 3600.0))
    for holder in ("a", "b"):
        await source.circuits.record("host", terms, holder, CircuitSample.BAD)
    before = await source.circuits.list()

    await carried(source, target)

    assert await target.circuits.list() == before
    assert await source.circuits.list() == []
    assert await target.dead_letters.keep(None) == Keep(7, 3600.0)


async def test_a_whole_move_leaves_nothing_behind(ends: tuple[Store, Store], clock: ManualClock) -> None:
    source, target = ends
    await add(source, *(NewJob(name="n", data=f"{n}") for n in range(20)))
    await source.flows.add([node("top", "p"), node("a", "q", "top")])
    await source.schedules.put(
        "p", Schedule(id="s", job=NewJob(name="s"), every=MINUTE), clock.now() + 1, expects=None
    )  # fmt: skip
    mover = Transfer(source, target, clock)
    outlook = await mover.outlook()
    assert outlook.queues == {"p": (1, 0, 1), "q": (21, 0, 0)}
    assert (outlook.letters, outlook.clashes, outlook.jobs) == (0, (), 22)

    moved = await mover.move()

    assert (moved.jobs, moved.schedules, moved.left, moved.taken) == (22, 1, 0, [])
    assert len(await records(target)) == 21
    assert len(await records(target, "p")) == 2
    again = await Transfer(source, target, clock).move()
    assert (again.jobs, again.schedules) == (0, 0)


async def test_a_move_that_would_mix_up_jobs_is_refused_before_it_begins(ends: tuple[Store, Store]) -> None:
    source, target = ends
    await add(source, NewJob(name="a"))
    await add(target, NewJob(name="b"))

    assert (await Transfer(source, target, ManualClock()).outlook()).clashes == (JobRef("q", "1"),)
    with pytest.raises(WrongState, match="both stores have a job '1' of queue 'q'"):
        await Transfer(source, target, ManualClock()).move()
    assert not (await source.configure("q", [])).paused


async def test_a_letter_of_a_number_that_the_target_has_a_letter_of_is_not_dropped(ends: tuple[Store, Store]) -> None:
    for store, why in zip(ends, ("here", "there"), strict=True):
        await add(store, NewJob(name=why))
        await settle(store, (await claim_one(store)).lease, Failed(WHY))
    source, target = ends

    with pytest.raises(WrongState, match="both stores have a job '1' of queue 'q', or its dead letter"):
        await Transfer(source, target, ManualClock()).move()

    assert [(await store.dead_letters.page()).items[0].name for store in ends] == ["here", "there"]


async def test_a_schedule_leaves_again_for_a_second_target(ends: tuple[Store, Store], clock: ManualClock) -> None:
    source, first = ends
    tick = Schedule(id="tick", job=NewJob(name="n"), every=MINUTE)
    slot = clock.now() + MINUTE
    await source.schedules.put("q", tick, slot, expects=None)
    await carried(source, first)
    await source.schedules.put("q", tick, slot + MINUTE, expects=None)  # the first target was given up

    second = SqliteEngine(parse("memory://"), clock=clock)
    await second.open()
    try:
        await carried(source, second)
        assert set(await records(second)) == {run_id("tick", slot + MINUTE)}
    finally:
        await second.close()
