"""Jobs whose names have no handler here, in queues that leave them to others."""

import pytest

from tests.worker.conftest import Timed
from toril import App, Fixed, JobContext


async def note(ctx: JobContext[int]) -> int:
    return ctx.data


@pytest.mark.covers("R019", "F112")
async def test_a_released_job_is_offered_again_ever_later_up_to_a_minute(timed: Timed) -> None:
    app = App("memory://")
    queue = app.queue("q", {"known": note}, unknown="release")
    async with timed(app) as test:
        job, waits = await queue.add("unheard_of", 7, result_ttl=3600), list[float]()
        await test.drain()
        for _ in range(8):
            await job.refresh()
            assert (await job.state(), job.attempts_made) == ("delayed", 0)
            assert job.record is not None
            assert job.record.due is not None
            waits.append(job.record.due.timestamp() - test.clock.now() / 1000)
            await test.after(waits[-1])

        assert [round(wait, 3) for wait in waits] == [1, 2, 4, 8, 16, 32, 60, 60]

        queue.handlers.register("unheard_of", note)  # a deploy brings it
        await test.after(60)
        assert await job.result(timeout=1) == 7


async def test_failed_attempts_do_not_make_a_released_job_wait_longer(timed: Timed) -> None:
    app = App("memory://")

    async def fail(ctx: JobContext[int]) -> None:
        raise ValueError("no")

    queue = app.queue("q", {"known": note}, unknown="release")
    queue.handlers.register("unheard_of", fail)
    async with timed(app) as test:
        job = await queue.add("unheard_of", 7, attempts=5, backoff=Fixed(10))
        await test.drain()
        await test.after(10)
        del queue.handlers._entries["unheard_of"]  # an older worker, which has never had it
        await test.after(10)

        await job.refresh()
        assert job.attempts_made == 2
        assert job.record is not None
        assert job.record.due is not None
        assert round(job.record.due.timestamp() - test.clock.now() / 1000, 3) == 1
