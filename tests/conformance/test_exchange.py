"""Engine.exchange: hand in what finished, take what fits, in one step."""

import pytest

from tests.conformance.jobs import LEASE, add, claim, claim_one, ids, job, names, settle
from toril.errors import EngineUnavailable, InvalidOption
from toril.model import (
    KEEP_ALL,
    Call,
    Cancelled,
    Cause,
    Claim,
    Completed,
    EventKind,
    Failed,
    Failure,
    JobOptions,
    Lease,
    NewJob,
    Outcome,
    Released,
    Retried,
    RunStatus,
    Settlement,
    Snoozed,
    Verdict,
)
from toril.model.states import State
from toril.store.engine import Store
from toril.testing import ManualClock

BOOM = Failure("boom", "ValueError", "Traceback ...")


@pytest.mark.covers("R182")
async def test_a_job_is_given_to_one_claimer_only(engine: Store) -> None:
    await add(engine, NewJob(name="a"), NewJob(name="b"))

    first, second = await claim(engine, 1), await claim(engine)

    assert (names(first.jobs), names(second.jobs)) == (["a"], ["b"])
    assert first.jobs[0].lease.token != second.jobs[0].lease.token
    assert (await engine.counts("q")).active == 2


@pytest.mark.covers("R029", "R184", "R235", "G2")
async def test_a_finished_job_leaves_its_run_record(engine: Store, clock: ManualClock) -> None:
    await add(engine, NewJob(name="n", options=JobOptions(keep_completed=KEEP_ALL)))
    claimed = await claim_one(engine)
    clock.advance(70)

    assert await settle(engine, claimed.lease, Completed('{"sent": 3}')) is Verdict.OK

    found = await job(engine, "1")
    (run,) = (await engine.runs("q", RunStatus.COMPLETED)).items
    assert (found.state, found.result, found.attempts_made) == (State.COMPLETED, '{"sent": 3}', 1)
    assert (run.id, run.name, run.text, run.whole, run.cause) == ("1", "n", '{"sent": 3}', True, Cause.COMPLETED)
    assert (run.started_at, run.finished_at) == (clock.now() - 70, clock.now())
    assert (run.worker, run.attempts_made) == ("w", 1)


async def test_one_exchange_settles_and_claims(engine: Store) -> None:
    await add(engine, *(NewJob(name=f"n{i}") for i in range(4)))
    first = await claim(engine, 2)

    batch = [Settlement(each.lease, Completed()) for each in first.jobs]
    answer = await engine.exchange("q", batch, Claim(want=5, token="next", lease=LEASE, worker="w"))

    assert answer.verdicts == (Verdict.OK, Verdict.OK)
    assert names(answer.jobs) == ["n2", "n3"]


@pytest.mark.covers("R105", "R106", "R107", "B68", "P5")
@pytest.mark.parametrize(
    "outcome",
    [Completed(), Failed(BOOM), Retried(BOOM, 5), Snoozed(5), Released(), Cancelled("no")],
    ids=lambda o: type(o).__name__,
)
async def test_only_the_holder_settles(engine: Store, outcome: Outcome) -> None:
    await add(engine, NewJob(name="n"))
    claimed = await claim_one(engine)
    forged = Lease("q", claimed.lease.id, "another-token")

    assert await settle(engine, forged, outcome) is Verdict.LOST

    assert (await job(engine, "1")).state is State.ACTIVE
    assert await settle(engine, claimed.lease, outcome) is Verdict.OK


@pytest.mark.covers("F27", "R107")
async def test_a_lease_that_ran_out_settles_nothing(engine: Store, clock: ManualClock) -> None:
    await add(engine, NewJob(name="n"))
    claimed = await claim_one(engine, lease=1000)
    clock.advance(1000)

    assert await settle(engine, claimed.lease) is Verdict.LOST

    assert (await job(engine, "1")).state is State.ACTIVE


async def test_what_is_not_there_is_missing(engine: Store) -> None:
    assert await settle(engine, Lease("q", "17", "t")) is Verdict.MISSING
    assert await settle(engine, Lease("q", "chosen", "t")) is Verdict.MISSING


async def test_a_job_is_settled_once(engine: Store) -> None:
    await add(engine, NewJob(name="n", options=JobOptions(keep_completed=KEEP_ALL)))
    claimed = await claim_one(engine)
    twice = [Settlement(claimed.lease, Completed("1")), Settlement(claimed.lease, Completed("2"))]

    answer = await engine.exchange("q", twice, Claim(want=0, token="t", lease=LEASE, worker="w"))

    assert answer.verdicts == (Verdict.OK, Verdict.LOST)
    assert (await job(engine, "1")).result == "1"


