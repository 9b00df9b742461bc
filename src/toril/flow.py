"""Flows: jobs that wait for other jobs."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Final, Generic, Literal, TypeAlias, TypeVar

from toril.errors import InvalidOption, NotFound, QueueFull, UsageError, WrongState, preview
from toril.job import Job
from toril.model import (
    BATCH,
    MAX_DEPTH,
    Added,
    AddOutcome,
    ChildCounts,
    ChildState,
    FlowNode,
    JobRef,
    Kept,
    OnFailure,
    RunStatus,
)
from toril.model.states import State
from toril.operate.lookup import find_job, find_linked_job
from toril.queue import PreparedJob, added_job
from toril.runtime.services import Services
from toril.store.engine import Store

__all__ = ["Flow", "FlowTree", "Flows", "Node", "chain", "gather", "planned_nodes"]

R = TypeVar("R", covariant=True)
N = TypeVar("N")

Policy: TypeAlias = Literal["fail", "continue", "ignore", "remove", "wait"]
SHOWN: Final = 100  # children per job that a tree shows by default


@dataclass(frozen=True, slots=True)
class Flow(Generic[R]):
    """A job and the children that it waits for.

    Args:
        job: The job, made by `task.new(…)` or `queue.new(…)`.
        children: The jobs that it waits for, each of which may be a `Flow`.
        on_failure: What happens to this job's parent if this job fails: `"fail"` it too (the default), let it
            `"continue"` at once, `"ignore"` or `"remove"` the failure, or `"wait"` until this job has been run again.
    """

    job: PreparedJob[R]
    children: "Sequence[Node]" = ()
    on_failure: Policy | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.job, PreparedJob):
            raise InvalidOption(f"a Flow's job must be queue.new(…), not {preview(self.job)}")
        if not isinstance(self.children, list | tuple):
            raise InvalidOption(f"children must be a list of jobs, not {preview(self.children)}")
        for each in self.children:
            if not isinstance(each, PreparedJob | Flow):
                raise InvalidOption(f"each child must be queue.new(…) or Flow(…), not {preview(each)}")
        if self.on_failure is not None:
            policy_of(self.on_failure)


# A part of a flow.
Node: TypeAlias = PreparedJob[Any] | Flow[Any]


def chain(*jobs: *tuple[*tuple[Node, ...], PreparedJob[N] | Flow[N]]) -> Flow[N]:
    """Run jobs one after the other. Each reads the result of the one before it with `ctx.children(handler)`.

    Only the first job can have children of its own.
    """
    if not jobs:
        raise InvalidOption("a chain needs at least one job")
    nodes: list[Node] = list(jobs)
    flow = _as_flow(nodes[0])
    for job in nodes[1:]:
        following = _as_flow(job)
        if following.children:
            raise InvalidOption(
                "only the first job of a chain can have children of its own; the others wait for the job before them"
            )
        flow = replace(following, children=[flow])
    return flow


def gather(jobs: Sequence[Node], *, then: PreparedJob[N], on_failure: Policy | None = None) -> Flow[N]:
    """Run jobs side by side, and `then` once all of them have ended. `on_failure` applies to all of them that do not
    set it themselves."""
    children = [each if on_failure is None else _with(each, policy_of(on_failure)) for each in jobs]
    return Flow(then, children)


def policy_of(word: object) -> OnFailure:
    try:
        return OnFailure(str(word))
    except ValueError:
        raise InvalidOption(f"on_failure must be one of {', '.join(OnFailure)}, not {preview(word)}") from None


def _as_flow(each: object) -> Flow[Any]:
    if isinstance(each, Flow):
        return each
    if isinstance(each, PreparedJob):
        return Flow(each)
    raise InvalidOption(f"each job of a flow must be queue.new(…) or Flow(…), not {preview(each)}")


@dataclass(frozen=True, slots=True)
class _PlannedNode:
    """A node of a flow, the job from which it was made, and its ancestors in the flow."""

    node: FlowNode
    planned: PreparedJob[Any]
    above: tuple[JobRef, ...]


def planned_nodes(
    flows: Sequence[Node],
    name: Callable[[], str],
    *,
    parent: JobRef | None = None,
    on_failure: Policy = "fail",
) -> list[FlowNode]:
    """These flows as nodes, each parent before its children; `name` makes ids for jobs without one."""
    return [place.node for place in _places(flows, name, parent, policy_of(on_failure))]


def _places(
    flows: Sequence[Node], name: Callable[[], str], parent: JobRef | None, default: OnFailure
) -> list[_PlannedNode]:
    places = [place for flow in flows for place in _walk(_as_flow(flow), name, parent, (), default)]
    seen = set[JobRef]() if parent is None else {parent}
    for place in places:
        if place.node.ref in seen:
            raise InvalidOption(f"job {place.node.ref} occurs twice in the flow; give each job an id of its own")
        seen.add(place.node.ref)
    return places


def _walk(
    flow: Flow[Any], name: Callable[[], str], parent: JobRef | None, above: tuple[JobRef, ...], default: OnFailure
) -> Iterator[_PlannedNode]:
    if len(above) >= MAX_DEPTH:
        raise InvalidOption(f"a flow can be at most {MAX_DEPTH} levels deep")
    job = flow.job.job if flow.job.job.id is not None else replace(flow.job.job, id=name())
    policy = default if flow.on_failure is None else policy_of(flow.on_failure)
    node = FlowNode(queue=flow.job.queue.name, job=job, parent=parent, on_failure=policy, waits=bool(flow.children))
    yield _PlannedNode(node, flow.job, above)
    for child in flow.children:
        yield from _walk(_as_flow(child), name, node.ref, (*above, node.ref), OnFailure.FAIL)


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowTree:
    """A job and its children, as they stand.

    `state` is None if the job has ended and is gone; then `known` is what its parent knows of it, and `text` its result
    or error. `ending` tells failed jobs from cancelled ones, and `dead_letter` is the id of the dead letter. `children`
    may be incomplete; `family` counts all of them.
    """

    queue: str
    id: str
    name: str | None
    state: State | None
    ending: RunStatus | None = None
    dead_letter: str | None = None
    known: ChildState | None = None
    text: str | None = None
    family: ChildCounts
    children: "tuple[FlowTree, ...]" = ()


class Flows:
    """Adds and reads the flows of an app."""

    def __init__(self, services: Services) -> None:
        self._services = services

    async def add(
        self,
        job: PreparedJob[N] | Flow[N],
        children: Sequence[Node] = (),
        *,
        on_failure: Policy = "fail",
        parent: Job[Any] | None = None,
    ) -> Job[N]:
        """See `App.flow`."""
        top = Flow(job, children) if isinstance(job, PreparedJob) else job
        if children and isinstance(job, Flow):
            raise InvalidOption("give the children in Flow(…) or as the second argument, not both")
        default = policy_of(on_failure)
        top = replace(_as_flow(top), children=[_with(child, default) for child in _as_flow(top).children])
        above = None if parent is None else JobRef(parent.queue.name, parent.id)
        (made,) = await self._add([top], above, default)
        return made

    async def add_many(self, flows: Sequence[PreparedJob[N] | Flow[N]]) -> list[Job[N]]:
        """See `App.flows`."""
        return await self._add(flows, None, OnFailure.FAIL)

    async def tree(self, job: Job[Any], *, whole: bool = True, depth: int = 10, width: int = SHOWN) -> FlowTree:
        """See `App.tree`."""
        ref, store = JobRef(job.queue.name, job.id), self._services.store
        return await _tree(store, await _top(store, ref) if whole else ref, depth, width)

    async def _add(self, flows: Sequence[Node], parent: JobRef | None, default: OnFailure) -> list[Job[Any]]:
        places = _places(flows, self._services.clock.unique, parent, default)
        if len(places) > BATCH:
            for top in _tops_above_unnamed(places):
                await self._refuse_to_resume(top)
        answers: dict[JobRef, Added] = {}
        left_out: set[JobRef] = set()
        held: tuple[JobRef, ...] = ()
        for start in range(0, len(places), BATCH):
            part = [place for place in places[start : start + BATCH] if not left_out & set(place.above)]
            following = places[start + BATCH].above if start + BATCH < len(places) else ()
            closed = [ref for ref in held if ref not in following]
            await self._add_part(part, answers, following, closed, held)
            held = following
            left_out |= {place.node.ref for place in part if not place.above and _was_there(answers, place)}
        return [added_job(place.planned, answers[place.node.ref]) for place in places if not place.above]

    async def _refuse_to_resume(self, top: FlowNode) -> None:
        """Raise if a flow that was stored in part cannot be continued, because its children without ids cannot be
        matched with those that it has."""
        (there,) = await self._services.store.jobs(top.queue, [top.ref.id])
        if there is None or there.state is not State.WAITING_CHILDREN:
            return
        (answer,) = await self._services.call(
            lambda call: self._services.store.flows.add([top], held=[top.ref], call=call)
        )
        if answer.outcome is AddOutcome.ADDED:
            raise WrongState(
                f"the flow of job {top.ref} was stored only in part, and cannot be completed because some of its jobs "
                "have no job_id; wait ten minutes, until its jobs that have not started are removed, and add it again"
            )

    async def _add_part(
        self,
        part: Sequence[_PlannedNode],
        answers: dict[JobRef, Added],
        held: Sequence[JobRef],
        closed: Sequence[JobRef],
        before: Sequence[JobRef],
    ) -> None:
        """Store one part. If it is refused, the parts stored before are removed again."""
        nodes = [place.node for place in part]
        try:
            with self._traced(nodes) as traced:
                added = await self._services.call(
                    lambda call: self._services.store.flows.add(traced, held=held, closed=closed, call=call)
                )
        except (UsageError, QueueFull) as error:
            if before:
                await self._services.call(
                    lambda call: self._services.store.flows.add([], held=before, hold_for=0, call=call)
                )
                for queue in dict.fromkeys(ref.queue for ref in before):
                    await self._services.store.prune(queue)
                error.add_note("the jobs of the flow that were stored and have not started are removed again")
            raise
        answers |= {node.ref: answer for node, answer in zip(nodes, added, strict=True)}

    @contextmanager
    def _traced(self, nodes: Sequence[FlowNode]) -> Iterator[Sequence[FlowNode]]:
        """The nodes, with the trace context that their workers need."""
        if self._services.tracing is None or not nodes:
            yield nodes
            return
        with self._services.tracing.sending(nodes[0].queue, [node.job for node in nodes]) as jobs:
            yield [replace(node, job=job) for node, job in zip(nodes, jobs, strict=True)]


def _tops_above_unnamed(places: Sequence[_PlannedNode]) -> list[FlowNode]:
    """The topmost jobs with an id of their own, above jobs that have none."""
    unnamed = {place.above[0] for place in places if place.above and place.planned.job.id is None}
    return [
        place.node
        for place in places
        if place.node.ref in unnamed and place.node.parent is None and place.planned.job.id is not None
    ]


def _with(child: Node, default: OnFailure) -> Flow[Any]:
    flow = _as_flow(child)
    return flow if flow.on_failure is not None else replace(flow, on_failure=default.value)


def _was_there(answers: dict[JobRef, Added], place: _PlannedNode) -> bool:
    return answers[place.node.ref].outcome is AddOutcome.DUPLICATE


async def _top(store: Store, ref: JobRef) -> JobRef:
    """The topmost ancestor that still exists."""
    for _ in range(10 * MAX_DEPTH):
        record = await find_job(store, ref.queue, ref.id)
        if record is None:
            raise NotFound(f"there is no job {ref}")
        parent = record.parent
        above = None if parent is None else await find_linked_job(store, parent)
        if parent is None or above is None:
            return ref
        ref = parent
    return ref


async def _tree(
    store: Store, ref: JobRef, depth: int, width: int, known: ChildState | None = None, text: str | None = None
) -> FlowTree:
    record = await (find_job(store, ref.queue, ref.id) if known is None else find_linked_job(store, ref))
    where: Kept = "queue" if record is None or record.dead_letter is None else "dead_letters"
    family = await store.flows.child_counts(ref, where=where) if record is not None else ChildCounts()
    children: list[FlowTree] = []
    if family.total and depth > 0:
        page = await store.flows.children(ref, limit=width, where=where)
        children = [
            await _tree(store, child.ref, depth - 1, width, child.state, child.text)
            for child in sorted(page.items, key=lambda child: child.ref)[:width]
        ]
    return FlowTree(
        queue=ref.queue,
        id=ref.id,
        name=None if record is None else record.name,
        state=None if record is None else record.state,
        ending=None if record is None else record.ending,
        dead_letter=None if record is None else record.dead_letter,
        known=known,
        text=text,
        family=family,
        children=tuple(children),
    )
