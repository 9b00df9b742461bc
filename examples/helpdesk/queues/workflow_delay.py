"""Workflows that continue after a delay: many and short, at most a hundred per second across all processes."""

from helpdesk.desk import declared
from helpdesk.outside import Outside
from toril import JobContext, RateLimit, Result

__all__ = ["queue", "resume_workflow"]


async def resume_workflow(ctx: JobContext[int]) -> Result:
    outside: Outside = ctx.state
    await outside.post("/workflows", key=ctx.job_id, body={"ticket": ctx.data})
    return Result(f"the workflow of ticket {ctx.data} has ended")


queue = declared("workflow-delay", {"resume_workflow": resume_workflow}, rate_limit=RateLimit(100, per=1))
