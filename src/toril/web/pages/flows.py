"""Flows: what waits for what, and what the chosen one waits for."""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Annotated, Any, Final, Literal, TypeAlias

from pydantic import Field

from toril.app import App
from toril.errors import InvalidName, NotFound
from toril.flow import Tree
from toril.model import Ending, JobRecord, JobRef, Run, job_of
from toril.operate.documents import standing
from toril.operate.lookup import find_job
from toril.web.api.common import known_queue
from toril.web.api.flows import UnderWay, list_flows
from toril.web.pages.page import Looking, Page, View
from toril.web.pages.remembered import Remembered, remembered
from toril.web.pages.shapes import Bars, bars
from toril.web.words import compact

__all__ = ["FLOWS"]

_DEPTH, _WIDTH, _LINES = 8, 50, 200  # of the tree that is shown
_ENDED: Final = 50  # flows that have ended, which are listed
_TICKS: Final = (0.0, 0.41, 0.825)  # where the style draws its lines
# How a job of a flow stands: the class of its colour, its icon, and the word for it.
_LOOKS: Final = {
    "completed": ("done", "done", "Completed"),
    "ignored": ("failed", "failed", "Failed, and passed over"),
    "failed": ("failed", "failed", "Failed"),
    "cancelled": ("cancelled", "cancelled", "Cancelled"),
    "active": ("active", "active", "Running"),
    "delayed": ("delayed", "delayed", "Delayed"),
    "waiting_children": ("children", "children", "Waiting for children"),
    "gone": ("cancelled", "cancelled", "Gone"),
}
_WAITS: Final = ("wait", "wait", "Waiting")
Rails: TypeAlias = tuple[Literal["on", "off", "tee", "end"], ...]


