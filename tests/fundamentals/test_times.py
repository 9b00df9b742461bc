"""Times that a program reads are datetimes in UTC, and durations seconds, wherever it reads them."""

from datetime import UTC, datetime, timedelta
from typing import Any

from toril import App, Breaker, Fixed, JobContext, JobEvent, RateLimit, Retry
from toril.model import Heartbeat
from toril.records import EventRecord
from toril.testing import Memory, memory

START = datetime(2026, 6, 1, 12, tzinfo=UTC)


def seconds(number: float) -> timedelta:
    return timedelta(seconds=number)


async def test_the_times_of_a_job_are_datetimes_wherever_they_are_read() -> None:
    app = App("memory://")

    async def work(ctx: JobContext[None]) -> None: ...

    queue = app.queue("q", [work], keep_completed=True)
    async with memory(app, start=START) as test:
        job = await queue.add(work, delay=90, timeout=30, expires=300, result_ttl=60)
        await test.after(100)
        await job.refresh()
        record, (run,), found = job.record, await queue.runs(), await queue.jobs("completed")
        history = [(event.kind.value, event.time) for event in await job.history()]
        followed = await anext(queue.events("0"))
        counted = await queue.count("completed")
        figures = await queue.metrics()

    began = START + seconds(90)
    assert (job.added_at, job.started_at, job.finished_at) == (START, began, began)
    assert (run.added_at, run.started_at, run.finished_at) == (START, began, began)
    assert found[0].finished_at == began
    assert record is not None
    assert (record.added_at, record.expires_at, record.finished_at) == (START, START + seconds(300), began)
    assert (record.timeout, record.result_ttl, record.backoff and record.backoff.delay) == (30, 60, 1)
    assert {("added", START), ("active", began), ("completed", began)} <= set(history)
    assert isinstance(followed, EventRecord)
    assert followed.time == START
    assert counted.asked_at == START + seconds(100)
    assert (figures.step, figures.start + seconds(60 * 60)) == (60, START + seconds(2 * 60))
    assert sum(count for at, count in figures.series[0].data if at <= began < at + seconds(60)) == 1


async def test_why_and_events_tell_times_as_all_else_does() -> None:
    app, heard = App("memory://"), list[JobEvent]()
    app.on("retrying", heard.append)

    async def fail(ctx: JobContext[None]) -> None:
        raise ConnectionError("away")

    queue = app.queue("q", [fail], retry=Retry(2, Fixed(2.5)))
    async with memory(app, start=START) as test:
        job = await queue.add(fail)
        await test.drain()
        waiting = await queue.why(job.id)
        record = (await job.refresh()).record
        await test.after(5)
        ended = await queue.why(job.id)

    assert [(event.delay, event.duration) for event in heard] == [(2.5, 0)]
    assert record is not None
    assert (record.due, record.delay) == (START + seconds(2.5), 2.5)
    assert (waiting.facts["due_at"], ended.facts["finished_at"]) == (START + seconds(2.5), START + seconds(2.5))


async def test_what_operators_look_at_has_datetimes_and_seconds() -> None:
    app = App("memory://")

    async def call(ctx: JobContext[Any]) -> None:
        if ctx.data == "later":
            ctx.rate_limited(20)
        raise ConnectionError("away")

    calls = app.queue("calls", [call], breaker=Breaker(failures=1, window=300, pause=60, by=str))
    busy = app.queue("busy", [call])
    async with memory(app, start=START) as test:
        await calls.add(call, "host")
        await busy.add(call, "later")
        await busy.groups.set("tenant", rate_limit=RateLimit(1, 60))
        schedule = await calls.schedules.put("s", call, "x", every=3600, jitter=5, start=START + seconds(600))
        await test.drain()
        await _heartbeat(test)
        (circuit,), settings, overview = await app.breakers.list(), await busy.settings(), await app.overview()
        workers, group = await calls.workers(), await busy.groups.get("tenant")
        upcoming = await calls.schedules.upcoming("s", 2)

    assert (circuit.since, circuit.till) == (START, START + seconds(60))
    assert (circuit.window, circuit.pause, circuit.failures, circuit.probes) == (300, 60, 0, 0)
    assert settings.held_till == START + seconds(20)
    (worker,) = [each for each in workers if each.id == "w"]
    assert (overview.now, worker in overview.workers) == (START, True)
    assert (worker.started_at, worker.seen_at, worker.lag) == (START - seconds(5), START, 0.017)
    assert (group.till, group.limits.rate_limit) == (None, RateLimit(1, 60))
    assert (schedule.every, schedule.jitter, schedule.start) == (3600, 5, START + seconds(600))
    assert schedule.next == schedule.slot == upcoming[0]
    assert START + seconds(600) <= upcoming[0] <= START + seconds(4205)
    assert upcoming[1] - upcoming[0] == seconds(3600)


async def _heartbeat(test: Memory) -> None:
    now = test.clock.now()
    beat = Heartbeat(worker="w", queues=["calls"], slots=1, running=0, started_at=now - 5000, lag=17)
    await test.app.store.heartbeat(beat, ttl=60_000)
