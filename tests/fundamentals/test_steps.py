"""Durable steps: a handler whose work is recorded as it goes, that sleeps for days, and goes on after any crash."""

import asyncio
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest

from toril import (
    App,
    Fixed,
    JobContext,
    PermanentError,
    Retry,
    StepClash,
    StepFailed,
    SyncJobContext,
    current_step,
    handler,
)
from toril.testing import context, memory, sync_context


@dataclass
class User:
    id: int
    email: str


class Office:
    """What steps have done."""

    def __init__(self) -> None:
        self.done: list[str] = []

    async def create(self, email: str) -> User:
        self.done.append("create")
        return User(7, email)

    def write(self, user: User) -> str:
        self.done.append("write")
        return f"Dear user {user.id}"

    async def send(self, letter: str) -> None:
        self.done.append(f"send {letter!r}")


@pytest.fixture
def office() -> Office:
    return Office()


@pytest.mark.covers("R267")
async def test_a_handler_sleeps_for_days_and_repeats_nothing(office: Office) -> None:
    app = App("memory://")
    calls: list[int] = []

    async def onboard(ctx: JobContext[str]) -> int:
        calls.append(ctx.attempt)
        user = await ctx.step("create", office.create, ctx.data)
        await ctx.log("created")
        letter = await ctx.step("write", office.write, user)
        await ctx.sleep("cool-off", timedelta(days=3))
        await ctx.step("send", office.send, letter)
        return user.id

    people = app.queue("people", {"onboard": onboard})
    async with memory(app) as test:
        job = await people.add("onboard", "a@example.org", keep_completed=True)
        await test.drain()
        assert await job.state() == "delayed"
        assert office.done == ["create", "write"]

        await test.after("3d")

        assert await job.state() == "completed"
        assert await job.logs() == ["created"], "what was logged before is not logged again"
    assert office.done == ["create", "write", "send 'Dear user 7'"]
    assert calls == [1, 1], "a rest spends no attempt"


@pytest.mark.covers("R267")
@pytest.mark.parametrize("after", ["create", "write", "send"])
async def test_a_worker_may_die_after_any_step(office: Office, after: str) -> None:
    app, died = App("memory://"), list[str]()

    async def onboard(ctx: JobContext[str]) -> int:
        user = await ctx.step("create", office.create, ctx.data)
        die("create")
        letter = await ctx.step("write", office.write, user)
        die("write")
        await ctx.sleep("cool-off", timedelta(days=3))
        await ctx.step("send", office.send, letter)
        die("send")
        return user.id

    people = app.queue("people", {"onboard": onboard})
    async with memory(app) as test:

        def die(here: str) -> None:
            if here == after and not died:
                died.append(here)
                test.kill_here()

        job = await people.add("onboard", "a@example.org", result_ttl="7d")
        await test.after("4d")

        assert await job.result() == 7
    assert office.done == ["create", "write", "send 'Dear user 7'"]
    assert died == [after]


@pytest.mark.covers("R269")
async def test_a_failed_step_can_be_compensated() -> None:
    app, done = App("memory://"), list[str]()

    async def charge() -> None:
        done.append("charge")
        raise ConnectionError("away")

    async def order(ctx: JobContext[None]) -> None:
        await ctx.step("reserve", done.append, "reserve")
        try:
            await ctx.step("charge", charge, retry=Retry(3, Fixed(60)))
        except StepFailed as error:
            await ctx.step("release", done.append, "release")
            raise PermanentError(f"not charged: {error.reason}") from error

    queue = app.queue("orders", {"order": order})
    async with memory(app) as test:
        await queue.add("order")
        await test.after("5m")
        (letter,) = (await app.dead_letters.page()).items

    assert done == ["reserve", "charge", "charge", "charge", "release"]
    assert letter.failure.reason == "not charged: away"


