"""Handlers of unusual kinds: each runs as it should, or is refused in words; none is taken for done that is not."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from unittest.mock import AsyncMock

import pytest

from tests.worker import handlers_for_processes as in_processes
from tests.worker.conftest import working
from toril import App, JobContext, JobFailed, Retry, handler


async def double(ctx: JobContext[int]) -> int:
    return ctx.data * 2


async def forgets(ctx: JobContext[int]) -> Any:
    return double(ctx)


@pytest.mark.parametrize(
    "made", [lambda ctx: double(ctx=ctx), forgets, handler(in_processes.forgets, executor="process")],
    ids=["lambda", "coroutine", "process"],
)  # fmt: skip
async def test_a_coroutine_that_nobody_awaits_is_a_failure_and_not_a_result(app: App, made: Callable[..., Any]) -> None:
    queue = app.queue("q", {"double": made})
    async with working(app):
        with pytest.raises(JobFailed, match="'double' returned a coroutine that nothing awaits"):
            await queue.add_and_wait("double", 2)

        assert (await queue.counts()).delayed == 0, "it would be the same at the next attempt"


async def test_a_mock_of_a_coroutine_is_awaited(app: App) -> None:
    mock = AsyncMock(return_value="mocked")
    queue = app.queue("q", {"job": mock})
    async with working(app):
        assert await queue.add_and_wait("job") == "mocked"
    mock.assert_awaited_once()


@dataclass
class Adder:
    """Equal to others like it, and so not hashable."""

    by: int

    async def __call__(self, ctx: JobContext[int]) -> int:
        return ctx.data + self.by


async def test_an_object_that_cannot_be_hashed_is_a_handler_like_any_other(app: App) -> None:
    one, two = Adder(1), Adder(2)
    queue = app.queue("q", {"one": one, "two": two})
    async with working(app):
        assert await queue.add_and_wait(one, 1) == 2
        assert await queue.add_and_wait(two, 1) == 3


async def test_a_handler_that_cancels_its_own_task_fails_and_frees_its_slot(app: App) -> None:
    async def cancels_itself(ctx: JobContext[None]) -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.sleep(0)

    queue = app.queue("q", {"cancels_itself": cancels_itself, "double": double}, retry=Retry(1))
    async with working(app):
        with pytest.raises(JobFailed, match="the handler's task was cancelled"):
            await queue.add_and_wait("cancels_itself")
        assert await queue.add_and_wait(double, 2) == 4


@pytest.mark.parametrize("executor", ["loop", "process"])
async def test_nothing_returned_is_no_result_of_a_wrong_type(app: App, executor: str) -> None:
    async def nothing(ctx: JobContext[None]) -> int:
        return None  # type: ignore[return-value]

    made = nothing if executor == "loop" else handler(in_processes.nothing, executor="process")
    queue = app.queue("q", {"nothing": made})
    async with working(app):
        assert await queue.add_and_wait("nothing") is None
        (run,) = (await queue.runs()).items
    assert run.text == "null"


async def test_a_job_that_waits_for_a_cancelled_one_is_not_cancelled_itself(app: App) -> None:
    async def waits(ctx: JobContext[None]) -> None:
        other = await queue.add(double, 1, delay=3600)
        await other.cancel("the customer left")
        await other.result(10)

    queue = app.queue("q", {"waits": waits, "double": double}, retry=Retry(1))
    async with working(app):
        with pytest.raises(JobFailed, match="Job cancelled: the customer left"):
            await queue.add_and_wait("waits")
