"""What a job has recorded, read and rewound from outside, on every engine."""

from typing import Any

import pytest

from tests.worker.conftest import Timed
from toril import App, Fixed, Job, JobContext, NotFound, PermanentError, Retry, StepFailed, WrongState
from toril.testing import memory

DAY = 86_400


class Work:
    """What steps have done."""

    def __init__(self) -> None:
        self.done: list[str] = []

    def do(self, name: str) -> str:
        self.done.append(name)
        return name.upper()

    def fail(self) -> None:
        self.done.append("fail")
        raise ConnectionError("away")


async def test_the_steps_of_a_job_can_be_read(timed: Timed) -> None:
    app, work = App("memory://"), Work()

    async def child(ctx: JobContext[None]) -> int:
        return 5

    async def run(ctx: JobContext[None]) -> None:
        await ctx.version("layout", 2)
        await ctx.step("a", work.do, "a")
        try:
            await ctx.step("b", work.fail, retry=Retry(2, Fixed(60)))
        except StepFailed:
            await ctx.sleep("nap", 60)
        await ctx.call("other", queue.new(child))
        await ctx.wait_for("paid", timeout=DAY)
        await ctx.wait_for("approval", timeout=2 * DAY)

    queue = app.queue("q", {"run": run, "child": child})
    async with timed(app) as test:
        job = await queue.add("run")
        await test.drain()
        retry = (await job.steps())[-1]
        await test.after("3m")
        await job.signal("paid", {"amount": 5})
        await test.drain()
        steps = await job.steps()
        await job.signal("approval")
        await test.drain()

    assert (retry.kind, retry.error, retry.tries) == ("retry", "ConnectionError: away", 1)
    assert retry.until is not None
    assert (retry.until - retry.at).total_seconds() == 60
    assert [(step.key, step.kind) for step in steps] == [
        ("layout", "version"), ("a", "step"), ("b", "failed"), ("nap", "sleep"), ("other", "call"), ("paid", "signal"),
        ("approval", "wait"),
    ]  # fmt: skip
    assert [step.number for step in steps] == sorted(step.number for step in steps)
    version, done, failed, nap, call, paid, approval = steps
    assert (version.value, done.value, failed.error, paid.value) == (2, "A", "ConnectionError: away", {"amount": 5})
    assert [each.queue for each in call.value] == ["q"]
    assert nap.until is not None
    assert approval.until is not None
    assert (approval.until - approval.at).total_seconds() == 2 * DAY
    assert {step.attempt for step in steps} == {1}


async def test_a_job_is_rewound_to_a_step(timed: Timed) -> None:
    app, work = App("memory://"), Work()
    refused = list[Exception]()

    async def run(ctx: JobContext[None]) -> str:
        for name in "abc":
            await ctx.step(name, work.do, name)
        if not refused:
            with pytest.raises(WrongState, match="is active and cannot be rewound") as found:
                await ctx.job.rewind()
            refused.append(found.value)
        await ctx.wait_for("go", timeout=DAY)
        return await ctx.step("d", work.do, "d")

    queue = app.queue("q", {"run": run}, keep_completed=True)
    async with timed(app) as test:
        job = await queue.add("run")
        await test.drain()
        await job.rewind("b")
        assert [step.key for step in await job.steps()] == ["a"]
        await test.drain()
        assert work.done == ["a", "b", "c", "b", "c"]
        with pytest.raises(NotFound, match="x"):
            await job.rewind("x")

        await job.signal("go")
        await test.drain()
        assert await job.result() == "D"
        await job.rewind()
        await test.drain()
        assert await job.state() == "delayed", "the signal that was received is gone"

    assert work.done == [*"abcbcdabc"]
    assert len(refused) == 1


async def test_a_dead_letter_shows_its_steps_and_is_retried_before_it_is_rewound(timed: Timed) -> None:
    app, work = App("memory://"), Work()

    async def run(ctx: JobContext[None]) -> None:
        await ctx.step("a", work.do, "a")
        raise PermanentError("no")

    queue = app.queue("q", {"run": run})
    async with timed(app) as test:
        job = await queue.add("run")
        await test.drain()
        assert [step.key for step in await (await job.refresh()).steps()] == ["a"]
        with pytest.raises(WrongState, match="retry it first"):
            await job.rewind()
        gone: Job[Any] = Job(queue, "gone", "run")
        with pytest.raises(NotFound, match="'gone'"):
            await gone.rewind()
        assert await gone.steps() == []
    assert work.done == ["a"]


async def test_values_are_read_as_their_queue_writes_them() -> None:
    class Backwards:
        def dumps(self, value: Any) -> bytes:
            return str(value).encode()[::-1]

        def loads(self, data: bytes) -> Any:
            return data[::-1].decode()

    app, work = App("memory://"), Work()

    async def run(ctx: JobContext[None]) -> None:
        await ctx.step("a", work.do, "a b")

    queue = app.queue("q", {"run": run}, serializer=Backwards(), keep_completed=True)
    async with memory(app) as test:
        job = await queue.add("run")
        await test.drain()
        (step,) = await job.steps()

    assert step.value == "A B"