class FlowsView(View):
    """Those with this text in their name, id or data, in progress or ended; the one that is shown, by the job at its
    top."""

    q: Annotated[str, Field(max_length=200)] = ""
    show: Literal["", "ended"] = ""
    queue: Annotated[str, Field(max_length=512)] = ""
    id: Annotated[str, Field(max_length=256)] = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A job of the chosen flow, with its record, or what is remembered of its run. `rails` are the lines that are drawn
    before its name, one for each job above it; `unseen` are more children than are shown."""

    tree: Tree
    rails: Rails
    look: tuple[str, str, str]
    record: JobRecord | Run | None
    bars: Bars
    unseen: int


async def flows(asking: Looking) -> dict[str, Any]:
    view: FlowsView = asking.query
    found = await list_flows(replace(asking, query=UnderWay()))
    known = await remembered(asking, view.queue or None)
    under_way = {JobRef(each["queue"], each["id"]) for each in found["items"]}
    tops = [ref for ref in known.tops() if ref not in under_way]
    show = view.show or ("" if found["flows"] or not tops else "ended")
    rows = [_row(each) for each in found["items"] if _fits(each, view.q)]
    ended = [each for each in (_ended(known, ref) for ref in tops) if _fits(each, view.q)]
    chosen: Any = {"queue": view.queue, "id": view.id} if view.id else next(iter(ended if show else rows), None)
    return {
        "title": "Flows", "now": asking.around.now, "view": view, "total": found["flows"], "rows": rows, "show": show,
        "listed": len(found["items"]), "held": sum(each["held"] is not None for each in found["items"]),
        "ended": ended[:_ENDED], "match": len(ended), "ended_all": len(tops), "known": known,
        "chosen": None if chosen is None else await _chosen(asking, known, JobRef(chosen["queue"], chosen["id"])),
    }  # fmt: skip


def _ended(known: Remembered, ref: JobRef) -> dict[str, Any]:
    """A flow that has ended, by the job at its top."""
    run, below = known.runs[ref], known.children.get(ref, ())
    endings = [known.runs[each].ending for each in below]
    parts, at = [], 0
    for look, ending in (("done", Ending.COMPLETED), ("failed", Ending.FAILED), ("cancelled", Ending.CANCELLED)):
        if many := endings.count(ending):
            parts.append((look, float(at), float(at + many)))
            at += many
    return {
        "queue": ref.queue, "id": ref.id, "name": run.name, "data": None, "look": _LOOKS[run.ending.value],
        "done": endings.count(Ending.COMPLETED), "total": len(below), "bars": bars(parts, 0, len(below) or 1),
        "took": run.finished_at - run.added_at, "at": run.finished_at,
        "said": ", ".join(f"{endings.count(ending)} {ending}" for ending in Ending if ending in endings),
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


async def _chosen(asking: Looking, known: Remembered, ref: JobRef) -> dict[str, Any] | None:
    """The flow that the named job belongs to, line by line; None if nothing is known of it."""
    app, tree = asking.app, await _tree(asking, known, ref)
    if tree is None:
        return None
    nodes = list(_flat(tree))[:_LINES]
    records = await _records(app, known, [each for each, _ in nodes])
    top, now = records.get(JobRef(tree.queue, tree.id)), asking.around.now
    start = top.added_at if top is not None else now
    ends = [record.finished_at or 0 for record in records.values()]
    end = max([*ends, *([now] if top is None or top.finished_at is None else [])])
    lines = [_line(each, rails, records.get(JobRef(each.queue, each.id)), start, end) for each, rails in nodes]
    return {
        "tree": tree, "top": top, "lines": lines, "ticks": [start + (end - start) * at for at in _TICKS],
        "look": _LOOKS.get(standing(tree), _WAITS), "waits": await _waits(app, tree),
        "failed": next((line for line in lines if _has_failed(line)), None),
    }  # fmt: skip


async def _tree(asking: Looking, known: Remembered, ref: JobRef) -> Tree | None:
    """As it stands, and as it is remembered where jobs are gone."""
    there = any(each.queue == ref.queue for each in asking.around.overview.queues)
    found = await find_job(asking.app.store, ref.queue, ref.id) if there else None
    if found is None:
        return known.tree(ref, depth=_DEPTH, width=_WIDTH)
    job = await (await known_queue(asking.app, ref.queue)).job(ref.id)
    try:
        tree = None if job is None else await asking.app.tree(job, depth=_DEPTH, width=_WIDTH)
    except NotFound:  # it has just ended
        return known.tree(ref, depth=_DEPTH, width=_WIDTH)
    if tree is None:
        return None
    above = JobRef(tree.queue, tree.id)
    top = found if above == ref else await find_job(asking.app.store, above.queue, above.id)
    return known.filled(tree, None if top is None else top.parent, depth=_DEPTH, width=_WIDTH)


def _flat(tree: Tree, above: Rails = (), own: Rails = ()) -> Iterator[tuple[Tree, Rails]]:
    """A job and all below it, each with its rails. Below a job that has younger siblings its rail goes on, to them."""
    yield tree, above + own
    below: Rails = above + tuple("on" if each == "tee" else "off" for each in own)
    for child in tree.children:
        yield from _flat(child, below, ("end" if child is tree.children[-1] else "tee",))


async def _records(app: App, known: Remembered, nodes: list[Tree]) -> dict[JobRef, JobRecord | Run]:
    refs = [JobRef(each.queue, each.id) for each in nodes]
    found: dict[JobRef, JobRecord | Run] = {ref: known.runs[ref] for ref in refs if ref in known.runs}
    for queue in {ref.queue for ref in refs}:
        ids = [ref.id for ref in refs if ref.queue == queue]
        with suppress(InvalidName):  # of another prefix, or what is no job's key
            rows = await app.store.jobs(queue, ids)
            found |= {JobRef(queue, record.id): record for record in rows if record is not None}
    letters = [each.dead_letter for each in nodes if each.dead_letter is not None]
    for letter in await app.store.letters_of(letters) if letters else ():
        if letter is not None:
            found[JobRef(letter.queue, letter.job_id)] = job_of(letter)
    return found


def _line(tree: Tree, rails: Rails, record: JobRecord | Run | None, start: int, end: int) -> Line:
    look = _LOOKS.get(standing(tree), _WAITS)
    parts: list[tuple[str, float, float]] = []
    if record is not None:
        began, over = record.started_at, record.finished_at or end
        if look[0] == "children" or began is None:
            parts = [(look[0] if record.finished_at is None else "wait", record.added_at, over)]
        else:
            running = "active" if look[0] in ("delayed", "wait") else look[0]
            parts = [("wait", record.added_at, began), (running, began, over)]
    return Line(
        tree=tree, rails=rails, look=look, record=record, bars=bars(parts, start, end),
        unseen=max(0, tree.family.total - len(tree.children)),
    )  # fmt: skip


def _has_failed(line: Line) -> bool:
    return isinstance(line.record, JobRecord) and line.record.ending is Ending.FAILED


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
