"""Workflows that start when another app has news. Each has a schedule of its own, created and removed at run time."""

from helpdesk import database
from helpdesk.database import Connection
from helpdesk.desk import declared
from helpdesk.outside import Outside
from helpdesk.settings import seconds
from toril import JobContext, Result

__all__ = ["disable", "enable", "poll_app", "queue"]


async def poll_app(ctx: JobContext[str]) -> Result:
    """Remove the schedule if the workflow is gone."""
    outside: Outside = ctx.state
    workflow = ctx.data
    if not await database.run(is_enabled, workflow):
        await queue.schedules.remove(_schedule(workflow))
        return Result(f"{workflow} is switched off, and is polled no more")
    news = await outside.get(f"/apps/{workflow}/news")
    return Result(f"{workflow} has {len(news)} news", counts={"news": len(news)})


queue = declared("app-polling-trigger", {"poll_app": poll_app}, subject=str)


async def enable(workflow: str, *, every: float) -> None:
    """Start a workflow that a user has enabled, at the interval that they chose, but at most once a minute."""
    await database.run(switch, workflow, enabled=True)
    await queue.schedules.put(
        _schedule(workflow), poll_app, workflow, every=every, min_interval=seconds(60), overlap="skip"
    )


async def disable(workflow: str) -> None:
    await database.run(switch, workflow, enabled=False)


def switch(db: Connection, workflow: str, *, enabled: bool) -> None:
    db.execute(
        "INSERT INTO workflows (id, enabled, due) VALUES (?1, ?2, 1e12) ON CONFLICT DO UPDATE SET enabled = ?2",
        (workflow, enabled),
    )


def is_enabled(db: Connection, workflow: str) -> bool:
    return db.execute("SELECT 1 FROM workflows WHERE id = ? AND enabled", (workflow,)).fetchone() is not None


def _schedule(workflow: str) -> str:
    return f"workflow-{workflow}-polling"
