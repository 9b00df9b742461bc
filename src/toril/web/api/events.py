"""Endpoints for the events of a queue and the history of a job."""

from typing import Annotated, Any, Final

from pydantic import Field

from toril.model import EventRow
from toril.operate.documents import of_event
from toril.operate.history import history
from toril.policy.redaction import redacted
from toril.runtime.redaction import Redaction
from toril.web.access import Role
from toril.web.api.common import Cursor, job_of, known_queue
from toril.web.routing import Endpoint, Form, Request

__all__ = ["EVENTS"]


class EventQuery(Form):
    """Events after the position `after`, as given by `at`; by default from the oldest that is kept."""

    after: Cursor = None
    limit: Annotated[int, Field(ge=1, le=1000)] = 100


async def list_events(asking: Request) -> dict[str, Any]:
    queue = await known_queue(asking.app, asking.path["queue"])
    found = await asking.app.store.events(queue.name, after=asking.query.after, limit=asking.query.limit)
    return {
        "items": [_document(queue.name, event, asking.app.redaction) for event in found.items],
        "last": found.last,
        "gap": found.gap,
    }


async def job_history(asking: Request) -> dict[str, Any]:
    job = await job_of(asking)
    events = await history(asking.app.store, job.queue.name, job.id)
    return {"items": [_document(job.queue.name, event, asking.app.redaction) for event in events]}


def _document(queue: str, event: EventRow, seen: Redaction) -> dict[str, Any]:
    """An event as it may be shown: secrets in its result or reason are masked."""
    found = of_event(queue, event, seen)
    return found | {"detail": {name: redacted(text) for name, text in found["detail"].items()}}


EVENTS: Final = (
    Endpoint(
        method="GET",
        path="/queues/{queue}/events",
        role=Role.READ,
        run=list_events,
        query=EventQuery,
        does="List a queue's events. Continue after `last`; `gap` is true if events were trimmed before you read them.",
    ),
    Endpoint(
        method="GET",
        path="/queues/{queue}/jobs/{id}/history",
        role=Role.READ,
        run=job_history,
        does="List the recorded events of a job.",
    ),
)
