"""Recordings are transcribed."""

from helpdesk.desk import declared
from helpdesk.outside import Outside
from toril import JobContext, Result

__all__ = ["queue", "transcribe"]


async def transcribe(ctx: JobContext[str]) -> Result:
    outside: Outside = ctx.state
    await outside.post("/transcripts", key=ctx.job_id, body=ctx.data)
    return Result(f"meeting {ctx.data} can be read")


queue = declared("recording-processing", {"transcribe": transcribe})
