"""Resting: where a job stands meanwhile, what it gives up, what wakes it, and what it is spared."""

from itertools import count
from typing import Any

import pytest

from tests.conformance.dumps import dump
from tests.conformance.jobs import LEASE, add, claim, claim_one, ids, job, new_job, settle
from tests.conformance.stepping import (
    WHY,
    all_rows,
    at_rest,
    called,
    child,
    resting,
    row,
    rows_of,
    running,
    sleep,
    steps_of,
    wait,
    write,
)
from toril.codec.steps import load_rest
from toril.errors import QueueFull
from toril.model import (
    KEEP_ALL,
    MAX_DELAY,
    MAX_STEP_BYTES,
    AddOutcome,
    Call,
    Claim,
    Claimed,
    Completed,
    Dedup,
    EventKind,
    Failed,
    FlowNode,
    GroupLimits,
    JobRef,
    Lease,
    NewJob,
    OnFailure,
    Outcome,
    RateLimit,
    Rest,
    Rested,
    RestReason,
    RestRow,
    Retried,
    Schedule,
    SetConcurrency,
    SetData,
    SetDelay,
    SetGroups,
    SetMaxWaiting,
    SetPriority,
    SetRateLimit,
    Settlement,
    SignalWait,
    StepKind,
    Verdict,
)
from toril.model.states import State
from toril.store.engine import Store
from toril.testing import ManualClock

MB = 1024 * 1024
_senders = count(1)


async def events(engine: Store, job_id: str, queue: str = "q") -> list[tuple[EventKind, str | None]]:
    """What happened to a job since it was claimed last."""
    found = [
        (each.kind, each.detail.get("prev"))
        for each in (await engine.events(queue)).items
        if each.job_id == job_id
    ]  # fmt: skip
    last = max(place for place, (kind, _) in enumerate(found) if kind is EventKind.ACTIVE)
    return found[last + 1 :]


@pytest.mark.covers("R271")
async def test_a_job_that_rests_holds_nothing(step_engine: Store, clock: ManualClock) -> None:
    lease = (await running(step_engine)).lease

    found = await resting(step_engine, lease, sleep("s", 1_000))

    until = clock.now() + 1_000
    assert (found.state, found.due, found.delay, found.deadline) == (State.DELAYED, until, 0, None)
    assert load_rest(found.rest) == RestRow(clock.now(), until, (RestReason("s", StepKind.SLEEP, until),))
    counts = await step_engine.counts("q")
    assert (counts.active, counts.delayed, counts.resting) == (0, 1, 1)
    assert await events(step_engine, lease.id) == [(EventKind.DELAYED, None)]
    clock.advance(LEASE)
    assert (await step_engine.recover("q")).taken_back == ()
    assert await settle(step_engine, lease) is Verdict.LOST


async def test_resting_spends_no_attempt_and_forgives_stalls(step_engine: Store, clock: ManualClock) -> None:
    lease = (await running(step_engine, attempts=3)).lease
    await settle(step_engine, lease, Retried(WHY))
    await claim_one(step_engine)
    clock.advance(LEASE)
    await step_engine.recover("q")
    suspect = await claim_one(step_engine, alone=True)
    assert (suspect.suspect, suspect.stalls, suspect.starts) == (True, 1, 3)

    found = await resting(step_engine, suspect.lease, sleep("s", 10))
    assert (found.attempts_made, found.stalls, found.starts, found.failure) == (1, 0, 3, WHY)
    clock.advance(10)

    woken = await claim_one(step_engine)
    assert (woken.suspect, woken.stalls, woken.starts, woken.attempts_made) == (False, 0, 4, 1)
    assert woken.fence > suspect.fence


async def test_a_sleeper_wakes_when_its_time_has_come_and_not_before(step_engine: Store, clock: ManualClock) -> None:
    lease = (await running(step_engine)).lease
    await resting(step_engine, lease, sleep("s", 1_000))

    clock.advance(999)
    early = await claim(step_engine)
    assert (early.jobs, early.wake_at) == ((), clock.now() + 1)
    clock.advance(1)
    woken = await claim_one(step_engine)

    assert rows_of(woken) == ["s"]
    found = await job(step_engine, lease.id)
    assert (found.state, found.rest) == (State.ACTIVE, None)
    assert (await step_engine.counts("q")).resting == 0


