"""A cancelled job has neither completed nor failed: it is counted, remembered and found as what it is."""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import TypeAlias

import pytest

from tests.conformance.jobs import add, claim, claim_one, job, settle
from tests.conformance.test_search import queue_on
from toril import JobFilter
from toril.model import (
    KEEP_ALL,
    Cancelled,
    Cause,
    Completed,
    EventKind,
    Failed,
    Failure,
    FlowNode,
    JobOptions,
    JobRef,
    MetricsWindow,
    NewJob,
    OnFailure,
    Released,
    Rested,
    Retried,
    RunStatus,
    Snoozed,
)
from toril.model.states import State
from toril.operate.metrics import metrics, overview
from toril.policy.retention import RUNS
from toril.store.engine import Store
from toril.testing import ManualClock

WHY = Failure("it broke", "E")
UNWANTED = NewJob(name="n", id="x", attempts=5)

Way: TypeAlias = Callable[[Store, ManualClock, NewJob], Awaitable[None]]


async def before_it_starts(engine: Store, _: ManualClock, new: NewJob) -> None:
    await add(engine, new)
    await engine.cancel("q", ["x"], reason="not wanted")


async def by_its_handler(engine: Store, _: ManualClock, new: NewJob) -> None:
    await add(engine, new)
    await settle(engine, (await claim_one(engine)).lease, Cancelled("not wanted"))


async def instead_of_a_retry(engine: Store, _: ManualClock, new: NewJob) -> None:
    await add(engine, new)
    running = await claim_one(engine)
    await engine.cancel("q", ["x"], reason="not wanted")
    await settle(engine, running.lease, Retried(WHY))


async def instead_of_a_snooze(engine: Store, _: ManualClock, new: NewJob) -> None:
    await add(engine, new)
    running = await claim_one(engine)
    await engine.cancel("q", ["x"], reason="not wanted")
    await settle(engine, running.lease, Snoozed(1000))


async def instead_of_going_back(engine: Store, _: ManualClock, new: NewJob) -> None:
    await add(engine, new)
    running = await claim_one(engine)
    await engine.cancel("q", ["x"], reason="not wanted")
    await settle(engine, running.lease, Released())


async def instead_of_waiting_for_children(engine: Store, _: ManualClock, new: NewJob) -> None:
    await add(engine, new)
    running = await claim_one(engine)
    await engine.cancel("q", ["x"], reason="not wanted")
    child = FlowNode(queue="other", job=NewJob(name="c", id="c"), parent=JobRef("q", "x"))
    await settle(engine, running.lease, Rested((child,), 1))


async def when_its_worker_is_gone(engine: Store, clock: ManualClock, new: NewJob) -> None:
    await add(engine, new)
    await claim(engine, lease=1000)
    await engine.cancel("q", ["x"], reason="not wanted")
    clock.advance(1001)
    await engine.recover("q")


WAYS: list[Way] = [
    before_it_starts, by_its_handler, instead_of_a_retry, instead_of_a_snooze, instead_of_going_back,
    instead_of_waiting_for_children, when_its_worker_is_gone,
]  # fmt: skip


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
@pytest.mark.parametrize("keep", [None, KEEP_ALL], ids=["gone", "kept"])
async def test_a_cancellation_is_no_failure(engine: Store, clock: ManualClock, way: Way, keep: object) -> None:
    await way(engine, clock, UNWANTED if keep is None else replace(UNWANTED, options=JobOptions(keep_failed=KEEP_ALL)))

    view = await engine.queue("q")
    assert (view.completed_total, view.failed_total, view.cancelled_total) == (0, 0, 1)
    (run,) = (await engine.runs("q", RunStatus.CANCELLED)).items
    assert (run.id, run.ending, run.cause, run.text) == ("x", RunStatus.CANCELLED, Cause.CANCELLED, "not wanted")
    assert (await engine.runs("q", RunStatus.FAILED)).items == ()
    kinds = [event.kind for event in (await engine.events("q", of="x")).items]
    assert (kinds.count(EventKind.CANCELLED), kinds.count(EventKind.FAILED)) == (1, 0)
    assert (await engine.dead_letters.page()).items == ()
    (ended,) = await engine.finished("q", ["x"], timeout=0)
    assert ended.ended == Cancelled("not wanted")
    if keep is not None:
        found = await job(engine, "x")
        assert (found.state, found.ending) == (State.FAILED, RunStatus.CANCELLED), "where BullMQ looks for it"


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
async def test_metrics_count_a_cancellation_apart(engine: Store, clock: ManualClock, way: Way) -> None:
    await add(engine, NewJob(name="n"), NewJob(name="n"))
    first, second = (await claim(engine, 2)).jobs
    await settle(engine, first.lease)
    await settle(engine, second.lease, Failed(WHY))
    await way(engine, clock, UNWANTED)

    found = await metrics(engine, "q", "1h")
    (hour,) = (await overview(engine, ["q"], {"q": 60.0})).queues
    (figures,) = (await engine.metrics.snapshot(["q"], MetricsWindow(60, 1, 60))).queues

    assert (found.completed, found.failed, found.cancelled) == (1, 1, 1)
    assert (found.failure_rate, dict(found.failures), found.other_failures) == (50.0, {"n": 1}, 0)
    assert [(series.id, sum(count for _, count in series.data)) for series in found.series] == [
        ("Completed", 1), ("Failed", 1), ("Cancelled", 1),
    ]  # fmt: skip
    assert (sum(hour.completed), sum(hour.failed), hour.cancelled, hour.failure_rate) == (1, 1, 1, 50.0)
    assert (figures.completed_total, figures.failed_total, figures.total.cancelled) == (1, 1, 1)
    assert sum((await engine.metrics.minutes("q", minutes=60)).failed) == 1


