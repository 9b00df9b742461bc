"""Endpoints for jobs: one, many, and as CSV."""

import csv
import io
import json
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Annotated, Any, Final, Literal

from pydantic import Field
from starlette.responses import Response

from toril.app import App
from toril.client.options import as_workers_declare
from toril.model import Call, ControlResult, RunRow, letter_id, letter_parts
from toril.model.states import State
from toril.operate.documents import of_counted, of_explanation, of_failures, of_run, of_tree
from toril.operate.search import JobSearch
from toril.policy.redaction import redacted
from toril.policy.search import EndingName
from toril.queue import Queue, meant_name
from toril.web.access import Role
from toril.web.api.common import (
    SOON,
    After,
    AnyDuration,
    Limit,
    PageQuery,
    PositiveDuration,
    SearchQuery,
    StateName,
    details,
    job_document,
    job_documents,
    job_of,
    known_queue,
    log_page,
)
from toril.web.messages import Problem
from toril.web.routing import Endpoint, Form, Request
from toril.web.tracebacks import lines_of_stack

__all__ = ["CSV", "JOBS", "MANY", "cell", "run_document", "sheet"]

_A_CALL: Final = 100


class JobChoice(SearchQuery):
    """Either `ids`, or a `state` with filters; repeat the latter with the returned cursor until there is none. With
    `asked_at`, as returned by a count, jobs that entered the state later are left alone."""

    ids: Annotated[list[Annotated[str, Field(min_length=1, max_length=256)]], Field(max_length=1000)] | None = None
    state: Literal["waiting", "prioritized", "delayed", "completed", "failed"] | None = None
    cursor: After = None
    limit: Annotated[int, Field(ge=1, le=1000)] = 1000


class CancelManyForm(JobChoice):
    """The same, for jobs that have not ended."""

    state: Literal["waiting", "prioritized", "delayed", "active", "waiting_children"] | None = None  # type: ignore[assignment]
    reason: Annotated[str, Field(min_length=1, max_length=500)] | None = None


class CountQuery(SearchQuery):
    """Which jobs to count, and where to continue."""

    state: StateName = "waiting"
    cursor: After = None


async def count_jobs(asking: Request) -> dict[str, Any]:
    queue = await known_queue(asking.app, asking.path["queue"])
    form: CountQuery = asking.query
    return of_counted(await queue.count(form.state, form.filter(), cursor=form.cursor, patience=SOON))


async def list_failures(asking: Request) -> dict[str, Any]:
    return of_failures(await (await known_queue(asking.app, asking.path["queue"])).failures(patience=SOON))


async def retry_jobs(asking: Request) -> dict[str, Any]:
    """Retry jobs that are kept, and dead letters for other ids."""
    form: JobChoice = asking.body
    if form.state == "failed" and form.ending is None:
        form = form.model_copy(update={"ending": "failed"})  # cancelled jobs were not meant to run
    answer = await _each(asking, lambda queue, ids, call: queue.store.retry(queue.name, ids, call=call), form)
    gone = [each["id"] for each in answer["refused"] if each["state"] is None]
    if not gone:
        return answer
    queue = asking.path["queue"]
    replayed = await asking.app.dead_letters.replay([letter_id(queue, each) for each in gone])
    left = {letter_parts(each.id)[1]: each.state for each in replayed.refused}
    left |= {letter_parts(each)[1]: State.FAILED for each in replayed.invalid}
    refused = [each for each in answer["refused"] if each["state"] is not None]
    refused += [{"id": each, "state": state.value if state else None} for each, state in left.items()]
    return {"done": answer["done"] + replayed.count, "refused": refused, "cursor": answer["cursor"]}


async def promote_jobs(asking: Request) -> dict[str, Any]:
    return await _each(asking, lambda queue, ids, call: queue.store.promote(queue.name, ids, call=call))


async def remove_jobs(asking: Request) -> dict[str, Any]:
    return await _each(asking, lambda queue, ids, call: queue.store.remove(queue.name, ids, call=call))


async def cancel_jobs(asking: Request) -> dict[str, Any]:
    reason, requested = asking.body.reason or f"cancelled by {asking.who.name}", 0

    async def cancel(queue: Queue, ids: Sequence[str], call: Call) -> ControlResult:
        nonlocal requested
        changed = await queue.store.cancel(queue.name, ids, reason=reason, call=call)
        requested += len(changed.asked)
        return changed

    found = await _each(asking, cancel)
    return found | {"requested": requested}


