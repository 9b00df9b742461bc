"""Rates, as workers of one process and of several keep them."""

import asyncio
from collections import deque
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

import pytest

from tests import servers
from toril import App, JobContext, RateLimit, SyncJobContext
from toril.store.engine import Store, connect
from toril.testing import ManualClock, memory


@pytest.mark.covers("R203")
@pytest.mark.parametrize("kind", ["coroutine", "thread"])
async def test_who_is_told_to_slow_down_holds_the_whole_queue_and_loses_nothing(kind: str) -> None:
    app = App("memory://")
    ran: list[tuple[str, int, int]] = []
    refusals = 1

    def call(ctx: JobContext[None] | SyncJobContext[None]) -> None:
        nonlocal refusals
        ran.append((ctx.job_name, ctx.attempt, test.clock.now()))
        if refusals:
            refusals -= 1
            ctx.rate_limited(30)

    async def on_the_loop(ctx: JobContext[None]) -> None:
        call(ctx)

    def in_a_thread(ctx: SyncJobContext[None]) -> None:
        call(ctx)

    handler = on_the_loop if kind == "coroutine" else in_a_thread
    queue = app.queue("q", {"first": handler, "second": handler})
    async with memory(app) as test:
        start = test.clock.now()
        await queue.add("first", attempts=1)
        await queue.add("second")
        await test.drain()
        await test.after(29)
        held = list(ran)
        await test.after(1)

    assert held == [("first", 1, start)]
    assert ran[1:] == [("first", 1, start + 30_000), ("second", 1, start + 30_000)]


class Distant:
    """A store that is far away: a claim takes 20 ms to get there, and its answer 30 ms back."""

    def __init__(self, store: Store, clock: ManualClock) -> None:
        self._store = store
        self._clock = clock

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def exchange(self, *args: Any, **options: Any) -> Any:
        self._clock.advance(20)
        answer = await self._store.exchange(*args, **options)
        self._clock.advance(30)
        return answer


@pytest.mark.covers("R201")
async def test_a_worker_comes_back_at_the_very_time_that_the_store_has_named() -> None:
    """Were it late by a round trip each time, that much of the rate would be lost."""

    async def nothing(ctx: JobContext[None]) -> None:
        """A handler."""

    app, clock = App("memory://"), ManualClock()
    queue = app.queue("q", [nothing], rate_limit=RateLimit(1, 10), concurrency=2, keep_completed=True)
    store = Distant(connect("memory://", clock=clock), clock)
    with app.using(cast("Store", store), clock):
        async with app, clock.running():
            await queue.add_many([(nothing, None)] * 8)
            worker = asyncio.ensure_future(app.run())
            while (await queue.counts()).completed < 8:  # noqa: ASYNC110
                await asyncio.sleep(0.001)
            app.stop()
            await worker
            starts = sorted(job.started_at for job in (await queue.jobs("completed")).items if job.started_at)

    # The clock goes on while the store's thread works, so that now and then a start may be late; were the wake-up late,
    # all of them would be.
    assert min(later - earlier for earlier, later in pairwise(starts)) == timedelta(seconds=10)


@pytest.fixture(params=["sqlite", "redis"])
def shared_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A store that several apps can use."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'jobs.db'}"
    server = servers.running()
    assert server.tell("FLUSHALL") == b"+OK"
    return server.url


@pytest.mark.covers("R201", "R204")
async def test_a_used_up_rate_does_not_keep_workers_busy(shared_url: str) -> None:
    """A worker that finds the rate used up comes back by the clock, not again and again."""
    calls = 0

    async def nothing(ctx: JobContext[None]) -> None:
        """A handler."""

    app = App(shared_url)
    queue = app.queue("q", [nothing], rate_limit=RateLimit(1, 0.5), concurrency=5)
    async with app:
        await queue.add_many([(nothing, None)] * 4)
        exchange = app.store.exchange

        async def counted(*args: object, **options: object) -> object:
            nonlocal calls
            calls += 1
            return await exchange(*args, **options)  # type: ignore[arg-type]

        app.store.exchange = counted  # type: ignore[method-assign, assignment]
        worker = asyncio.ensure_future(app.run())
        while (await queue.runs()).items[3:] == ():  # noqa: ASYNC110 - the jobs run elsewhere
            await asyncio.sleep(0.05)
        app.stop()
        await worker

    assert calls < 60


@pytest.mark.covers("R201", "R204", "I8", "X28")
async def test_in_no_sliding_window_do_more_start_than_may_over_several_workers(shared_url: str) -> None:
    async def nothing(ctx: JobContext[None]) -> None:
        """A handler."""

    def made() -> App:
        app = App(shared_url)
        app.queue("q", [nothing], rate_limit=RateLimit(20, 0.5), concurrency=8, keep_completed=True)
        return app

    async with made() as app:
        await app.queues["q"].add_many([(nothing, None)] * 60)
    apps = [made() for _ in range(3)]
    workers = [asyncio.ensure_future(app.run()) for app in apps]
    async with made() as app:
        while (await app.queues["q"].counts()).completed < 60:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
        jobs = (await app.queues["q"].jobs("completed", limit=100)).items
    for each in apps:
        each.stop()
    await asyncio.gather(*workers)

    window: deque[datetime] = deque()
    for start in sorted(job.started_at for job in jobs if job.started_at):
        while window and window[0] <= start - timedelta(milliseconds=500):
            window.popleft()
        window.append(start)
        assert len(window) <= 20
