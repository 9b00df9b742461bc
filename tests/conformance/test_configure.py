"""Engine.configure, and how a claim honours pause, concurrency and rate."""

from typing import Literal

import pytest

from tests.conformance.jobs import add, claim, claim_one, names, settle
from toril.model import (
    EventKind,
    Gate,
    Hold,
    Limits,
    NewJob,
    Pause,
    RateLimit,
    Released,
    Resume,
    SetConcurrency,
    SetMaxWaiting,
    SetRateLimit,
    Settings,
)
from toril.store.engine import Store
from toril.testing import ManualClock


async def test_settings_are_read_and_written_together(engine: Store) -> None:
    rate = RateLimit(5, 2.5, "fixed")

    answer = await engine.configure("q", [Pause(), SetConcurrency(3), SetRateLimit(rate), SetMaxWaiting(9)])

    assert answer == Settings(paused=True, concurrency=3, rate=rate, max_waiting=9)
    assert await engine.configure("q", []) == answer
    assert (await engine.queue("q")).settings == answer
    cleared = await engine.configure("q", [Resume(), SetConcurrency(None), SetRateLimit(None), SetMaxWaiting(None)])
    assert cleared == Settings()


async def test_reading_the_settings_of_no_queue_makes_none(engine: Store) -> None:
    assert await engine.configure("never", []) == Settings()
    assert await engine.queues() == []


@pytest.mark.covers("R014", "F125", "B76")
async def test_a_paused_queue_takes_jobs_but_gives_none(engine: Store) -> None:
    await add(engine, NewJob(name="running"))
    running = await claim_one(engine)
    await engine.configure("q", [Pause()])
    await engine.configure("q", [Pause()])
    await add(engine, NewJob(name="a"), NewJob(name="b"))

    held = await claim(engine)
    await settle(engine, running.lease)
    await engine.configure("q", [Resume()])
    await engine.configure("q", [Resume()])

    assert (held.jobs, held.blocked_by) == ((), Gate.PAUSED)
    assert names((await claim(engine)).jobs) == ["a", "b"]
    events = [e.kind for e in (await engine.events("q")).items if e.kind in {EventKind.PAUSED, EventKind.RESUMED}]
    assert events == [EventKind.PAUSED, EventKind.RESUMED]


async def test_a_paused_queue_still_promotes_what_is_due(engine: Store, clock: ManualClock) -> None:
    await engine.configure("q", [Pause()])
    await add(engine, NewJob(name="n", delay=10))
    clock.advance(10)

    await claim(engine)

    counts = await engine.counts("q")
    assert (counts.waiting, counts.delayed, counts.paused) == (1, 0, True)


@pytest.mark.covers("R254", "R204")
async def test_no_more_run_at_once_than_the_fleet_may(engine: Store) -> None:
    await engine.configure("q", [SetConcurrency(2)])
    await add(engine, *(NewJob(name=n) for n in "abcd"))

    first = await claim(engine, worker="w1")
    second = await claim(engine, worker="w2")
    await settle(engine, first.jobs[0].lease)
    third = await claim(engine, worker="w2")

    assert (names(first.jobs), first.blocked_by) == (["a", "b"], Gate.CONCURRENCY)
    assert (second.jobs, second.blocked_by) == ((), Gate.CONCURRENCY)
    assert names(third.jobs) == ["c"]


@pytest.mark.covers("R201", "R202", "R203", "S23", "I8")
@pytest.mark.parametrize("declared", ["in the claim", "in the store"])
async def test_in_no_window_do_more_start_than_the_rate_allows(
    engine: Store, clock: ManualClock, declared: str
) -> None:
    rate = RateLimit(10, 1.0)
    limits = Limits(rate=rate) if declared == "in the claim" else None
    if limits is None:
        await engine.configure("q", [SetRateLimit(rate)])
    await add(engine, *(NewJob(name=str(i)) for i in range(60)))

    starts: list[int] = []
    seen: list[str] = []
    while len(seen) < 60:
        answer = await claim(engine, 7, limits=limits)
        seen += names(answer.jobs)
        starts += [clock.now()] * len(answer.jobs)
        assert all(each.attempts_made == 0 for each in answer.jobs)
        clock.advance(37)

    assert seen == [str(i) for i in range(60)]
    for start in starts:
        assert len([s for s in starts if start - 1000 < s <= start]) <= 10
    assert starts[-1] - starts[0] < 6 * 1100


