"""The page of flows: which jobs wait for which."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Final, Literal, TypeAlias

from pydantic import Field

from toril.app import App
from toril.errors import InvalidName, NotFound
from toril.flow import FlowTree
from toril.model import ChildCounts, JobRef, JobRow, RunRow, RunStatus, job_of
from toril.model.states import State
from toril.operate.documents import standing
from toril.operate.lookup import find_job
from toril.policy.retention import RUNS
from toril.runtime.clock import SYSTEM
from toril.store.engine import Store
from toril.web.api.common import known_queue
from toril.web.api.flows import OpenFlowQuery, list_flows
from toril.web.pages.drawing import Bars, bars
from toril.web.pages.page import PageRequest, PageSpec, View
from toril.web.templates import clock_time, compact, span

__all__ = ["FLOWS", "EndedFlowRuns", "in_order", "remembered"]

_SOON: Final = 0.1  # seconds of reading per page
_FRESH: Final = 5.0  # seconds for which a list is fresh
_FOREVER: Final = 1e9
_HIGHEST: Final = 100  # ancestors of a job


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedFlowRuns:
    """Jobs of ended flows, from the last run record of each. `looked` of the `of` queues have been read."""

    runs: Mapping[JobRef, RunRow]
    children: Mapping[JobRef, Sequence[JobRef]]
    looked: int
    of: int

    def tops(self) -> list[JobRef]:
        """The root jobs of ended flows, the last first."""
        found = [
            ref
            for ref, run in self.runs.items()
            if run.parent is None or (run.parent not in self.runs and ref in self.children)
        ]
        return sorted(found, key=lambda ref: -self.runs[ref].finished_at)

    def top(self, ref: JobRef) -> JobRef:
        """The highest known ancestor of this job."""
        for _ in range(_HIGHEST):
            above = self.runs[ref].parent if ref in self.runs else None
            if above is None or above not in self.runs:
                break
            ref = above
        return ref

    def tree(
        self, ref: JobRef, *, depth: int, width: int, there: Mapping[JobRef, FlowTree] | None = None
    ) -> FlowTree | None:
        """The flow of a job, from its highest known ancestor; None if nothing is known. Jobs that still exist are taken
        from `there`."""
        if ref not in self.runs and ref not in self.children:
            return None
        return self._tree(self.top(ref), depth, width, there or {})

    def filled(self, tree: FlowTree, parent: JobRef | None, *, depth: int, width: int) -> FlowTree:
        """A flow as it stands, completed with the names and ends of jobs that are gone, and with its ancestors above
        `parent` if that is gone."""
        restored = self._restored(tree, depth, width)
        if parent is None or parent not in self.runs:
            return restored
        return self._tree(self.top(parent), depth, width, {JobRef(tree.queue, tree.id): restored})

    def _restored(self, tree: FlowTree, depth: int, width: int) -> FlowTree:
        ref = JobRef(tree.queue, tree.id)
        if tree.state is None and ref in self.runs:
            return self._tree(ref, depth, width, {})
        return replace(tree, children=tuple(self._restored(each, depth - 1, width) for each in tree.children))

    def _tree(self, ref: JobRef, depth: int, width: int, there: Mapping[JobRef, FlowTree]) -> FlowTree:
        if ref in there:
            return there[ref]
        run, below = self.runs.get(ref), self.children.get(ref, ())
        endings = [self.runs[each].ending for each in below]
        done = endings.count(RunStatus.COMPLETED)
        children = [self._tree(each, depth - 1, width, there) for each in below[:width]] if depth > 0 else []
        return FlowTree(
            queue=ref.queue,
            id=ref.id,
            name=None if run is None else run.name,
            state=_state(run),
            ending=None if run is None else run.ending,
            family=ChildCounts(completed=done, failed=len(endings) - done),
            children=tuple(children),
        )


def _state(run: RunRow | None) -> State | None:
    if run is None:
        return None
    return State.COMPLETED if run.ending is RunStatus.COMPLETED else State.FAILED


@dataclass(slots=True)
class _Lists:
    """The run records of jobs of flows, by queue and ending, and when they were read."""

    read: dict[tuple[str, RunStatus], tuple[float, Sequence[RunRow]]] = field(default_factory=dict)

    async def renew(self, store: Store, queues: Sequence[str], first: str | None) -> None:
        """Read lists that are outdated, as far as there is time; those of the `first` queue always."""
        wanted = {(queue, ending) for queue in queues for ending in RunStatus}
        self.read = {key: found for key, found in self.read.items() if key in wanted}
        now = SYSTEM.monotonic()
        old = [key for key in wanted if key not in self.read or now - self.read[key][0] >= _FRESH]
        old.sort(key=lambda key: (key[0] != first, self.read[key][0] if key in self.read else -1.0, key))
        for key in old:
            if key[0] != first and SYSTEM.monotonic() - now > _SOON:
                break
            runs = (await store.runs(*key, limit=RUNS)).items
            self.read[key] = SYSTEM.monotonic(), tuple(run for run in runs if run.flow)


async def remembered(asking: PageRequest, first: str | None = None) -> EndedFlowRuns:
    """What is known by now, certainly including the records of the `first` queue."""

    async def new() -> _Lists:
        return _Lists()

    lists = await asking.recall("run records of flows", _FOREVER, new)
    queues = [each.queue for each in asking.around.overview.queues]
    await lists.renew(asking.app.store, queues, first if first in queues else None)
    runs: dict[JobRef, RunRow] = {}
    for (queue, _), (_, found) in list(lists.read.items()):
        for run in found:
            ref = JobRef(queue, run.id)
            if ref not in runs or runs[ref].finished_at < run.finished_at:
                runs[ref] = run
    children: dict[JobRef, list[JobRef]] = {}
    for ref, run in sorted(runs.items(), key=_place):
        if run.parent is not None:
            children.setdefault(run.parent, []).append(ref)
    known = {queue for queue, _ in lists.read}
    return EndedFlowRuns(runs=runs, children=children, looked=len(known), of=len(queues))


def _place(item: tuple[JobRef, RunRow]) -> tuple[int, int, JobRef]:
    """Sort key: the children of a flow are added together, so those that started first come first."""
    ref, run = item
    return run.added_at, run.started_at or run.finished_at, ref


_DEPTH, _WIDTH, _LINES = 8, 50, 200  # limits of the displayed tree
_ENDED: Final = 50  # ended flows to list
_TICKS: Final = (0.41, 0.825)  # where the stylesheet draws lines, after the one at the start
_SHORT: Final = 10_000  # ms; in a shorter flow, times of day would hardly differ
# For each state of a job of a flow: the class of its colour, its icon, and its word.
_LOOKS: Final = {
    "completed": ("done", "done", "Completed"),
    "ignored": ("failed", "failed", "Failed (ignored)"),
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
    """A text to find in name, id or data; in progress or ended; the flow to show, by its root job."""

    q: Annotated[str, Field(max_length=200)] = ""
    show: Literal["", "ended"] = ""
    queue: Annotated[str, Field(max_length=512)] = ""
    id: Annotated[str, Field(max_length=256)] = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowRow:
    """A job of the selected flow, with its record or run record. `rails` are the lines drawn before its name, one per
    ancestor; `unseen` is how many more children there are."""

    tree: FlowTree
    rails: Rails
    look: tuple[str, str, str]
    record: JobRow | RunRow | None
    bars: Bars
    unseen: int


async def flows(asking: PageRequest) -> dict[str, Any]:
    view: FlowsView = asking.query
    found = await list_flows(replace(asking, query=OpenFlowQuery()))
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


def _ended(known: EndedFlowRuns, ref: JobRef) -> dict[str, Any]:
    """A flow that has ended, by its root job."""
    run, below = known.runs[ref], known.children.get(ref, ())
    endings = [known.runs[each].ending for each in below]
    parts, at = [], 0
    for look, ending in (
        ("done", RunStatus.COMPLETED),
        ("failed", RunStatus.FAILED),
        ("cancelled", RunStatus.CANCELLED),
    ):
        if many := endings.count(ending):
            parts.append((look, float(at), float(at + many)))
            at += many
    return {
        "queue": ref.queue, "id": ref.id, "name": run.name, "data": None, "look": _LOOKS[run.ending.value],
        "done": endings.count(RunStatus.COMPLETED), "total": len(below), "bars": bars(parts, 0, len(below) or 1),
        "took": run.finished_at - run.added_at, "at": run.finished_at,
        "said": ", ".join(f"{endings.count(ending)} {ending}" for ending in RunStatus if ending in endings),
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
    said = f"{done} done, {flow['running']} running, {failed} failed, {total - at} pending"
    return flow | {"bars": bars(parts, 0, total), "total": total, "done": done, "said": said}


async def _chosen(asking: PageRequest, known: EndedFlowRuns, ref: JobRef) -> dict[str, Any] | None:
    """The flow of the given job, as lines; None if nothing is known about it."""
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
        "tree": tree, "top": top, "lines": lines, "ticks": _ticks(start, end),
        "look": _LOOKS.get(standing(tree), _WAITS), "waits": await _waits(app, tree),
        "failed": next((line for line in lines if _has_failed(line)), None),
    }  # fmt: skip


def _ticks(start: float, end: float) -> list[str]:
    """The labels of the axis."""
    took = end - start
    later = [f"+{span(took * at)}" if took < _SHORT else clock_time(start + took * at) for at in _TICKS]
    return [clock_time(start), *later]


async def _tree(asking: PageRequest, known: EndedFlowRuns, ref: JobRef) -> FlowTree | None:
    """The flow as it stands, completed with what is remembered of jobs that are gone."""
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
    return known.filled(
        await in_order(asking.app, tree), None if top is None else top.parent, depth=_DEPTH, width=_WIDTH
    )


async def in_order(app: App, tree: FlowTree) -> FlowTree:
    """The tree with children in the order of adding, if all children of a job are shown. The store lists them by state,
    and then by id."""
    children = [await in_order(app, child) for child in tree.children]
    if len(children) > 1 and len(children) == tree.family.total:
        names = await app.store.flows.child_names(JobRef(tree.queue, tree.id))
        place = {ref: number for number, (ref, _) in enumerate(names)}
        children.sort(key=lambda child: place.get(JobRef(child.queue, child.id), len(place)))
    return replace(tree, children=tuple(children))


def _flat(tree: FlowTree, above: Rails = (), own: Rails = ()) -> Iterator[tuple[FlowTree, Rails]]:
    """A job and its descendants, each with its rails. Below a job with younger siblings, its rail continues to them."""
    yield tree, above + own
    below: Rails = above + tuple("on" if each == "tee" else "off" for each in own)
    for child in tree.children:
        yield from _flat(child, below, ("end" if child is tree.children[-1] else "tee",))


async def _records(app: App, known: EndedFlowRuns, nodes: list[FlowTree]) -> dict[JobRef, JobRow | RunRow]:
    refs = [JobRef(each.queue, each.id) for each in nodes]
    found: dict[JobRef, JobRow | RunRow] = {ref: known.runs[ref] for ref in refs if ref in known.runs}
    for queue in {ref.queue for ref in refs}:
        ids = [ref.id for ref in refs if ref.queue == queue]
        with suppress(InvalidName):  # of another prefix, or not the key of a job
            rows = await app.store.jobs(queue, ids)
            found |= {JobRef(queue, record.id): record for record in rows if record is not None}
    letters = [each.dead_letter for each in nodes if each.dead_letter is not None]
    for letter in await app.store.dead_letters.get(letters) if letters else ():
        if letter is not None:
            found[JobRef(letter.queue, letter.job_id)] = job_of(letter)
    return found


def _line(tree: FlowTree, rails: Rails, record: JobRow | RunRow | None, start: int, end: int) -> FlowRow:
    look = _LOOKS.get(standing(tree), _WAITS)
    parts: list[tuple[str, float, float]] = []
    if record is not None:
        began, over = record.started_at, record.finished_at or end
        if look[0] == "children" or began is None:
            parts = [(look[0] if record.finished_at is None else "wait", record.added_at, over)]
        else:
            running = "active" if look[0] in ("delayed", "wait") else look[0]
            parts = [("wait", record.added_at, began), (running, began, over)]
    return FlowRow(
        tree=tree,
        rails=rails,
        look=look,
        record=record,
        bars=bars(parts, start, end),
        unseen=max(0, tree.family.total - len(tree.children)),
    )


def _has_failed(line: FlowRow) -> bool:
    return isinstance(line.record, JobRow) and line.record.ending is RunStatus.FAILED


async def _waits(app: App, tree: FlowTree) -> dict[str, Any] | None:
    """The first job without open children that the flow waits for, and why that is not running or has not ended."""
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


FLOWS: Final = (PageSpec(path="/flows", template="flows.html", show=flows, query=FlowsView, nav="flows"),)
