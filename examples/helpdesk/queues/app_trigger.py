"""Workflows that start because something happened."""

from helpdesk.desk import declared
from helpdesk.outside import Outside
from helpdesk.queues.workflow_delay import queue as workflow_delay
from helpdesk.queues.workflow_delay import resume_workflow
from helpdesk.settings import seconds
from toril import JobContext, Result

__all__ = ["queue", "run_triggered"]


async def run_triggered(ctx: JobContext[int]) -> Result:
    """Run the first half of a workflow now, and the second half later, as a delayed job and not with a sleep."""
    outside: Outside = ctx.state
    await outside.post("/workflows", key=ctx.job_id, body={"ticket": ctx.data})
    await workflow_delay.add(resume_workflow, ctx.data, job_id=f"resumed-{ctx.data}", delay=seconds(60))
    return Result(f"the workflow of ticket {ctx.data} waits")


queue = declared("app-trigger", {"run_triggered": run_triggered})
