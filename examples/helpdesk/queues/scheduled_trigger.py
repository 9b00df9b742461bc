"""Workflows that start at a given time."""

import time

from helpdesk import database
from helpdesk.database import Connection
from helpdesk.desk import declared
from helpdesk.outside import Outside
from helpdesk.settings import seconds
from toril import JobContext, Result

__all__ = ["queue", "run_workflow", "start_due_workflows"]


async def start_due_workflows(ctx: JobContext[None]) -> Result:  # noqa: ARG001 - it looks at all of them
    """Add the job first, then change the row. If the process dies in between, the workflow stays due, and the next run
    finds its job by the id, which contains the due time. The other way round, that run would be lost."""
    found = await database.run(due)
    for workflow, slot in found:
        await queue.add(run_workflow, workflow, job_id=f"{workflow}-at-{slot * 1000:.0f}")
        await database.run(put_off, workflow, slot)
    return Result(f"{len(found)} workflows started", counts={"started": len(found)})


async def run_workflow(ctx: JobContext[str]) -> Result:
    outside: Outside = ctx.state
    await outside.post("/workflows", key=ctx.job_id, body={"workflow": ctx.data})
    return Result(f"workflow {ctx.data} has run")


def due(db: Connection) -> list[tuple[str, float]]:
    """Return workflows that are due, with the time at which they were due."""
    return db.execute("SELECT id, due FROM workflows WHERE enabled AND due <= ?", (time.time(),)).fetchall()


def put_off(db: Connection, workflow: str, slot: float) -> None:
    """Make it due again in an hour, unless another process has done so."""
    db.execute("UPDATE workflows SET due = ? WHERE id = ? AND due = ?", (time.time() + seconds(3600), workflow, slot))


queue = declared("scheduled-trigger", {"start_due_workflows": start_due_workflows, "run_workflow": run_workflow})
