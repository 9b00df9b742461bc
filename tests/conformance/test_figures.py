"""What is counted beside completed and failed jobs: how long they waited and ran, which names failed, what was lost."""

import random
from dataclasses import replace

import pytest

from tests.conformance.jobs import add, claim, claim_one, settle
from tests.conformance.stepping import recorded, report, resting, running, sleep, steps_of, wait
from toril.model import (
    Call,
    Claim,
    Claimed,
    Completed,
    Failed,
    Failure,
    MetricsWindow,
    NewJob,
    NewSignal,
    Outcome,
    QueueSnapshot,
    Released,
    Replay,
    Retried,
    Settlement,
    SignalWait,
    Snoozed,
    ms_of,
)
from toril.operate.metrics import metrics
from toril.policy.metrics import ERROR, RANGES, STEPS, bucket_of, sum_of
from toril.store.engine import Store
from toril.testing import ManualClock

FAILURE = Failure("no", "E")


async def look(engine: Store, step: int = 1) -> QueueSnapshot:
    (found,) = (await engine.metrics.snapshot(["q"], MetricsWindow(60, step, 240))).queues
    return found


async def run(engine: Store, clock: ManualClock, ms: int, outcome: Outcome | None = None) -> Claimed:
    job = await claim_one(engine)
    clock.advance(ms)
    await settle(engine, job.lease, outcome)
    return job


async def test_it_is_counted_how_long_jobs_waited_and_ran(engine: Store, clock: ManualClock) -> None:
    await add(engine, NewJob(name="n"), NewJob(name="n", delay=10_000))
    clock.advance(3_000)
    await run(engine, clock, 9_000)
    await run(engine, clock, 500)

    total = (await look(engine)).total

    assert total.waits == {bucket_of(3_000): 1, bucket_of(2_000): 1}
    assert total.runs == {bucket_of(9_000): 1, bucket_of(500): 1}


async def test_a_job_waits_once_and_runs_as_often_as_it_tries(engine: Store, clock: ManualClock) -> None:
    await add(engine, NewJob(name="n", attempts=3))
    await run(engine, clock, 1_000, Snoozed(5_000))
    clock.advance(5_000)
    await run(engine, clock, 1_000, Released())
    await run(engine, clock, 2_000, Retried(FAILURE, 0))
    await run(engine, clock, 4_000)

    total = (await look(engine)).total

    assert (total.waits, total.retries) == ({0: 1}, 1)
    assert total.runs == {bucket_of(2_000): 1, bucket_of(4_000): 1}


@pytest.mark.covers("R092")
async def test_failures_are_counted_by_name(engine: Store, clock: ManualClock) -> None:
    for name in ("sync", "mail", "sync"):
        await add(engine, NewJob(name=name))
        await run(engine, clock, 10, Failed(FAILURE))
    await add(engine, NewJob(name="mail", delay=50))
    await engine.cancel("q", ["4"], reason="not wanted")
    await add(engine, NewJob(name="mail", expires=1))
    clock.advance(70_000)
    await claim(engine)

    found = await metrics(engine, "q", "1h")

    assert (found.failures, found.other_failures, found.failed) == ({"mail": 2, "sync": 2}, 0, 4)


async def test_names_that_are_told_apart_are_few(engine: Store, clock: ManualClock) -> None:
    names = [f"job-{n}" for n in range(45)] + ["x" * 101]
    for minute in range(3):
        await add(engine, *(NewJob(name=name) for name in names[minute * 15 :]))
        for job in (await claim(engine, 100)).jobs:
            await settle(engine, job.lease, Failed(FAILURE))
        clock.advance(60_000)

    found = await metrics(engine, "q", "1d")
    total = (await look(engine)).total

    assert found.failed == 46 + 31 + 16
    assert len(found.failures) <= 20
    assert sum(found.failures.values()) + found.other_failures == found.failed
    assert sum(total.failures.values()) + total.other_failures == found.failed
    assert not any(name.startswith("x") for name in total.failures)


@pytest.mark.covers("R142")
async def test_stalls_and_leases_that_ran_out_are_counted(engine: Store, clock: ManualClock) -> None:
    await add(engine, NewJob(name="n"), NewJob(name="n"))
    first, second = (await claim(engine, 2)).jobs
    await engine.recover("q", dead=[first.lease], cause="killed")
    clock.advance(30_001)
    await engine.recover("q")
    refused = await settle(engine, second.lease)

    found = await metrics(engine, "q", "1h")

    assert refused != "ok"
    assert (found.stalls, found.lost_leases, found.completed, found.run.count) == (2, 1, 0, 0)


