"""The app itself: where its resources come from, how a queue is declared, who hears of trouble."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final, TypedDict, Unpack

from helpdesk import database, settings
from helpdesk.outside import Outside
from helpdesk.settings import seconds
from helpdesk.tables import ONE_IN_THE_FLEET, QUEUES
from toril import App, Breaker, GroupLimits, Keep, Queue, RateLimit, only_if
from toril.alerts import Alert, AlertRules

__all__ = ["app", "declared", "hosted_only"]


@asynccontextmanager
async def lifespan(_: App) -> AsyncIterator[Outside]:
    """What a worker process needs, open for as long as it works; handlers find it as `ctx.state`."""
    await asyncio.to_thread(database.prepare)
    async with Outside(settings.api()) as outside:
        yield outside


app: Final = App(lifespan=lifespan)


class Special(TypedDict, total=False):
    """What some queues have beside their row."""

    rate_limit: RateLimit
    groups: GroupLimits
    breaker: Breaker
    subject: str | Callable[[Any], str]
    max_stalls: int


def declared(name: str, handlers: Mapping[str, Callable[..., Any]], **special: Unpack[Special]) -> Queue:
    """A queue, worked as its row of the table says."""
    row = QUEUES[name]
    lease = max(2.0, seconds(row.lease))
    kept = Keep(age=row.keep) if row.keep else Keep(count=0)
    return app.queue(
        name, handlers, concurrency=row.concurrency, retry=row.retry, lease=lease, keep_completed=kept, **special
    )


# For what only we do, who run it for customers. Elsewhere such a job is skipped, and its schedule is not made.
hosted_only = only_if(settings.is_hosted, "Skipping {job} in self-hosted mode")


@app.on_start
async def keep_the_order() -> None:
    """Some queues run one job at a time, over all processes."""
    for name in ONE_IN_THE_FLEET:
        await app.queues[name].set_concurrency(1)


async def page_someone(alert: Alert) -> None:
    """Here: a table. Elsewhere: `Webhook("https://…")`, or what your on-call service takes."""
    await database.run(database.note_alert, str(alert.kind), alert.queue, alert.text)


app.alert(page_someone, AlertRules(threshold=100, window=300, in_a_row=10))