async def test_a_job_wakes_at_the_first_of_several_times(step_engine: Store, clock: ManualClock) -> None:
    lease = (await running(step_engine)).lease
    tries = Rest(key="t", kind=StepKind.RETRY, text='[1,"K","why"]', delay=300)

    found = await resting(step_engine, lease, sleep("s", 1_000), tries, wait("ok", delay=500), wait("no", key="x"))

    now = clock.now()
    assert found.due == now + 300
    assert load_rest(found.rest) == RestRow(now, now + 300, (
        RestReason("s", StepKind.SLEEP, now + 1_000),
        RestReason("t", StepKind.RETRY, now + 300),
        RestReason("w", StepKind.WAIT, now + 500, (SignalWait("ok"),)),
        RestReason("x", StepKind.WAIT, None, (SignalWait("no"),)),
    ))  # fmt: skip
    assert await all_rows(step_engine, lease.id) == {
        "s": f"z 1 {now} 0 - 0.0 {now + 1_000}",
        "t": f't 2 {now} 0 - 0.0 {now + 300} [1,"K","why"]',
        "w": f'p 3 {now} 0 - 0.0 {now + 500} [["ok",null]]',
        "x": f'p 4 {now} 0 - 0.0 - [["no",null]]',
    }


async def test_a_wait_without_a_timeout_is_due_in_ten_years(step_engine: Store, clock: ManualClock) -> None:
    lease = (await running(step_engine)).lease

    found = await resting(step_engine, lease, wait("ok"))

    assert (found.state, found.due) == (State.DELAYED, clock.now() + MAX_DELAY)
    assert load_rest(found.rest) == RestRow(
        clock.now(), None, (RestReason("w", StepKind.WAIT, None, (SignalWait("ok"),)),)
    )


async def test_a_second_rest_for_the_same_key_ends_no_later(step_engine: Store, clock: ManualClock) -> None:
    lease = (await running(step_engine)).lease
    until = clock.now() + 1_000
    await resting(step_engine, lease, sleep("s", 1_000), sleep("other", 100))
    first = await row(step_engine, lease.id, "s")
    clock.advance(100)
    lease = (await claim_one(step_engine)).lease

    found = await resting(step_engine, lease, sleep("s", 1_000))

    assert found.due == until
    assert await row(step_engine, lease.id, "s") == first
    assert load_rest(found.rest) == RestRow(clock.now(), until, (RestReason("s", StepKind.SLEEP, until),))


async def test_a_recorded_rest_writes_nothing(step_engine: Store, clock: ManualClock) -> None:
    lease = (await running(step_engine)).lease
    await write(step_engine, lease, "t", "t", '[1,"K","why"]', delay=500)
    await write(step_engine, lease, "s", "z", "", delay=700)
    before, until = await all_rows(step_engine, lease.id), clock.now() + 500
    clock.advance(100)
    tries = Rest(key="t", kind=StepKind.RETRY, recorded=True)

    found = await resting(step_engine, lease, tries, sleep("s", recorded=True))

    assert await all_rows(step_engine, lease.id) == before
    assert found.due == until


async def test_tries_are_replaced_by_later_ones(step_engine: Store, clock: ManualClock) -> None:
    lease = (await running(step_engine)).lease
    await write(step_engine, lease, "t", "t", '[1,"K","why"]', delay=500)

    found = await resting(step_engine, lease, Rest(key="t", kind=StepKind.RETRY, text='[2,"K","why"]', delay=900))

    assert found.due == clock.now() + 900
    rows = await all_rows(step_engine, lease.id)
    assert rows == {"t": f't 2 {clock.now()} 0 - 0.0 {clock.now() + 900} [2,"K","why"]'}


@pytest.mark.parametrize("rest", [sleep("s", 0), sleep("gone", recorded=True), sleep("done", 500)])
async def test_what_is_over_already_is_not_rested_for(step_engine: Store, rest: Rest) -> None:
    """A time that has passed; a row that somebody has dropped; a row that says something else."""
    first, lease = (await running(step_engine)).lease, (await running(step_engine)).lease
    await add(step_engine, new_job("behind"))
    await write(step_engine, lease, "done")

    await settle(step_engine, first, Rested(rests=(sleep("s", 900),)))
    found = await resting(step_engine, lease, rest, wait("ok"))

    assert (found.state, found.rest) == (State.WAITING, None)
    assert await events(step_engine, lease.id) == [(EventKind.WAITING, "active")]
    assert ids((await claim(step_engine)).jobs)[0] == lease.id
    assert (await step_engine.counts("q")).resting == 1


