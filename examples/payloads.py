"""Payload types: a pydantic model, a dataclass, a TypedDict, plain JSON. Run it; it exits by itself."""

import asyncio
from dataclasses import dataclass
from typing import Any, TypedDict

from pydantic import BaseModel

from toril import App, InvalidPayload, JobContext

app = App("memory://")


class Welcome(BaseModel):
    user_id: int
    email: str


@dataclass
class Resize:
    path: str
    width: int = 800


class Refund(TypedDict):
    order: str
    cents: int


async def send_welcome(ctx: JobContext[Welcome]) -> str:
    return f"sent to {ctx.data.email}"


async def resize(ctx: JobContext[Resize]) -> int:
    return ctx.data.width


async def refund(ctx: JobContext[Refund]) -> str:
    return f"{ctx.data['cents']} cents for order {ctx.data['order']}"


async def anything(ctx: JobContext[Any]) -> int:
    return len(ctx.data)


shop = app.queue("shop", [send_welcome, resize, refund, anything], concurrency=4)


async def main() -> None:
    async with app:
        worker = asyncio.create_task(app.run())
        print(await shop.add_and_wait(send_welcome, Welcome(user_id=1, email="a@example.org")))
        print(await shop.add_and_wait(resize, Resize("cat.png", width=120)))
        print(await shop.add_and_wait(refund, Refund(order="A17", cents=250)))
        print(await shop.add_and_wait(anything, [1, 2, 3]))
        try:
            await shop.add("send_welcome", {"user_id": "one", "email": "a@example.org"})
        except InvalidPayload as error:
            print(error)  # names the field; nothing was stored
        app.stop()
        await worker


if __name__ == "__main__":
    asyncio.run(main())
