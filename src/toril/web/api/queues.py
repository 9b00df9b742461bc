"""Endpoints for queues and their settings."""

from dataclasses import asdict
from typing import Annotated, Any, Final, Literal

from pydantic import Field

from toril.app import App
from toril.model import QueueSummary, RateLimit, RunStatus
from toril.operate.documents import (
    of_counts,
    of_declaration,
    of_group_limits,
    of_metrics,
    of_overview,
    of_rate,
    of_scale,
)
from toril.operate.lookup import find_queues
from toril.operate.metrics import overview
from toril.policy.job_names import ByName, by_name
from toril.policy.metrics import Range
from toril.policy.retention import RUNS
from toril.queue import Queue
from toril.web.access import Role
from toril.web.api.common import AnyDuration, known_queue
from toril.web.routing import Endpoint, Form, Request

__all__ = ["QUEUES", "read_names"]


async def list_queues(asking: Request) -> dict[str, Any]:
    names = sorted({*await find_queues(asking.app.store), *asking.app.queues})
    return {"items": [await _document(asking.app, name) for name in names]}


async def show_overview(asking: Request) -> dict[str, Any]:
    return of_overview(await asking.app.overview())


async def show_queue(asking: Request) -> dict[str, Any]:
    queue = await known_queue(asking.app, asking.path["queue"])
    return await _document(asking.app, queue.name)


class RangeQuery(Form):
    """The time range."""

    range: Range = "1h"


async def queue_metrics(asking: Request) -> dict[str, Any]:
    queue = await known_queue(asking.app, asking.path["queue"])
    return of_metrics(await queue.metrics(asking.query.range))


async def queue_job_names(asking: Request) -> dict[str, Any]:
    queue = await known_queue(asking.app, asking.path["queue"])
    found = await read_names(queue)
    items = [asdict(each) | {"failure_rate": each.failure_rate} for each in found.names]
    return {"since": found.since, "items": items}


async def read_names(queue: Queue) -> ByName:
    """Statistics of a queue by job name, from the last 1,000 run records of each ending."""
    now = (await queue.store.health()).now
    return by_name([(await queue.store.runs(queue.name, ending, limit=RUNS)).items for ending in RunStatus], now)


async def queue_usage(asking: Request) -> dict[str, Any]:
    queue = await known_queue(asking.app, asking.path["queue"])
    found = await queue.usage()
    return {"bytes": found.bytes, "jobs": found.jobs, "sampled": found.sampled}


async def scale_queue(asking: Request) -> dict[str, Any]:
    queue = await known_queue(asking.app, asking.path["queue"])
    target = queue.options.target_wait / 1000
    (found,) = (await overview(queue.store, [queue.name], {queue.name: target})).queues
    return of_scale(found)


async def pause_queue(asking: Request) -> dict[str, Any]:
    queue = await known_queue(asking.app, asking.path["queue"])
    await queue.pause()
    return await _document(asking.app, queue.name)


async def resume_queue(asking: Request) -> dict[str, Any]:
    queue = await known_queue(asking.app, asking.path["queue"])
    await queue.resume()
    return await _document(asking.app, queue.name)


class DrainForm(Form):
    """Whether delayed jobs are removed too."""

    delayed: Literal["keep", "remove"] = "keep"


async def drain_queue(asking: Request) -> dict[str, Any]:
    queue = await known_queue(asking.app, asking.path["queue"])
    return {"removed": await queue.drain(delayed=asking.body.delayed)}


class CleanForm(Form):
    """Which jobs to remove. `older_than` is in seconds, or text like `"7d"`."""

    state: Literal["waiting", "prioritized", "delayed", "completed", "failed"] = "completed"
    older_than: Annotated[AnyDuration, Field(le=10**9)] = 0
    limit: Annotated[int, Field(ge=1, le=1000)] = 1000


async def clean_queue(asking: Request) -> dict[str, Any]:
    queue = await known_queue(asking.app, asking.path["queue"])
    form = asking.body
    return {"removed": await queue.clean(form.state, older_than=form.older_than, limit=form.limit)}


class ObliterateForm(Form):
    """`force`: even while jobs are running."""

    force: bool = False


async def obliterate_queue(asking: Request) -> dict[str, Any]:
    queue = await known_queue(asking.app, asking.path["queue"])
    return {"removed": await queue.obliterate(force=asking.body.force)}