async def test_a_job_that_waits_for_children_only_waits_for_children(step_engine: Store, clock: ManualClock) -> None:
    lease = (await running(step_engine)).lease

    found = await resting(step_engine, lease, children=[child("a", lease.id), child("b", lease.id)])

    assert found.state is State.WAITING_CHILDREN
    assert load_rest(found.rest) == RestRow(clock.now(), None, (), children=True)
    assert await at_rest(step_engine) == [lease.id]
    counts = await step_engine.counts("q")
    assert (counts.waiting_children, counts.delayed, counts.resting) == (1, 0, 1)
    await settle(step_engine, (await claim_one(step_engine, queue="c")).lease)
    assert (await job(step_engine, lease.id)).rest == found.rest
    await settle(step_engine, (await claim_one(step_engine, queue="c")).lease)
    woken = await job(step_engine, lease.id)
    assert (woken.state, woken.rest) == (State.WAITING, None)
    assert (await step_engine.counts("q")).resting == 0
    assert await events(step_engine, lease.id) == [
        (EventKind.WAITING_CHILDREN, "active"), (EventKind.WAITING, "waiting-children"),
    ]  # fmt: skip


async def test_a_called_job_and_a_sleep_are_rested_for_together(step_engine: Store, clock: ManualClock) -> None:
    lease = (await running(step_engine)).lease
    ref = JobRef("c", "a")
    found = await resting(step_engine, lease, called(ref), sleep("s", 500), children=[child("a", lease.id)])

    assert (found.state, found.due) == (State.DELAYED, clock.now() + 500)
    rest = load_rest(found.rest)
    assert rest is not None
    assert rest.children
    assert (await all_rows(step_engine, lease.id))["c"].endswith(' 0 - 0.0 [["c","a"]]')

    clock.advance(500)  # its time comes before its child has ended
    lease = (await claim_one(step_engine)).lease
    found = await resting(step_engine, lease, called(ref), sleep("later", 500))
    assert found.state is State.DELAYED
    await settle(step_engine, (await claim_one(step_engine, queue="c")).lease)  # and now the child is first
    woken = await job(step_engine, lease.id)
    assert (woken.state, woken.rest) == (State.WAITING, None)
    assert (await step_engine.counts("q")).resting == 0
    assert await events(step_engine, lease.id) == [(EventKind.DELAYED, None), (EventKind.WAITING, "delayed")]


async def test_a_job_whose_last_child_has_ended_does_not_rest_for_it(step_engine: Store) -> None:
    lease = (await running(step_engine)).lease
    ref = JobRef("c", "a")
    await step_engine.flows.add_children(lease, [child("a", lease.id)])
    await settle(step_engine, (await claim_one(step_engine, queue="c")).lease)

    found = await resting(step_engine, lease, called(ref), sleep("s", 500))

    assert (found.state, found.rest) == (State.WAITING, None)


async def test_a_called_child_that_fails_wakes_its_parent(step_engine: Store) -> None:
    lease = (await running(step_engine)).lease
    await resting(step_engine, lease, called(JobRef("c", "a")), wait("ok"), children=[child("a", lease.id)])

    await settle(step_engine, (await claim_one(step_engine, queue="c")).lease, Failed(WHY))

    assert (await claim_one(step_engine)).lease.id == lease.id


async def test_a_child_whose_failure_is_the_parents_ends_its_rest(step_engine: Store) -> None:
    lease = (await running(step_engine)).lease
    failing = child("a", lease.id, on_failure=OnFailure.FAIL)
    await resting(step_engine, lease, called(JobRef("c", "a")), sleep("s", 500), children=[failing])

    await settle(step_engine, (await claim_one(step_engine, queue="c")).lease, Failed(WHY))

    claimed = await claim(step_engine)
    assert [each.id for each in claimed.unstarted] == [lease.id]
    assert (await step_engine.counts("q")).resting == 0


