"""The app: where its resources come from, how queues are declared, who gets alerts."""

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
    """What a worker process needs, open as long as it runs. Handlers find it in `ctx.state`."""
    await asyncio.to_thread(database.prepare)
    async with Outside(settings.api()) as outside:
        yield outside


app: Final = App(lifespan=lifespan)


class Special(TypedDict, total=False):
    """Options that some queues have in addition to their row."""

    rate_limit: RateLimit
    groups: GroupLimits
    breaker: Breaker
    subject: str | Callable[[Any], str]
    max_stalls: int


def declared(name: str, handlers: Mapping[str, Callable[..., Any]], **special: Unpack[Special]) -> Queue:
    """Declare a queue with the settings in its row of the table."""
    row = QUEUES[name]
    lease = max(2.0, seconds(row.lease))
    kept = Keep(age=row.keep) if row.keep else Keep(count=0)
    return app.queue(
        name, handlers, concurrency=row.concurrency, retry=row.retry, lease=lease, keep_completed=kept, **special
    )


# For what only the hosted version does. Elsewhere such a job is skipped, and its schedule is not created.
hosted_only = only_if(settings.is_hosted, "Skipping {job} in self-hosted mode")


@app.on_start
async def keep_the_order() -> None:
    """Let some queues run one job at a time, across all processes."""
    for name in ONE_IN_THE_FLEET:
        await app.queues[name].set_concurrency(1)


async def page_someone(alert: Alert) -> None:
    """Write the alert to a table. Use `Webhook("https://…")`, or whatever your on-call service accepts."""
    await database.run(database.note_alert, str(alert.kind), alert.queue, alert.text)


app.alert(page_someone, AlertRules(threshold=100, window=300, in_a_row=10))
