"""Whatever a handler raises or returns, wherever it runs: the reason can be read, and the worker goes on."""

import asyncio
from typing import Any

import pytest

from tests.worker import handlers_for_processes as in_processes
from tests.worker.conftest import working
from toril import App, JobContext, JobFailed, Retry, handler

REASONS = {
    "exit": "3",
    "mute": "Mute (its message cannot be read)",
    "loud": "xxx",
    "deep": "maximum recursion depth exceeded",
    "nested": "<urlopen error no route>",
}


async def misbehave(ctx: JobContext[str]) -> Any:
    return in_processes.misbehave(ctx)  # type: ignore[arg-type]


MADE: dict[str, Any] = {
    "loop": misbehave,
    "thread": in_processes.misbehave,
    "process": handler(in_processes.misbehave, executor="process"),
}


@pytest.mark.covers("F115")
@pytest.mark.parametrize("executor", MADE)
async def test_whatever_is_raised_or_returned_its_reason_is_readable_and_the_worker_goes_on(
    app: App, executor: str
) -> None:
    queue = app.queue("q", {"misbehave": MADE[executor]}, retry=Retry(1), concurrency=1)
    async with working(app), asyncio.timeout(60):
        before = await queue.add_and_wait("misbehave", "well")
        for data, reason in REASONS.items():
            with pytest.raises(JobFailed) as failed:
                await queue.add_and_wait("misbehave", data)
            assert failed.value.reason.startswith(reason)
        assert await queue.add_and_wait("misbehave", "odd") is None
        assert await queue.add_and_wait("misbehave", "well") == before, "in the same process, which is alive"

        letters = (await app.dead_letters.page()).items
        done = [run.text or "" for run in (await queue.runs("completed")).items]

    assert {letter.failure.kind for letter in letters} == {
        "SystemExit", "Mute", "ValueError", "RecursionError", "URLError",
    }  # fmt: skip
    for letter in letters:
        assert "in misbehave" in letter.failure.traceback, "where it was raised"
        assert len(letter.failure.reason.encode()) <= 64 * 1024
        assert len(letter.failure.traceback.encode()) <= 64 * 1024
    assert [text for text in done if "the result was dropped" in text], "the work itself is done"


async def test_what_a_process_raises_to_say_what_becomes_of_its_job_keeps_its_place(app: App) -> None:
    queue = app.queue("q", {"refuse": handler(in_processes.refuse, executor="process")})
    async with working(app):
        with pytest.raises(JobFailed, match="never"):
            await queue.add_and_wait("refuse")
        (letter,) = (await app.dead_letters.page()).items

    assert letter.failure.kind == "PermanentError"
    assert "in refuse" in letter.failure.traceback
