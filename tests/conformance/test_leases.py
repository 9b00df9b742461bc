"""Engine.extend, report and recover: what holds while a lease holds, and what happens when it does not."""

import asyncio
from functools import partial

import pytest

from tests.conformance.jobs import add, claim, claim_one, ids, job, names, settle
from toril.model import (
    KEEP_ALL,
    Call,
    Cause,
    Checkpoint,
    Claim,
    Completed,
    DataUpdate,
    EventKind,
    Failed,
    Failure,
    JobOptions,
    Lease,
    LogLine,
    NewJob,
    Outcome,
    Progress,
    Released,
    Report,
    Retried,
    RunStatus,
    Snoozed,
    Verdict,
)
from toril.model.states import State
from toril.store.engine import Store
from toril.testing import ManualClock


@pytest.mark.covers("R103", "R143")
async def test_a_renewed_lease_holds_for_longer(engine: Store, clock: ManualClock) -> None:
    await add(engine, NewJob(name="n"))
    claimed = await claim_one(engine, lease=1000)

    for _ in range(10):
        clock.advance(900)
        assert (await engine.renew([claimed.lease], ttl=1000)).lost == ()

    assert (await engine.recover("q")).returned == ()
    assert await settle(engine, claimed.lease) is Verdict.OK


@pytest.mark.covers("F26")
async def test_what_was_lost_is_not_renewed_but_named(engine: Store, clock: ManualClock) -> None:
    await add(engine, NewJob(name="a"), NewJob(name="b"), NewJob(name="c"))
    a, b, c = (await claim(engine, lease=1000)).jobs
    await settle(engine, a.lease)
    forged = Lease("q", b.lease.id, "forged")

    answer = await engine.renew([a.lease, b.lease, forged, Lease("none", "1", "t")], ttl=5000)

    assert answer.lost == (a.lease, forged, Lease("none", "1", "t"))
    clock.advance(1000)
    assert (await engine.renew([b.lease, c.lease], ttl=5000)).lost == (c.lease,)


@pytest.mark.covers("R094")
async def test_a_renewal_brings_the_wish_to_cancel(engine: Store) -> None:
    await add(engine, NewJob(name="a"), NewJob(name="b"))
    a, b = (await claim(engine)).jobs

    await engine.cancel("q", [b.lease.id], reason="changed my mind")

    (wish,) = (await engine.renew([a.lease, b.lease], ttl=1000)).cancelled
    assert (wish.lease, wish.reason) == (b.lease, "changed my mind")


@pytest.mark.covers("R027", "R087")
async def test_reports_are_written_while_the_lease_holds(engine: Store) -> None:
    await add(engine, NewJob(name="n", attempts=2))
    lease = (await claim_one(engine)).lease

    verdicts = await engine.report(
        "q",
        [
            Progress(lease, "40"),
            LogLine(lease, "one"),
            LogLine(lease, "two"),
            DataUpdate(lease, "[2]"),
            Checkpoint(lease, '"page 7"'),
        ],
    )

    found = await job(engine, "1")
    assert set(verdicts) == {Verdict.OK}
    assert (found.progress, found.data, found.checkpoint) == ("40", "[2]", '"page 7"')
    assert (await engine.logs("q", "1")).items == ("one", "two")
    await settle(engine, lease, Retried(Failure("x")))
    again = await claim_one(engine)
    assert (again.checkpoint, again.data) == ('"page 7"', "[2]")


