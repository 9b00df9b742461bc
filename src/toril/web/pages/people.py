"""The pages for people that jobs wait for: who waits for which signal, and the form that answers."""

import re
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Annotated, Any, Final, Literal

from pydantic import Field

from toril.client.options import as_workers_declare
from toril.codec.schemas import schema_of
from toril.errors import InvalidPayload, NotFound, TorilError, UsageError, preview
from toril.job import Job
from toril.model import SignalWait
from toril.model.states import State
from toril.operate.steps import SignalWaiter, waiting_for_signals, waiting_job
from toril.policy.redaction import redacted
from toril.queue import Queue, queue_named
from toril.signals import SignalKind
from toril.web.access import Role
from toril.web.api.common import job_document, job_of
from toril.web.api.steps import STEPS, KeyedSignalForm, SignalForm, signal_job, signal_queue
from toril.web.messages import Problem, problem_of
from toril.web.pages.page import FormAnswer, FormPost, FormRequest, PageRequest, PageSpec, Redrawn, SeeOther, View
from toril.web.pages.signal_fields import SignalField, filled, shown_values, signal_fields
from toril.web.routing import Endpoint
from toril.web.templates import compact

__all__ = ["PEOPLE", "SIGNAL_FORMS"]

_FORM: Final = "/queues/{queue}/jobs/{id}/signals/{name}"
_LOOKED: Final = 500  # waiting jobs to list

Outcome = Literal["", "woken", "kept", "duplicate", "ended"]


class PeopleView(View):
    """A signal, and what became of the one that was just sent, to which job."""

    signal: Annotated[str, Field(max_length=256)] = ""
    sent: Outcome = ""
    queue: Annotated[str, Field(max_length=512)] = ""
    job: Annotated[str, Field(max_length=256)] = ""


async def people(asking: PageRequest) -> dict[str, Any]:
    view: PeopleView = asking.query
    resting = [each.queue for each in asking.around.overview.queues if each.counts.resting]
    found: list[SignalWaiter] = []
    cursor: str | None = None
    while len(found) < _LOOKED:
        page = await waiting_for_signals(asking.app.store, resting, cursor=cursor, limit=100)
        found += page.items
        cursor = page.cursor
        if cursor is None:
            break
    rows = [_row(asking, each, signal) for each in found for signal in each.signals]
    rows.sort(key=lambda row: (row["signal"].name, row["since"], row["queue"], row["id"]))
    groups = [(name, list(each)) for name, each in groupby(rows, key=lambda row: row["signal"].name)]
    return {
        "title": "Waiting for people", "now": asking.around.now, "view": view, "total": len(found),
        "more": cursor is not None, "names": [(name, len(each)) for name, each in groups],
        "groups": [(name, each) for name, each in groups if view.signal in ("", name)],
    }  # fmt: skip


def _row(asking: PageRequest, waiter: SignalWaiter, signal: SignalWait) -> dict[str, Any]:
    row = waiter.job
    wait = next(each for each in waiter.waits if signal in each.signals)
    data = job_document(queue_named(asking.app.services, row.queue).job_of(row))["data"]
    return {
        "signal": signal, "queue": row.queue, "id": row.id, "name": row.name, "since": waiter.since,
        "until": wait.until, "step": wait.key, "text": "" if data is None else compact(data),
        "others": [each.name for each in wait.signals if each != signal],
    }  # fmt: skip


class SignalView(View):
    """The key by which the job waits for the signal, if it does."""

    key: Annotated[str, Field(max_length=256)] | None = None


async def signal(asking: PageRequest) -> dict[str, Any]:
    job = await job_of(asking)
    return await _page(
        asking, job, await _fields(job.queue, asking.path["name"]), once=asking.app.services.clock.unique()
    )


async def send(asking: FormRequest) -> FormAnswer:
    """Send what was typed. Whatever is wrong with it, nothing that was typed is lost."""
    name, form = asking.path["name"], asking.form
    try:
        job = await job_of(asking)
    except NotFound:
        # It has ended since, or this is the second click.
        return _done(asking, "ended")
    fields = await _fields(job.queue, name)
    given = filled(fields, form)
    once = form.get("id", "")[:64] or asking.app.services.clock.unique()
    if given.wrong:
        return Redrawn(await _page(asking, job, fields, once=once, form=form, wrong=given.wrong), 422)
    try:
        found = await _sent(asking, given.data, once)
    except (Problem, TorilError) as error:
        problem = error if isinstance(error, Problem) else problem_of(error)
        if problem.status >= 500:
            raise
        wrong = _placed(error, name, fields)
        values = await _page(asking, job, fields, once=once, form=form, wrong=wrong, problem=None if wrong else problem)
        return Redrawn(values, problem.status)
    return _done(asking, found["outcome"])


