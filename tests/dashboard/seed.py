"""A helpdesk with something of everything: jobs in each state, a flow, groups, circuits, schedules, dead letters.

`helpdesk(url)` is the app, `seeded(app)` fills its store and leaves it at work: one job runs until the app is stopped.
What is there is the same each time; only times and numbers of jobs that Toril gives out differ.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import BaseModel

from toril import App, Breaker, Flow, GroupLimits, Job, JobContext, PermanentError, RateLimit, Retry, SignalKind
from toril.model import AuditEntry

__all__ = ["APPROVAL", "CIRCUIT", "Approval", "Delivery", "Seeded", "filled", "helpdesk", "mended", "seeded"]

CIRCUIT = "embeddings.internal"
_LONG = 86_400.0  # seconds: longer than any test
_LEASE = 3_600.0  # seconds: its jobs run on, however long a busy machine stands still


class Delivery(BaseModel):
    """What a webhook is told."""

    url: str
    ticket: int


async def send_welcome(ctx: JobContext[dict[str, Any]]) -> str:
    await ctx.log(f"greeting {ctx.data['to']}")
    return "sent"


async def send_reply(ctx: JobContext[dict[str, Any]]) -> str:
    return _deliver_to(ctx.data["to"])


def _deliver_to(address: str) -> str:
    if address.endswith("@gone.example") and address not in mended:
        raise PermanentError(f"550 5.1.1 user unknown: {address}")
    return "delivered"


async def deliver(ctx: JobContext[Delivery]) -> str:
    await ctx.log(f"telling {ctx.data.url} of ticket {ctx.data.ticket}")
    if ctx.data.ticket % 3:
        raise ConnectionError(f"{ctx.data.url} refused the connection")
    raise TimeoutError(f"{ctx.data.url} did not answer within 10 s")


async def embed_batch(_: JobContext[dict[str, Any]]) -> str:
    return "embedded"


async def import_contacts(ctx: JobContext[dict[str, Any]]) -> None:
    """Gets to 64 %, says so, and stays there until it is cancelled."""
    for row in range(1, 6):
        await ctx.log(f"rows {row * 200 - 199} to {row * 200} written")
    await ctx.update_progress(64)
    await ctx.signal.wait()
    ctx.raise_if_cancelled()


async def sync_orders(ctx: JobContext[dict[str, Any]]) -> str:
    if ctx.data.get("hold"):
        await ctx.signal.wait()
        ctx.raise_if_cancelled()
    return "synced"


async def check_links(_: JobContext[Any]) -> int:
    return 12


async def publish_handbook(ctx: JobContext[Any]) -> int:
    return len(await ctx.children_values())


@dataclass(frozen=True, slots=True)
class Approval:
    """What somebody says of a refund."""

    ok: bool
    by: str
    reason: Literal["damaged", "late", "other"] = "other"


APPROVAL = SignalKind("approval", Approval)


async def refund(ctx: JobContext[dict[str, Any]]) -> str:
    await ctx.step("look up", lambda: {"order": ctx.data["order"], "items": ["tea"] * 40})
    said = await ctx.wait_for(APPROVAL, timeout=_LONG)
    if said is None or not said.ok:
        return "refused"
    await ctx.step("pay back", lambda: ctx.data["order"])
    return f"approved by {said.by}"


async def ask(ctx: JobContext[str]) -> Any:
    """Waits for a machine, by its key."""
    return await ctx.wait_for("scan", key=ctx.data)


mended: set[str] = set()  # customers whose card works by now


async def charge(ctx: JobContext[dict[str, Any]]) -> str:
    if ctx.data["customer"] not in mended and ctx.data.get("card") != "good":
        raise PermanentError(f"the card of {ctx.data['customer']} was refused")
    return "paid"


def helpdesk(url: str) -> App:
    """The app, with nothing in its store yet."""
    app = App(url)
    app.queue(
        "email", {"send_welcome": send_welcome, "send_reply": send_reply}, concurrency=5, retry=Retry(1),
        keep_completed=50, keep_failed=50,
    )  # fmt: skip
    app.queue("webhooks", {"deliver": deliver}, concurrency=5, retry=Retry(1))
    app.queue("embedding", {"embed_batch": embed_batch}, breaker=Breaker(by=lambda _: CIRCUIT))
    app.queue("data-import", {"import_contacts": import_contacts}, concurrency=2, lease=_LEASE, keep_failed=50)
    app.queue(
        "storefront-sync", {"sync_orders": sync_orders}, concurrency=4, lease=_LEASE,
        groups=GroupLimits(concurrency=1),
    )  # fmt: skip
    app.queue("kb-sync", {"check_links": check_links, "publish_handbook": publish_handbook}, keep_completed=50)
    app.queue("billing", {"charge": charge}, concurrency=10, keep_completed=500)  # tests add what they need
    app.queue("refunds", {"refund": refund, "ask": ask}, keep_completed=50, signals=[APPROVAL])
    app.queue("app-polling")  # nobody works it
    return app


@dataclass(frozen=True, slots=True, kw_only=True)
class Seeded:
    """Jobs that tests look for."""

    app: App
    failed: Job[Any]  # kept in its queue, with a traceback
    cancelled: Job[Any]  # kept in its queue, and no failure
    delayed: Job[Any]
    waiting: Job[Any]  # no worker takes it
    running: Job[Any]  # at 64 %, with five lines of log
    deferred: Job[Any]  # its circuit is open
    flow: Job[Any]  # waits for a child that no worker takes
    done: Job[Any]
    asking: Job[Any]  # waits for an approval


@asynccontextmanager
async def seeded(app: App) -> AsyncIterator[Seeded]:
    """The app at work, its store filled."""
    async with app:
        found = await filled(app)
        work = asyncio.create_task(app.run(grace=0.2, signals="leave"))
        try:
            await _settled(found)
            yield found
        finally:
            app.stop()
            await work


async def filled(app: App) -> Seeded:
    """An open app with all that, of which nothing has started yet."""
    await app.breakers.trip(CIRCUIT, _LONG)
    await _schedules(app)
    found = await _jobs(app)
    await _groups(app)
    await _notes(app)
    return found


async def _jobs(app: App) -> Seeded:
    email, webhooks = app.queue("email"), app.queue("webhooks")
    people = [{"to": f"{name}@example.org"} for name in ("ada", "grace", "barbara", "radia", "frances")]
    done = await email.add_many([("send_welcome", person) for person in people])
    failed = await email.add_many([("send_reply", {"to": f"user{n}@gone.example", "ticket": n}) for n in range(1, 5)])
    cancelled = await email.add("send_welcome", {"to": "niklaus@example.org"}, delay=_LONG)
    await cancelled.cancel("the ticket was closed")
    hooks = "https://hooks.kestrel.example"
    await webhooks.add_many([("deliver", {"url": hooks, "ticket": n}) for n in range(1, 13)])
    polling = app.queue("app-polling")
    waiting = await polling.add_many([("poll", {"app": f"app-{n}"}) for n in range(1, 9)])
    kb = app.queue("kb-sync")
    flow = await app.flow(
        kb.new("publish_handbook", {"handbook": "Pricing"}),
        [Flow(kb.new("check_links", {"page": n})) for n in range(1, 4)] + [Flow(polling.new("render", {"page": 4}))],
    )
    return Seeded(
        app=app, failed=failed[0], cancelled=cancelled, done=done[0], waiting=waiting[0], flow=flow,
        delayed=await email.add("send_welcome", {"to": "alan@example.org"}, delay=_LONG),
        running=await app.queue("data-import").add("import_contacts", {"rows": 20_000, "api_key": "very secret"}),
        asking=await app.queue("refunds").add("refund", {"order": 4711, "card_token": "very secret"}),
        deferred=await app.queue("embedding").add("embed_batch", {"document": 40217, "batch": 7}),
    )  # fmt: skip


async def _groups(app: App) -> None:
    queue = app.queue("storefront-sync")
    for org, many in (("org:nordwind", 5), ("org:oakline", 3), ("org:kestrel", 2)):
        await queue.add_many([("sync_orders", {"org": org, "hold": True}, {"group": org}) for _ in range(many)])
    await queue.groups.set("org:oakline", rate_limit=RateLimit(120, 60))
    await queue.groups.pause("org:kestrel")


async def _schedules(app: App) -> None:
    email, polling = app.queue("email").schedules, app.queue("app-polling").schedules
    await email.put("nightly-report", "send_welcome", {"to": "ops@example.org"}, cron="0 2 * * *", tz="Europe/Berlin")
    await email.put("trial-mails", "send_welcome", {"to": "trial@example.org"}, cron="0 10 * * 1-5")
    await polling.put("poll-mailboxes", "poll", {"app": "mail"}, every=300)
    await polling.put("demo-cleanup", "clean", cron="*/15 * * * *", overlap="skip")
    await polling.pause("demo-cleanup")


async def _notes(app: App) -> None:
    entries: list[dict[str, Any]] = [
        {"who": "maya", "action": "retry jobs", "target": "email", "detail": '{"state": "failed", "error": "550"}',
         "done": 40, "refused": 2},
        {"who": "jonas", "action": "pause queue", "target": "app-polling"},
        {"who": "jonas", "action": "resume queue", "target": "app-polling"},
        {"who": "maya", "action": "remove job", "target": "email/7", "ended": "refused: job 7 is running"},
    ]  # fmt: skip
    for entry in entries:
        await app.store.audit.append(AuditEntry(**{"address": "10.0.0.7", "detail": "{}", "ended": "done"} | entry))


async def _settled(found: Seeded) -> None:
    """All that ends has ended, and what runs has said how far it is."""
    app = found.app
    async with asyncio.timeout(60):
        while True:
            counts = {name: await app.queue(name).counts() for name in app.queues}
            running = await found.running.refresh()
            ended = counts["email"].completed == 5 and counts["email"].failed == 5
            dead = await app.dead_letters.count() == 12
            deferred = counts["embedding"].delayed == 1
            asks = counts["refunds"].resting == 1
            flowed = counts["kb-sync"].waiting_children == 1 and counts["kb-sync"].completed == 3
            if ended and dead and deferred and asks and flowed and running.progress == 64 and await running.logs():
                return
            await asyncio.sleep(0.05)
