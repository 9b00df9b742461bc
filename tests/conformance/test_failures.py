"""What a job says of its own failing travels with it, on every engine."""

import sqlite3
from contextlib import closing

import pytest

from tests.conformance.jobs import LEASE, add, claim, claim_one, job, settle
from toril import Exponential, Fixed, Retry, Strategy
from toril.model import (
    EXPIRED_KIND,
    Call,
    Claim,
    Completed,
    EventKind,
    Failed,
    Failure,
    JobOptions,
    NewJob,
    Retried,
    RunStatus,
    Verdict,
)
from toril.store.engine import Store
from toril.testing import ManualClock

BOOM = Failure("boom" * 400, "ValueError", "Traceback ...")


@pytest.mark.covers("R051")
@pytest.mark.parametrize("retry", [
    Retry(3, Fixed(2)),
    Retry(3, Exponential(2, cap=9, jitter=0.5)),
    Retry(3, Exponential(1, jitter="decorrelated")),
    Retry(3, Strategy("mine", Fixed(1))),
    Retry(3, on=(OSError, "some.library.Error")),
    Retry(3, give_up_on=KeyError),
], ids=["fixed", "exponential", "decorrelated", "strategy", "on", "give up"])  # fmt: skip
async def test_how_a_job_is_retried_is_stored_with_it(engine: Store, retry: Retry) -> None:
    await add(engine, NewJob(name="n", attempts=3, options=JobOptions(backoff=retry.wire())))

    assert (await job(engine, "1")).options.backoff == retry.wire()
    assert (await claim_one(engine)).options.backoff == retry.wire()


@pytest.mark.covers("R073", "R074")
@pytest.mark.parametrize("delay", [0, 500])
async def test_who_asks_for_more_attempts_than_there_are_gets_none(engine: Store, delay: int) -> None:
    """The store counts: a worker that judges by an older count cannot keep a job alive."""
    await add(engine, NewJob(name="n", attempts=2))
    await settle(engine, (await claim_one(engine)).lease, Retried(BOOM))

    assert await settle(engine, (await claim_one(engine)).lease, Retried(BOOM, delay)) is Verdict.OK

    (letter,) = (await engine.dead_letters.page()).items
    assert (letter.attempts_made, letter.failure.reason, letter.failure.kind) == (2, BOOM.reason, "ValueError")
    assert await engine.jobs("q", ["1"]) == [None]
    kinds = [event.kind for event in (await engine.events("q")).items]
    assert kinds.count(EventKind.RETRIES_EXHAUSTED) == 1


@pytest.mark.covers("R093")
async def test_a_run_record_says_whom_its_job_was_about(engine: Store, clock: ManualClock) -> None:
    await add(engine, *(NewJob(name="n", options=JobOptions(subject=each)) for each in ("acme", None, "ä co")))
    for outcome in (Completed(), Completed(), Failed(BOOM)):
        await settle(engine, (await claim_one(engine)).lease, outcome)
    await add(engine, NewJob(name="n", options=JobOptions(subject="late"), expires=10))
    clock.advance(10)
    await claim(engine)

    assert [run.subject for run in (await engine.runs("q", RunStatus.COMPLETED)).items] == [None, "acme"]
    assert [run.subject for run in (await engine.runs("q", RunStatus.FAILED)).items] == ["late", "ä co"]


async def test_who_claims_hears_of_the_jobs_that_came_too_late(engine: Store, clock: ManualClock) -> None:
    await add(engine, NewJob(name="old", id="own", expires=1000), NewJob(name="new"))
    due = clock.now() + 1000
    clock.advance(1000)
    wish, call = Claim(want=5, token="t1", lease=LEASE, worker="w"), Call("sender", 1)

    answer = await engine.exchange("q", [], wish, call=call)

    (late,) = answer.unstarted
    assert (late.id, late.name, late.failure.kind) == ("own", "old", EXPIRED_KIND)
    assert late.failure.reason == f"expired: not started by {due}"
    assert await engine.exchange("q", [], wish, call=call) == answer, "who asks again is told again"
    assert (await claim(engine)).unstarted == (), "and nobody else is"


async def test_a_stale_worker_is_refused_by_a_table_that_knows_the_fence(engine: Store, clock: ManualClock) -> None:
    """The one that was away for too long writes after the one that took over, and is told that it is too late."""
    await add(engine, NewJob(name="n"))
    stale = await claim_one(engine, lease=1000)
    clock.advance(1001)
    await engine.recover("q")
    heir = await claim_one(engine, alone=True)
    with closing(sqlite3.connect(":memory:")) as table:
        table.execute("CREATE TABLE balances (amount INTEGER, fence INTEGER)")
        table.execute("INSERT INTO balances VALUES (0, 0)")
        guarded = "UPDATE balances SET amount = ?, fence = ? WHERE fence < ?"
        counted = [table.execute(guarded, (each.fence, each.fence, each.fence)).rowcount for each in (heir, stale)]

    assert counted == [1, 0]