@pytest.mark.covers("F28")
@pytest.mark.parametrize(
    "report",
    [
        lambda lease: Progress(lease, "1"),
        lambda lease: LogLine(lease, "x"),
        lambda lease: DataUpdate(lease, "1"),
        lambda lease: Checkpoint(lease, "1"),
    ],
    ids=["progress", "log", "data", "checkpoint"],
)
async def test_a_former_owner_writes_nothing(engine: Store, clock: ManualClock, report: "type[Progress]") -> None:
    await add(engine, NewJob(name="n"))
    lease = (await claim_one(engine, lease=1000)).lease
    clock.advance(1000)
    before = await job(engine, "1")
    made: Report = report(lease)  # type: ignore[call-arg]

    assert await engine.report("q", [made]) == [Verdict.LOST]
    assert await engine.report("q", [report(Lease("q", "99", "t"))]) == [Verdict.MISSING]  # type: ignore[call-arg]

    assert await job(engine, "1") == before
    assert (await engine.logs("q", "1")).items == ()


@pytest.mark.covers("B40")
async def test_logs_are_capped_and_keep_the_newest(engine: Store) -> None:
    await add(engine, NewJob(name="n", options=JobOptions(keep_logs=3)))
    lease = (await claim_one(engine)).lease

    await engine.report("q", [LogLine(lease, f"line {i}") for i in range(10)])

    assert (await engine.logs("q", "1")).items == ("line 7", "line 8", "line 9")


async def test_a_report_sent_again_is_written_once(engine: Store) -> None:
    await add(engine, NewJob(name="n"))
    lease = (await claim_one(engine)).lease

    for _ in range(2):
        assert await engine.report("q", [LogLine(lease, "once")], call=Call("w", 5)) == [Verdict.OK]

    assert (await engine.logs("q", "1")).items == ("once",)


async def test_logs_go_with_their_job(engine: Store) -> None:
    await add(engine, NewJob(name="n", id="x"))
    lease = (await claim_one(engine)).lease
    await engine.report("q", [LogLine(lease, "old")])
    await settle(engine, lease)

    await add(engine, NewJob(name="n", id="x"))

    assert (await engine.logs("q", "x")).items == ()


@pytest.mark.covers("R114", "R126", "R134", "S25", "G4")
async def test_a_lease_that_ran_out_gives_the_job_back(engine: Store, clock: ManualClock) -> None:
    await add(engine, NewJob(name="n", attempts=1))
    claimed = await claim_one(engine, lease=1000)
    clock.advance(999)
    early = await engine.recover("q")
    clock.advance(1)

    late = await engine.recover("q", cause="signal 9")

    assert (early.returned, early.next_deadline) == ((), clock.now())
    assert (late.returned, late.failed, late.next_deadline) == (("1",), (), None)
    found = await job(engine, "1")
    assert (found.state, found.stalls, found.attempts_made) == (State.WAITING, 1, 0)
    assert found.stall_cause == "signal 9"
    assert await settle(engine, claimed.lease) is Verdict.LOST


@pytest.mark.covers("F90", "R154", "R133")
async def test_two_recoveries_at_once_take_a_job_back_once(engine: Store, clock: ManualClock) -> None:
    await add(engine, NewJob(name="n"))
    await claim_one(engine, lease=10)
    clock.advance(10)

    found = await asyncio.gather(*(engine.recover("q") for _ in range(5)))

    assert sorted(each.returned for each in found) == [(), (), (), (), ("1",)]
    assert (await job(engine, "1")).stalls == 1


@pytest.mark.covers("R129")
@pytest.mark.parametrize("outcome", [Completed(), Failed(Failure("no", "E")), Released()])
async def test_a_job_that_is_handed_in_is_waited_for_no_longer(engine: Store, outcome: Outcome) -> None:
    await add(engine, NewJob(name="n"))
    claimed = await claim_one(engine, lease=1000)
    assert (await engine.recover("q")).next_deadline is not None

    await settle(engine, claimed.lease, outcome)

    assert (await engine.recover("q")).next_deadline is None


@pytest.mark.covers("F95")
async def test_live_leases_are_left_alone(engine: Store, clock: ManualClock) -> None:
    await add(engine, NewJob(name="a"), NewJob(name="b"))
    await claim(engine, 1, lease=10)
    live = await claim_one(engine, lease=1000)
    clock.advance(10)

    recovered = await engine.recover("q")

    assert recovered.returned == ("1",)
    assert recovered.next_deadline == clock.now() + 990
    assert await settle(engine, live.lease) is Verdict.OK


