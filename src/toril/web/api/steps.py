"""Endpoints for durable steps: what a job has recorded, signals to it, rewinding it, and who waits for a signal."""

from collections.abc import Iterable, Iterator
from typing import Annotated, Any, ClassVar, Final, Literal

from pydantic import Field

from toril.client.options import as_workers_declare
from toril.job import Job
from toril.model import SignalOutcome, SignalRow
from toril.operate.documents import of_signal, of_signals, of_steps, of_waiting
from toril.operate.steps import waiting_for_signals, waiting_job
from toril.policy.redaction import masked, redacted
from toril.queue import Queue
from toril.runtime.redaction import Part
from toril.signals import Signalled
from toril.web.access import Role
from toril.web.api.common import (
    Cursor,
    Limit,
    PageQuery,
    PositiveDuration,
    in_a_list,
    job_document,
    job_of,
    kept_in,
    known_queue,
)
from toril.web.messages import Problem
from toril.web.routing import Endpoint, Form, Request

__all__ = ["STEPS", "signal_documents", "step_documents"]

_Text = Annotated[str, Field(min_length=1, max_length=256)]


def step_documents(rows: Iterable[tuple[str, str]], job: Job[Any]) -> Iterator[dict[str, Any]]:
    """Recorded steps as they may be shown: secrets are masked, and long values are cut, which `cut` lists."""
    return in_a_list(
        step | {"value": masked(step["value"]), "error": step["error"] and redacted(step["error"])}
        for step in of_steps(rows, job)
    )


def signal_documents(signals: Iterable[SignalRow], job: Job[Any]) -> Iterator[dict[str, Any]]:
    """Signals of a job that nobody has read yet, in the same way."""
    return in_a_list(found | {"data": masked(found["data"])} for found in (of_signal(each, job) for each in signals))


async def job_steps(asking: Request) -> dict[str, Any]:
    job, query = await job_of(asking), asking.query
    steps, name = job.queue.store.steps, job.queue.name
    page = await steps.page(name, job.id, cursor=query.cursor, limit=query.limit, where=kept_in(job))
    return {"items": list(step_documents(page.items, job)), "cursor": page.cursor}


async def job_signals(asking: Request) -> dict[str, Any]:
    job = await job_of(asking)
    unread = await job.queue.store.steps.inbox(job.queue.name, job.id, where=kept_in(job))
    waiting = None if job.row is None else waiting_job(job.row)
    return {
        "since": waiting and waiting.since, "until": waiting and waiting.until,
        "waiting_for": of_signals(waiting.signals if waiting else ()), "items": list(signal_documents(unread, job)),
    }  # fmt: skip


class SignalForm(Form):
    """A signal to a job. A second one with the same `id` has no effect. With `unless_waiting` set to `refuse`, nothing
    is stored unless the job rests for this signal now."""

    part: ClassVar[Part] = "signal"

    data: Any = True
    id: _Text | None = None
    unless_waiting: Literal["keep", "refuse"] = "keep"


async def signal_job(asking: Request) -> dict[str, Any]:
    job, form, name = await job_of(asking), asking.body, asking.path["name"]
    await _with_its_serializer(job.queue)
    found = await job.signal(name, form.data, id=form.id, unless_waiting=form.unless_waiting)
    if found.outcome is SignalOutcome.ENDED:
        raise Problem(409, "wrong_state", f"job {job.id!r} has ended, so nothing reads its signals")
    if found.outcome is SignalOutcome.NOT_WAITING:
        raise Problem(409, "not_waiting", f"job {job.id!r} is not waiting for the signal {name!r} now")
    return _sent(job.queue, found)


class KeyedSignalForm(Form):
    """A signal to whichever job of the queue waits for this `key`. If no job does, it is kept for `ttl`, in seconds or
    as text like `"10m"`; by default for one day. A second one with the same `id` has no effect."""

    part: ClassVar[Part] = "signal"

    key: _Text
    data: Any = True
    id: _Text | None = None
    ttl: PositiveDuration = 86_400.0


async def signal_queue(asking: Request) -> dict[str, Any]:
    queue, form = await known_queue(asking.app, asking.path["queue"]), asking.body
    await _with_its_serializer(queue)
    return _sent(queue, await queue.signal(asking.path["name"], form.data, key=form.key, id=form.id, ttl=form.ttl))


async def _with_its_serializer(queue: Queue) -> None:
    """Refuse signals to a queue whose serializer only the application has."""
    await as_workers_declare(queue)


def _sent(queue: Queue, found: Signalled) -> dict[str, Any]:
    return {"queue": queue.name, "id": found.job_id, "outcome": found.outcome.value}


class RewindForm(Form):
    """The key of the step to forget, with all that were recorded after it; null for all steps."""

    to: Annotated[str, Field(min_length=1, max_length=512)] | None


async def rewind_job(asking: Request) -> dict[str, Any]:
    await (job := await job_of(asking)).rewind(asking.body.to)
    return job_document(await job.refresh())


class WaitsQuery(Form):
    """Which signal they wait for, in which queue, and where to continue."""

    name: Annotated[str, Field(min_length=1, max_length=128)] | None = None
    queue: Annotated[str, Field(min_length=1, max_length=255)] | None = None
    cursor: Cursor = None
    limit: Limit = 50


async def waiting_for(asking: Request) -> dict[str, Any]:
    store, form = asking.app.store, asking.query
    names = await store.queues() if form.queue is None else [(await known_queue(asking.app, form.queue)).name]
    found = await waiting_for_signals(store, names, form.name, cursor=form.cursor, limit=form.limit)
    return {"items": [of_waiting(each) for each in found], "cursor": found.cursor, "looked": found.looked}


_ONE: Final = "/queues/{queue}/jobs/{id}"

STEPS: Final = (
    Endpoint(
        method="GET", path=_ONE + "/steps", role=Role.READ, run=job_steps, query=PageQuery,
        does="List the durable steps that a job or dead letter has recorded, oldest first.",
    ),
    Endpoint(
        method="GET", path=_ONE + "/signals", role=Role.READ, run=job_signals,
        does="List the signals that a job waits for, and those sent to it that it has not read.",
    ),
    Endpoint(
        method="POST", path=_ONE + "/signals/{name}", role=Role.OPERATE, run=signal_job, body=SignalForm,
        does="Send a signal to a job. Outcome: `woken`, `kept` until the job asks for it, or `duplicate`.",
    ),
    Endpoint(
        method="POST", path=_ONE + "/rewind", role=Role.OPERATE, run=rewind_job, body=RewindForm,
        does="Forget a durable step and all that were recorded after it, and run the job again.",
    ),
    Endpoint(
        method="POST", path="/queues/{queue}/signals/{name}", role=Role.OPERATE, run=signal_queue, body=KeyedSignalForm,
        does="Send a signal by key to whichever job of the queue waits for it, now or later.",
    ),
    Endpoint(
        method="GET", path="/waiting-for", role=Role.READ, run=waiting_for, query=WaitsQuery,
        does="List the jobs that wait for a signal, queue by queue.",
    ),
)  # fmt: skip
