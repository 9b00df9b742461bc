"""Flows: what waits for what, and what the chosen one waits for."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Annotated, Any, Final

from pydantic import Field

from toril.app import App
from toril.documents import standing
from toril.errors import NotFound
from toril.flow import Tree
from toril.model import JobRecord
from toril.web.api.common import known_queue
from toril.web.api.flows import UnderWay, list_flows
from toril.web.endpoint import Asking
from toril.web.pages.page import Page, View
from toril.web.pages.shapes import Bars, bars
from toril.web.words import compact

__all__ = ["FLOWS"]

_DEPTH, _WIDTH, _LINES = 8, 50, 200  # of the tree that is shown
_TICKS: Final = (0.0, 0.41, 0.825)  # where the style draws its lines
# How a job of a flow stands: the class of its colour, its icon, and the word for it.
_LOOKS: Final = {
    "completed": ("done", "done", "Completed"),
    "ignored": ("failed", "failed", "Failed, and passed over"),
    "failed": ("failed", "failed", "Failed"),
    "active": ("active", "active", "Running"),
    "delayed": ("delayed", "delayed", "Delayed"),
    "waiting_children": ("children", "children", "Waiting for children"),
    "gone": ("cancelled", "cancelled", "Gone"),
}
_WAITS: Final = ("wait", "wait", "Waiting")


class FlowsView(View):
    """Those with this text in their name, id or data; the one that is shown, by the job at its top."""

    q: Annotated[str, Field(max_length=200)] = ""
    queue: Annotated[str, Field(max_length=512)] = ""
    id: Annotated[str, Field(max_length=256)] = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A job of the chosen flow. `held` are more children than are shown."""

    tree: Tree
    depth: int
    look: tuple[str, str, str]
    record: JobRecord | None
    bars: Bars
    unseen: int


async def flows(asking: Asking) -> dict[str, Any]:
    view: FlowsView = asking.query
    found = await list_flows(replace(asking, query=UnderWay()))
    meant = [each for each in found["items"] if _fits(each, view.q)]
    chosen = {"queue": view.queue, "id": view.id} if view.id else next(iter(meant), None)
    return {
        "title": "Flows", "view": view, "total": found["flows"], "rows": [_row(each) for each in meant],
        "listed": len(found["items"]), "held": sum(each["held"] is not None for each in found["items"]),
        "chosen": None if chosen is None else await _chosen(asking.app, chosen["queue"], chosen["id"]),
    }  # fmt: skip


def _fits(flow: dict[str, Any], text: str) -> bool:
    words = f"{flow['name']} {flow['id']} {flow['queue']} {compact(flow['data'], 10_000)}".casefold()
    return all(word in words for word in text.casefold().split())


def _row(flow: dict[str, Any]) -> dict[str, Any]:
    counts = flow["children"]
    failed, done = counts["failed"] + counts["ignored"] + (flow["held"] is not None), counts["completed"]
    total = sum(counts.values())
    parts, at = [], 0
    for look, many in (("done", done), ("active", flow["running"]), ("failed", failed)):
        if many:
            parts.append((look, float(at), float(at + many)))
            at += many
    said = f"{done} done, {flow['running']} running, {failed} failed, {total - at} to go"
    return flow | {"bars": bars(parts, 0, total), "total": total, "done": done, "said": said}


async def _chosen(app: App, queue: str, identity: str) -> dict[str, Any] | None:
    """The flow that the named job belongs to, line by line; None if it is gone."""
    try:
        job = await (await known_queue(app, queue)).job(identity)
        tree = None if job is None else await app.tree(job, depth=_DEPTH, width=_WIDTH)
    except NotFound:
        return None
    if tree is None:
        return None
    nodes = list(_flat(tree, 0))[:_LINES]
    records = await _records(app, [each for each, _ in nodes])
    top, now = records.get((tree.queue, tree.id)), (await app.store.health()).now
    start = top.added_at if top is not None else now
    end = max([now, *[record.finished_at or 0 for record in records.values()]])
    lines = [_line(each, depth, records.get((each.queue, each.id)), start, end) for each, depth in nodes]
    return {
        "tree": tree, "top": top, "lines": lines, "ticks": [start + (end - start) * at for at in _TICKS],
        "waits": await _waits(app, tree), "failed": next((line for line in lines if _has_failed(line)), None),
    }  # fmt: skip


def _flat(tree: Tree, depth: int) -> Iterator[tuple[Tree, int]]:
    yield tree, depth
    for child in tree.children:
        yield from _flat(child, depth + 1)


async def _records(app: App, nodes: list[Tree]) -> dict[tuple[str, str], JobRecord]:
    found: dict[tuple[str, str], JobRecord] = {}
    for queue in {each.queue for each in nodes}:
        ids = [each.id for each in nodes if each.queue == queue]
        found |= {(queue, record.id): record for record in await app.store.jobs(queue, ids) if record is not None}
    return found


def _line(tree: Tree, depth: int, record: JobRecord | None, start: int, end: int) -> Line:
    look = _LOOKS.get(standing(tree), _WAITS)
    parts: list[tuple[str, float, float]] = []
    if record is not None:
        began, over = record.started_at, record.finished_at or end
        if look[0] == "children" or began is None:
            parts = [(look[0], record.added_at, over)]
        else:
            running = "active" if look[0] in ("delayed", "wait") else look[0]
            parts = [("wait", record.added_at, began), (running, began, over)]
    return Line(
        tree=tree, depth=min(depth, 2), look=look, record=record, bars=bars(parts, start, end),
        unseen=max(0, tree.family.total - len(tree.children)),
    )  # fmt: skip


def _has_failed(line: Line) -> bool:
    return line.record is not None and line.tree.state == "failed"


async def _waits(app: App, tree: Tree) -> dict[str, Any] | None:
    """The first job without open children that the flow waits for, and why that does not run or has not ended."""
    if tree.state is None or tree.state in ("completed", "failed"):
        return None
    for child in tree.children:
        found = await _waits(app, child)
        if found is not None:
            return found
    if tree.children and tree.family.open:
        return None
    why = await (await known_queue(app, tree.queue)).why(tree.id)
    return {
        "queue": tree.queue,
        "id": tree.id,
        "name": tree.name,
        "sentence": why.sentence,
        "look": _LOOKS.get(standing(tree), _WAITS),
    }


FLOWS: Final = (Page(path="/flows", template="flows.html", show=flows, query=FlowsView, nav="flows"),)
