"""What a worker hears when it is already to stop: a claim that is answered late, and the word that there is a job."""

import asyncio
from typing import Any, cast

from toril import App, JobContext
from toril.model import Claim
from toril.runtime.clock import SYSTEM
from toril.store.engine import Store, connect


class Slow:
    """A store whose first claim that brings a job is answered late."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.claimed = asyncio.Event()
        self.go_on = asyncio.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def exchange(self, *given: Any, **named: Any) -> Any:
        answer = await self._store.exchange(*given, **named)
        if answer.jobs and not self.claimed.is_set():
            self.claimed.set()
            await self.go_on.wait()
        return answer


async def test_what_was_claimed_before_the_stop_and_answered_after_it_goes_back_unrun() -> None:
    ran = []

    async def work(ctx: JobContext[None]) -> None:
        ran.append(ctx.job_id)

    app = App("memory://")
    queue = app.queue("q", {"work": work})
    slow = Slow(connect("memory://"))
    with app.using(cast("Store", slow), SYSTEM):
        async with app:
            job = await queue.add("work")
            running = asyncio.ensure_future(app.run(signals="leave"))
            await slow.claimed.wait()
            app.stop()
            slow.go_on.set()
            await running
            found = await queue.job(job.id)

    assert ran == []
    assert found is not None
    assert found.record is not None
    assert (found.record.state.value, found.record.attempts_made) == ("waiting", 0)


class Telling:
    """A store that has the app stop in the moment in which a worker hears of a job, and notes the exchanges since."""

    def __init__(self, store: Store, app: App) -> None:
        self._store = store
        self._app = app
        self.exchanges: list[tuple[int, int]] | None = None  # of each, how many jobs it hands in and wants

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def wait(self, queues: Any, *, timeout: int) -> set[str]:
        found = await self._store.wait(queues, timeout=timeout)
        if "q" in found and self.exchanges is None:
            self.exchanges = []
            self._app.stop()
        return found

    async def exchange(self, queue: str, settlements: Any, claim: Claim, **named: Any) -> Any:
        if self.exchanges is not None:
            self.exchanges.append((len(settlements), claim.want))
        return await self._store.exchange(queue, settlements, claim, **named)


async def test_a_worker_that_stops_when_it_hears_of_a_job_has_the_store_tell_another() -> None:
    async def work(_: JobContext[None]) -> None:
        raise AssertionError("it was to stop")

    app = App("memory://")
    queue = app.queue("q", {"work": work})
    telling = Telling(connect("memory://"), app)
    ready = asyncio.Event()
    app.on_start(lambda *_: ready.set())
    with app.using(cast("Store", telling), SYSTEM):
        async with app:
            running = asyncio.ensure_future(app.run(signals="leave"))
            await ready.wait()
            while app._process is None or app._process._workers[0]._loop._watcher is None:  # noqa: ASYNC110 - no event
                await asyncio.sleep(0.01)
            await queue.add("work")
            assert await running == 0

    assert telling.exchanges == [(0, 0)]
