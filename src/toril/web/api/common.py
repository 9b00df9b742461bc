"""What the endpoints share."""

import json
import re
from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Annotated, Any, Final, Literal

from pydantic import AliasChoices, AwareDatetime, BeforeValidator, Field, WithJsonSchema

from toril.app import App
from toril.errors import NotFound, preview
from toril.job import Job
from toril.model import Kept, moment
from toril.model.durations import seconds_of
from toril.operate.documents import of_children, of_errors, of_job
from toril.policy.redaction import masked, redacted
from toril.policy.search import EndingName, JobFilter
from toril.queue import Queue, queue_named
from toril.web.routing import Form, Request

__all__ = [
    "A_LOOK",
    "SOON",
    "After",
    "AnyDuration",
    "Cursor",
    "Limit",
    "Moment",
    "PageQuery",
    "PositiveDuration",
    "Search",
    "SearchQuery",
    "StateName",
    "attempt_errors",
    "details",
    "in_a_list",
    "job_document",
    "job_documents",
    "job_of",
    "kept_in",
    "known_queue",
    "log_page",
    "shortened",
]  # fmt: skip

_DATE: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}[T ]")
_SHOWN: Final = 64 * 1024  # characters of a payload or result
_LISTED: Final = 4 * 1024 * 1024  # characters of payloads and results in a list; beyond that, each is cut to:
_SHORT: Final = 1024
_COVERED: Final = ("data", "result", "progress", "metadata")
_LONG: Final = (*_COVERED, "value")

Cursor = Annotated[str | None, Field(max_length=1024)]
# Where a listing continues; `after` is accepted too.
After = Annotated[str | None, Field(max_length=1024, validation_alias=AliasChoices("cursor", "after"))]
Limit = Annotated[int, Field(ge=1, le=100)]
SOON: Final = 0.12  # seconds that a search may take before it answers with a cursor
A_LOOK: Final = SOON / 3  # the same for each of the searches of a dashboard page
Search = Annotated[str | None, Field(max_length=200)]
StateName = Literal["waiting", "prioritized", "active", "delayed", "waiting_children", "completed", "failed"]


def _date(text: Any) -> Any:
    """Parse a date. A number would be accepted as a time since 1970."""
    if isinstance(text, str):
        if not _DATE.match(text):
            raise ValueError("expected a time like 2026-05-01T12:00:00Z")
        return datetime.fromisoformat(text)
    return text


Moment = Annotated[AwareDatetime, BeforeValidator(_date)]


def _seconds(given: Any) -> Any:
    """The seconds in a text such as "10m"; a number is in seconds already."""
    if not isinstance(given, str):
        return given
    seconds = seconds_of(given)
    if seconds is None:
        raise ValueError('expected seconds, or a duration like "90s", "10m" or "2h"')
    return seconds


_WRITTEN: Final = {"type": "string", "pattern": r"^[0-9]{1,6}(\.[0-9]{1,6})?(ms|s|m|h|d)$"}

AnyDuration = Annotated[
    float,
    Field(ge=0),
    BeforeValidator(_seconds),
    WithJsonSchema({"anyOf": [{"type": "number", "minimum": 0}, _WRITTEN]}),
]
PositiveDuration = Annotated[
    float,
    Field(gt=0),
    BeforeValidator(_seconds),
    WithJsonSchema({"anyOf": [{"type": "number", "exclusiveMinimum": 0}, _WRITTEN]}),
]


