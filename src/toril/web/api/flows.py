"""Endpoints for flows."""

from contextlib import suppress
from typing import Annotated, Any, Final

from pydantic import Field

from toril.app import App
from toril.codec.encoding import Undecodable, decode
from toril.errors import InvalidName
from toril.model import ChildCounts, JobRef, JobRow
from toril.model.states import State
from toril.policy.redaction import masked
from toril.web.access import Role
from toril.web.routing import Endpoint, Form, Request

__all__ = ["FLOWS"]

_A_PAGE: Final = 200
_PAGES: Final = 5  # per queue


class OpenFlowQuery(Form):
    """How many flows to list."""

    limit: Annotated[int, Field(ge=1, le=100)] = 50


async def list_flows(asking: Request) -> dict[str, Any]:
    """Flows in progress, longest-waiting first. Up to 1,000 waiting jobs of each queue are examined."""
    app = asking.app
    tops: list[JobRow] = []
    for name in await app.store.queues():
        if (await app.store.counts(name)).waiting_children:
            tops += await _tops(app, name)
    tops.sort(key=lambda record: (record.added_at, record.queue, record.id))
    items = [await _document(app, record) for record in tops[: asking.query.limit]]
    return {"items": items, "flows": len(tops)}


async def _tops(app: App, queue: str) -> list[JobRow]:
    found: list[JobRow] = []
    cursor: str | None = None
    for _ in range(_PAGES):
        page = await app.store.page(queue, State.WAITING_CHILDREN, cursor=cursor, limit=_A_PAGE)
        found += [record for record in page.items if record.parent is None]
        cursor = page.cursor
        if cursor is None:
            break
    return found


async def _document(app: App, record: JobRow) -> dict[str, Any]:
    """A flow, by its root job. `held` is a failed child that blocks the flow until someone acts."""
    family = await app.store.flows.child_counts(JobRef(record.queue, record.id))
    counts = {
        "open": family.open, "completed": family.completed, "ignored": family.ignored, "failed": family.failed,
    }  # fmt: skip
    return {
        "queue": record.queue, "id": record.id, "name": record.name, "data": _data(app, record), "children": counts,
        "added_at": record.added_at, **await _next(app, family),
    }  # fmt: skip


async def _next(app: App, family: ChildCounts) -> dict[str, Any]:
    """Among the first few children that have not ended: how many are running, one that has failed, and one that is
    waited for."""
    first = list[JobRow]()
    for ref in family.first_open:
        with suppress(InvalidName):  # of another prefix, or not the key of a job
            first += filter(None, await app.store.jobs(ref.queue, [ref.id]))
    failed = next((record for record in first if record.state is State.FAILED), None)
    waited = next((record for record in first if record.state is not State.FAILED), None)
    return {
        "running": sum(record.state is State.ACTIVE for record in first),
        "held": failed and {"queue": failed.queue, "id": failed.id, "name": failed.name},
        "waits_for": waited and {"queue": waited.queue, "id": waited.id, "name": waited.name},
    }


def _data(app: App, record: JobRow) -> Any:
    try:
        value = decode(record.data)
    except Undecodable:
        value = record.data
    return masked(app.redaction.seen(value, "data", record.queue, record.name))


FLOWS: Final = (
    Endpoint(
        method="GET",
        path="/flows",
        role=Role.READ,
        run=list_flows,
        query=OpenFlowQuery,
        does="List flows in progress, by their root job.",
    ),
)