@pytest.mark.covers("R062", "R185")
async def test_a_failed_job_keeps_its_reason(engine: Store) -> None:
    await add(engine, NewJob(name="n", options=JobOptions(keep_failed=KEEP_ALL)))

    await settle(engine, (await claim_one(engine)).lease, Failed(BOOM))

    found = await job(engine, "1")
    assert (found.state, found.failure, found.attempts_made) == (State.FAILED, BOOM, 1)
    (run,) = (await engine.runs("q", RunStatus.FAILED)).items
    assert (run.text, run.cause) == ("boom", Cause.FAILED)


@pytest.mark.covers("R061", "R060", "P12")
async def test_a_retry_with_a_delay_waits_in_the_store(engine: Store, clock: ManualClock) -> None:
    await add(engine, NewJob(name="n", attempts=3), NewJob(name="other"))
    claimed = await claim_one(engine)

    await settle(engine, claimed.lease, Retried(BOOM, 10_000))

    found = await job(engine, claimed.lease.id)
    assert (found.state, found.attempts_made, found.delay, found.failure) == (State.DELAYED, 1, 10_000, BOOM)
    assert names((await claim(engine)).jobs) == ["other"]
    clock.advance(10_000)
    again = await claim_one(engine)
    assert (again.lease.id, again.attempts_made, again.starts, again.delay) == (claimed.lease.id, 1, 2, 10_000)
    assert again.fence > claimed.fence


@pytest.mark.covers("R061")
async def test_a_retry_without_a_delay_goes_to_the_end_of_the_line(engine: Store) -> None:
    await add(engine, NewJob(name="n", attempts=3), NewJob(name="other"))

    await settle(engine, (await claim_one(engine)).lease, Retried(BOOM))

    assert names((await claim(engine)).jobs) == ["other", "n"]


async def test_a_snoozed_job_spends_no_attempt(engine: Store, clock: ManualClock) -> None:
    await add(engine, NewJob(name="n"))

    await settle(engine, (await claim_one(engine)).lease, Snoozed(500))

    found = await job(engine, "1")
    assert (found.state, found.attempts_made, found.due) == (State.DELAYED, 0, clock.now() + 500)


@pytest.mark.covers("R250", "F34")
async def test_released_jobs_return_to_the_front_in_order(engine: Store) -> None:
    await add(engine, *(NewJob(name=n) for n in "abcd"), NewJob(name="p", priority=2), NewJob(name="q", priority=2))
    taken = (await claim(engine, 5)).jobs
    back = [Settlement(each.lease, Released()) for each in taken if each.name in {"b", "c", "p"}]

    await engine.exchange("q", back, Claim(want=0, token="t", lease=LEASE, worker="w"))

    again = (await claim(engine)).jobs
    assert names(again) == ["b", "c", "p", "q"]
    assert all(each.attempts_made == 0 for each in again)


@pytest.mark.covers("R096")
async def test_a_cancelled_job_has_failed_with_that_reason(engine: Store) -> None:
    await add(engine, NewJob(name="n", attempts=5, options=JobOptions(keep_failed=KEEP_ALL)))

    await settle(engine, (await claim_one(engine)).lease, Cancelled("not needed"))

    found = await job(engine, "1")
    assert found.state is State.FAILED
    assert found.failure is not None
    assert (found.failure.reason, found.failure.kind) == ("not needed", "JobCancelled")
    assert found.ending is RunStatus.CANCELLED
    assert (await engine.runs("q", RunStatus.CANCELLED)).items[0].cause is Cause.CANCELLED


@pytest.mark.covers("R237")
async def test_a_long_result_is_cut_in_the_record_only(engine: Store) -> None:
    await add(engine, NewJob(name="n", options=JobOptions(keep_completed=KEEP_ALL)))
    long = '"' + "é" * 5000 + '"'

    await settle(engine, (await claim_one(engine)).lease, Completed(long))

    (run,) = (await engine.runs("q", RunStatus.COMPLETED)).items
    assert (await job(engine, "1")).result == long
    assert len(run.text.encode()) <= 1024
    assert run.text.endswith("…")
    assert not run.whole


async def test_a_summary_stands_in_for_the_result_in_the_record(engine: Store) -> None:
    await add(engine, NewJob(name="n"))

    await settle(engine, (await claim_one(engine)).lease, Completed('{"token": "secret"}', summary="3 sent"))

    (run,) = (await engine.runs("q", RunStatus.COMPLETED)).items
    assert (run.text, run.whole) == ("3 sent", False)