async def test_a_parent_of_which_nothing_is_left_to_wait_for_is_woken(step_engine: Store, clock: ManualClock) -> None:
    lease = (await running(step_engine)).lease
    await resting(step_engine, lease, called(JobRef("c", "a")), wait("ok"), children=[child("a", lease.id)])

    await step_engine.remove("c", ["a"])

    assert (await claim_one(step_engine)).lease.id == lease.id


async def test_a_child_that_cannot_be_added_fails_the_job(step_engine: Store) -> None:
    other = (await running(step_engine, id="other")).lease
    await resting(step_engine, other, called(JobRef("c", "a")), children=[child("a", "other")])
    lease = (await running(step_engine, id="mine", keep_failed=KEEP_ALL)).lease

    found = await resting(step_engine, lease, called(JobRef("c", "a")), children=[child("a", "mine")])

    assert found.state is State.FAILED
    assert found.failure is not None
    assert found.failure.kind == "WrongState"


async def test_a_job_that_someone_wants_stopped_does_not_rest(step_engine: Store) -> None:
    lease = (await running(step_engine, keep_failed=KEEP_ALL)).lease
    await step_engine.cancel("q", [lease.id], reason="enough")

    found = await resting(step_engine, lease, sleep())

    assert found.state is State.FAILED
    assert found.failure is not None
    assert (found.failure.kind, found.rest) == ("JobCancelled", None)


async def test_without_the_lease_nothing_is_written(step_engine: Store) -> None:
    lease = (await running(step_engine)).lease
    other = (await running(step_engine, id="mine")).lease
    await settle(step_engine, other)
    before = await dump(step_engine)

    rested = Rested(rests=(sleep(), wait("ok", by="k")))
    assert await settle(step_engine, Lease("q", lease.id, "no"), rested) is Verdict.LOST
    assert await settle(step_engine, other, rested) is Verdict.MISSING
    assert await dump(step_engine) == before


async def test_an_exchange_that_is_sent_again_rests_once(step_engine: Store, clock: ManualClock) -> None:
    lease = (await running(step_engine)).lease
    call, nothing = Call(f"s-{next(_senders)}", 1), Claim(want=0, token="t", lease=LEASE, worker="w")
    batch = [Settlement(lease, Rested(rests=(sleep("s", 500), wait("ok", by="k"))))]
    first = await step_engine.exchange("q", batch, nothing, call=call)
    before = await dump(step_engine)
    clock.advance(10)

    assert (await step_engine.exchange("q", batch, nothing, call=call)).verdicts == first.verdicts == (Verdict.OK,)
    assert await dump(step_engine) == before


async def test_several_that_rest_in_one_exchange(step_engine: Store, clock: ManualClock) -> None:
    leases = [(await running(step_engine)).lease for _ in range(5)]
    await add(step_engine, new_job("behind"))
    outcomes: list[Outcome] = [
        Rested(rests=(sleep("s", 0),)), Completed(), Rested(rests=(sleep("s", 500),)), Rested(rests=(sleep("s", 0),)),
        Rested((child("a", leases[4].id),), 1, (called(JobRef("c", "a")),)),
    ]  # fmt: skip
    batch = [Settlement(lease, outcome) for lease, outcome in zip(leases, outcomes, strict=True)]

    answer = await step_engine.exchange("q", batch, Claim(want=9, token="t", lease=LEASE, worker="w"))

    assert answer.verdicts == (Verdict.OK,) * 5
    assert ids(answer.jobs) == [leases[0].id, leases[3].id, "6"]
    assert await at_rest(step_engine) == [leases[2].id, leases[4].id]