async def retry_failed(asking: Request) -> dict[str, Any]:
    queue = await known_queue(asking.app, asking.path["queue"])
    return {"retried": await queue.retry_failed()}


class Rate(Form):
    """`max` starts per `per`, in seconds or as text like `"10m"`."""

    max: Annotated[int, Field(ge=1, le=1_000_000)]
    per: Annotated[AnyDuration, Field(ge=0.001, le=86_400 * 366)]
    window: Literal["sliding", "fixed"] = "sliding"


class LimitsForm(Form):
    """Limits for all workers together. Omitted fields stay as they are; null removes a limit, so that the one declared
    by the workers applies."""

    concurrency: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    rate: Rate | None = None


async def set_limits(asking: Request) -> dict[str, Any]:
    queue = await known_queue(asking.app, asking.path["queue"])
    form: LimitsForm = asking.body
    if "concurrency" in form.model_fields_set:
        await queue.set_concurrency(form.concurrency)
    if "rate" in form.model_fields_set:
        rate = form.rate
        await queue.set_rate_limit(None if rate is None else RateLimit(rate.max, rate.per, rate.window))
    return await _document(asking.app, queue.name)


async def _document(app: App, name: str) -> dict[str, Any]:
    view: QueueSummary = await app.store.queue(name)
    return {
        "name": name,
        "paused": view.counts.paused,
        "counts": of_counts(view.counts),
        "completed_total": view.completed_total,
        "failed_total": view.failed_total,
        "cancelled_total": view.cancelled_total,
        "limits": {"concurrency": view.settings.concurrency, "rate": of_rate(view.settings.rate)},
        "max_waiting": view.settings.max_waiting,
        "groups": of_group_limits(view.settings.groups),
        "declared": of_declaration(await app.store.declarations(name)),
    }


QUEUES: Final = (
    Endpoint(method="GET", path="/queues", role=Role.READ, does="List queues with their job counts.", run=list_queues),
    Endpoint(
        method="GET", path="/overview", role=Role.READ, run=show_overview,
        does="Get all queues with their last hour, and the live workers.",
    ),
    Endpoint(method="GET", path="/queues/{queue}", role=Role.READ, does="Get a queue.", run=show_queue),
    Endpoint(
        method="GET", path="/queues/{queue}/metrics", role=Role.READ, run=queue_metrics, query=RangeQuery,
        does="Get current counts, and metrics over a time range.",
    ),
    Endpoint(
        method="GET", path="/queues/{queue}/names", role=Role.READ, run=queue_job_names,
        does="Get recent metrics by job name: how many ended, how many failed, and how long they ran.",
    ),
    Endpoint(
        method="GET", path="/queues/{queue}/usage", role=Role.READ, run=queue_usage,
        does="Estimate how many bytes a queue takes in the store, from a sample of its jobs.",
    ),
    Endpoint(
        method="GET", path="/scale/{queue}", role=Role.READ, run=scale_queue,
        does="Get what an autoscaler needs: how many jobs wait, and for how long.",
    ),
    Endpoint(
        method="POST", path="/queues/{queue}/pause", role=Role.OPERATE, run=pause_queue,
        does="Pause a queue: no jobs start until it is resumed.",
    ),
    Endpoint(
        method="POST", path="/queues/{queue}/resume", role=Role.OPERATE, run=resume_queue, does="Resume a queue.",
    ),
    Endpoint(
        method="POST", path="/queues/{queue}/drain", role=Role.ADMIN, run=drain_queue, body=DrainForm,
        does="Delete all waiting jobs.",
    ),
    Endpoint(
        method="POST", path="/queues/{queue}/clean", role=Role.ADMIN, run=clean_queue, body=CleanForm,
        does="Delete old jobs in a state, oldest first.",
    ),
    Endpoint(
        method="POST", path="/queues/{queue}/obliterate", role=Role.ADMIN, run=obliterate_queue, body=ObliterateForm,
        does="Delete a queue and everything in it.",
    ),
    Endpoint(
        method="POST", path="/queues/{queue}/retry-failed", role=Role.OPERATE, run=retry_failed,
        does="Retry all failed jobs, including dead letters.",
    ),
    Endpoint(
        method="PUT", path="/queues/{queue}/limits", role=Role.ADMIN, run=set_limits, body=LimitsForm,
        does="Set a queue's concurrency and rate limits, for all workers together.",
    ),
)  # fmt: skip
