"""What the endpoints share."""

import json
import re
from datetime import datetime
from typing import Annotated, Any, Final, Literal

from pydantic import AliasChoices, AwareDatetime, BeforeValidator, Field

from toril.app import App
from toril.declaring import PLAIN
from toril.documents import of_job
from toril.errors import NotFound, shown
from toril.job import Job
from toril.policy.masking import masked
from toril.policy.search import JobFilter
from toril.queue import Queue
from toril.web.endpoint import Asking, Form

__all__ = [
    "SOON", "After", "Cursor", "Limit", "Moment", "Paging", "Search", "Searching", "StateName", "job_document",
    "job_of", "known_queue",
]  # fmt: skip

_DATE: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}[T ]")
_SHOWN: Final = 64 * 1024  # characters of a payload or result

Cursor = Annotated[str | None, Field(max_length=1024)]
# Where a listing goes on; `after` is heard as well.
After = Annotated[str | None, Field(max_length=1024, validation_alias=AliasChoices("cursor", "after"))]
Limit = Annotated[int, Field(ge=1, le=100)]
SOON: Final = 0.15  # seconds of looking through jobs before someone gets an answer, and a cursor to go on with
Search = Annotated[str | None, Field(max_length=200)]
StateName = Literal["waiting", "prioritized", "active", "delayed", "waiting_children", "completed", "failed"]


def _date(text: Any) -> Any:
    """A number would pass for a time, counted from 1970."""
    if isinstance(text, str):
        if not _DATE.match(text):
            raise ValueError("a time is written like 2026-05-01T12:00:00Z")
        return datetime.fromisoformat(text)
    return text


Moment = Annotated[AwareDatetime, BeforeValidator(_date)]


class Searching(Form):
    """Which jobs: of a name; with a text in their error; with a text (`q`) in their id, name, error or payload; with a
    key in their payload, `user.id` or `user.id=7`; that were there when it was asked (`asked_at`, in ms)."""

    q: Search = None
    name: Search = None
    error: Search = None
    key: Search = None
    asked_at: Annotated[int, Field(ge=0, le=2**53)] | None = None

    def filter(self) -> JobFilter:
        return JobFilter(text=self.q, name=self.name, error=self.error, key=self.key, until=self.asked_at)


class Paging(Form):
    """Which part of a list."""

    cursor: Cursor = None
    limit: Limit = 50


async def known_queue(app: App, name: str) -> Queue:
    """A queue that the app declares or the store has. To look at one does not declare it."""
    if name in app.queues:
        return app.queues[name]
    if name not in await app.store.queues():
        raise NotFound(f"there is no queue {shown(name)}")
    return Queue(app, name, PLAIN)


async def job_of(asking: Asking) -> Job[Any]:
    """The job that the path names."""
    queue = await known_queue(asking.app, asking.path["queue"])
    job = await queue.job(asking.path["id"])
    if job is None:
        raise NotFound(f"there is no job {shown(asking.path['id'])} in queue {queue.name!r}")
    return job


def job_document(job: Job[Any]) -> dict[str, Any]:
    """A job as it is shown: secrets covered, and what is long cut, which `cut` names."""
    found = of_job(job)
    cut = []
    for name in ("data", "result", "progress", "metadata"):
        found[name] = masked(found[name])
        text = json.dumps(found[name], ensure_ascii=False, default=str)
        if len(text) > _SHOWN:
            found[name] = text[:_SHOWN]
            cut.append(name)
    return {**found, "cut": cut}