class SearchQuery(Form):
    """Filters, all of which a job must match: `name`; text in its `error`; text (`q`) in its id, name, error, payload,
    group or subject; a payload `key`, as `user.id` or `user.id=7`; `group`; `subject`; the `worker` that runs it or ran
    it last; its `ending`, which tells cancelled from failed jobs; only jobs that existed at `asked_at` (ms)."""

    q: Search = None
    name: Search = None
    error: Search = None
    key: Search = None
    worker: Search = None
    ending: EndingName | None = None
    group: Search = None
    subject: Search = None
    asked_at: Annotated[int, Field(ge=0, le=2**53)] | None = None

    def filter(self) -> JobFilter:
        return JobFilter(
            text=self.q,
            name=self.name,
            error=self.error,
            key=self.key,
            worker=self.worker,
            ending=self.ending,
            group=self.group,
            subject=self.subject,
            until=moment(self.asked_at),
        )


class PageQuery(Form):
    """Where in the list to start, and how many items to return."""

    cursor: Cursor = None
    limit: Limit = 50


async def known_queue(app: App, name: str) -> Queue:
    """A queue that the app declares, the store has or a live worker serves, even without jobs. Reading it does not
    declare it."""
    if name in app.queues:
        return app.queues[name]
    if name not in await app.store.queues() and not await app.store.workers(name):
        raise NotFound(f"there is no queue {preview(name)}")
    return queue_named(app.services, name)


async def job_of(asking: Request) -> Job[Any]:
    """The job in the path."""
    queue = await known_queue(asking.app, asking.path["queue"])
    job = await queue.job(asking.path["id"])
    if job is None:
        raise NotFound(f"there is no job {preview(asking.path['id'])} in queue {queue.name!r}")
    return job


async def details(app: App, job: Job[Any]) -> dict[str, Any]:
    """The errors of its attempts, and the states of its children."""
    children = of_children(await app.tree(job, whole=False, depth=1))
    return {"errors": await attempt_errors(job), "children": children}


async def attempt_errors(job: Job[Any]) -> list[dict[str, Any]]:
    """Why each attempt failed, as it may be shown."""
    return [
        each | {name: redacted(each[name] or "") for name in ("error", "traceback")}
        for each in of_errors(await job.errors(), job)
    ]


async def log_page(job: Job[Any], query: PageQuery) -> dict[str, Any]:
    """A page of its log, as it may be shown."""
    queue, where = job.queue, kept_in(job)
    page = await queue.store.logs(queue.name, job.id, cursor=query.cursor, limit=query.limit, where=where)
    items = [redacted(queue.services.redaction.text(line, "log", queue.name, job.name) or "") for line in page.items]
    return {"items": items, "cursor": page.cursor}


def kept_in(job: Job[Any]) -> Kept:
    """Where a job was found."""
    return "queue" if job.dead_letter is None else "dead_letters"


def job_document(job: Job[Any]) -> dict[str, Any]:
    """A job as it is shown: secrets are masked, and long values are cut, which `cut` lists."""
    return _cut(_shown(job), _SHOWN)[0]


def job_documents(jobs: Iterable[Job[Any]]) -> Iterator[dict[str, Any]]:
    """A list of them. Once it is large, long values in the rest are cut further."""
    return in_a_list(map(_shown, jobs))


def shortened(document: dict[str, Any]) -> dict[str, Any]:
    """A document that is alone on a page."""
    return _cut(document, _SHOWN)[0]


def in_a_list(documents: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Documents with long values cut, so that a list has a few megabytes at most."""
    room = _LISTED
    for document in documents:
        found, length = _cut(document, _SHOWN if room > 0 else _SHORT)
        room -= length
        yield found


def _shown(job: Job[Any]) -> dict[str, Any]:
    found = of_job(job)
    covered = {name: masked(found[name]) for name in _COVERED}
    return found | covered | {"error": found["error"] and redacted(found["error"])}


def _cut(document: dict[str, Any], most: int) -> tuple[dict[str, Any], int]:
    """The document with its values cut to this length, and the length of all of them."""
    cut, length = [], 0
    for name in _LONG:
        text = json.dumps(document.get(name), ensure_ascii=False, default=str)
        length += min(len(text), most)
        if len(text) > most:
            document[name] = text[:most]
            cut.append(name)
    return {**document, "cut": cut}, length
