"""`toril cancel`: many jobs at once, counted first."""

import asyncio
from typing import Any

import pytest

from tests.cli.conftest import Toril, documents, on
from toril import App, JobContext


def filled(url: str) -> None:
    async def fill(app: App) -> None:
        email = app.queue("email")
        await email.add_many([("send", {"org": n % 2}) for n in range(6)])
        await email.add_many([("digest", {"org": n % 2}, {"delay": 900}) for n in range(4)])

    on(url, fill)


def left(url: str) -> tuple[int, int]:
    async def look(app: App) -> tuple[int, int]:
        counts = await app.queue("email").counts()
        return counts.waiting, counts.delayed

    return on(url, look)


def test_jobs_are_counted_before_they_are_cancelled(toril: Toril, url: str) -> None:
    filled(url)

    assert documents(toril("cancel", "email", "--dry-run", "--json").stdout) == [{"queue": "email", "would_cancel": 10}]
    refused = toril("cancel", "email", "--key", "org=1", code=3).output
    assert "This cancels 5 jobs (3 waiting, 2 delayed) in email. It cannot be undone." in refused
    assert left(url) == (6, 4)
    assert toril("cancel", "email", "--key", "org=1", "--yes").output == "Cancelled 5 jobs.\n"
    assert left(url) == (3, 2)
    assert toril("cancel", "email", "--state", "delayed", "--name", "digest", "--yes").output == "Cancelled 2 jobs.\n"
    assert left(url) == (3, 0)


def test_running_jobs_are_asked_to_stop(toril: Toril, url: str) -> None:
    async def work(app: App) -> None:
        started, stopped = asyncio.Event(), asyncio.Event()

        async def stay(ctx: JobContext[Any]) -> None:
            started.set()
            await ctx.signal.wait()
            stopped.set()
            ctx.raise_if_cancelled()

        email = app.queue("email", {"stay": stay}, keep_failed=True)
        job = await email.add("stay")
        running = asyncio.create_task(app.run(signals="leave"))
        async with asyncio.timeout(30):
            await started.wait()
        found = await asyncio.to_thread(toril, "cancel", "email", "--state", "active", "--reason", "too slow", "--yes")
        assert found.output == "Cancelled 0 jobs. Asked 1 running job to stop.\n"
        async with asyncio.timeout(30):
            await stopped.wait()
            await app.store.finished("email", [job.id], timeout=30_000)
        why = await email.why(job.id)
        app.stop()
        await running
        assert "too slow" in str(why)

    on(url, work)


@pytest.mark.parametrize("words", [("cancel", "nothing"), ("cancel", "email", "--state", "failed")])
def test_what_cannot_be_cancelled_is_refused(toril: Toril, url: str, words: tuple[str, ...]) -> None:
    filled(url)

    assert toril(*words, code=2 if "--state" in words else 1).output
