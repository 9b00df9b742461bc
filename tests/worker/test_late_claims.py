"""A claim that is answered when the worker is already to stop."""

import asyncio
from typing import Any, cast

from toril import App, JobContext
from toril.clock import SYSTEM
from toril.engine import Store, connect


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
