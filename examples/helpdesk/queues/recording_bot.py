"""Bots that join meetings and record them."""

from helpdesk.desk import declared
from helpdesk.outside import Outside
from helpdesk.queues.recording_processing import queue as recording_processing
from helpdesk.queues.recording_processing import transcribe
from toril import JobContext, Result

__all__ = ["join_meeting", "poll_bots", "queue", "send_bots"]


async def send_bots(ctx: JobContext[None]) -> Result:
    """Send a bot to each meeting that begins soon."""
    outside: Outside = ctx.state
    meetings = await outside.get("/meetings")
    for meeting in meetings:
        await queue.add(join_meeting, meeting, job_id=f"join-{meeting}")
    return Result(f"{len(meetings)} bots sent", counts={"bots": len(meetings)})


async def join_meeting(ctx: JobContext[str]) -> Result:
    """After the meeting, another queue processes the recording."""
    outside: Outside = ctx.state
    await outside.post("/bots", key=ctx.job_id, body=ctx.data)
    await recording_processing.add(transcribe, ctx.data, job_id=f"transcribe-{ctx.data}")
    return Result(f"meeting {ctx.data} is recorded")


async def poll_bots(ctx: JobContext[None]) -> Result:
    outside: Outside = ctx.state
    bots = await outside.get("/bots")
    return Result(f"{len(bots)} bots are in meetings", counts={"bots": len(bots)})


queue = declared("recording-bot", {"send_bots": send_bots, "join_meeting": join_meeting, "poll_bots": poll_bots})
