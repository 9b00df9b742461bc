"""The app behind `toril demo`: a small shop, written as you would write yours.

It is an app like any other: `toril run toril.cli.demo.shop:app` runs its workers.
"""

import asyncio
import os

from pydantic import BaseModel

from toril import App, Exponential, JobContext, PermanentError, Retry, SyncJobContext, handler

app = App()

PACE = float(os.environ.get("TORIL_DEMO_PACE", "1"))  # below 1, simulated waits are shorter


class Receipt(BaseModel):
    order: int
    to: str


class Picture(BaseModel):
    name: str
    width: int
    height: int


class Payment(BaseModel):
    order: int
    card: str = "good"
    outages: int = 0


class Export(BaseModel):
    pages: int


async def send_receipt(ctx: JobContext[Receipt]) -> str:
    """Mostly waits for a mail server, so many of these run at once on one event loop."""
    for part in range(1, 5):
        await asyncio.sleep(0.25 * PACE)
        await ctx.update_progress(25 * part)
    await ctx.log(f"receipt for order {ctx.data.order} sent to {ctx.data.to}")
    return "sent"


async def ask_for_review(ctx: JobContext[Receipt]) -> str:
    """Added together with the order, but with a delay."""
    await asyncio.sleep(0.3 * PACE)
    return f"asked {ctx.data.to}"


def make_thumbnail(ctx: SyncJobContext[Picture]) -> list[int]:
    """Computes, so it runs in a process of its own and does not hold up other jobs."""
    picture, size = ctx.data, 16
    rows: list[int] = []
    for row in range(size):
        ctx.raise_if_cancelled()
        block = range(row * picture.height // size, (row + 1) * picture.height // size)
        light = sum((x * y) % 251 for y in block for x in range(picture.width))
        rows.append(light // max(1, len(block) * picture.width))
        ctx.update_progress(100 * (row + 1) // size)
    return rows


async def charge_card(ctx: JobContext[Payment]) -> str:
    """Asks a bank that is not always available. An ordinary error is retried, a permanent one is not."""
    await asyncio.sleep(0.5 * PACE)
    await ctx.update_progress(50)
    if ctx.data.card == "stolen":
        raise PermanentError("the card is reported stolen")
    if ctx.attempt <= ctx.data.outages:
        raise ConnectionError("503 from the bank")
    await asyncio.sleep(0.5 * PACE)
    return f"paid, at attempt {ctx.attempt}"


async def export_catalogue(ctx: JobContext[Export]) -> int:
    """A long job that stops when it is told to."""
    for page in range(1, ctx.data.pages + 1):
        ctx.raise_if_cancelled()
        await asyncio.sleep(0.1 * PACE)
        await ctx.update_progress(100 * page // ctx.data.pages)
    return ctx.data.pages


emails = app.queue("emails", [send_receipt, ask_for_review], concurrency=4)

thumbnails = app.queue(
    "thumbnails",
    {"make_thumbnail": handler(make_thumbnail, executor="process", timeout=60)},
    concurrency=2,
)

payments = app.queue(
    "payments",
    [charge_card],
    concurrency=3,
    retry=Retry(attempts=4, backoff=Exponential(0.8 * PACE)),
    keep_failed=100,
)

exports = app.queue("exports", [export_catalogue], keep_failed=100)
