"""An agent that drafts answers. It uses tools, so a run must not be repeated unless a person agrees."""

from helpdesk.desk import declared
from helpdesk.outside import Outside
from toril import JobContext, Result

__all__ = ["draft_answer", "queue"]


async def draft_answer(ctx: JobContext[int]) -> Result:
    outside: Outside = ctx.state
    await outside.post("/agent", key=ctx.job_id, body={"ticket": ctx.data})
    return Result(f"an answer to ticket {ctx.data} is drafted")


# One attempt, and none after a worker has died: then the job waits among the dead letters until someone replays it.
queue = declared("ai-agent", {"draft_answer": draft_answer}, max_stalls=0)