@pytest.mark.covers("R083", "I4")
async def test_the_fence_grows_with_every_claim(engine: Store, clock: ManualClock) -> None:
    await add(engine, NewJob(name="n", id="stable", attempts=9))

    fences = []
    for outcome in (Retried(BOOM), Released(), Snoozed(0), Retried(BOOM, 5)):
        claimed = await claim_one(engine)
        fences.append(claimed.fence)
        assert claimed.lease.id == "stable"
        await settle(engine, claimed.lease, outcome)
    clock.advance(5)
    stalled = await claim_one(engine, lease=10)
    clock.advance(10)
    await engine.recover("q")

    fences += [stalled.fence, (await claim_one(engine, alone=True)).fence]
    assert fences == [1, 2, 3, 4, 5, 6]


@pytest.mark.covers("F05")
async def test_a_fence_is_never_seen_twice_in_a_queue(engine: Store) -> None:
    fences = []
    for _ in range(3):
        await add(engine, NewJob(name="n", id="same"), NewJob(name="m"))
        taken = (await claim(engine)).jobs
        fences += [each.fence for each in taken]
        assert [each.starts for each in taken] == [1, 1]
        for each in taken:
            await settle(engine, each.lease)

    assert fences == [1, 2, 3, 4, 5, 6]


@pytest.mark.covers("R096")
@pytest.mark.parametrize("outcome", [Retried(BOOM), Retried(BOOM, 50), Snoozed(50), Released()], ids=str)
async def test_a_job_that_someone_wants_stopped_does_not_run_again(engine: Store, outcome: Outcome) -> None:
    await add(engine, NewJob(name="n", attempts=5, options=JobOptions(keep_failed=KEEP_ALL)))
    claimed = await claim_one(engine)
    await engine.cancel("q", ["1"], reason="enough")

    assert await settle(engine, claimed.lease, outcome) is Verdict.OK

    found = await job(engine, "1")
    assert found.state is State.FAILED
    assert found.failure is not None
    assert (found.failure.reason, found.failure.kind) == ("enough", "JobCancelled")


@pytest.mark.covers("R195", "R196")
async def test_what_is_due_is_promoted_in_the_order_of_its_time(engine: Store, clock: ManualClock) -> None:
    await add(
        engine,
        *(NewJob(name=str(delay), delay=delay) for delay in (300, 100, 200)),
        NewJob(name="p", delay=50, priority=1),
    )
    clock.advance(250)

    taken = await claim(engine)

    assert names(taken.jobs) == ["100", "200", "p"]
    assert taken.wake_at == clock.now() + 50


@pytest.mark.covers("R195")
async def test_a_thousand_due_at_once_all_come_in_order(engine: Store, clock: ManualClock) -> None:
    await add(engine, *(NewJob(name=str(i), delay=100 + i % 7) for i in range(1000)))
    clock.advance(200)

    seen: list[str] = []
    while taken := (await claim(engine, 100)).jobs:
        seen += names(taken)

    assert seen == [str(i) for due in range(7) for i in range(1000) if i % 7 == due]


async def test_an_empty_claim_says_when_to_come_back(engine: Store) -> None:
    await add(engine, NewJob(name="n", delay=500), now=1000)

    assert (await claim(engine, now=1000)).wake_at == 1500
    assert len((await claim(engine, now=1500)).jobs) == 1


async def test_an_empty_queue_names_no_time(engine: Store) -> None:
    answer = await claim(engine)

    assert (answer.jobs, answer.wake_at, answer.blocked_by) == ((), None, None)


@pytest.mark.covers("R100")
async def test_an_expired_job_is_ended_instead_of_started(engine: Store, clock: ManualClock) -> None:
    await add(engine, NewJob(name="old", expires=1000, options=JobOptions(keep_failed=KEEP_ALL)), NewJob(name="new"))
    clock.advance(1000)

    assert names((await claim(engine)).jobs) == ["new"]

    found = await job(engine, "1")
    assert (found.state, found.attempts_made) == (State.FAILED, 0)
    assert found.failure is not None
    assert found.failure.reason.startswith("expired")
    assert (await engine.runs("q", RunStatus.FAILED)).items[0].cause is Cause.EXPIRED


async def test_a_retry_that_comes_too_late_keeps_what_is_known_of_the_run(engine: Store, clock: ManualClock) -> None:
    await add(engine, NewJob(name="n", attempts=3, expires=1000, options=JobOptions(keep_failed=KEEP_ALL)))
    started = clock.now()
    await settle(engine, (await claim_one(engine)).lease, Retried(BOOM, 5000))
    clock.advance(5000)

    assert (await claim(engine)).jobs == ()

    found = await job(engine, "1")
    (run,) = (await engine.runs("q", RunStatus.FAILED)).items
    assert (run.cause, run.started_at, run.worker, run.attempts_made) == (Cause.EXPIRED, started, "w", 1)
    assert (found.started_at, found.worker) == (started, "w")
    assert run.text == f"expired: not started again by {started + 1000}"