@pytest.mark.covers("F16")
async def test_the_jobs_of_a_dead_worker_return_before_their_time(engine: Store) -> None:
    await add(engine, NewJob(name="a"), NewJob(name="b"), NewJob(name="c"))
    a, b, c = (await claim(engine)).jobs
    await settle(engine, c.lease)

    recovered = await engine.recover("q", dead=[a.lease, c.lease, Lease("q", b.lease.id, "not it")], cause="exit 137")

    assert recovered.returned == ("1",)
    assert (await job(engine, "2")).state is State.ACTIVE


async def test_a_dead_lease_named_twice_is_taken_back_once(engine: Store) -> None:
    await add(engine, NewJob(name="n"))
    lease = (await claim_one(engine)).lease

    assert (await engine.recover("q", dead=[lease, lease])).returned == ("1",)
    assert (await engine.counts("q")).waiting == 1


@pytest.mark.covers("F117")
async def test_a_job_that_stalled_is_given_out_alone(engine: Store) -> None:
    await add(engine, *(NewJob(name=n) for n in "abc"))
    taken = (await claim(engine, 2)).jobs
    await engine.recover("q", dead=[each.lease for each in taken])

    in_company = await claim(engine)
    first, second = await claim(engine, alone=True), await claim(engine, alone=True)

    assert (names(in_company.jobs), in_company.suspects) == (["c"], 2)
    assert (names(first.jobs), names(second.jobs)) == (["a"], ["b"])
    assert first.jobs[0].suspect
    assert not in_company.jobs[0].suspect


@pytest.mark.covers("R116", "R117", "F116", "S25", "P4", "Q4", "X21")
@pytest.mark.parametrize("max_stalls", [0, 1, 3])
async def test_a_job_that_stalls_too_often_fails(engine: Store, max_stalls: int) -> None:
    await add(engine, NewJob(name="n", attempts=9, options=JobOptions(keep_failed=KEEP_ALL)))

    runs = 0
    while taken := (await claim(engine, 1, alone=True, max_stalls=max_stalls)).jobs:
        runs += 1
        await engine.recover("q", dead=[taken[0].lease], cause="SIGSEGV")

    found = await job(engine, "1")
    assert runs == max_stalls + 1
    assert (found.state, found.attempts_made, found.stalls) == (State.FAILED, 0, max_stalls + 1)
    assert found.failure is not None
    assert found.failure.reason == "job stalled more than allowable limit: SIGSEGV"
    assert (await engine.runs("q", RunStatus.FAILED)).items[0].cause is Cause.STALLED


@pytest.mark.covers("F08", "F117")
async def test_a_stall_in_company_never_fails_a_job(engine: Store) -> None:
    await add(engine, NewJob(name="innocent", attempts=1))
    first = await claim_one(engine)
    await engine.recover("q", dead=[first.lease])
    alone = await claim_one(engine, alone=True)
    await settle(engine, alone.lease, Snoozed(0))
    in_company = await claim_one(engine)

    recovered = await engine.recover("q", dead=[in_company.lease])

    assert (recovered.returned, recovered.failed) == (("1",), ())
    assert (await job(engine, "1")).stalls == 2


@pytest.mark.covers("F117")
async def test_a_suspect_that_is_given_back_unfinished_runs_alone_again(engine: Store) -> None:
    await add(engine, *(NewJob(name=n, priority=p) for n, p in (("a", 0), ("b", 4), ("c", 0))))
    taken = (await claim(engine, 3)).jobs
    await engine.recover("q", dead=[each.lease for each in taken[:2]])
    await settle(engine, taken[2].lease, Released())
    stopped = await claim_one(engine, alone=True)

    await settle(engine, stopped.lease, Released())
    in_company, again = await claim(engine), await claim_one(engine, alone=True)

    assert stopped.name == again.name
    assert again.suspect
    assert len(in_company.jobs) == 1
    assert in_company.suspects == 2
    recovered = await engine.recover("q", dead=[again.lease])
    assert (recovered.failed, recovered.cancelled) == ((again.lease.id,), ())


