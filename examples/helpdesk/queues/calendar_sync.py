"""Calendars of colleagues, synchronized every few minutes."""

from helpdesk.desk import declared
from helpdesk.outside import Outside
from toril import Dedup, JobContext, Result

__all__ = ["queue", "scan_calendars", "sync_calendar"]


async def scan_calendars(ctx: JobContext[None]) -> Result:
    outside: Outside = ctx.state
    owners = await outside.get("/calendars")
    for owner in owners:
        await queue.add(sync_calendar, owner, dedup=Dedup(f"calendar-{owner}"))
    return Result(f"{len(owners)} calendars are synced", counts={"calendars": len(owners)})


async def sync_calendar(ctx: JobContext[str]) -> Result:
    outside: Outside = ctx.state
    meetings = await outside.get(f"/calendars/{ctx.data}")
    return Result(f"{ctx.data} has {len(meetings)} meetings", counts={"meetings": len(meetings)})


queue = declared("calendar-sync", {"scan_calendars": scan_calendars, "sync_calendar": sync_calendar}, subject=str)
