"""A burst ends when nothing is left to do, and says what it leaves for later."""

import logging
from typing import Any

import pytest

from toril import App, Fixed, JobContext, RateLimit, Retry, Snooze
from toril.model import Counts


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.getMessage() for each in caplog.records if "left for later" in each.getMessage()]


@pytest.mark.parametrize("name", ["sqlite", "memory"])
async def test_a_burst_waits_for_jobs_that_are_to_be_tried_again_soon(
    name: str, tmp_path: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "toril")
    app = App("memory://" if name == "memory" else f"sqlite:///{tmp_path / 'jobs.db'}")
    attempts = list[int]()

    async def flaky(ctx: JobContext[None]) -> None:
        attempts.append(ctx.attempt)
        if ctx.attempt < 4:
            raise ValueError("not yet")

    queue = app.queue("q", [flaky], retry=Retry(4, Fixed(0.05)))
    async with app:
        await queue.add(flaky)

        assert await app.run(burst=True) == 0
        assert await queue.counts() == Counts()
    assert attempts == [1, 2, 3, 4]
    assert told(caplog) == []


async def test_a_burst_does_not_wait_for_longer_than_the_grace(app: App, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "toril")

    async def fails(ctx: JobContext[None]) -> None:
        raise ValueError("no good")

    queue = app.queue("q", [fails], retry=Retry(2, Fixed(3600)))
    async with app:
        await queue.add(fails)
        assert await app.run(burst=True, grace=1800) == 0

    (line,) = told(caplog)
    assert line.startswith("no more jobs to run now; left for later: q: 1 delayed (the next is due in 3")


async def test_a_burst_does_not_wait_for_jobs_that_were_put_off(app: App, caplog: pytest.LogCaptureFixture) -> None:
    """They may go on so for ever, and so do schedules."""
    caplog.set_level(logging.INFO, "toril")
    runs = list[str]()

    async def polls(ctx: JobContext[None]) -> None:
        runs.append(ctx.job_name)
        raise Snooze(5)

    queue = app.queue("q", [polls])
    queue.schedule("often", polls, every=5)
    async with app:
        await queue.add(polls)
        await queue.add(polls, delay=5)
        assert await app.run(burst=True, grace=60) == 0

    assert runs == ["polls", "polls"], "the job, and the first run of the schedule"
    (line,) = told(caplog)
    assert "q: 4 delayed (the next is due in " in line


@pytest.mark.covers("R201")
async def test_a_burst_works_off_what_a_rate_holds_up(app: App) -> None:
    async def quick(ctx: JobContext[int]) -> None: ...

    queue = app.queue("q", [quick], rate_limit=RateLimit(5, per=0.1))
    async with app:
        await queue.add_many([("quick", number) for number in range(12)])
        assert await app.run(burst=True) == 0

        assert await queue.counts() == Counts()


async def test_a_burst_says_that_a_queue_is_paused(app: App, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "toril")

    async def quick(ctx: JobContext[int]) -> None: ...

    queue = app.queue("q", [quick])
    async with app:
        await queue.add(quick, 1)
        await queue.pause()
        assert await app.run(burst=True) == 0

    assert told(caplog) == ["no more jobs to run now; left for later: q: 1 waiting (the queue is paused)"]
