"""An agent of pydantic-ai whose model requests and tool calls are durable steps. Run it; it exits by itself."""

import asyncio

from pydantic_ai import Agent
from pydantic_ai.models.test import TestModel

from toril import App, JobContext
from toril.integrations.pydantic_ai import APPROVAL, DurableSteps, ToolApproval
from toril.testing import memory

agent = Agent(TestModel(), name="clerk", capabilities=[DurableSteps()])  # TestModel calls every tool; use a real model


@agent.tool_plain
def balance(customer: str) -> int:
    print("look up the balance of", customer)
    return 30


@agent.tool_plain(requires_approval=True)
def refund(amount: int) -> str:
    print("refund", amount)
    return "refunded"


async def answer(ctx: JobContext[str]) -> str:
    return str((await agent.run(ctx.data)).output)


app = App("memory://")
mail = app.queue("mail", [answer], keep_completed=True, signals=[APPROVAL])


async def main() -> None:
    async with memory(app) as test:
        job = await mail.add(answer, "I want my money back.")
        await test.drain()
        (line,) = await job.logs()
        print(line)
        await mail.signal(APPROVAL, ToolApproval(ok=True), key=line.rpartition(" ")[2])
        await test.drain()
        print([step.key.split(":")[0] for step in await job.steps()])
        print(await job.result())


if __name__ == "__main__":
    asyncio.run(main())
