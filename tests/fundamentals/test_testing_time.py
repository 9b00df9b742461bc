"""Time in users' tests: one clock for delays, schedules, retries, leases, rates."""

import asyncio
import time
from datetime import UTC, datetime, timedelta

import pytest

from toril import App, Fixed, InvalidOption, JobContext, RateLimit, Retry, State
from toril.testing import ManualClock, memory

MONDAY = datetime(2026, 6, 1, tzinfo=UTC)


async def test_thirty_days_of_a_schedule_with_retries_take_less_than_a_second() -> None:
    app, ran = App("memory://"), []

    async def report(ctx: JobContext[str]) -> None:
        ran.append((test.now, ctx.attempt))
        if ctx.attempt < 3:
            raise ConnectionError("not yet")

    queue = app.queue("reports", {"report": report}, retry=Retry(3, Fixed(600)))
    queue.schedule("nightly", "report", "ops", cron="30 2 * * *")
    async with memory(app, start=MONDAY) as test:
        began = time.process_time()
        await test.after("30d")
        took = time.process_time() - began

    first = MONDAY + timedelta(hours=2, minutes=30)
    assert ran == [
        (first + timedelta(days=day, minutes=10 * attempt), attempt + 1) for day in range(30) for attempt in range(3)
    ]
    assert took < 1, "seconds of this process"


@pytest.mark.covers("R197")
async def test_a_thousand_jobs_that_fall_due_within_a_second_start_on_time() -> None:
    app, late = App("memory://"), list[float]()

    async def note(ctx: JobContext[float]) -> None:
        late.append((test.now - MONDAY).total_seconds() - ctx.data)

    queue = app.queue("q", {"note": note})
    async with memory(app, start=MONDAY) as test:
        await queue.add_many([("note", n / 1000, {"delay": n / 1000}) for n in range(1, 1001)])
        await test.after(5)

    assert len(late) == 1000
    assert 0 <= min(late) <= max(late) < 0.1


async def test_each_thing_happens_at_its_time() -> None:
    app, ran = App("memory://"), []

    async def note(ctx: JobContext[str]) -> None:
        ran.append((ctx.data, (test.now - MONDAY).total_seconds()))

    app.queue("plain", {"note": note})
    app.queue("slow", {"slow": note}, rate_limit=RateLimit(1, per=60))
    async with memory(app, start=MONDAY) as test:
        await app.queues["plain"].add("note", "late", delay=90)
        await app.queues["plain"].add("note", "at", at=MONDAY + timedelta(hours=1))
        await app.queues["slow"].add_many([("slow", f"limited {n}") for n in range(3)])
        await test.after(timedelta(hours=1))

    assert ran == [("limited 0", 0), ("limited 1", 60), ("late", 90), ("limited 2", 120), ("at", 3600)]


async def test_a_lease_runs_out_on_the_same_clock() -> None:
    app, ran = App("memory://"), []

    async def work(ctx: JobContext[None]) -> None:
        ran.append((test.now - MONDAY).total_seconds())

    queue = app.queue("q", [work], lease=45)
    async with memory(app, start=MONDAY) as test:
        job = await queue.add(work)
        test.kill("returned")
        await test.drain()
        held = await job.state()
        await test.after("1d")

    assert held is State.ACTIVE
    assert ran == [0, 45]


async def test_a_time_that_makes_no_sense_is_refused() -> None:
    app = App("memory://")
    app.queue("q", {"n": print})
    async with memory(app) as test:
        with pytest.raises(InvalidOption, match="'tomorrow'"):
            await test.after("tomorrow")
        with pytest.raises(InvalidOption, match="between 0 s"):
            await test.after(-1)
    with pytest.raises(InvalidOption, match="time zone"):
        async with memory(app, start=datetime(2026, 6, 1)):  # noqa: DTZ001 - what is refused
            pass


async def test_nothing_moves_for_who_runs_the_app_himself() -> None:
    app = App("memory://")

    async def work(ctx: JobContext[None]) -> None: ...

    queue = app.queue("q", [work])
    async with memory(app, start=MONDAY) as test:
        await queue.add(work, delay=1)
        await app.run(burst=True)
        assert test.now == MONDAY
        test.clock.advance(5000)
        await app.run(burst=True)
        assert (await queue.counts()).delayed == 0


async def test_who_sleeps_until_a_time_gets_there() -> None:
    clock = ManualClock()
    until = clock.monotonic() + 15 + 1e-7  # as it may come of adding and subtracting

    async def until_then() -> int:
        sleeps = 0
        while (left := until - clock.monotonic()) > 0:
            sleeps += 1
            await clock.sleep(min(left, 2))
        return sleeps

    async with clock.running(), asyncio.timeout(30):
        sleeps = await until_then()

    assert sleeps == 9
