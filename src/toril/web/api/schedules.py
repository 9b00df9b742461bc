"""Endpoints for schedules."""

from typing import Annotated, Any, Final, Literal

from pydantic import Field

from toril.app import App
from toril.client.options import as_workers_declare
from toril.errors import NotFound, preview
from toril.model import ScheduleRow
from toril.operate.documents import of_schedule
from toril.policy.redaction import masked
from toril.policy.schedule_text import in_words
from toril.policy.schedules import upcoming
from toril.runtime.redaction import Redaction
from toril.schedule import QueueSchedules
from toril.web.access import Role
from toril.web.api.common import AnyDuration, Moment, PageQuery, PositiveDuration, known_queue
from toril.web.routing import Endpoint, Form, Request

__all__ = ["SCHEDULES", "schedule_document", "schedules_of_all"]


async def list_schedules(asking: Request) -> dict[str, Any]:
    queue = await known_queue(asking.app, asking.path["queue"])
    page = await queue.store.schedules.page(queue.name, cursor=asking.query.cursor, limit=asking.query.limit)
    return {"items": [schedule_document(view, asking.app.redaction) for view in page.items], "cursor": page.cursor}


async def all_schedules(asking: Request) -> dict[str, Any]:
    views, more = await schedules_of_all(asking.app, asking.query.limit)
    return {"items": [schedule_document(view, asking.app.redaction) for view in views], "more": more}


async def schedules_of_all(app: App, limit: int) -> tuple[list[ScheduleRow], list[str]]:
    """Up to `limit` schedules of each queue, and the queues that have more."""
    found: list[ScheduleRow] = []
    more = []
    for name in sorted(await app.store.queues()):
        page = await app.store.schedules.page(name, limit=limit)
        found += page.items
        more += [name] if page.cursor is not None else []
    return found, more


class AllQueuesQuery(Form):
    """How many schedules to list per queue."""

    limit: Annotated[int, Field(ge=1, le=1000)] = 100


async def show_schedule(asking: Request) -> dict[str, Any]:
    found, identity = await _named(asking)
    view = await found.row(identity)
    return {**schedule_document(view, asking.app.redaction), "upcoming": upcoming(view)}


class ScheduleForm(Form):
    """A whole schedule, with either `every` or `cron`. Omitted fields take their defaults, also when a schedule is
    replaced. Durations are seconds, or text like `"10m"`."""

    job: Annotated[str, Field(min_length=1, max_length=255)]
    data: Any = None
    every: PositiveDuration | None = None
    cron: Annotated[str, Field(min_length=1, max_length=200)] | None = None
    tz: Annotated[str, Field(min_length=1, max_length=64)] = "UTC"
    start: Moment | None = None
    end: Moment | None = None
    limit: Annotated[int, Field(ge=1)] | None = None
    offset: AnyDuration | None = None
    jitter: AnyDuration | None = None
    min_interval: AnyDuration | None = None
    window: AnyDuration | None = None
    overlap: Literal["allow", "skip", "queue_one"] = "allow"
    catch_up: Literal["none", "one", "all"] = "one"
    attempts: Annotated[int, Field(ge=1)] | None = None
    priority: Annotated[int, Field(ge=0, le=2**21)] | None = None
    timeout: PositiveDuration | None = None
    expires: PositiveDuration | None = None


async def put_schedule(asking: Request) -> dict[str, Any]:
    queue, identity = await known_queue(asking.app, asking.path["queue"]), asking.path["id"]
    found = (await as_workers_declare(queue) or queue).schedules
    form: ScheduleForm = asking.body
    options: Any = form.model_dump(exclude={"job", "data"}, exclude_none=True)
    await found.put(identity, form.job, form.data, **options)
    return schedule_document(await found.row(identity), asking.app.redaction)


async def run_schedule(asking: Request) -> dict[str, Any]:
    found, identity = await _named(asking)
    job = await found.run_now(identity)
    return {"queue": asking.path["queue"], "id": job.id}


async def pause_schedule(asking: Request) -> dict[str, Any]:
    found, identity = await _named(asking)
    await found.pause(identity)
    return schedule_document(await found.row(identity), asking.app.redaction)


async def resume_schedule(asking: Request) -> dict[str, Any]:
    found, identity = await _named(asking)
    await found.resume(identity)
    return schedule_document(await found.row(identity), asking.app.redaction)


async def remove_schedule(asking: Request) -> dict[str, Any]:
    found, identity = await _named(asking)
    if not await found.remove(identity):
        raise NotFound(f"there is no schedule {preview(identity)} in queue {asking.path['queue']!r}")
    return {"queue": asking.path["queue"], "id": identity, "removed": True}


async def _named(asking: Request) -> tuple[QueueSchedules, str]:
    return (await known_queue(asking.app, asking.path["queue"])).schedules, asking.path["id"]


def schedule_document(view: ScheduleRow, seen: Redaction) -> dict[str, Any]:
    """A schedule as it is shown: in plain words if there are any, with its secrets masked."""
    found = of_schedule(view, seen)
    return found | {"data": masked(found["data"]), "words": in_words(view.schedule), "busy": view.busy}


_ONE: Final = "/queues/{queue}/schedules/{id}"

SCHEDULES: Final = (
    Endpoint(
        method="GET", path="/schedules", role=Role.READ, run=all_schedules, query=AllQueuesQuery,
        does="List the schedules of all queues; `more` names queues with more than `limit`.",
    ),
    Endpoint(
        method="GET", path="/queues/{queue}/schedules", role=Role.READ, run=list_schedules, query=PageQuery,
        does="List a queue's schedules by id.",
    ),
    Endpoint(method="GET", path=_ONE, role=Role.READ, run=show_schedule, does="Get a schedule with its next ten runs."),
    Endpoint(
        method="PUT", path=_ONE, role=Role.ADMIN, run=put_schedule, body=ScheduleForm,
        does="Create or replace a schedule.",
    ),
    Endpoint(method="POST", path=_ONE + "/run", role=Role.OPERATE, run=run_schedule, does="Run a schedule once, now."),
    Endpoint(method="POST", path=_ONE + "/pause", role=Role.OPERATE, run=pause_schedule, does="Pause a schedule."),
    Endpoint(method="POST", path=_ONE + "/resume", role=Role.OPERATE, run=resume_schedule, does="Resume a schedule."),
    Endpoint(method="DELETE", path=_ONE, role=Role.ADMIN, run=remove_schedule, does="Delete a schedule."),
)  # fmt: skip
