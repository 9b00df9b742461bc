"""pydantic-ai: agents whose model requests and tool calls are durable steps, with a model that costs nothing."""

import asyncio
import sys
from collections.abc import Callable
from typing import Any

import pytest
from pydantic_ai import Agent, ModelRetry
from pydantic_ai.exceptions import ToolFailed
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from tests.integrations.programs import EXAMPLES
from toril import App, Fixed, JobContext, Retry
from toril.integrations.pydantic_ai import APPROVAL, DurableSteps, ToolApproval
from toril.testing import memory


class Clerk:
    """An agent whose model plays turns that a test has written; each is paid for."""

    def __init__(self, *turns: list[Any], **options: Any) -> None:
        self.turns = turns
        self.paid: list[int] = []
        self.used: list[str] = []
        self.told: list[str] = []
        self.before: Callable[[int], None] = lambda turn: None  # noqa: ARG005
        self.agent = Agent(FunctionModel(self.model), name="clerk", capabilities=[DurableSteps(**options)], retries=3)
        self.agent.tool_plain(self.look)
        self.agent.tool_plain(self.pay, requires_approval=True)

    def model(self, messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        del info
        turn = sum(isinstance(message, ModelResponse) for message in messages)
        self.paid.append(turn)
        self.before(turn)
        self.told += [str(part.content) for part in messages[-1].parts if isinstance(part, ToolReturnPart) and messages]
        return ModelResponse(parts=self.turns[turn])

    async def look(self, what: str) -> str:
        self.used.append(what)
        if what == "vague":
            raise ModelRetry("look at what?")
        if what == "gone":
            raise ToolFailed("it is gone")
        return what.upper()

    async def pay(self, amount: int) -> str:
        self.used.append(f"pay {amount}")
        return f"paid {amount}"

    async def work(self, ctx: JobContext[str]) -> str:
        output: str = (await self.agent.run(ctx.data)).output
        return output


def look(what: str) -> ToolCallPart:
    return ToolCallPart("look", {"what": what}, f"call-{what}")


def pay(amount: int) -> ToolCallPart:
    return ToolCallPart("pay", {"amount": amount}, f"pay-{amount}")


DONE = [TextPart("done")]


@pytest.mark.parametrize("dies", [0, 4, 9])
async def test_what_is_paid_for_is_not_paid_for_again(dies: int) -> None:
    clerk = Clerk(*([look(f"part-{turn}")] for turn in range(9)), DONE)
    app = App("memory://")
    queue = app.queue("q", {"work": clerk.work}, keep_completed=True)
    async with memory(app) as test:

        def die(turn: int) -> None:
            if turn == dies and not test.deaths:
                test.kill_here()

        clerk.before = die
        job = await queue.add("work", "go")
        await test.after("1h")

        assert await job.result() == "done"
        assert test.deaths == 1
    assert len(clerk.paid) == 11, "ten turns, and the one in which the worker died"
    assert clerk.used == [f"part-{turn}" for turn in range(9)]


async def test_tools_that_run_together_or_say_no_are_replayed_as_they_were() -> None:
    clerk = Clerk([look("a"), look("b")], [look("vague")], [look("gone")], DONE)
    app = App("memory://")
    queue = app.queue("q", {"work": clerk.work})
    async with memory(app, replay="each", on_failure="raise") as test:
        job = await queue.add("work", "go")
        await test.drain()

        keys = [step.key for step in await test.steps(job)]
    assert sorted(keys[2:4]) == ["clerk.tool.look:call-a", "clerk.tool.look:call-b"]
    assert keys[:2] + keys[4:] == [
        "clerk.run", "clerk.model:1", "clerk.model:2", "clerk.tool.look:call-vague", "clerk.model:3",
        "clerk.tool.look:call-gone", "clerk.model:4",
    ]  # fmt: skip
    assert clerk.paid == [0, 1, 2, 3]
    assert sorted(clerk.used) == ["a", "b", "gone", "vague"]
    assert clerk.told[:2] == ["A", "B"]
    assert "look at what?" in clerk.told[2]
    assert "it is gone" in clerk.told[3]


async def test_people_approve_and_deny_tool_calls_while_the_job_takes_no_slot() -> None:
    clerk = Clerk([pay(1), pay(2)], [pay(3)], DONE)
    app = App("memory://")
    queue = app.queue("q", {"work": clerk.work}, keep_completed=True, signals=[APPROVAL])
    async with memory(app, replay="each", on_failure="raise") as test:
        job = await queue.add("work", "go")
        await test.after("1d")
        assert await job.state() == "delayed"
        await queue.signal(APPROVAL, ToolApproval(ok=False, message="too much"), key=f"{job.id}:pay-2")
        await test.after("1d")
        assert clerk.used == [], "both are needed"
        await queue.signal(APPROVAL, ToolApproval(ok=True), key=f"{job.id}:pay-1")
        await test.after("1d")
        await queue.signal(APPROVAL, ToolApproval(ok=True), key=f"{job.id}:pay-3")
        await test.drain()

        assert await job.result() == "done"
        assert await job.logs() == [
            f'pay({{"amount":{amount}}}) needs an approval, by the key {job.id}:pay-{amount}' for amount in (1, 2, 3)
        ]
    assert clerk.used == ["pay 1", "pay 3"]
    assert clerk.told == ["paid 1", "too much", "paid 3"]
    assert clerk.paid == [0, 1, 2]


async def test_several_runs_of_an_agent_in_one_job_are_told_apart() -> None:
    clerk = Clerk([look("a")], DONE)
    app = App("memory://")

    async def work(ctx: JobContext[str]) -> list[str]:
        first = await clerk.work(ctx)
        return [first, await clerk.work(ctx), *await ctx.gather(clerk.work(ctx), clerk.work(ctx))]

    queue = app.queue("q", {"work": work}, keep_completed=True)
    async with memory(app, replay="each", on_failure="raise") as test:
        job = await queue.add("work", "go")
        await test.drain()

        assert await job.result() == ["done"] * 4
        keys = [step.key for step in await job.steps()]
    assert [key for key in keys if key.endswith("call-a")][:2] == ["clerk.tool.look:call-a", "clerk.tool.look:2.call-a"]
    assert clerk.paid.count(0) == clerk.paid.count(1) == len(clerk.used) == 4


async def test_a_request_that_fails_is_tried_again_while_the_job_rests() -> None:
    clerk = Clerk([look("a")], DONE, retry=Retry(3, Fixed(60)), timeout=10)
    app = App("memory://")
    queue = app.queue("q", {"work": clerk.work}, keep_completed=True)
    failures = iter([1, 1])

    def fail(turn: int) -> None:
        if turn == 1 and next(failures, None):
            raise ConnectionError("the model is away")

    clerk.before = fail
    async with memory(app, replay="each") as test:
        job = await queue.add("work", "go")
        await test.drain()
        assert await job.state() == "delayed"
        await test.after("1h")

        assert await job.result() == "done"
        assert (await job.refresh()).attempts_made == 1
    assert clerk.paid == [0, 1, 1, 1]
    assert clerk.used == ["a"]


async def test_elsewhere_the_agent_runs_as_ever() -> None:
    clerk = Clerk([look("a")], DONE)
    assert (await clerk.agent.run("go")).output == "done"
    app = App("memory://")

    async def work(ctx: JobContext[str]) -> str:
        return await ctx.step("all of it", clerk.work, ctx)

    queue = app.queue("q", {"work": work}, keep_completed=True)
    async with memory(app) as test:
        job = await queue.add("work", "go")
        await test.drain()
        assert await job.result() == "done"
        assert [step.key for step in await job.steps()] == ["all of it"]
    assert clerk.used == ["a", "a"]


async def test_the_example_runs_as_its_own_program() -> None:
    program = await asyncio.create_subprocess_exec(
        sys.executable, "pydantic_ai_agent.py", cwd=EXAMPLES, stdout=asyncio.subprocess.PIPE
    )
    output, _ = await program.communicate()

    assert program.returncode == 0
    assert output.decode().splitlines()[1:3] == [
        'refund({"amount":0}) needs an approval, by the key 1:pyd_ai_tool_call_id__refund',
        "refund 0",
    ]
