"""What an app can do about a job that was lost while it ran."""

import asyncio
from typing import Any

import pytest

from tests.worker.conftest import Seen, working
from toril import App, Job, JobContext


@pytest.mark.covers("R108", "R109", "R110", "R113", "F26")
async def test_a_lost_job_is_told_to_its_handler_and_to_the_hooks_that_want_it(app: App) -> None:
    seen, told, started = Seen(app, "lease_lost", "completed"), list[str](), asyncio.Event()
    reasons: list[str | None] = []

    async def work(ctx: JobContext[dict[str, Any]]) -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            reasons.append(ctx.signal.reason)

    queue = app.queue("q", {"n": work}, lease=1, max_stalls=0)

    def failing(job: Job[Any]) -> None:
        raise RuntimeError("a hook that fails")

    async def mend(job: Job[Any]) -> None:
        told.append(f"{job.name} {job.data['id']}")

    queue.on_lease_lost(failing)
    queue.on_lease_lost(mend, when=lambda job: "id" in job.data)
    queue.on_lease_lost(lambda _: told.append("never"), when=lambda job: "other" in job.data)
    async with working(app):
        job = await queue.add("n", {"id": 7})
        await started.wait()
        (record,) = await app.store.jobs("q", [job.id])
        assert record is not None
        await app.store.recover("q", now=(record.deadline or 0) + 1)  # another finds that its time is up

        await seen.until("lease_lost")

    assert told == ["n 7"]
    assert reasons == ["the lease was lost"]
    assert seen.of("completed") == []


async def test_a_hook_must_be_a_function(app: App) -> None:
    hook: Any = "mend"
    with pytest.raises(TypeError, match="on_lease_lost must be a function"):
        app.queue("q").on_lease_lost(hook)