Act = Callable[[Queue, Sequence[str], Call], Awaitable[ControlResult]]


async def _each(asking: Request, act: Act, form: JobChoice | None = None) -> dict[str, Any]:
    queue = await known_queue(asking.app, asking.path["queue"])
    ids, cursor = await _ids(queue, form or asking.body)
    done, refused = 0, []
    for first in range(0, len(ids), _A_CALL):
        part = ids[first : first + _A_CALL]
        changed = await queue.services.call(lambda call, part=part: act(queue, part, call))  # type: ignore[misc]
        done += len(changed.done) + len(changed.asked)
        refused += [{"id": each.id, "state": each.state.value if each.state else None} for each in changed.refused]
    return {"done": done, "refused": refused, "cursor": cursor}


async def _ids(queue: Queue, form: JobChoice) -> tuple[list[str], str | None]:
    if (form.ids is None) == (form.state is None):
        raise Problem(422, "invalid", "give either `ids` or `state`", field="ids")
    if form.state is None:
        if not form.filter().everything or form.cursor is not None:
            raise Problem(422, "invalid", "filters and cursors need `state`, not `ids`", field="ids")
        return list(dict.fromkeys(form.ids or ())), None
    page = await queue.search(form.state, form.filter(), cursor=form.cursor, limit=form.limit)
    return [job.id for job in page.items], page.cursor


MANY: Final = (
    Endpoint(
        method="GET", path="/queues/{queue}/count", role=Role.READ, run=count_jobs, query=CountQuery,
        does="Count the matching jobs. If a cursor is returned, the count is partial: repeat with it.",
    ),
    Endpoint(
        method="GET", path="/queues/{queue}/failures", role=Role.READ, run=list_failures,
        does="Group the queue's failed jobs by error. The groups cover the newest `looked` of `of`.",
    ),
    Endpoint(
        method="POST", path="/queues/{queue}/retry", role=Role.OPERATE, run=retry_jobs, body=JobChoice,
        does="Retry many ended jobs, by state or by id; ids may name dead letters too. Skips cancelled jobs unless "
        "`ending` asks for them.",
    ),
    Endpoint(
        method="POST", path="/queues/{queue}/promote", role=Role.OPERATE, run=promote_jobs, body=JobChoice,
        does="Run many delayed jobs without further delay.",
    ),
    Endpoint(
        method="POST", path="/queues/{queue}/cancel", role=Role.OPERATE, run=cancel_jobs, body=CancelManyForm,
        does="Cancel many jobs. Waiting jobs never run; running jobs, counted in `requested`, are told to stop.",
    ),
    Endpoint(
        method="POST", path="/queues/{queue}/remove", role=Role.ADMIN, run=remove_jobs, body=JobChoice,
        does="Delete many jobs that are not running.",
    ),
)  # fmt: skip


CSV: Final = "text/csv"
_FORMULA: Final = ("=", "+", "-", "@", "\t", "\r", "\n")  # with which a spreadsheet would read text as a formula


def cell(value: Any) -> str:
    """A value as the text of a cell."""
    if value is None:
        return ""
    if isinstance(value, bool | int | float):
        return json.dumps(value)
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return f"'{text}" if text.startswith(_FORMULA) else text


def sheet(columns: Sequence[str], rows: Iterable[Mapping[str, Any]], name: str, cursor: str | None) -> Response:
    """A CSV file with this name. The cursor is in a header, because a table has no place for it."""
    out = io.StringIO()
    writer = csv.writer(out, quoting=csv.QUOTE_ALL)
    writer.writerow(columns)
    writer.writerows([cell(row[column]) for column in columns] for row in rows)
    headers = {"content-disposition": f'attachment; filename="{name}"'}
    if cursor is not None:
        headers["x-cursor"] = cursor
    return Response(out.getvalue().encode("utf-8", "backslashreplace"), media_type=CSV, headers=headers)


class JobPageQuery(SearchQuery):
    """Which jobs to list, and where to continue."""

    state: StateName = "waiting"
    cursor: After = None
    limit: Limit = 50


async def list_jobs(asking: Request) -> dict[str, Any]:
    queue = await known_queue(asking.app, asking.path["queue"])
    form: JobPageQuery = asking.query
    found = await queue.search(form.state, form.filter(), cursor=form.cursor, limit=form.limit, patience=SOON)
    return {"items": list(job_documents(found.items)), "cursor": found.cursor, "looked": found.looked}


