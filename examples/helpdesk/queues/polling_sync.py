"""Mailboxes are polled in two stages: first the list of messages, then the messages. `mailboxes.py` has the stages.

Three mechanisms repair whatever goes wrong, and none of them needs to know the cause: a hook for jobs that this process
loses, a scanner for mailboxes that are stuck in a stage, and a scanner for those that have failed.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

from pydantic import BaseModel

from helpdesk import database, mailboxes
from helpdesk.desk import app, declared
from helpdesk.mailboxes import Start
from helpdesk.outside import Outside
from helpdesk.settings import seconds
from toril import Dedup, GroupLimits, Job, JobContext, PermanentError, Result

__all__ = ["Poll", "fetch_list", "import_messages", "queue", "scan_mailboxes"]


class Poll(BaseModel):
    mailbox: str


async def scan_mailboxes(ctx: JobContext[None]) -> Result:  # noqa: ARG001 - it looks at all of them
    """Add a job for each mailbox that is due, or whose next stage nobody has started."""
    due = await database.run(mailboxes.due)
    for mailbox, stage in due:
        await _ask_for(mailbox, stage)
    return Result(f"{len(due)} mailboxes are polled", counts={"polled": len(due)})


async def fetch_list(ctx: JobContext[Poll]) -> Result:
    """The first stage."""
    outside: Outside = ctx.state
    mailbox = ctx.data.mailbox
    if not await database.run(mailboxes.begin, mailbox, "list", _start(ctx)):
        return Result(f"{mailbox} has moved on")
    async with _failing(ctx, mailbox):
        ids = await outside.get(f"/mailboxes/{mailbox}")
    if await database.run(mailboxes.listed, mailbox, _start(ctx), ids):
        await _ask_for(mailbox, "import_pending")
    return Result(f"{mailbox} has {len(ids)} messages", counts={"listed": len(ids)})


async def import_messages(ctx: JobContext[Poll]) -> Result:
    """The second stage, in batches, so that it can stop between two of them and continue later."""
    outside: Outside = ctx.state
    mailbox, imported = ctx.data.mailbox, 0
    if not await database.run(mailboxes.begin, mailbox, "import", _start(ctx)):
        return Result(f"{mailbox} has moved on")
    async with _failing(ctx, mailbox):
        while batch := await database.run(mailboxes.claim_batch, mailbox, _start(ctx)):
            ctx.raise_if_cancelled()
            subjects = await outside.get(f"/mailboxes/{mailbox}/messages", ids=",".join(batch))
            await database.run(mailboxes.acknowledge, mailbox, subjects)
            imported += len(batch)
            await ctx.update_progress({"imported": imported})
    ended = await database.run(mailboxes.end, mailbox, _start(ctx))
    warnings = [] if ended else ["another has taken over"]
    return Result(f"{imported} messages imported", counts={"imported": imported}, warnings=warnings)


queue = declared(
    "polling-sync",
    {"scan_mailboxes": scan_mailboxes, "fetch_list": fetch_list, "import_messages": import_messages},
    groups=GroupLimits(concurrency=1),  # never two jobs at once for one mailbox, in any process
    subject="mailbox",
)


async def _ask_for(mailbox: str, stage: str) -> None:
    """At most one job per mailbox and stage is waiting or running."""
    job = fetch_list if stage == "list_pending" else import_messages
    await queue.add(job, Poll(mailbox=mailbox), group=mailbox, dedup=Dedup(f"{stage}-{mailbox}"))


def _start(ctx: JobContext[Poll]) -> Start:
    return Start(ctx.job_id, ctx.fence)


@asynccontextmanager
async def _failing(ctx: JobContext[Poll], mailbox: str) -> AsyncIterator[None]:
    """Mark the mailbox if the job fails for good. Until then its stage stays, and the next attempt continues there."""
    try:
        yield
    except PermanentError:
        await database.run(mailboxes.fail, mailbox, _start(ctx), "invalid_grant")  # the provider refuses us
        raise
    except Exception:
        if ctx.is_last_attempt:
            await database.run(mailboxes.fail, mailbox, _start(ctx))
        raise


async def recover(job: Job[Any]) -> None:
    """This process lost a job, because it was paused or cut off. The scanner finds what this hook misses."""
    await database.run(mailboxes.recover, job.data.mailbox, Start(job.id, job.fence))


def stuck(before: datetime) -> list[tuple[str, float]]:
    return [(mailbox, before.timestamp()) for mailbox in database.done(mailboxes.stuck, before.timestamp())]


def unstick(found: tuple[str, float]) -> bool:
    return database.done(mailboxes.unstick, *found)


def failed(_: datetime) -> list[str]:
    return database.done(mailboxes.relaunchable, datetime.now(UTC).timestamp())


def relaunch(mailbox: str) -> bool:
    return database.done(mailboxes.relaunch, mailbox)


queue.on_lease_lost(recover, when=lambda job: isinstance(job.data, Poll))
app.scanner(
    "stale-mailboxes", every=seconds(900), threshold=seconds(900), find=stuck, reset=unstick, queue=queue,
)  # fmt: skip
app.scanner("failed-mailboxes", every=seconds(1800), find=failed, reset=relaunch, queue=queue)
