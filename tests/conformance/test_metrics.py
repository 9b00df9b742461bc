"""What ended is counted by the minute, to the job, kept or not."""

import random
from collections.abc import Sequence

import pytest

from tests.conformance.jobs import add, claim, settle
from toril.errors import InvalidOption
from toril.model import Completed, Failed, Failure, MetricsWindow, NewJob, Pause, Snapshot, ms_of
from toril.operate.metrics import metrics, overview
from toril.policy.metrics import RANGES
from toril.store.engine import Store
from toril.testing import ManualClock


@pytest.mark.covers("R227", "R229", "R230", "R231", "R232", "R233", "Q3")
async def test_every_range_counts_what_ended_within_it(engine: Store, clock: ManualClock) -> None:
    chance = random.Random(7)
    ended: list[tuple[int, bool]] = []
    cancelled: list[int] = []
    for _ in range(12):
        await add(engine, *(NewJob(name="n") for _ in range(3)))
        (unwanted,) = await add(engine, NewJob(name="n", delay=1000))
        await engine.cancel("q", [unwanted.id], reason="not wanted")
        cancelled.append(clock.now() // 60_000)
        for job in (await claim(engine, 3)).jobs:
            good = chance.random() < 0.7
            await settle(engine, job.lease, Completed() if good else Failed(Failure("no", "E")))
            ended.append((clock.now() // 60_000, good))
        clock.advance(chance.choice([1_000, 60_000, 3_600_000, 20 * 3_600_000]))
    await add(engine, NewJob(name="n"))
    this = clock.now() // 60_000

    for name, minutes in RANGES.items():
        found = await metrics(engine, "q", name)
        within = [good for minute, good in ended if minute * 60_000 >= ms_of(found.start)]
        assert this - minutes < ms_of(found.start) // 60_000 < this - minutes + 42
        assert (found.completed, found.failed) == (sum(within), len(within) - sum(within)), name
        assert found.failure_rate == (round(100 * found.failed / len(within), 1) if within else 0), name
        assert found.cancelled == sum(minute * 60_000 >= ms_of(found.start) for minute in cancelled), name
        for series, total in zip(found.series, (found.completed, found.failed, found.cancelled), strict=True):
            assert len(series.data) <= 240
            assert sum(count for _, count in series.data) == total
            assert [x for x, _ in series.data] == sorted(x for x, _ in series.data)
        assert (found.counts.waiting, found.workers) == (1, 0)


async def test_figures_of_many_queues_come_in_the_order_asked_for(engine: Store, clock: ManualClock) -> None:
    await add(engine, NewJob(name="n"), queue="a")
    clock.advance(5_000)
    await add(engine, NewJob(name="n"), NewJob(name="n", delay=60_000), queue="b")
    await engine.configure("b", [Pause()])

    found = await engine.metrics.snapshot(["b", "never", "a"], MetricsWindow(60, 1, 60))

    assert found.now == clock.now()
    assert [each.name for each in found.queues] == ["b", "never", "a"]
    assert [each.counts.waiting for each in found.queues] == [1, 0, 1]
    assert [each.counts.delayed for each in found.queues] == [1, 0, 0]
    assert [each.counts.paused for each in found.queues] == [True, False, False]
    assert [each.oldest for each in found.queues] == [clock.now(), None, clock.now() - 5_000]


async def test_the_job_that_has_waited_longest_is_found_among_priorities(engine: Store, clock: ManualClock) -> None:
    began = clock.now()
    await add(engine, NewJob(name="n", priority=7))
    clock.advance(1_000)
    await add(engine, NewJob(name="n", priority=2), NewJob(name="n", priority=7), NewJob(name="n"))

    (found,) = (await engine.metrics.snapshot(["q"], MetricsWindow(1, 1, 1))).queues

    assert found.oldest == began


async def test_a_job_does_not_wait_while_it_is_delayed(engine: Store, clock: ManualClock) -> None:
    due = clock.now() + 10_000
    await add(engine, NewJob(name="n", delay=10_000), NewJob(name="n", due=due), NewJob(name="n", delay=20_000))
    clock.advance(13_000)
    await claim(engine, 1)

    (found,) = (await engine.metrics.snapshot(["q"], MetricsWindow(1, 1, 1))).queues

    assert found.counts.waiting == 1
    assert found.oldest == due


async def test_too_many_queues_at_once_are_refused(engine: Store) -> None:
    with pytest.raises(InvalidOption, match="at most 50 queues, not 51"):
        await engine.metrics.snapshot([f"q{n}" for n in range(51)], MetricsWindow(1, 1, 1))
    with pytest.raises(InvalidOption, match="slices have 1, 3, 6, 42 minutes, not 5"):
        await engine.metrics.snapshot(["q"], MetricsWindow(1, 5, 1))


@pytest.mark.covers("R228")
async def test_an_overview_has_every_queue_however_many(
    engine: Store, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = sorted(f"q{n}" for n in range(60))
    for name in names:
        await add(engine, NewJob(name="n"), queue=name)
    (job,) = (await claim(engine, queue="q7")).jobs
    clock.advance(60_000)
    await settle(engine, job.lease, now=job.added_at + 1_000)

    asked: list[int] = []
    figures = engine.metrics.snapshot

    async def counted(queues: Sequence[str], window: MetricsWindow) -> Snapshot:
        asked.append(len(queues))
        return await figures(queues, window)

    monkeypatch.setattr(engine.metrics, "snapshot", counted)

    found = await overview(engine, names, dict.fromkeys(names, 120.0))
    await metrics(engine, "q7", "1h")

    assert asked == [50, 10, 1], "questions to the store"
    assert [each.queue for each in found.queues] == names
    assert sum(sum(each.completed) for each in found.queues) == 1
    assert {each.oldest for each in found.queues} == {None, 60.0}
    (seven,) = (each for each in found.queues if each.queue == "q7")
    assert (sum(seven.completed), seven.rate, seven.failure_rate, len(seven.completed)) == (1, 0.2, 0.0, 60)