async def test_cancellations_of_long_ago_stay_counted(engine: Store, clock: ManualClock) -> None:
    for _ in range(3):
        await before_it_starts(engine, clock, UNWANTED)
        clock.advance(61_000)
    clock.advance(8 * 86_400_000)
    await before_it_starts(engine, clock, UNWANTED)

    assert (await engine.queue("q")).cancelled_total == 4
    assert (await metrics(engine, "q", "7d")).cancelled == 1


async def test_many_cancellations_push_no_failure_out_of_the_records(engine: Store, clock: ManualClock) -> None:
    await add(engine, NewJob(name="bad", id="bad"))
    await settle(engine, (await claim_one(engine)).lease, Failed(WHY))
    for start in range(0, RUNS + 200, 200):
        some = [NewJob(name="n", id=f"j{n}") for n in range(start, start + 200)]
        await add(engine, *some)
        await engine.cancel("q", [str(each.id) for each in some], reason="not wanted")
        clock.advance(1)

    cancelled = (await engine.runs("q", RunStatus.CANCELLED, limit=1000)).items

    assert [run.id for run in (await engine.runs("q", RunStatus.FAILED)).items] == ["bad"]
    assert (len(cancelled), cancelled[0].id, cancelled[-1].id) == (RUNS, f"j{RUNS + 199}", "j200")


async def test_cancelled_jobs_are_told_from_failed_ones_in_a_search(engine: Store, clock: ManualClock) -> None:
    queue = queue_on(engine, clock)
    await add(
        engine, *(NewJob(name="n", id=each, options=JobOptions(keep_failed=KEEP_ALL)) for each in ("bad", "not", "nor"))
    )
    running = {each.lease.id: each.lease for each in (await claim(engine)).jobs}
    await settle(engine, running["bad"], Failed(WHY))
    await settle(engine, running["not"], Cancelled("not wanted"))
    await settle(engine, running["nor"], Cancelled("not wanted"))

    async def found(where: JobFilter) -> set[str]:
        return {each.id for each in (await queue.search("failed", where)).items}

    assert await found(JobFilter()) == {"bad", "not", "nor"}
    assert await found(JobFilter(ending="failed")) == {"bad"}
    assert await found(JobFilter(ending="cancelled")) == {"not", "nor"}
    assert (await queue.count("failed", JobFilter(ending="cancelled"))).count == 2
    assert {run.id for run in (await queue.runs("cancelled")).items} == {"not", "nor"}
    assert {run.id for run in (await queue.runs("cancelled", where=JobFilter(error="WANTED"))).items} == {"not", "nor"}
    assert [(group.kind, group.count) for group in (await queue.failures()).groups] == [("E", 1)]
    assert (await queue.why("not")).reason == "cancelled"

    assert await queue.retry_failed() == 1, "who cancelled a job does not want it to run"
    assert await found(JobFilter()) == {"not", "nor"}


async def test_cancellations_do_not_make_failures_in_a_row(engine: Store, clock: ManualClock) -> None:
    queue = queue_on(engine, clock)
    await add(engine, NewJob(name="n", id="bad", options=JobOptions(subject="acme")))
    await settle(engine, (await claim_one(engine)).lease, Failed(WHY))
    await add(engine, NewJob(name="n", id="not", options=JobOptions(subject="acme")))
    await engine.cancel("q", ["not"], reason="not wanted")

    assert await queue.failures_in_a_row("acme") == 1


@pytest.mark.parametrize("on_failure", [OnFailure.FAIL, OnFailure.IGNORE])
async def test_a_cancelled_child_is_counted_as_cancelled(engine: Store, on_failure: OnFailure) -> None:
    top = FlowNode(queue="q", job=NewJob(name="top", id="top"), waits=True)
    child = FlowNode(
        queue="children", job=NewJob(name="child", id="child"), parent=JobRef("q", "top"), on_failure=on_failure
    )
    await engine.flows.add([top, child])
    await engine.cancel("children", ["child"], reason="not wanted")
    for running in (await claim(engine)).jobs:
        await settle(engine, running.lease, Completed())

    below, above = await engine.queue("children"), await engine.queue("q")

    assert (below.failed_total, below.cancelled_total) == (0, 1)
    ended = (above.completed_total, above.failed_total, above.cancelled_total)
    assert ended == ((0, 1, 0) if on_failure is OnFailure.FAIL else (1, 0, 0)), "the parent itself was not cancelled"


async def test_a_queue_that_is_obliterated_forgets_its_cancellations(engine: Store, clock: ManualClock) -> None:
    await before_it_starts(engine, clock, UNWANTED)
    clock.advance(61_000)
    await before_it_starts(engine, clock, UNWANTED)
    await engine.obliterate("q")

    await add(engine, NewJob(name="n"))

    assert (await engine.queue("q")).cancelled_total == 0
    assert (await engine.runs("q", RunStatus.CANCELLED)).items == ()
