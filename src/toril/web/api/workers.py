"""Endpoints for workers: list them, quiet them or stop them."""

from typing import Annotated, Any, Final

from pydantic import Field

from toril.errors import NotFound, preview
from toril.model import JobRow, WorkerCommand
from toril.model.states import State
from toril.operate.documents import of_worker
from toril.queue import job_of_row
from toril.web.access import Role
from toril.web.api.common import job_documents
from toril.web.routing import Endpoint, Form, Request

__all__ = ["WORKERS"]

_LOOKED: Final = 1000


async def list_workers(asking: Request) -> dict[str, Any]:
    return {"items": [of_worker(view) for view in await asking.app.workers()]}


class Longest(Form):
    """How many jobs to list, and of which worker."""

    limit: Annotated[int, Field(ge=1, le=100)] = 20
    worker: Annotated[str, Field(min_length=1, max_length=128)] | None = None


async def list_running(asking: Request) -> dict[str, Any]:
    """Running jobs, from one page of each queue."""
    found: list[JobRow] = []
    running = 0
    for name in await asking.app.store.queues():
        if active := (await asking.app.store.counts(name)).active:
            running += active
            found += (await asking.app.store.page(name, State.ACTIVE, limit=_LOOKED)).items
    meant = [each for each in found if asking.query.worker in {None, each.worker}]
    meant.sort(key=lambda record: (record.started_at or record.added_at, record.queue, record.id))
    items = list(job_documents(job_of_row(asking.app.services, record) for record in meant[: asking.query.limit]))
    return {"items": items, "running": running if asking.query.worker is None else len(meant)}


async def quiet_worker(asking: Request) -> dict[str, Any]:
    return await _command(asking, WorkerCommand.QUIET)


async def stop_worker(asking: Request) -> dict[str, Any]:
    return await _command(asking, WorkerCommand.STOP)


async def _command(asking: Request, order: WorkerCommand) -> dict[str, Any]:
    name = asking.path["worker"]
    if not await asking.app.store.signal(name, order):
        raise NotFound(f"no live worker {preview(name)}")
    return {"worker": name, "told": order.value}


WORKERS: Final = (
    Endpoint(method="GET", path="/workers", role=Role.READ, run=list_workers, does="List live workers."),
    Endpoint(
        method="GET", path="/running", role=Role.READ, run=list_running, query=Longest,
        does="List running jobs of all queues, longest-running first.",
    ),
    Endpoint(
        method="POST", path="/workers/{worker}/quiet", role=Role.OPERATE, run=quiet_worker,
        does="Stop a worker from claiming jobs; running jobs continue.",
    ),
    Endpoint(
        method="POST", path="/workers/{worker}/stop", role=Role.ADMIN, run=stop_worker,
        does="Stop a worker after its running jobs finish.",
    ),
)  # fmt: skip
