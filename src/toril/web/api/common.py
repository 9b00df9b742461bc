"""What the endpoints share."""

import json
from typing import Annotated, Any, Final

from pydantic import Field

from toril.app import App
from toril.documents import of_job
from toril.errors import NotFound, shown
from toril.job import Job
from toril.policy.masking import masked
from toril.queue import Queue
from toril.web.endpoint import Asking, Form

__all__ = ["Cursor", "Limit", "Paging", "Search", "job_document", "job_of", "known_queue"]

_SHOWN: Final = 64 * 1024  # characters of a payload or result

Cursor = Annotated[str | None, Field(max_length=1024)]
Limit = Annotated[int, Field(ge=1, le=100)]
Search = Annotated[str | None, Field(max_length=200)]


class Paging(Form):
    """Which part of a list."""

    cursor: Cursor = None
    limit: Limit = 50


async def known_queue(app: App, name: str) -> Queue:
    """A queue that the app declares or the store has."""
    if name not in app.queues and name not in await app.store.queues():
        raise NotFound(f"there is no queue {shown(name)}")
    return app.queue(name)


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