async def test_many_expired_jobs_are_ended_a_bounded_number_a_claim(engine: Store, clock: ManualClock) -> None:
    await add(engine, *(NewJob(name="old", expires=10) for _ in range(900)), NewJob(name="new"))
    clock.advance(10)

    rounds = 0
    while not (answer := await claim(engine, 100)).jobs:
        assert answer.wake_at == answer.now
        rounds += 1

    assert names(answer.jobs) == ["new"]
    assert 1 < rounds < 10


@pytest.mark.covers("F07", "F08", "F121")
async def test_an_exchange_sent_again_has_no_second_effect(engine: Store) -> None:
    await add(engine, *(NewJob(name=f"n{i}") for i in range(5)))
    mine = await claim_one(engine)
    wanted = Claim(want=2, token="once", lease=LEASE, worker="w")
    batch = [Settlement(mine.lease, Completed("7"))]

    first = await engine.exchange("q", batch, wanted, call=Call("w", 1))
    again = await engine.exchange("q", batch, wanted, call=Call("w", 1))

    assert again == first
    assert first.verdicts == (Verdict.OK,)
    assert len((await engine.runs("q", RunStatus.COMPLETED)).items) == 1
    assert (await engine.counts("q")).active == 2


async def test_jobs_lost_since_are_left_out_of_a_repeated_answer(engine: Store, clock: ManualClock) -> None:
    await add(engine, NewJob(name="a"), NewJob(name="b"))
    wanted = Claim(want=2, token="once", lease=1000, worker="w")
    first = await engine.exchange("q", [], wanted, call=Call("w", 1))
    await settle(engine, first.jobs[0].lease)
    clock.advance(1000)
    await engine.recover("q")

    again = await engine.exchange("q", [], wanted, call=Call("w", 1))

    assert again.jobs == ()


async def test_an_older_call_that_comes_late_is_refused(engine: Store) -> None:
    await add(engine, NewJob(name="n"))
    await engine.exchange("q", [], Claim(want=0, token="t2", lease=LEASE, worker="w"), call=Call("w", 2))

    with pytest.raises(EngineUnavailable, match="came too late"):
        await engine.exchange("q", [], Claim(want=1, token="t1", lease=LEASE, worker="w"), call=Call("w", 1))

    assert (await engine.counts("q")).waiting == 1


async def test_no_more_than_a_hundred_are_settled_at_once(engine: Store) -> None:
    batch = [Settlement(Lease("q", str(i), "t"), Completed()) for i in range(1, 102)]

    with pytest.raises(InvalidOption, match="at most 100 jobs, not 101"):
        await engine.exchange("q", batch, Claim(want=0, token="t", lease=LEASE, worker="w"))


async def test_a_queue_is_drained_by_a_claim_that_only_ends_its_last_job(engine: Store, clock: ManualClock) -> None:
    await add(engine, NewJob(name="old", expires=1000))
    clock.advance(1000)

    assert (await claim(engine)).jobs == ()

    assert (await engine.events("q")).items[-1].kind is EventKind.DRAINED


@pytest.mark.covers("R186", "I14", "P21")
async def test_every_move_has_its_event(engine: Store, clock: ManualClock) -> None:
    await add(engine, NewJob(name="n", attempts=2))
    await settle(engine, (await claim_one(engine)).lease, Retried(BOOM, 50))
    clock.advance(50)
    await settle(engine, (await claim_one(engine)).lease, Failed(BOOM))

    events = (await engine.events("q")).items

    assert [e.kind for e in events] == [
        EventKind.ADDED, EventKind.WAITING, EventKind.ACTIVE, EventKind.DELAYED, EventKind.WAITING, EventKind.ACTIVE,
        EventKind.FAILED, EventKind.RETRIES_EXHAUSTED, EventKind.DRAINED,
    ]  # fmt: skip
    assert events[4].detail == {"prev": "delayed"}
    assert events[6].detail == {"failedReason": "boom"}
    assert events[7].detail == {"attemptsMade": "2"}


async def test_ids_that_users_chose_are_settled_alike(engine: Store) -> None:
    await add(engine, NewJob(name="a", id="first"), NewJob(name="b"), NewJob(name="c", id="third"))
    taken = (await claim(engine)).jobs

    answer = await engine.exchange(
        "q", [Settlement(each.lease, Completed()) for each in taken], Claim(want=0, token="t", lease=1, worker="w")
    )

    assert ids(taken) == ["first", "2", "third"]
    assert set(answer.verdicts) == {Verdict.OK}
    assert await engine.jobs("q", ["first", "2", "third"]) == [None, None, None]