class ExportQuery(JobPageQuery):
    """Which jobs to export, and where to continue."""

    limit: Annotated[int, Field(ge=1, le=1000)] = 1000


_CELLS: Final = (
    "id", "name", "state", "ending", "attempts_made", "added_at", "started_at", "finished_at", "error", "data",
    "result", "unreadable",
)  # fmt: skip


async def export_jobs(asking: Request) -> Response:
    queue = await known_queue(asking.app, asking.path["queue"])
    form: ExportQuery = asking.query
    found = await queue.search(form.state, form.filter(), cursor=form.cursor, limit=form.limit)
    return sheet(_CELLS, job_documents(found.items), "jobs.csv", found.cursor)


class AddForm(Form):
    """A job to add. Omitted options take the values that the queue's workers declare; `attempts` is required while no
    worker is alive. Durations are seconds, or text like `"10m"`. A name that looks like a typo, because workers have no
    handler for it but one for a similar name, is refused unless `any_name` is true."""

    name: Annotated[str, Field(min_length=1, max_length=255)]
    data: Any = None
    delay: AnyDuration | None = None
    priority: Annotated[int, Field(ge=0, le=2**21)] | None = None
    job_id: Annotated[str, Field(min_length=1, max_length=256)] | None = None
    attempts: Annotated[int, Field(ge=1)] | None = None
    expires: PositiveDuration | None = None
    timeout: PositiveDuration | None = None
    any_name: bool = False


async def add_job(asking: Request) -> dict[str, Any]:
    queue = await known_queue(asking.app, asking.path["queue"])
    form: AddForm = asking.body
    declared = await as_workers_declare(queue)
    if declared is None and form.attempts is None:
        # Nobody knows the queue's defaults, so a job that must run once could run five times.
        text = "attempts: required, because no live worker declares a default for this queue"
        raise Problem(422, "invalid", text, field="attempts")
    queue = declared or queue
    near = None if form.any_name else await meant_name(queue.store, queue.name, form.name)
    if near is not None:
        text = f"name: no live worker has a handler for {form.name!r}; did you mean {near!r}? Set any_name to add it"
        raise Problem(422, "invalid", text, field="name")
    options: Any = form.model_dump(exclude={"name", "data", "any_name"}, exclude_none=True)
    job = await queue.add(form.name, form.data, **options)
    return {"queue": queue.name, "id": job.id, "added": job.added, "outcome": job.outcome.value}


async def show_job(asking: Request) -> dict[str, Any]:
    job = await job_of(asking)
    return job_document(job) | await details(asking.app, job)


async def job_logs(asking: Request) -> dict[str, Any]:
    return await log_page(await job_of(asking), asking.query)


async def why_job(asking: Request) -> dict[str, Any]:
    queue = await known_queue(asking.app, asking.path["queue"])
    return of_explanation(await queue.why(asking.path["id"]))


class FlowDepth(Form):
    """How much of a flow to return."""

    depth: int = Field(10, ge=0, le=100)
    width: int = Field(100, ge=1, le=1000)


async def job_flow(asking: Request) -> dict[str, Any]:
    job, query = await job_of(asking), asking.query
    return of_tree(await asking.app.tree(job, depth=query.depth, width=query.width))


async def job_stack(asking: Request) -> dict[str, Any]:
    queue = await known_queue(asking.app, asking.path["queue"])
    found = await queue.stack(asking.path["id"])
    text = redacted(asking.app.redaction.text(found.text, "traceback", queue.name, "") or "")
    lines = [{"text": line.text, "kind": line.kind} for line in lines_of_stack(text)]
    return {
        "queue": queue.name, "id": found.id, "worker": found.worker, "stack": text, "lines": lines,
        "silent": found.silent,
    }  # fmt: skip


async def retry_job(asking: Request) -> dict[str, Any]:
    await (job := await job_of(asking)).retry()
    return job_document(await job.refresh())


async def promote_job(asking: Request) -> dict[str, Any]:
    await (job := await job_of(asking)).promote()
    return job_document(await job.refresh())


class CancelForm(Form):
    """Why, for the handler and for the job's record."""

    reason: Annotated[str, Field(min_length=1, max_length=500)] = "No reason provided"


async def cancel_job(asking: Request) -> dict[str, Any]:
    job = await job_of(asking)
    return {"queue": job.queue.name, "id": job.id, "outcome": await job.cancel(asking.body.reason)}


