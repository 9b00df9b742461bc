"""Workflows that start because it is time."""

import time

from helpdesk import database
from helpdesk.database import Connection
from helpdesk.desk import declared
from helpdesk.outside import Outside
from helpdesk.settings import seconds
from toril import JobContext, Result

__all__ = ["queue", "run_workflow", "start_due_workflows"]


async def start_due_workflows(ctx: JobContext[None]) -> Result:  # noqa: ARG001 - it looks at all of them
    found = await database.run(due)
    for workflow, slot in found:
        await queue.add(run_workflow, workflow, job_id=f"{workflow}-at-{slot}")
    return Result(f"{len(found)} workflows started", counts={"started": len(found)})


async def run_workflow(ctx: JobContext[str]) -> Result:
    outside: Outside = ctx.state
    await outside.post("/workflows", key=ctx.job_id, body={"workflow": ctx.data})
    return Result(f"workflow {ctx.data} has run")


def due(db: Connection) -> list[tuple[str, int]]:
    """Workflows whose time has come, with that time; they are due again in an hour."""
    now = time.time()
    rows = db.execute("SELECT id, due FROM workflows WHERE enabled AND due <= ?", (now,)).fetchall()
    db.execute("UPDATE workflows SET due = ? WHERE enabled AND due <= ?", (now + seconds(3600), now))
    return [(workflow, int(at)) for workflow, at in rows]


queue = declared("scheduled-trigger", {"start_due_workflows": start_due_workflows, "run_workflow": run_workflow})