@pytest.mark.covers("R274")
async def test_branches_rest_together_and_wake_one_by_one() -> None:
    app, done = App("memory://"), list[int]()

    async def remind(ctx: JobContext[None], days: int) -> int:
        await ctx.sleep("wait", timedelta(days=days))
        await ctx.step("send", done.append, days)
        return days

    async def campaign(ctx: JobContext[None]) -> list[int]:
        return await ctx.gather(*(remind(ctx, days) for days in (2, 1, 3)))

    queue = app.queue("q", {"campaign": campaign})
    async with memory(app) as test:
        job = await queue.add("campaign", result_ttl="30d")
        await test.after("1d")
        assert done == [1]
        await test.after("9d")

        assert await job.result() == [2, 1, 3]
    assert done == [1, 2, 3]


@pytest.mark.covers("R275")
async def test_a_handler_calls_another_job_and_gets_its_result() -> None:
    app = App("memory://")

    async def report(ctx: JobContext[int]) -> User:
        if ctx.data < 0:
            raise PermanentError("no such user")
        return User(ctx.data, "a@example.org")

    reports = app.queue("reports", {"report": report})

    async def plan(ctx: JobContext[int]) -> str:
        try:
            user = await ctx.call("report", reports.new(report, ctx.data))
        except StepFailed as error:
            return error.reason
        one, two = await ctx.call_all("more", [reports.new(report, 1), reports.new(report, 2)])
        return f"{user.email} {one.id} {two.id}"

    queue = app.queue("q", {"plan": plan})
    async with memory(app) as test:
        good = await queue.add("plan", 5, result_ttl=60)
        bad = await queue.add("plan", -5, result_ttl=60)
        await test.drain()

        assert await good.result() == "a@example.org 1 2"
        assert "no such user" in await bad.result()


@pytest.mark.parametrize("executor", ["thread"])
async def test_plain_handlers_have_the_same_without_await(executor: Any) -> None:
    app, done = App("memory://"), list[Any]()

    def count(ctx: SyncJobContext[int]) -> int:
        assert ctx.version("layout", 2) == 2
        doubled = ctx.step("double", double, ctx.data)
        ctx.sleep("night", 3600)
        return ctx.step("add", sum, [doubled, 1])

    def double(number: int) -> int:
        info = current_step()
        done.append(info and info.name)
        return 2 * number

    queue = app.queue("q", {"count": handler(count, executor=executor)})
    async with memory(app) as test:
        job = await queue.add("count", 3, result_ttl="1d")
        await test.after("2h")

        assert await job.result() == 7
    assert done == ["double"]


async def test_tasks_of_ones_own_need_keys_or_gather() -> None:
    app = App("memory://")

    async def parse(ctx: JobContext[None], number: int) -> int:
        return await ctx.step("parse", int, number)

    async def sloppy(ctx: JobContext[None]) -> None:
        await asyncio.gather(parse(ctx, 1), parse(ctx, 2))

    queue = app.queue("q", {"sloppy": sloppy}, retry=Retry(1))
    async with memory(app, on_failure="raise") as test:
        await queue.add("sloppy")
        with pytest.raises(StepClash, match=r"ctx\.gather"):
            await test.drain()


async def test_a_unit_test_gives_the_values_of_steps(office: Office) -> None:
    async def onboard(ctx: JobContext[str]) -> str:
        user = await ctx.step("create", office.create, ctx.data)
        await ctx.sleep("cool-off", 60)
        first, _ = await ctx.gather(ctx.step("write", office.write, user), ctx.step("write", office.write, user))
        return first

    ctx = context("a@example.org", steps={"create": User(3, "b@example.org")})

    assert await onboard(ctx) == "Dear user 3"
    assert ctx.recorded.steps.names == ["create", "cool-off", "write", "write"]
    plain = sync_context(None)
    with pytest.raises(StepFailed, match="ZeroDivisionError") as found:
        plain.step("divide", lambda: 1 // 0)
    assert found.value.caused_by(ZeroDivisionError)
