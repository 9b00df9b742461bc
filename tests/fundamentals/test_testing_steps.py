"""Testing handlers with durable steps: what they record, and whether they do the same each time they are called."""

import asyncio
import itertools
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from toril import (
    App,
    Fixed,
    InvalidOption,
    JobContext,
    PermanentError,
    Retry,
    StepChanged,
    StepClash,
    StepFailed,
    SyncJobContext,
    current_context,
    current_sync_context,
    handler,
)
from toril.testing import Memory, context, memory


async def double(number: int) -> int:
    return 2 * number


async def test_a_test_sees_what_a_job_has_recorded() -> None:
    app = App("memory://")

    async def run(ctx: JobContext[int]) -> None:
        await ctx.step("double", double, ctx.data)
        await ctx.sleep("cool-off", timedelta(days=3))
        await ctx.step("double", double, 2)

    queue = app.queue("q", {"run": run})
    async with memory(app) as test:
        job = await queue.add("run", 7)
        assert await test.steps(job) == []
        await test.drain()
        await test.assert_steps(job, ["double", "cool-off"])
        await test.after("3d")

        assert await job.state() is None, "it is not kept"
        first, sleep, second = await test.assert_steps(job, ["double", "cool-off", "double#2"])
        assert (first.value, sleep.kind, second.value) == (14, "sleep", 4)
        with pytest.raises(AssertionError, match=r"recorded \['double'\], not \['double', 'cool-off', 'double#2'\]"):
            await test.assert_steps(job, ["double"])


@pytest.mark.covers("R280")
async def test_a_handler_that_is_called_again_after_each_row_ends_as_ever() -> None:
    app, calls, done = App("memory://"), list[str](), list[str]()

    def do(what: str) -> str:
        done.append(what)
        return what

    def fail() -> None:
        done.append("fail")
        raise ConnectionError("away")

    async def other(ctx: JobContext[int]) -> int:
        return 3 * ctx.data

    async def run(ctx: JobContext[str]) -> list[Any]:
        calls.append(ctx.job_id)
        version = await ctx.version("layout", 2)
        first = await ctx.step("first", do, "a")
        await ctx.log("halfway")
        try:
            await ctx.step("broken", fail)
        except StepFailed:
            await ctx.step("instead", do, "b")
        tried = await ctx.step("tried", tries.__next__, retry=Retry(3, Fixed(60)))
        both = await ctx.gather(branch(ctx, "c"), branch(ctx, "d"))
        answer = await ctx.wait_for("answer", timeout="1d")
        nothing = await ctx.wait_for("nothing", timeout="1d")
        return [version, first, tried, both, answer, nothing, await ctx.call("other", queue.new(other, 5))]

    async def branch(ctx: JobContext[str], name: str) -> str:
        await ctx.sleep("nap", 5)
        return await ctx.step("branch", do, name)

    class Tries:
        count = 0

        def __next__(self) -> int:
            self.count += 1
            if self.count < 3:
                raise ConnectionError("away")
            return self.count

    tries = Tries()
    queue = app.queue("q", {"run": run, "other": other}, keep_completed=True)
    async with memory(app, replay="each") as test:
        job = await queue.add("run", "x")
        await test.after("1h")
        assert (await job.signal("answer", 42)).outcome == "woken"
        await test.after("2d")

        assert await job.result() == [2, "a", 3, ["c", "d"], 42, None, 15]
        assert await job.logs() == ["halfway"]
        assert (await job.refresh()).attempts_made == 1
        rows = await test.steps(job)
    assert sorted(done) == ["a", "b", "c", "d", "fail"], "what is recorded is not done again"
    assert len(calls) > len(rows), "the handler was called again after each row"


@pytest.mark.parametrize("executor", ["thread", "process"])
async def test_plain_handlers_are_called_again_too(executor: Any) -> None:
    app = App("memory://")
    plain_calls.clear()
    queue = app.queue("q", {"plain": handler(plain, executor=executor)}, keep_completed=True)
    async with memory(app, replay="each") as test:
        job = await queue.add("plain", 4)
        await test.after("1h")

        assert await job.result() == 16
    # In a process of its own it is called as usual, and what it appends here stays there.
    assert len(plain_calls) == (4 if executor == "thread" else 0)


plain_calls: list[int] = []


def plain(ctx: SyncJobContext[int]) -> int:
    plain_calls.append(ctx.data)
    twice = ctx.step("twice", lambda: 2 * ctx.data)
    ctx.sleep("nap", 60)
    return ctx.step("again", lambda: 2 * twice)


async def run_alone(fn: Callable[[JobContext[None]], Any], **options: Any) -> Memory:
    """Run one job of this handler, called again after each row, for a day."""
    app = App("memory://")
    queue = app.queue("q", {"run": fn}, retry=Retry(1), **options)
    async with memory(app, replay="each") as test:
        await queue.add("run")
        await test.after("1d")
    return test


@pytest.mark.covers("R280")
async def test_a_handler_that_asks_for_other_steps_fails_the_test() -> None:
    numbers = itertools.count()

    async def run(ctx: JobContext[None]) -> None:
        await ctx.step(f"step-{next(numbers)}", double, 1)
        await ctx.step("last", double, 2)

    with pytest.raises(AssertionError, match="step-0: recorded, but not asked for when the handler was called again"):
        await run_alone(run)


async def test_a_handler_that_rests_for_something_else_fails_the_test() -> None:
    numbers = itertools.count()

    async def run(ctx: JobContext[None]) -> None:
        if next(numbers) == 0:
            await ctx.step("first", double, 1)
        await ctx.sleep("nap", 60)

    with pytest.raises(AssertionError, match="first: recorded, but not asked for"):
        await run_alone(run)


