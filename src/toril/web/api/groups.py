"""Endpoints for the groups of a queue: list, pause and limit them."""

from typing import Annotated, Any, Final, Literal

from pydantic import Field

from toril.model import RateLimit, ms_of, per_ms
from toril.records import GroupRecord, as_record
from toril.web.access import Role
from toril.web.api.common import PageQuery, PositiveDuration, Search, known_queue
from toril.web.routing import Endpoint, Form, Request

__all__ = ["GROUPS"]

_LOOKED: Final = 1000


async def list_groups(asking: Request) -> dict[str, Any]:
    queue = await known_queue(asking.app, asking.path["queue"])
    page = await queue.groups.list(asking.query.cursor, asking.query.limit)
    return {"items": [_document(view) for view in page], "cursor": page.cursor}


class GroupDefaultsForm(Form):
    """Which groups to list, and how many."""

    limit: Annotated[int, Field(ge=1, le=500)] = 50
    only: Literal["paused", "limit"] | None = None
    queue: Search = None
    q: Search = None


async def all_groups(asking: Request) -> dict[str, Any]:
    """The first 1,000 groups of each queue by name; `more` names the queues with more."""
    form: GroupDefaultsForm = asking.query
    items: list[dict[str, Any]] = []
    more = []
    for name in sorted(await asking.app.store.queues()):
        if form.queue in {None, name}:
            page = await asking.app.store.groups.page(name, limit=_LOOKED)
            items += [{"queue": name, **_document(as_record(GroupRecord, group))} for group in page.items]
            more += [name] if page.cursor is not None else []
    sought = (form.q or "").casefold()
    meant = [each for each in items if _stands(each, form.only) and sought in each["group"].casefold()]
    meant.sort(key=lambda each: (-each["waiting"], -each["running"], each["group"], each["queue"]))
    return {
        "items": meant[: form.limit], "groups": len(items), "match": len(meant), "more": more,
        "full": sum(_stands(each, "limit") for each in items), "paused": sum(each["paused"] for each in items),
        "queues": sorted({each["queue"] for each in items}),
    }  # fmt: skip


def _stands(group: dict[str, Any], how: str | None) -> bool:
    match how:
        case "paused":
            return bool(group["paused"])
        case "limit":
            return group["concurrency"] is not None and group["running"] >= group["concurrency"]
        case _:
            return True


async def pause_group(asking: Request) -> dict[str, Any]:
    queue = await known_queue(asking.app, asking.path["queue"])
    return _document(await queue.groups.pause(asking.path["group"]))


async def resume_group(asking: Request) -> dict[str, Any]:
    queue = await known_queue(asking.app, asking.path["queue"])
    return _document(await queue.groups.resume(asking.path["group"]))


class GroupLimitsForm(Form):
    """Limits for one group. Omitted fields stay as they are; null goes back to the queue's setting. A rate is
    `rate_max` starts per `rate_per`, in seconds or as text like `"10m"`."""

    concurrency: Annotated[int, Field(ge=1)] | None = None
    max_waiting: Annotated[int, Field(ge=1)] | None = None
    weight: Annotated[int, Field(ge=1, le=100)] | None = None
    rate_max: Annotated[int, Field(ge=1)] | None = None
    rate_per: PositiveDuration = 1.0


async def limit_group(asking: Request) -> dict[str, Any]:
    queue, body = await known_queue(asking.app, asking.path["queue"]), asking.body
    given: dict[str, Any] = {
        name: getattr(body, name) for name in ("concurrency", "max_waiting", "weight") if name in body.model_fields_set
    }
    if "rate_max" in body.model_fields_set:
        given["rate_limit"] = None if body.rate_max is None else RateLimit(body.rate_max, body.rate_per)
    return _document(await queue.groups.set(asking.path["group"], **given))


def _document(view: GroupRecord) -> dict[str, Any]:
    rate = view.limits.rate_limit
    return {
        "group": view.name, "waiting": view.waiting, "running": view.running, "paused": view.paused,
        "till": ms_of(view.till), "concurrency": view.limits.concurrency, "max_waiting": view.limits.max_waiting,
        "weight": view.limits.weight or 1, "rate_max": rate and rate.max, "rate_per_ms": rate and per_ms(rate),
    }  # fmt: skip


GROUPS: Final = (
    Endpoint(
        method="GET", path="/groups", role=Role.READ, run=all_groups, query=GroupDefaultsForm,
        does="List the groups of all queues, most waiting jobs first.",
    ),
    Endpoint(
        method="GET", path="/queues/{queue}/groups", role=Role.READ, run=list_groups, query=PageQuery,
        does="List a queue's groups that have unfinished jobs or their own limits.",
    ),
    Endpoint(
        method="POST", path="/queues/{queue}/groups/{group}/pause", role=Role.OPERATE, run=pause_group,
        does="Pause a group: none of its jobs start until it is resumed.",
    ),
    Endpoint(
        method="POST", path="/queues/{queue}/groups/{group}/resume", role=Role.OPERATE, run=resume_group,
        does="Resume a group.",
    ),
    Endpoint(
        method="POST", path="/queues/{queue}/groups/{group}/limits", role=Role.OPERATE, run=limit_group,
        body=GroupLimitsForm,
        does="Set a group's own limits.",
    ),
)  # fmt: skip
