"""A worker is listed from its first heartbeat until it has stopped, with what it runs."""

import asyncio
from typing import Any

import pytest

from tests.worker.conftest import Timed
from toril import App, JobContext
from toril.model import Heartbeat


@pytest.mark.covers("R149")
async def test_a_worker_that_has_stopped_is_listed_no_more(timed: Timed) -> None:
    app = App("memory://")

    async def nothing(ctx: JobContext[None]) -> None: ...

    app.queue("q", [nothing])
    async with timed(app):
        run = asyncio.ensure_future(app.run())
        await _until_listed(app)
        app.stop()

        assert await run == 0
        assert await app.workers() == []


async def test_a_worker_whose_run_is_cancelled_is_listed_no_more(timed: Timed) -> None:
    app = App("memory://")

    async def nothing(ctx: JobContext[None]) -> None: ...

    app.queue("q", [nothing])
    async with timed(app):
        run = asyncio.ensure_future(app.run())
        await _until_listed(app)
        run.cancel()
        await asyncio.wait([run])

        assert await app.workers() == []


async def test_a_worker_that_stops_before_its_first_heartbeat_is_answered_is_listed_no_more(
    app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = asyncio.Event()

    async def unanswered(state: Heartbeat, *, ttl: int) -> Any:
        answer = await heartbeat(state, ttl=ttl)
        if not written.is_set():
            written.set()
            await asyncio.Event().wait()
        return answer

    async def nothing(ctx: JobContext[None]) -> None: ...

    app.queue("q", [nothing])
    async with app:
        heartbeat = app.store.heartbeat
        monkeypatch.setattr(app.store, "heartbeat", unanswered)
        run = asyncio.ensure_future(app.run())
        await written.wait()
        listed = await app.workers()
        run.cancel()
        await asyncio.wait([run])

        assert (len(listed), await app.workers()) == (1, [])


async def test_what_a_worker_runs_is_at_most_two_seconds_old(timed: Timed) -> None:
    app = App("memory://")
    started, go = asyncio.Event(), asyncio.Event()

    async def hold(ctx: JobContext[None]) -> None:
        started.set()
        await go.wait()

    queue = app.queue("q", [hold], concurrency=3)
    async with timed(app) as test:
        run = asyncio.ensure_future(app.run())
        await _until_listed(app)
        await queue.add(hold)
        await started.wait()
        assert [worker.running for worker in await app.workers()] == [0]

        running = 0
        for _ in range(7):  # 14 s, should the first of them pass before the worker counts them
            test.skip(2)
            for _ in range(200):
                if running := sum(worker.running for worker in await app.workers()):
                    break
                await asyncio.sleep(0.001)
        assert running == 1
        go.set()
        app.stop()
        await run


async def _until_listed(app: App) -> None:
    async with asyncio.timeout(30):
        while not await app.workers():  # noqa: ASYNC110 - a heartbeat has no event
            await asyncio.sleep(0.001)
