"""A bad morning: mails fail, a flow fails with its child, a customer's jobs wait for their turn, a report hangs."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from toril import App, Fixed, Flow, GroupLimits, Job, JobContext, PermanentError, RateLimit, Retry, SyncJobContext

__all__ = ["Incident", "incident"]

_MAILS, _PAGES = 30, 4


async def send_mail(ctx: JobContext[dict[str, Any]]) -> str:
    await ctx.log(f"connecting for {ctx.data['to']}")
    if ctx.data["n"] % 3:
        raise ConnectionError(f"451 greylisted, attempt {ctx.attempt} for {ctx.data['to']}")
    return "sent"


async def send_digest(_: JobContext[dict[str, Any]]) -> str:
    return "sent"


async def embed(ctx: JobContext[dict[str, Any]]) -> int:
    if ctx.data.get("broken"):
        raise PermanentError(f"embedding service: 503 for page {ctx.data['page']}")
    return int(ctx.data["page"])


async def publish(ctx: JobContext[Any]) -> int:
    return len(await ctx.children_values())


async def sync_orders(ctx: JobContext[dict[str, Any]]) -> None:
    await ctx.signal.wait()
    ctx.raise_if_cancelled()


def make_report(ctx: SyncJobContext[dict[str, Any]]) -> None:
    read_ledger(ctx)


def read_ledger(ctx: SyncJobContext[dict[str, Any]]) -> None:
    while not ctx.is_cancelled():
        ctx.wait_for_cancel(0.2)


@dataclass(frozen=True, slots=True, kw_only=True)
class Incident:
    """What is looked at on the way."""

    app: App
    letter: str  # of a mail that gave up after three attempts
    parent: Job[Any]  # of a flow whose child has failed; both are dead letters
    flow: Job[Any]  # the top of a flow that has ended, of which nothing is kept
    kept: Job[Any]  # failed, and kept in its queue
    waiting: Job[Any]  # of a group at its limit
    stuck: Job[Any]  # in a thread


@asynccontextmanager
async def incident(url: str) -> AsyncIterator[Any]:
    """All of it, while the workers go on."""
    app = App(url)
    retry = Retry(3, Fixed(0.05))
    mails = app.queue(
        "mails", {"send_mail": send_mail, "send_digest": send_digest}, concurrency=5, retry=retry,
        rate_limit=RateLimit(500, per=1),
    )  # fmt: skip
    kept = app.queue("kept", {"send_mail": send_mail}, retry=retry, keep_failed=10)
    pages = app.queue("pages", {"embed": embed, "publish": publish}, concurrency=8, retry=Retry(1))
    orders = app.queue("orders", {"sync_orders": sync_orders}, concurrency=4, groups=GroupLimits(concurrency=1))
    reports = app.queue("reports", {"make_report": make_report}, concurrency=2)
    async with app:
        for n in range(_MAILS):
            await mails.add("send_mail", {"to": f"user{n}@example.org", "n": n}, subject=f"shop-{n % 3}")
        await mails.add_many([("send_digest", {"week": n}) for n in range(10)])
        failed = await kept.add("send_mail", {"to": "vip@example.org", "n": 1})
        good = [pages.new("embed", {"page": n}) for n in range(_PAGES)]
        flow = await app.flow(
            pages.new("publish", {"book": "Manual"}), [*good[1:], Flow(pages.new("publish"), good[:1])]
        )
        broken = [pages.new("embed", {"page": n, "broken": n == 1}) for n in range(_PAGES)]
        parent = await app.flow(pages.new("publish", {"book": "Handbook"}), broken)
        tenants = await orders.add_many([("sync_orders", {"n": n}, {"group": "org:nordwind"}) for n in range(4)])
        stuck = await reports.add("make_report", {"month": 10})
        work = asyncio.create_task(app.run(grace=0.2, signals="leave"))
        async with asyncio.timeout(90):
            while await app.dead_letters.count() < 22 or not (await reports.counts()).active or await _unended(app):  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        letter = next(each.id for each in (await app.dead_letters.rows(limit=50)).items if each.queue == "mails")
        yield Incident(app=app, letter=letter, parent=parent, flow=flow, kept=failed, waiting=tenants[-1], stuck=stuck)
        app.stop()
        await work


async def _unended(app: App) -> int:
    counts = [await app.queue(name).counts() for name in ("mails", "kept", "pages")]
    return sum(sum(each.values()) - each.failed for each in counts)
