"""Faults that other queues have been seen to have, each on every engine: here they are not."""

import asyncio

import pytest

from tests.conformance.jobs import add, claim, claim_one, settle
from toril.model import AddOutcome, Completed, EventKind, JobOptions, Keep, Limits, NewJob, RateLimit
from toril.model.states import State
from toril.store.engine import Store
from toril.testing import ManualClock


@pytest.mark.covers("P1", "X02")
async def test_a_result_that_lives_shortly_takes_no_other_with_it(engine: Store, clock: ManualClock) -> None:
    large = Completed('"' + "x" * 5000 + '"')
    await add(
        engine,
        NewJob(name="n", id="long", options=JobOptions(result_ttl=3_600_000)),
        NewJob(name="n", id="short", options=JobOptions(result_ttl=300)),
    )
    for job in (await claim(engine, 2)).jobs:
        await settle(engine, job.lease, large)
    clock.advance(301)
    await engine.prune("q")

    short, long = await engine.finished("q", ["short", "long"], timeout=0)

    assert short.ended != large
    assert long.ended == large


@pytest.mark.covers("P11")
async def test_a_cancelled_job_that_is_added_again_runs_once_with_the_new_payload(engine: Store) -> None:
    await add(engine, NewJob(name="n", id="a", data='"old"'))
    await engine.cancel("q", ["a"], reason="not any more")

    (again,) = await add(engine, NewJob(name="n", id="a", data='"new"'))

    assert again.outcome is AddOutcome.ADDED
    assert [(job.lease.id, job.data) for job in (await claim(engine)).jobs] == [("a", '"new"')]
    assert (await claim(engine)).jobs == ()


@pytest.mark.covers("P14", "P16")
async def test_of_fifty_who_add_one_id_at_once_one_adds_it_and_nobody_fails(engine: Store) -> None:
    added = await asyncio.gather(*(add(engine, NewJob(name="n", id="one")) for _ in range(50)))

    outcomes = [each.outcome for answer in added for each in answer]
    assert outcomes.count(AddOutcome.ADDED) == 1
    assert outcomes.count(AddOutcome.DUPLICATE) == 49
    assert (await engine.counts("q")).waiting == 1


@pytest.mark.covers("P21")
async def test_the_events_of_one_queue_are_not_those_of_another(engine: Store) -> None:
    await add(engine, NewJob(name="n"), queue="a")
    await engine.cancel("a", ["1"], reason="no")
    await add(engine, NewJob(name="n"), queue="b")

    there = [event.kind for event in (await engine.events("a")).items]
    here = [event.kind for event in (await engine.events("b")).items]

    assert there[:2] == here == [EventKind.ADDED, EventKind.WAITING]
    assert EventKind.CANCELLED in there, "a cancellation is told where all else is"


@pytest.mark.covers("F124")
async def test_a_worker_that_dies_leaves_the_rate_as_it_was_and_freezes_nothing(
    engine: Store, clock: ManualClock
) -> None:
    limits = Limits(rate=RateLimit(3, 1.0))
    await add(engine, *(NewJob(name="n") for _ in range(9)))
    starts: list[int] = []
    for _ in range(40):
        taken = (await claim(engine, 9, lease=400, limits=limits, max_stalls=50)).jobs
        starts += [clock.now()] * len(taken)
        for job in taken[1:]:  # the first one's worker is dead
            await settle(engine, job.lease)
        clock.advance(200)
        await engine.recover("q")
        if (await engine.counts("q")).waiting == 0 and not taken:
            break

    assert all(sum(first <= start < first + 1000 for start in starts) <= 3 for first in starts)
    assert (await engine.counts("q")).active == 0
    assert len(starts) >= 9


@pytest.mark.covers("F14")
async def test_trimming_takes_none_that_is_to_be_kept(engine: Store) -> None:
    all_of_them = Keep(count=400)
    for _ in range(4):
        await add(engine, *(NewJob(name="n", options=JobOptions(keep_completed=all_of_them)) for _ in range(100)))
        for job in (await claim(engine, 100)).jobs:
            await settle(engine, job.lease)
    before = (await engine.counts("q")).completed

    await add(engine, NewJob(name="n", options=JobOptions(keep_completed=Keep(count=10))))
    await settle(engine, (await claim_one(engine)).lease)

    left = (await engine.counts("q")).completed
    newest = (await engine.page("q", State.COMPLETED, limit=10)).items
    assert before == 400
    assert left >= 10
    assert [job.id for job in newest] == [str(number) for number in range(401, 391, -1)]