async def test_every_range_has_every_attempt_to_the_job(engine: Store, clock: ManualClock) -> None:
    """Workers die, jobs are tried again, nothing is kept: what is counted is what happened."""
    chance = random.Random(11)
    started, ended, retries, stalls = [], [], 0, 0
    for _ in range(40):
        await add(engine, *(NewJob(name="n", attempts=9) for _ in range(chance.choice([1, 2, 7]))))
        for job in (await claim(engine, 20)).jobs:
            if job.starts == 1:
                started.append(clock.now())
            match chance.choice("cccfrrd"):
                case "c":
                    await settle(engine, job.lease, Completed())
                    ended.append(clock.now())
                case "f":
                    await settle(engine, job.lease, Failed(FAILURE))
                    ended.append(clock.now())
                case "r":
                    await settle(engine, job.lease, Retried(FAILURE, 0))
                    retries += 1
                case _:
                    await engine.recover("q", dead=[job.lease])
                    stalls += 1
                    if job.starts == 1:
                        started.pop()  # its first attempt never came back
        clock.advance(chance.choice([1_000, 7_000, 60_000, 300_000, 3_600_000]))

    for name in RANGES:
        found = await metrics(engine, "q", name)
        assert found.completed + found.failed == sum(time >= ms_of(found.start) for time in ended), name
        assert sum(point.count for point in found.waits) == found.wait.count
        assert sum(point.count for point in found.runs) == found.run.count
        assert [len(line) for line in (found.waits, found.runs)] == [len(found.series[0].data)] * 2
    total = (await look(engine)).total
    assert sum(total.waits.values()) == len(started)
    assert sum(total.runs.values()) == len(ended) + retries
    assert (total.retries, total.stalls) == (retries, stalls)
    week = await metrics(engine, "q", "7d")
    assert (week.run.count, week.retries, week.stalls) == (len(ended) + retries, retries, stalls)
    assert sum(week.failures.values()) == week.failed


