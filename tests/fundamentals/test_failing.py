"""What becomes of a job that fails: when it is tried again, and when it is not."""

import pytest

from toril import App, Fixed, InvalidOption, Job, JobContext, Retry, Strategy, TransientError, handler
from toril.policy.retry import respect_retry_after
from toril.testing import memory


class OutOfStock(Exception):
    pass


@pytest.mark.covers("R071")
async def test_a_queue_says_which_errors_are_not_worth_another_attempt() -> None:
    app, ran = App("memory://"), []

    async def order(ctx: JobContext[str]) -> None:
        ran.append(ctx.data)
        raise OutOfStock if ctx.data == "lamp" else OSError("busy")

    queue = app.queue("q", {"order": order}, retry=Retry(3, Fixed(0), give_up_on=OutOfStock))
    async with memory(app) as test:
        await queue.add("order", "lamp")
        await queue.add("order", "desk")
        await test.drain()

    assert sorted(ran) == ["desk", "desk", "desk", "lamp"]


async def test_the_attempts_made_and_the_most_that_there_may_be_have_a_name_each() -> None:
    app = App("memory://")

    async def fail(ctx: JobContext[None]) -> None:
        raise OSError("busy")

    queue = app.queue("q", {"fail": fail}, retry=Retry(3, Fixed(60)))
    async with memory(app) as test:
        job = await queue.add("fail")
        await test.drain()
        record = (await job.refresh()).record
        assert record is not None
        assert (job.attempts_made, record.attempts_made, record.max_attempts) == (1, 1, 3)
        assert not any(hasattr(each, "attempts") for each in (job, record))

        await test.after("1h")
        (letter,) = (await app.dead_letters.page()).items
        assert (letter.job_id, letter.attempts_made, letter.max_attempts) == (job.id, 3, 3)
        assert not hasattr(letter, "attempts")


async def test_a_handler_and_a_job_can_say_otherwise() -> None:
    app, ran = App("memory://"), []

    async def order(ctx: JobContext[str]) -> None:
        ran.append(ctx.data)
        raise OutOfStock

    handlers = {"order": handler(order, retry=Retry(2, Fixed(0), on=OutOfStock))}
    queue = app.queue("q", handlers, retry=Retry(3, Fixed(0), give_up_on=OutOfStock))
    async with memory(app) as test:
        await queue.add("order", "by its handler")
        await queue.add("order", "by its own", retry=Retry(4, Fixed(0), give_up_on=(KeyError, OutOfStock)))
        await test.drain()

    assert sorted(ran) == ["by its handler", "by its handler", "by its own"]


@pytest.mark.covers("R052", "R053")
async def test_a_strategy_of_the_apps_own_is_called_by_its_name() -> None:
    app, asked, ran = App("memory://"), [], []

    @app.backoff("as told")
    def as_told(attempts: int, error: BaseException, job: Job[int]) -> float:
        asked.append((attempts, str(error), job.name, job.data))
        return 10 * attempts

    async def fail(ctx: JobContext[int]) -> None:
        ran.append(ctx.attempt)
        raise ValueError("no")

    queue = app.queue("q", {"fail": fail})
    async with memory(app) as test:
        await queue.add("fail", 7, attempts=3, backoff="as told")
        await test.drain()
        await test.after(9.9)
        assert ran == [1]
        await test.after(0.1)
        assert ran == [1, 2]
        await test.after(20)

    assert ran == [1, 2, 3]
    assert asked[:2] == [(1, "no", "fail", 7), (2, "no", "fail", 7)]


@pytest.mark.covers("R053")
async def test_the_time_that_an_error_asks_for_is_waited() -> None:
    app, ran = App("memory://"), []

    async def call(ctx: JobContext[None]) -> None:
        ran.append(ctx.attempt)
        raise TransientError("busy", retry_after=7 if ctx.attempt == 1 else None)

    queue = app.queue("q", {"call": call})
    async with memory(app) as test:
        await queue.add("call", attempts=3, backoff="respect-retry-after")
        await test.drain()
        await test.after(6.9)
        assert ran == [1]
        await test.after(0.1)
        assert ran == [1, 2]
        await test.after(7.9)
        assert ran == [1, 2]
        await test.after(0.1)

    assert ran == [1, 2, 3]


async def test_a_strategy_that_fails_falls_back_to_what_the_wire_says(caplog: pytest.LogCaptureFixture) -> None:
    app, ran = App("memory://"), []

    @app.backoff("broken")
    def broken(attempts: int, error: BaseException, job: Job[None]) -> float:
        raise ZeroDivisionError

    async def fail(ctx: JobContext[None]) -> None:
        ran.append(ctx.attempt)
        raise ValueError

    queue = app.queue("q", {"fail": fail}, retry=Retry(2, Strategy("broken", Fixed(5))))
    async with memory(app) as test:
        await queue.add("fail")
        await test.drain()
        await test.after(5)

    assert ran == [1, 2]
    assert "the backoff strategy broken failed" in caplog.text


@pytest.mark.covers("R052")
async def test_a_strategy_that_nobody_declared_is_refused_at_the_add() -> None:
    app = App("memory://")
    queue = app.queue("q")
    other = app.queue("other", retry=Retry(3, Strategy("later")))
    async with memory(app):
        for options in ({"backoff": "unknown"}, {"retry": Retry(2, Strategy("unknown"))}):
            with pytest.raises(InvalidOption, match="unknown backoff strategy 'unknown'"):
                await queue.add("n", **options)
        with pytest.raises(InvalidOption, match="unknown backoff strategy 'later'"):
            await other.add("n")
        assert (await queue.counts()).waiting == 0


def test_what_can_be_no_strategy_is_refused() -> None:
    app = App("memory://")
    with pytest.raises(TypeError, match="a function"):
        app.backoff("name")(3)  # type: ignore[type-var]
    with pytest.raises(InvalidOption, match="name"):
        app.backoff("")(respect_retry_after)
