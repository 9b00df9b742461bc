"""The code changes while jobs sleep: what each edit does to a job that has recorded steps by the code before, on every
engine. `docs/steps.md` has the same as a table, and `bench.edits` runs it beside other systems."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from tests.worker.conftest import Timed
from toril import App, JobContext, Retry, StepChanged
from toril.testing import memory


@dataclass
class Before:
    n: int


@dataclass
class After:
    m: int


class Code:
    """What steps have done; `a` and `b` are recorded by the code before, then the job sleeps."""

    def __init__(self) -> None:
        self.ran: list[str] = []

    def a(self, number: int = 1) -> Before:
        self.ran.append("a")
        return Before(number)

    def new_a(self, number: int = 1) -> After:
        self.ran.append("new a")
        return After(number)

    def b(self) -> str:
        self.ran.append("b")
        return "b"

    def c(self) -> str:
        self.ran.append("c")
        return "c"

    def other(self) -> str:
        self.ran.append("other")
        return "other"

    async def before(self, ctx: JobContext[Any]) -> list[Any]:
        a = await ctx.step("a", self.a, 1)
        b = await ctx.step("b", self.b)
        await ctx.sleep("nap", 60)
        return [a.n, b, await ctx.step("c", self.c)]

    async def inserted(self, ctx: JobContext[Any]) -> list[Any]:
        other = await ctx.step("other", self.other)
        return [other, *await self.before(ctx)]

    async def appended(self, ctx: JobContext[Any]) -> list[Any]:
        return [*await self.before(ctx), await ctx.step("other", self.other)]

    async def dropped(self, ctx: JobContext[Any]) -> list[Any]:
        a = await ctx.step("a", self.a, 1)
        await ctx.sleep("nap", 60)
        return [a.n, await ctx.step("c", self.c)]

    async def renamed(self, ctx: JobContext[Any]) -> list[Any]:
        a = await ctx.step("a", self.a, 1)
        b = await ctx.step("b2", self.b)
        await ctx.sleep("nap", 60)
        return [a.n, b, await ctx.step("c", self.c)]

    async def reordered(self, ctx: JobContext[Any]) -> list[Any]:
        await ctx.sleep("nap", 60)
        b = await ctx.step("b", self.b)
        a = await ctx.step("a", self.a, 1)
        return [a.n, b, await ctx.step("c", self.c)]

    async def rewritten(self, ctx: JobContext[Any]) -> list[Any]:
        a = await ctx.step("a", self.a, 1)
        b = await ctx.step("b", self.other)
        await ctx.sleep("nap", 60)
        return [a.n, b, await ctx.step("c", self.c)]

    async def retyped(self, ctx: JobContext[Any]) -> list[Any]:
        return [(await ctx.step("a", self.new_a, 1)).m]

    async def united(self, ctx: JobContext[Any]) -> list[Any]:
        a = await ctx.step("a", self.new_a, 1, result=After | Before)  # type: ignore[arg-type]
        return [a.m if isinstance(a, After) else a.n]

    async def another_kind(self, ctx: JobContext[Any]) -> list[Any]:
        await ctx.sleep("b", 60)
        return []

    async def branched(self, ctx: JobContext[Any]) -> list[Any]:
        version = await ctx.version("layout", 2)
        if version == 2:
            return ["new", await ctx.step("other", self.other)]
        return ["old", *await self.before(ctx)]


FIRST = ["a", "b"]
LEFT = "recorded, but not asked for: {}"

EDITS: list[tuple[Any, list[Any], list[str], list[str]]] = [
    (Code.before, [1, "b", "c"], ["c"], []),
    (Code.inserted, ["other", 1, "b", "c"], ["other", "c"], []),
    (Code.appended, [1, "b", "c", "other"], ["c", "other"], []),
    (Code.dropped, [1, "c"], ["c"], [LEFT.format("b")]),
    (Code.renamed, [1, "b", "c"], ["b", "c"], [LEFT.format("b")]),
    (Code.reordered, [1, "b", "c"], ["c"], []),
    (Code.rewritten, [1, "b", "c"], ["c"], []),
    (Code.united, [1], [], [LEFT.format("b, nap")]),
    (Code.branched, ["old", 1, "b", "c"], ["c"], []),
]


@pytest.mark.covers("R276")
@pytest.mark.parametrize(("edit", "result", "runs", "told"), EDITS, ids=lambda each: getattr(each, "__name__", ""))
async def test_a_job_that_sleeps_goes_on_with_the_new_code(
    timed: Timed, edit: Callable[..., Any], result: list[Any], runs: list[str], told: list[str]
) -> None:
    code = Code()
    app = App("memory://")
    handlers = [code.before]

    async def run(ctx: JobContext[Any]) -> Any:
        return await handlers[0](ctx)

    queue = app.queue("q", {"run": run}, keep_completed=True)
    async with timed(app) as test:
        job = await queue.add("run")
        await test.drain()
        assert await job.state() == "delayed"
        handlers[0] = edit.__get__(code)
        await test.after("1h")

        assert await job.result() == result
        assert code.ran == [*FIRST, *runs]
        assert await job.logs() == told
        assert (await job.refresh()).attempts_made == 1


@pytest.mark.covers("R276")
@pytest.mark.parametrize(
    ("edit", "why"),
    [
        (Code.retyped, "what is recorded of step 'a' is not of the declared type: .*m.*"),
        (Code.another_kind, "'b' is a sleep now, but a step is recorded under that name"),
    ],
    ids=lambda each: getattr(each, "__name__", ""),
)
async def test_what_does_not_fit_fails_and_goes_on_when_the_code_fits_again(
    timed: Timed, edit: Callable[..., Any], why: str
) -> None:
    code = Code()
    app = App("memory://")
    handlers = [code.before]

    async def run(ctx: JobContext[Any]) -> Any:
        return await handlers[0](ctx)

    queue = app.queue("q", {"run": run}, retry=Retry(1), keep_completed=True, keep_failed=True)
    async with timed(app) as test:
        job = await queue.add("run")
        await test.drain()
        handlers[0] = edit.__get__(code)
        await test.after("1h")

        record = (await job.refresh()).record
        assert record is not None
        failure = record.failure
        assert failure is not None
        assert failure.kind == StepChanged.__name__
        assert re.search(why, failure.reason)
        handlers[0] = code.before
        await job.retry()
        await test.after("1h")
        assert await job.result() == [1, "b", "c"]
    assert code.ran == ["a", "b", "c"]


async def test_other_arguments_are_told_and_the_recorded_value_is_used() -> None:
    """Where the handlers run without the checks of `toril.testing`, as in production."""
    code, app = Code(), App("memory://")
    number = [1]

    async def run(ctx: JobContext[Any]) -> int:
        a = await ctx.step("a", code.a, number[0])
        await ctx.sleep("nap", 60)
        return a.n

    queue = app.queue("q", {"run": run}, keep_completed=True)
    async with memory(app) as test:
        job = await queue.add("run")
        await test.drain()
        number[0] = 2
        with pytest.raises(AssertionError, match="other arguments"):
            await test.after("1h")
        await test.after("1h")
        assert await job.result() == 1
        assert "step a was recorded for other arguments; the recorded value counts" in await job.logs()
    assert code.ran == ["a"]
