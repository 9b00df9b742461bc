"""The tools for users' tests."""

import pytest

from toril import App, Fixed, JobCancelled, JobContext, Retry, State, SyncJobContext, UsageError
from toril.testing import context, drain, memory, sync_context


async def greet(ctx: JobContext[str]) -> str:
    await ctx.log(f"greeting {ctx.data}")
    await ctx.update_progress(50)
    await ctx.checkpoint({"at": 1})
    ctx.raise_if_cancelled()
    return f"hello {ctx.data} for {ctx.metadata.get('actor')} at attempt {ctx.attempt}"


def shout(ctx: SyncJobContext[str]) -> str:
    ctx.log(ctx.data)
    return ctx.data.upper()


@pytest.mark.covers("R028")
async def test_a_handler_is_tested_without_a_store() -> None:
    ctx = context("ada", attempt=2, metadata={"actor": "bob"})

    assert await greet(ctx) == "hello ada for bob at attempt 2"
    assert (ctx.recorded.logs, ctx.recorded.progress, ctx.recorded.checkpoints) == (["greeting ada"], [50], [{"at": 1}])


@pytest.mark.covers("R025")
async def test_a_handler_knows_its_last_attempt() -> None:
    last = [context("ada", attempt=attempt, attempts=3).is_last_attempt for attempt in (1, 2, 3)]
    told: list[bool] = []
    app = App("memory://")

    async def fail(ctx: JobContext[None]) -> None:
        told.append(ctx.is_last_attempt)
        raise ConnectionError("away")

    queue = app.queue("q", [fail], retry=Retry(2, Fixed(60)))
    async with memory(app) as test:
        await queue.add(fail)
        await test.after("2m")

    assert last == [False, False, True]
    assert told == [False, True]


async def test_a_handler_is_tested_for_its_cancellation() -> None:
    ctx = context("ada")
    ctx.cancel("enough")

    with pytest.raises(JobCancelled, match="enough"):
        await greet(ctx)


def test_a_plain_handler_is_tested_in_the_same_way() -> None:
    ctx = sync_context("ada")

    assert shout(ctx) == "ADA"
    assert ctx.recorded.logs == ["ada"]


def test_a_context_without_a_store_has_no_job() -> None:
    with pytest.raises(UsageError, match="memory"):
        _ = context("ada").job


def failing_once() -> tuple[App, list[int]]:
    tried: list[int] = []

    async def work(ctx: JobContext[int]) -> int:
        tried.append(ctx.attempt)
        if ctx.attempt == 1:
            raise ValueError("not yet")
        return ctx.data

    app = App("sqlite:///not-touched.db")
    app.queue("work", {"work": work}, concurrency=5, retry=Retry(attempts=3, backoff=Fixed(60)))
    return app, tried


async def test_an_app_in_memory_lets_time_pass_when_told_to() -> None:
    app, tried = failing_once()
    queue = app.queues["work"]
    async with memory(app) as shop:
        job = await queue.add("work", 7, delay=30, result_ttl=3600)
        await shop.drain()
        assert (tried, await job.state()) == ([], State.DELAYED)

        await shop.after(30)
        assert (tried, await job.state()) == ([1], State.DELAYED)

        await shop.after(59)
        assert tried == [1]
        await shop.after(1)
        assert tried == [1, 2]
        assert await job.result(0) == 7


async def test_what_one_test_adds_another_does_not_see() -> None:
    app, _ = failing_once()
    for _ in range(2):
        async with memory(app):
            await app.queues["work"].add("work", 1)
            assert (await app.queues["work"].counts()).waiting == 1


@pytest.mark.parametrize("seed", range(5))
async def test_a_store_that_loses_calls_changes_nothing_in_the_end(seed: int) -> None:
    ran: list[int] = []

    async def note(ctx: JobContext[int]) -> None:
        ran.append(ctx.data)

    app = App("memory://")
    queue = app.queue("notes", [note], concurrency=3)
    async with memory(app, loses=0.3, seed=seed):
        for number in range(20):
            await queue.add(note, number)
        await drain(app)
        counts = await queue.counts()

    assert sorted(ran) == list(range(20))
    assert (counts.waiting, counts.active) == (0, 0)


async def test_an_open_app_is_not_given_another_store() -> None:
    app, _ = failing_once()
    async with memory(app):
        with pytest.raises(UsageError, match="open"):
            async with memory(app):
                pass


async def test_a_job_that_reports_can_be_run_again_later_in_a_test() -> None:
    """Each run is a worker with a name of its own: the calls of the second are not taken for the first one's."""

    async def steps(ctx: JobContext[None]) -> int:
        for step in range(ctx.last_checkpoint or 0, 4):
            await ctx.checkpoint(step + 1)
            if step == 1 and ctx.attempt == 1:
                raise ValueError("not yet")
        return ctx.attempt

    app = App("memory://")
    queue = app.queue("q", {"steps": steps}, retry=Retry(2, Fixed(1)))
    async with memory(app) as test:
        job = await queue.add("steps", result_ttl=60)
        await test.drain()
        waits = await job.state()
        await test.after(2)

        assert (waits, await job.result(0)) == (State.DELAYED, 2)