async def test_a_minute_is_in_the_slice_that_it_belongs_to(engine: Store, clock: ManualClock) -> None:
    clock.advance(42 * 60_000 - clock.now() % (42 * 60_000))
    began = clock.now() // 60_000
    for minute in range(5):
        for _ in range(minute + 1):
            await add(engine, NewJob(name="n"))
            await run(engine, clock, 100)
        clock.advance(60_000 - clock.now() % 60_000)

    counted = {step: (await look(engine, step)).slices for step in sorted({*STEPS.values()})}

    runs = {
        step: {number - began // step: sum(tally.runs.values()) for number, tally in slices.items()}
        for step, slices in counted.items()
    }
    assert runs == {1: {0: 1, 1: 2, 2: 3, 3: 4, 4: 5}, 3: {0: 6, 1: 9}, 6: {0: 15}, 42: {0: 15}}


async def test_slices_of_long_ago_are_not_taken_for_new_ones(engine: Store, clock: ManualClock) -> None:
    await add(engine, NewJob(name="n"))
    await run(engine, clock, 100)
    clock.advance(240 * 60_000)
    assert (await look(engine)).slices == {}

    await add(engine, NewJob(name="n"))
    await run(engine, clock, 100)

    found = await look(engine)
    assert [sum(tally.runs.values()) for tally in found.slices.values()] == [1]
    assert sum(found.total.runs.values()) == 2


async def test_percentiles_are_near_the_truth(engine: Store, clock: ManualClock) -> None:
    chance = random.Random(3)
    times = [int(chance.lognormvariate(6, 2)) + 1 for _ in range(60)]
    for ms in times:
        await add(engine, NewJob(name="n"))
        await run(engine, clock, ms)

    found = await metrics(engine, "q", "1d")

    for share, value in ((0.5, found.run.p50), (0.95, found.run.p95), (0.99, found.run.p99)):
        true = sorted(times)[max(0, -(-round(share * 60 * 100) // 100) - 1)] / 1000
        assert value == pytest.approx(true, rel=ERROR * 1.1)
    assert found.wait.p99 == 0.0


async def test_every_one_of_very_many_in_a_minute_is_counted(engine: Store, clock: ManualClock) -> None:
    for size in (1, *[100] * 14, 70, 1):
        await add(engine, *(NewJob(name="n") for _ in range(size)))
        clock.advance(size)
        taken = (await claim(engine, size)).jobs
        clock.advance(10)
        nothing = Claim(want=0, token="t", lease=1, worker="w")
        await engine.exchange("q", [Settlement(job.lease, Completed()) for job in taken], nothing)

    total = (await look(engine)).total

    assert total.runs == {bucket_of(10): 1472}
    assert total.waits == {bucket_of(1): 2, bucket_of(100): 1400, bucket_of(70): 70}


async def test_what_waits_and_runs_for_months_is_counted_too(engine: Store, clock: ManualClock) -> None:
    waits = []
    for days in (40, 45, 60):
        await add(engine, NewJob(name="n"))
        clock.advance(days * 86_400_000)
        (job,) = (await claim(engine, 1, lease=200 * 86_400_000)).jobs
        clock.advance(days * 86_400_000)
        await settle(engine, job.lease)
        waits.append(bucket_of(days * 86_400_000))

    total = (await look(engine)).total

    assert total.waits == total.runs == dict.fromkeys(waits, 1)


async def test_a_replayed_job_did_not_wait_while_it_was_dead(engine: Store, clock: ManualClock) -> None:
    await add(engine, NewJob(name="n"))
    await run(engine, clock, 10, Failed(FAILURE))
    clock.advance(3_600_000)
    (letter,) = (await engine.dead_letters.page()).items
    await engine.dead_letters.replay("q", [Replay(letter.id)])
    clock.advance(2_000)
    assert (await look(engine)).oldest == clock.now() - 2_000
    await run(engine, clock, 10)

    assert (await look(engine)).total.waits == {0: 1, bucket_of(2_000): 1}


async def test_an_obliterated_queue_forgets_its_figures(engine: Store, clock: ManualClock) -> None:
    await add(engine, NewJob(name="n"), NewJob(name="n"))
    await run(engine, clock, 10)
    clock.advance(60_000)
    await run(engine, clock, 10)
    await engine.obliterate("q")
    await add(engine, NewJob(name="n"))

    found = await look(engine)

    assert (found.slices, found.total.runs, found.total.waits) == ({}, {}, {})


@pytest.mark.parametrize("ahead", [2, 90, 60 * 24 * 400], ids=["two minutes", "90 minutes", "a year"])
async def test_figures_go_on_after_a_clock_was_ahead(engine: Store, clock: ManualClock, ahead: int) -> None:
    await add(engine, *(NewJob(name="n") for _ in range(4)))
    await run(engine, clock, 1_000)
    clock.advance(ahead * 60_000)
    await run(engine, clock, 1_000)
    clock.advance(-ahead * 60_000)
    await run(engine, clock, 1_000)
    clock.advance(5 * 60_000)
    await run(engine, clock, 1_000)

    found = await metrics(engine, "q", "1h")

    assert found.run.count >= 2  # those after it, at least
    assert found.completed >= 2
    assert (await look(engine)).total.runs == {bucket_of(1_000): 4}


async def test_steps_rests_and_signals_are_counted_once(engine: Store, clock: ManualClock) -> None:
    lease = (await running(engine)).lease
    again = Call("w", 1)
    for _ in range(2):  # the second time it is known, and not counted
        await recorded(engine, report(lease), report(lease, "b"), call=again)
    await recorded(engine, report(lease, text="2"))  # the first one stays
    await steps_of(engine).receive(lease, "early", [SignalWait("early")])
    await resting(engine, lease, sleep(delay=60_000), wait("approval", delay=60_000))
    clock.advance(60_000)
    sent = [
        NewSignal(name="approval", job_id=lease.id, id="a"), NewSignal(name="approval", job_id=lease.id, id="a"),
        NewSignal(name="other", job_id=lease.id, only_if_waiting=True), NewSignal(name="paid", key="7"),
        NewSignal(name="paid", job_id="nobody"),
    ]  # fmt: skip
    for _ in range(2):
        await steps_of(engine).deliver("q", sent, call=Call("w", 2))
    clock.advance(180_000)
    claimed = await claim_one(engine)
    await steps_of(engine).receive(claimed.lease, "w", [SignalWait("approval")])

    found = await look(engine)

    for counted in (found.total, sum_of(found.slices.values())):
        assert (counted.rests, counted.steps) == (1, 5)
        assert counted.signals == {"woken": 1, "duplicate": 1, "not_waiting": 1, "kept": 1}


async def test_a_row_that_was_refused_and_a_rest_that_is_over_are_not_counted(engine: Store) -> None:
    lease = (await running(engine)).lease
    await recorded(engine, report(replace(lease, token="another")))
    await steps_of(engine).deliver("q", [NewSignal(name="approval", job_id=lease.id)])
    await resting(engine, lease, wait("approval"))  # it has come

    total = (await look(engine)).total

    assert (total.rests, total.steps, total.signals) == (0, 1, {"kept": 1})