async def test_a_limited_claim_says_when_the_next_may_start(engine: Store, clock: ManualClock) -> None:
    await engine.configure("q", [SetRateLimit(RateLimit(2, 1.0))])
    await add(engine, *(NewJob(name=str(i)) for i in range(5)))
    await claim(engine, 1)
    clock.advance(400)
    await claim(engine, 1)

    answer = await claim(engine)

    assert (answer.jobs, answer.blocked_by) == ((), Gate.RATE)
    assert answer.wake_at == clock.now() + 600
    clock.advance(600)
    assert names((await claim(engine)).jobs) == ["2"]


@pytest.mark.parametrize("window", ["sliding", "fixed"])
async def test_a_claim_that_uses_up_the_rate_says_when_the_next_may_start(
    engine: Store, clock: ManualClock, window: Literal["sliding", "fixed"]
) -> None:
    await engine.configure("q", [SetRateLimit(RateLimit(2, 1.0, window))])
    await add(engine, *(NewJob(name=str(i)) for i in range(5)))

    answer = await claim(engine)

    assert (names(answer.jobs), answer.blocked_by) == (["0", "1"], Gate.RATE)
    assert answer.wake_at == clock.now() + 1000


async def test_a_fixed_window_begins_with_its_first_start(engine: Store, clock: ManualClock) -> None:
    limits = Limits(rate=RateLimit(3, 1.0, "fixed"))
    await add(engine, *(NewJob(name=str(i)) for i in range(9)))

    first = await claim(engine, limits=limits)
    clock.advance(999)
    second = await claim(engine, limits=limits)
    clock.advance(1)
    third = await claim(engine, limits=limits)

    assert (len(first.jobs), len(second.jobs), len(third.jobs)) == (3, 0, 3)
    assert (second.blocked_by, second.wake_at) == (Gate.RATE, clock.now())


async def test_a_large_rate_is_never_exceeded(engine: Store, clock: ManualClock) -> None:
    await engine.configure("q", [SetRateLimit(RateLimit(2000, 1.0))])
    for _ in range(5):
        await add(engine, *(NewJob(name="n") for _ in range(1000)))

    starts: list[tuple[int, int]] = []
    for _ in range(200):
        taken = len((await claim(engine, 100)).jobs)
        starts.append((clock.now(), taken))
        clock.advance(11)

    for end, _ in starts:
        assert sum(count for start, count in starts if end - 1000 < start <= end) <= 2000
    assert sum(count for _, count in starts) >= 0.97 * 2000 * 2


@pytest.mark.covers("R205")
async def test_each_queue_has_its_own_limits(engine: Store) -> None:
    await engine.configure("slow", [SetRateLimit(RateLimit(1, 60))])
    for queue in ("slow", "fast"):
        await add(engine, *(NewJob(name="n") for _ in range(5)), queue=queue)

    slow, fast = await claim(engine, queue="slow"), await claim(engine, queue="fast")

    assert (len(slow.jobs), len(fast.jobs)) == (1, 5)


async def test_the_narrowest_gate_is_named(engine: Store) -> None:
    await engine.configure("q", [SetConcurrency(3), SetRateLimit(RateLimit(2, 60))])
    await add(engine, *(NewJob(name="n") for _ in range(5)))

    answer = await claim(engine)

    assert (len(answer.jobs), answer.blocked_by) == (2, Gate.RATE)


async def test_an_open_gate_is_not_blamed_for_an_empty_queue(engine: Store) -> None:
    await engine.configure("q", [SetConcurrency(3)])
    await add(engine, NewJob(name="n"))

    assert (await claim(engine)).blocked_by is None


async def test_a_held_queue_starts_nothing_until_the_time_is_over(engine: Store, clock: ManualClock) -> None:
    await add(engine, *(NewJob(name=n) for n in "abc"))
    running = await claim_one(engine)

    settings = await engine.configure("q", [Hold(5000)])
    await settle(engine, running.lease, Released())
    held = await claim(engine)

    assert settings.held_till == clock.now() + 5000
    assert (held.jobs, held.blocked_by, held.wake_at) == ((), Gate.RATE, clock.now() + 5000)
    clock.advance(5000)
    assert names((await claim(engine)).jobs) == ["a", "b", "c"]
    assert (await engine.queue("q")).settings.held_till is None


async def test_a_held_queue_can_be_let_go(engine: Store) -> None:
    await add(engine, NewJob(name="a"))
    await engine.configure("q", [Hold(5000)])

    assert (await engine.configure("q", [Hold(None)])).held_till is None
    assert names((await claim(engine)).jobs) == ["a"]