@pytest.mark.covers("F117")
async def test_a_claim_for_suspects_only_brings_nothing_else(engine: Store) -> None:
    await add(engine, *(NewJob(name=n) for n in "ab"))
    stalled = await claim_one(engine)
    only = partial(Claim, want=1, lease=30_000, worker="w", alone=True, only_suspects=True)

    before = await engine.exchange("q", [], only(token="one"))
    await engine.recover("q", dead=[stalled.lease])
    after = await engine.exchange("q", [], only(token="two"))

    assert (before.jobs, before.wake_at) == ((), None)
    assert names(after.jobs) == ["a"]
    assert names((await claim(engine)).jobs) == ["b"]


async def test_a_job_that_someone_wants_stopped_does_not_return(engine: Store) -> None:
    await add(engine, NewJob(name="n", options=JobOptions(keep_failed=KEEP_ALL)))
    claimed = await claim_one(engine)
    await engine.cancel("q", ["1"], reason="enough")

    recovered = await engine.recover("q", dead=[claimed.lease])

    assert (recovered.returned, recovered.failed, recovered.cancelled) == ((), (), ("1",))
    assert recovered.taken_back == ("1",)
    assert (await engine.runs("q", RunStatus.CANCELLED)).items[0].cause is Cause.CANCELLED


@pytest.mark.covers("R118", "R140")
async def test_a_recovery_has_its_events(engine: Store) -> None:
    await add(engine, NewJob(name="n"))
    await engine.recover("q", dead=[(await claim_one(engine)).lease], cause="gone")

    *_, waiting, stalled = (await engine.events("q")).items

    assert (waiting.kind, waiting.detail) == (EventKind.WAITING, {"prev": "active"})
    assert (stalled.kind, stalled.job_id, stalled.detail) == (EventKind.STALLED, "1", {"cause": "gone"})


@pytest.mark.covers("F76")
async def test_a_recovery_is_bounded(engine: Store, clock: ManualClock) -> None:
    await add(engine, *(NewJob(name="n") for _ in range(250)))
    for _ in range(3):
        await claim(engine, 100, lease=10)
    clock.advance(10)

    first = await engine.recover("q", limit=200)
    second = await engine.recover("q", limit=200)

    assert (len(first.returned), first.more) == (200, True)
    assert (len(second.returned), second.more) == (50, False)


@pytest.mark.covers("R136", "F02", "P3")
async def test_a_claim_whose_answer_was_lost_is_recovered(engine: Store, clock: ManualClock) -> None:
    await add(engine, NewJob(name="n"))
    await claim(engine, lease=1000)  # nobody reads the answer
    clock.advance(1000)

    assert (await engine.recover("q")).returned == ("1",)
    again = await claim_one(engine, alone=True)
    assert again.attempts_made == 0
    assert await settle(engine, again.lease, Completed()) is Verdict.OK


async def test_recovering_an_unknown_queue_finds_nothing(engine: Store) -> None:
    recovered = await engine.recover("never")

    assert (recovered.returned, recovered.next_deadline) == ((), None)
    assert await engine.queues() == []


async def test_suspects_leave_in_the_order_in_which_they_stalled(engine: Store) -> None:
    await add(engine, *(NewJob(name=n) for n in "abc"))
    taken = (await claim(engine)).jobs
    for each in reversed(taken):
        await engine.recover("q", dead=[each.lease])

    seen = []
    for _ in taken:
        seen += ids((await claim(engine, alone=True)).jobs)

    assert seen == ["3", "2", "1"]