def _done(asking: FormRequest, outcome: str) -> SeeOther:
    path = asking.path
    return SeeOther(("people",), {"sent": outcome, "queue": path["queue"], "job": path["id"]})


async def _sent(asking: FormRequest, data: Any, once: str) -> dict[str, Any]:
    path, key = asking.path, asking.query.key
    if key is not None:
        keyed = KeyedSignalForm(key=key, data=data, id=once)
        found = await asking.act(_KEYED, {"queue": path["queue"], "name": path["name"]}, keyed)
    else:
        unless: Literal["keep", "refuse"] = "keep" if asking.form.get("anyway") else "refuse"
        found = await asking.act(_TO_JOB, path, SignalForm(data=data, id=once, unless_waiting=unless))
    answer: dict[str, Any] = found
    return answer


def _endpoint(run: Any) -> Endpoint:
    return next(each for each in STEPS if each.run is run)


_TO_JOB: Final = _endpoint(signal_job)
_KEYED: Final = _endpoint(signal_queue)


async def _fields(queue: Queue, name: str) -> tuple[SignalField, ...]:
    """The fields for a signal: by its type in the code that is loaded here, or as live workers declare it."""
    kind = queue.options.signal_kind(name)
    if isinstance(kind, SignalKind):
        return signal_fields(schema_of(kind.type))
    declared = (await queue.store.declarations(queue.name)).newest
    return signal_fields(None if declared is None else (declared.signals or {}).get(name))


async def _page(
    asking: PageRequest,
    job: Job[Any],
    fields: Sequence[SignalField],
    *,
    once: str,
    form: Mapping[str, str] | None = None,
    wrong: Mapping[str, str] | None = None,
    problem: Problem | None = None,
) -> dict[str, Any]:
    """The form, with what was typed into it. `once` is the signal's id, which makes two clicks one signal."""
    row, name, document = job.row, asking.path["name"], job_document(job)
    waiter = None if row is None else waiting_job(row, name)
    signal_ = SignalWait(name, asking.query.key)
    wait = None if waiter is None else next((each for each in waiter.waits if signal_ in each.signals), None)
    ended = row is None or row.dead_letter is not None or row.state in (State.COMPLETED, State.FAILED)
    return {
        "title": f"{name} for {job.name} {job.id}", "now": asking.around.now, "queue": job.queue.name, "id": job.id,
        "name": job.name, "signal": signal_, "job": document,
        "wait": wait, "since": None if waiter is None else waiter.since, "ended": ended,
        "others": [] if wait is None else [each.name for each in wait.signals if each != signal_],
        "fields": _grouped(fields), "values": shown_values(fields, form), "once": once, "wrong": wrong or {},
        "problem": problem, "closed": await _closed(job.queue), "mark": f"{wait is not None} {ended}",
        "first": next((each.name for each in fields if each.name in (wrong or {})), fields[0].name if fields else ""),
    }  # fmt: skip


def _grouped(fields: Sequence[SignalField]) -> list[tuple[str, list[SignalField]]]:
    return [(group, list(each)) for group, each in groupby(fields, key=lambda field: field.group)]


async def _closed(queue: Queue) -> bool:
    """Whether only the application can send signals to a queue, because it serializes them in its own way."""
    try:
        await as_workers_declare(queue)
    except UsageError:
        return True
    return False


def _placed(error: Exception, name: str, fields: Sequence[SignalField]) -> dict[str, str]:
    """What the type of the payload refuses, beside the field that it names."""
    if not isinstance(error, InvalidPayload):
        return {}
    text, start = redacted(str(error)), f"the signal {preview(name)}"
    for field in sorted(fields, key=lambda each: -len(each.path)):
        found = re.match(
            re.escape(start + "".join(f".{part}" for part in field.path)) + r"[^:\s]*: (.*)", text, re.DOTALL
        )
        if found is not None:
            return {field.name: f"{found[1][:1].upper()}{found[1][1:]}."}
    return {}


PEOPLE: Final = (
    PageSpec(path="/people", template="people.html", show=people, query=PeopleView, nav="people"),
    PageSpec(path=_FORM, template="signal.html", show=signal, query=SignalView, role=Role.OPERATE, nav="people"),
)
SIGNAL_FORMS: Final = (FormPost(path=_FORM, template="signal.html", send=send, query=SignalView, nav="people"),)
