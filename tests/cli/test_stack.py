"""`toril job stack`: where a running job is."""

import asyncio
from typing import Any

from tests.cli.conftest import Toril, documents, on
from toril import App, JobContext


def test_where_a_running_job_is_can_be_asked_from_a_shell(toril: Toril, url: str) -> None:
    async def work(app: App) -> None:
        started = asyncio.Event()

        async def stay(ctx: JobContext[Any]) -> None:
            started.set()
            await ctx.signal.wait()

        queue = app.queue("email", {"stay": stay})
        job, later = await queue.add("stay"), await queue.add("stay", delay=900)
        running = asyncio.create_task(app.run(grace=0.1, signals="leave"))
        async with asyncio.timeout(30):
            await started.wait()
        text = (await asyncio.to_thread(toril, "job", "stack", "email", job.id)).output
        (found,) = documents((await asyncio.to_thread(toril, "job", "stack", job.id, "--json")).stdout)
        refused = (await asyncio.to_thread(toril, "job", "stack", "email", later.id, code=1)).output
        app.stop()
        await running

        assert "in stay\n    await ctx.signal.wait()" in text
        assert (found["queue"], found["id"], found["text"].count("in stay")) == ("email", job.id, 1)
        assert "is not running" in refused

    on(url, work)
