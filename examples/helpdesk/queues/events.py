"""Everything that happens in the product, one event after the other."""

from typing import Literal

from pydantic import BaseModel

from helpdesk import database
from helpdesk.database import Connection
from helpdesk.desk import declared
from helpdesk.queues.event_handlers import on_ticket_created, on_ticket_solved
from helpdesk.queues.event_handlers import queue as event_handlers
from toril import Job, JobContext, Result

__all__ = ["Event", "publish", "queue", "record_event"]


class Event(BaseModel):
    kind: Literal["created", "solved"]
    ticket: int


async def record_event(ctx: JobContext[Event]) -> Result:
    """Record the event once, and add the job that handles it. This job's own id keeps a second run from doing either
    twice: the row contains it, and the other job is kept for a day."""
    event = ctx.data
    await database.run(record, ctx.job_id, event)
    react = on_ticket_created if event.kind == "created" else on_ticket_solved
    await event_handlers.add(react, event.ticket, job_id=f"{ctx.job_id}-handled")
    return Result(f"ticket {event.ticket} {event.kind}")


def record(db: Connection, job: str, event: Event) -> None:
    db.execute("INSERT INTO events VALUES (?, ?, ?) ON CONFLICT DO NOTHING", (job, event.kind, event.ticket))


queue = declared("events", {"record_event": record_event})


async def publish(event: Event) -> Job[Result]:
    """Called by the web application."""
    return await queue.add(record_event, event, job_id=f"ticket-{event.ticket}-{event.kind}")