async def test_a_job_whose_rows_have_no_room_fails_and_keeps_them(step_engine: Store) -> None:
    lease = (await running(step_engine)).lease
    for n in range(MAX_STEP_BYTES // MB - 1):
        await write(step_engine, lease, f"k{n}", text="1" * MB)
    await write(step_engine, lease, "last", text="1" * (MB - 1_000))
    before = await all_rows(step_engine, lease.id)

    await settle(step_engine, lease, Rested(rests=(wait("ok", key="x" * 500), wait("o" * 100, key="y" * 500))))

    (letter,) = (await step_engine.dead_letters.page()).items
    assert (letter.job_id, letter.failure.kind) == (lease.id, "StepsTooLarge")
    assert "16 MB" in letter.failure.reason
    kept = await all_rows(step_engine, lease.id, where="dead_letters")
    assert {key: kept[key] for key in before} == before


async def test_promoting_a_sleeper_ends_its_sleeps_and_retries_and_not_its_waits(
    step_engine: Store, clock: ManualClock
) -> None:
    lease = (await running(step_engine)).lease
    tries = Rest(key="t", kind=StepKind.RETRY, text='[1,"K","why"]', delay=5_000)
    await resting(step_engine, lease, sleep("s", 4_000), tries, wait("ok", delay=3_000), sleep("over", 10))
    clock.advance(10)
    lease = (await claim_one(step_engine)).lease
    await resting(step_engine, lease, sleep("s", 4_000), Rest(key="t", kind=StepKind.RETRY, recorded=True), wait("ok"))
    before = {key: await row(step_engine, lease.id, key) for key in ("s", "t", "w", "over")}
    clock.advance(100)

    assert (await step_engine.promote("q", [lease.id])).done == (lease.id,)

    now = clock.now()
    for key, was in before.items():
        found = await row(step_engine, lease.id, key)
        assert was is not None
        assert found is not None
        assert (found.seq, found.at, found.text, found.kind) == (was.seq, was.at, was.text, was.kind)
        assert found.until == (now if key in "st" else was.until)
    woken = await job(step_engine, lease.id)
    assert (woken.state, woken.rest) == (State.WAITING, None)
    assert (await step_engine.counts("q")).resting == 0
    assert (await claim_one(step_engine)).lease.id == lease.id


async def test_a_snoozed_job_is_not_taken_for_one_that_rests(step_engine: Store, clock: ManualClock) -> None:
    lease = (await running(step_engine, attempts=3)).lease
    await resting(step_engine, lease, sleep("s", 10))
    clock.advance(10)
    lease = (await claim_one(step_engine)).lease
    await settle(step_engine, lease, Retried(WHY, 500))

    found = await job(step_engine, lease.id)

    assert (found.state, found.rest) == (State.DELAYED, None)
    assert await at_rest(step_engine) == []
    assert (await step_engine.counts("q")).resting == 0


async def test_a_job_that_rests_is_cancelled_at_once(step_engine: Store) -> None:
    keeps: list[dict[str, Any]] = [{}, {"keep_failed": KEEP_ALL}]
    for keep in keeps:
        lease = (await running(step_engine, **keep)).lease
        await resting(step_engine, lease, wait("ok", by="k"), sleep())

        assert (await step_engine.cancel("q", [lease.id], reason="enough")).done == (lease.id,)

        counts = await step_engine.counts("q")
        assert (counts.delayed, counts.resting, counts.failed) == (0, 0, len(keep))
        assert sorted(await all_rows(step_engine, lease.id)) == (["s", "w"] if keep else [])
        other = (await running(step_engine)).lease
        found = await resting(step_engine, other, wait("ok", by="k"))  # the key is free again
        assert found.state is State.DELAYED
        await step_engine.remove("q", [other.id])


async def test_a_job_that_waits_for_children_is_cancelled_at_once(step_engine: Store) -> None:
    lease = (await running(step_engine)).lease
    await resting(step_engine, lease, children=[child("a", lease.id)])

    await step_engine.cancel("q", [lease.id], reason="enough")

    counts = await step_engine.counts("q")
    assert (counts.waiting_children, counts.resting) == (0, 0)


async def test_drain_and_clean_leave_jobs_that_rest(step_engine: Store, clock: ManualClock) -> None:
    for n in range(3):
        lease = (await running(step_engine)).lease
        await resting(step_engine, lease, sleep("s", 100 + n))
    await add(step_engine, *(new_job("later", delay=10_000 + n) for n in range(3)))
    clock.advance(50)

    drained = await step_engine.drain("q", states=frozenset({State.DELAYED}), limit=2)
    cleaned = await step_engine.clean("q", state=State.DELAYED, grace=0, limit=2)

    assert (drained.ids, drained.more) == (("4", "5"), True)
    assert (cleaned.ids, cleaned.more) == (("6",), False)
    assert await at_rest(step_engine) == ["1", "2", "3"]
    await step_engine.remove("q", ["2"])
    assert await at_rest(step_engine) == ["1", "3"]
    await step_engine.obliterate("q")
    assert await at_rest(step_engine) == []
    assert await all_rows(step_engine, "1") == {}


async def test_the_time_of_a_rest_cannot_be_changed_by_hand(step_engine: Store, clock: ManualClock) -> None:
    lease = (await running(step_engine)).lease
    before = await resting(step_engine, lease, sleep("s", 500))

    refused = await step_engine.update("q", [SetDelay(lease.id, 5)])
    changed = await step_engine.update("q", [SetPriority(lease.id, 7), SetData(lease.id, "[1]")])

    assert [(each.id, each.state) for each in refused.refused] == [(lease.id, State.DELAYED)]
    assert changed.done == (lease.id, lease.id)
    found = await job(step_engine, lease.id)
    assert (found.due, found.rest, found.priority, found.data) == (before.due, before.rest, 7, "[1]")
    clock.advance(500)
    assert (await claim_one(step_engine)).priority == 7


@pytest.mark.parametrize("mode", ["drop", "extend", "replace", "reschedule", "keep_last"])
async def test_a_job_that_rests_owns_its_key_as_a_running_one_does(
    step_engine: Store, clock: ManualClock, mode: str
) -> None:
    dedup = Dedup("k", 60 if mode == "extend" else None, mode)  # type: ignore[arg-type]
    lease = (await running(step_engine, dedup=dedup)).lease
    before = await resting(step_engine, lease, sleep("s", 500))

    (answer,) = await add(step_engine, new_job("second", dedup=dedup))

    assert (answer.id, answer.outcome) == (lease.id, AddOutcome.DEDUPLICATED)
    found = await job(step_engine, lease.id)
    assert (found.rest, found.due) == (before.rest, before.due)
    clock.advance(500)
    await settle(step_engine, (await claim_one(step_engine)).lease)
    assert [each.name for each in (await claim(step_engine)).jobs] == (["second"] if mode == "keep_last" else [])


async def test_a_run_of_a_schedule_that_rests_has_started(step_engine: Store, clock: ManualClock) -> None:
    schedule = Schedule(id="tick", job=NewJob(name="n"), every=60_000)
    await step_engine.schedules.put("q", schedule, clock.now() + 1_000, expects=None)
    clock.advance(1_000)
    lease = (await claim_one(step_engine)).lease
    await resting(step_engine, lease, sleep("s", 10_000))

    found = (await step_engine.schedules.get("q", "tick")).view
    assert found is not None
    await step_engine.schedules.put("q", schedule, clock.now() + 500, expects=found.slot)
    assert (await job(step_engine, lease.id)).rest is not None
    await step_engine.schedules.remove("q", "tick")
    assert (await job(step_engine, lease.id)).rest is not None


async def test_jobs_that_rest_do_not_count_as_waiting(step_engine: Store) -> None:
    await step_engine.configure("q", [SetMaxWaiting(2), SetGroups(GroupLimits(max_waiting=1))])
    for _ in range(3):
        await resting(step_engine, (await running(step_engine, group="g")).lease, sleep("s", 500))

    await add(step_engine, new_job(group="g"), new_job())
    with pytest.raises(QueueFull):
        await add(step_engine, new_job())
    with pytest.raises(QueueFull):
        await add(step_engine, new_job(group="g"))


@pytest.mark.covers("R271")
async def test_a_job_that_rests_gives_its_seat_up(step_engine: Store, clock: ManualClock) -> None:
    await step_engine.configure("q", [SetGroups(GroupLimits(concurrency=1))])
    await add(step_engine, *(new_job(name, group="g") for name in ("one", "two", "three")))
    one = await claim_one(step_engine)
    await resting(step_engine, one.lease, sleep("s", 100))

    two = await claim_one(step_engine)
    clock.advance(100)
    meanwhile = await claim(step_engine)
    await settle(step_engine, two.lease)
    last = [(await claim_one(step_engine)).name]
    await settle(step_engine, one.lease)  # lost, and no harm

    assert (two.name, meanwhile.jobs, last) == ("two", (), ["one"])


async def test_a_job_expires_no_more_once_it_has_rested(step_engine: Store, clock: ManualClock) -> None:
    lease = (await running(step_engine, expires=200)).lease
    found = await resting(step_engine, lease, sleep("s", 500))
    assert found.expires_at is None
    clock.advance(500)

    assert (await claim_one(step_engine)).lease.id == lease.id


async def test_each_resumption_is_a_start(step_engine: Store, clock: ManualClock) -> None:
    await step_engine.configure("q", [SetRateLimit(RateLimit(2, 1)), SetConcurrency(1)])
    await add(step_engine, new_job("other"))
    other = await claim_one(step_engine)
    assert (await claim(step_engine)).jobs == ()
    await resting(step_engine, other.lease, sleep("s", 10))
    clock.advance(10)

    again = await claim_one(step_engine)  # one slot of the queue is free; two starts of the second are used up
    await resting(step_engine, again.lease, sleep("t", 10))
    clock.advance(10)
    assert (await claim(step_engine)).jobs == ()
    clock.advance(1_000)
    assert (await claim_one(step_engine)).lease.id == other.lease.id


async def test_pages_tell_who_rests_until_when_and_for_which_signal(step_engine: Store) -> None:
    async def rests(*reasons: Rest) -> str:
        lease = (await running(step_engine)).lease
        await resting(step_engine, lease, *reasons)
        return lease.id

    later, first = await rests(sleep("s", 900)), await rests(sleep("s", 100), wait("ok"))
    never, by_key = await rests(wait("ok", "no")), await rests(wait("no", by="k", delay=500))
    await add(step_engine, new_job("late", delay=50))

    assert await at_rest(step_engine, limit=1) == [first, by_key, later, never]
    assert await at_rest(step_engine, limit=1, signal="ok") == [first, never]
    assert await at_rest(step_engine, signal="no") == [by_key, never]
    assert await at_rest(step_engine, signal="other") == []
    assert await at_rest(step_engine, "nowhere") == []
    (row_,) = (await steps_of(step_engine).resting("q", limit=1)).items
    assert row_ == await job(step_engine, first)


async def test_recovery_leaves_jobs_that_rest_alone(step_engine: Store, clock: ManualClock) -> None:
    lease = (await running(step_engine)).lease
    await resting(step_engine, lease, wait("ok"))
    clock.advance(LEASE * 10)
    before = await dump(step_engine)

    recovered = await step_engine.recover("q", dead=[lease])

    assert recovered.taken_back == ()
    assert await dump(step_engine) == before


async def test_nothing_is_left_of_a_job_that_has_ended(step_engine: Store, clock: ManualClock) -> None:
    def trace(dumped: dict[str, list[str]]) -> list[str]:
        return [line for lines in dumped.values() for line in lines if "tell-tale" in line]

    async def rested() -> Claimed:
        claimed = await running(step_engine)
        await resting(
            step_engine, claimed.lease, sleep("tell-tale", 10), wait("ok", key="tell-tale-2", by="tell-tale-3")
        )
        clock.advance(10)
        return await claim_one(step_engine)

    await settle(step_engine, (await rested()).lease)
    assert trace(await dump(step_engine)) == []
    claimed = await rested()
    await resting(step_engine, claimed.lease, sleep("tell-tale-4", 10))
    await step_engine.remove("q", [claimed.lease.id])
    assert trace(await dump(step_engine)) == []


def grandchild(name: str, parent: str) -> FlowNode:
    return FlowNode(queue="d", job=new_job(name, id=name), parent=JobRef("c", parent), on_failure=OnFailure.IGNORE)


async def test_a_child_may_rest_for_children_of_its_own(step_engine: Store, clock: ManualClock) -> None:
    top = (await running(step_engine)).lease
    await resting(step_engine, top, called(JobRef("c", "a")), children=[child("a", top.id)])
    middle = (await claim_one(step_engine, queue="c")).lease
    await resting(step_engine, middle, called(JobRef("d", "b")), sleep("s", 500), children=[grandchild("b", "a")])
    assert (await step_engine.counts("q")).waiting_children == 1

    await settle(step_engine, (await claim_one(step_engine, queue="d")).lease)
    await settle(step_engine, (await claim_one(step_engine, queue="c")).lease)

    assert (await claim_one(step_engine)).lease.id == top.id