async def test_a_handler_that_never_does_the_same_twice_ends() -> None:
    numbers = itertools.count()

    async def run(ctx: JobContext[None]) -> None:
        for _ in range(5):
            await ctx.step(f"step-{next(numbers)}", double, 1)

    with pytest.raises(AssertionError, match="recorded, but not asked for"):
        await run_alone(run)
    assert next(numbers) < 20


async def test_a_step_that_becomes_something_else_fails_the_test() -> None:
    numbers = itertools.count()

    async def run(ctx: JobContext[None]) -> None:
        if next(numbers) == 0:
            await ctx.step("first", double, 1)
        else:
            await ctx.version("first", 1)

    with pytest.raises(StepChanged, match="'first' is a version now"):
        await run_alone(run)


@pytest.mark.covers("R280")
@pytest.mark.parametrize("replay", ["never", "each"])
async def test_other_arguments_fail_the_test(replay: Any) -> None:
    app, numbers = App("memory://"), itertools.count()

    async def run(ctx: JobContext[None]) -> int:
        number = next(numbers)  # a clock, say
        doubled = await ctx.step("double", double, number)
        await ctx.sleep("nap", 60)
        return doubled

    queue = app.queue("q", {"run": run}, keep_completed=True)
    async with memory(app, replay=replay) as test:
        job = await queue.add("run")
        with pytest.raises(AssertionError, match="'double' was recorded for other arguments") as found:
            await test.after("1h")
    assert found.value.__notes__ == [f"found in job {job.id} of queue 'q'"]


@pytest.mark.parametrize("swallow", [False, True])
async def test_names_whose_order_is_not_certain_fail_the_test(*, swallow: bool) -> None:
    async def run(ctx: JobContext[None]) -> None:
        try:
            await asyncio.gather(one(ctx), one(ctx))
        except StepClash:
            if not swallow:
                raise

    async def one(ctx: JobContext[None]) -> int:
        return await ctx.step("double", double, 1)

    app = App("memory://")
    queue = app.queue("q", {"run": run}, retry=Retry(1))
    async with memory(app) as test:
        await queue.add("run")
        with pytest.raises(StepClash, match=r"ctx\.gather"):
            await test.drain()


async def test_a_plain_handler_whose_order_is_not_certain_fails_the_test() -> None:
    app = App("memory://")

    def run(ctx: SyncJobContext[None]) -> None:
        ctx.step("one", int, key="1")
        ctx.step("one", int, key="1")

    queue = app.queue("q", {"run": run}, retry=Retry(1))
    async with memory(app) as test:
        await queue.add("run")
        with pytest.raises(StepClash, match="asked for twice"):
            await test.drain()


async def test_two_jobs_that_want_one_key_are_no_fault_of_the_code() -> None:
    app = App("memory://")

    async def run(ctx: JobContext[None]) -> Any:
        return await ctx.wait_for("paid", key="invoice:7")

    queue = app.queue("q", {"run": run}, retry=Retry(1), keep_failed=True)
    async with memory(app, replay="each") as test:
        await queue.add("run")
        await test.drain()
        second = await queue.add("run")
        await test.drain()
        assert await second.state() == "failed"


async def test_a_compensation_that_a_later_attempt_does_not_need_is_no_fault() -> None:
    app, times = App("memory://"), itertools.count()

    def charge() -> str:
        if next(times) == 0:
            raise ConnectionError("away")
        return "charged"

    async def run(ctx: JobContext[None]) -> str:
        try:
            return await ctx.step("charge", charge)
        except StepFailed:
            await ctx.step("refund", double, 1)
            raise

    queue = app.queue("q", {"run": run}, retry=Retry(2), keep_completed=True)
    async with memory(app, replay="each") as test:
        job = await queue.add("run")
        await test.after("1h")

        assert await job.result() == "charged"
        await test.assert_steps(job, ["refund", "charge"])


async def test_a_handler_that_catches_its_end_is_called_again_all_the_same() -> None:
    calls = list[int]()

    async def run(ctx: JobContext[None]) -> None:
        calls.append(1)
        try:
            await ctx.step("first", double, 1)
        except BaseException:
            assert ctx.resting
            return
        raise PermanentError("over")

    await run_alone(run)
    assert len(calls) == 2


async def test_impossible_replays_are_refused() -> None:
    with pytest.raises(InvalidOption, match="replay must be 'never' or 'each', not 'always'"):
        async with memory(App("memory://"), replay="always"):  # type: ignore[arg-type]
            pass


async def test_code_that_a_handler_calls_finds_its_context() -> None:
    app, found = App("memory://"), list[Any]()

    async def helper() -> int:
        ctx = current_context()
        assert ctx is not None
        found.append(current_sync_context())
        return await ctx.step("double", within, ctx.data)

    async def within(number: int) -> int:
        found.append(current_context())
        return 2 * number

    async def run(ctx: JobContext[int]) -> int:
        found.append(current_context() is ctx)
        return await asyncio.create_task(helper())

    def plain(ctx: SyncJobContext[int]) -> bool:
        return current_sync_context() is ctx and current_context() is None

    queue = app.queue("q", {"run": run, "plain": plain}, keep_completed=True)
    async with memory(app) as test:
        job, other = await queue.add("run", 4), await queue.add("plain", 4)
        await test.drain()
        assert await job.result() == 8
        assert await other.result() is True
    same, sync, inner = found
    assert same is True
    assert sync is None
    assert inner.job_id == job.id
    assert (current_context(), current_sync_context()) == (None, None)
    assert context(1).data == 1, "a context of a unit test is nobody's current one"
    assert current_context() is None
