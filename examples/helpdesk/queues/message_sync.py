"""A mailbox is connected: fetch everything in it, page by page. This may take long, and continues where it stopped."""

from helpdesk import database, mailboxes
from helpdesk.desk import declared
from helpdesk.outside import Outside
from helpdesk.tables import BATCH
from toril import JobContext, Result

__all__ = ["queue", "sync_mailbox"]


async def sync_mailbox(ctx: JobContext[str]) -> Result:
    outside: Outside = ctx.state
    mailbox = ctx.data
    done = int(ctx.last_checkpoint or 0)  # what the previous attempt imported is not requested again
    ids = await outside.get(f"/mailboxes/{mailbox}")
    while done < len(ids):
        ctx.raise_if_cancelled()
        subjects = await outside.get(f"/mailboxes/{mailbox}/messages", ids=",".join(ids[done : done + BATCH]))
        await database.run(mailboxes.acknowledge, mailbox, subjects)
        done = min(done + BATCH, len(ids))
        await ctx.checkpoint(done)
        await ctx.update_progress(round(100 * done / len(ids)))
    return Result(f"{len(ids)} messages synced", counts={"messages": len(ids)})


queue = declared("message-sync", {"sync_mailbox": sync_mailbox}, subject=str)