async def remove_job(asking: Request) -> dict[str, Any]:
    await (job := await job_of(asking)).remove()
    return {"queue": job.queue.name, "id": job.id, "removed": True}


class UpdateForm(Form):
    """What to change. A delay is seconds, or text like `"10m"`."""

    data: Any = None
    priority: Annotated[int, Field(ge=0, le=2**21)] | None = None
    delay: AnyDuration | None = None


async def change_job(asking: Request) -> dict[str, Any]:
    job = await job_of(asking)
    form: UpdateForm = asking.body
    if "data" in form.model_fields_set:
        await job.update_data(form.data)
    if form.priority is not None:
        await job.set_priority(form.priority)
    if form.delay is not None:
        await job.set_delay(form.delay)
    return job_document(await job.refresh())


class RunPageQuery(SearchQuery):
    """Which run records to list. They have no payload: a `key` is looked up in the job or its dead letter."""

    status: EndingName = "completed"
    cursor: After = None
    limit: Limit = 20


async def list_runs(asking: Request) -> dict[str, Any]:
    queue = await known_queue(asking.app, asking.path["queue"])
    form: RunPageQuery = asking.query
    page = await JobSearch(queue).run_rows(form.status, form.cursor, form.limit, where=form.filter())
    return {
        "items": [run_document(asking.app, queue.name, run) for run in page.items],
        "cursor": page.cursor,
        "looked": page.looked,
    }


def run_document(app: App, queue: str, run: RunRow) -> dict[str, Any]:
    """A run as it may be shown."""
    found = of_run(queue, run, app.redaction)
    return found | {"text": redacted(found["text"])}


_ONE: Final = "/queues/{queue}/jobs/{id}"

JOBS: Final = (
    Endpoint(
        method="GET", path="/queues/{queue}/jobs", role=Role.READ, run=list_jobs, query=JobPageQuery,
        does="List jobs in a state: next to run first, or most recently ended first.",
    ),
    Endpoint(
        method="POST", path="/queues/{queue}/jobs", role=Role.OPERATE, run=add_job, body=AddForm, status=201,
        does="Add a job.",
    ),
    Endpoint(
        method="GET", path="/queues/{queue}/jobs.csv", role=Role.READ, run=export_jobs, query=ExportQuery, media=CSV,
        does="Download jobs in a state as CSV. The x-cursor header is the cursor for the next part.",
    ),
    Endpoint(
        method="GET", path=_ONE, role=Role.READ, run=show_job,
        does="Get a job or its dead letter, with the errors of its attempts.",
    ),
    Endpoint(
        method="GET", path=_ONE + "/logs", role=Role.READ, run=job_logs, query=PageQuery, does="Get a job's log lines.",
    ),
    Endpoint(method="GET", path=_ONE + "/why", role=Role.READ, run=why_job, does="Explain why a job is not running."),
    Endpoint(
        method="GET", path=_ONE + "/flow", role=Role.READ, run=job_flow, query=FlowDepth,
        does="Get the flow that a job belongs to, from its root.",
    ),
    Endpoint(
        method="POST", path=_ONE + "/stack", role=Role.OPERATE, run=job_stack,
        does="Get the current stack of a running job from its worker.",
    ),
    Endpoint(
        method="POST", path=_ONE + "/retry", role=Role.OPERATE, run=retry_job,
        does="Retry an ended job or dead letter with a fresh set of attempts.",
    ),
    Endpoint(method="POST", path=_ONE + "/promote", role=Role.OPERATE, run=promote_job, does="Run a delayed job now."),
    Endpoint(
        method="POST", path=_ONE + "/cancel", role=Role.OPERATE, run=cancel_job, body=CancelForm,
        does="Cancel a job. Outcome: `cancelled`, it never runs; `requested`, it is running and was told to stop.",
    ),
    Endpoint(
        method="PATCH", path=_ONE, role=Role.OPERATE, run=change_job, body=UpdateForm,
        does="Change a job's data, priority or delay.",
    ),
    Endpoint(
        method="DELETE", path=_ONE, role=Role.ADMIN, run=remove_job,
        does="Delete a job or dead letter with its logs and result.",
    ),
    Endpoint(
        method="GET", path="/queues/{queue}/runs", role=Role.READ, run=list_runs, query=RunPageQuery,
        does="List run records of ended jobs, newest first.",
    ),
)  # fmt: skip
