"""Flows in SQL: add them, notify parents, roll them back."""

import itertools
import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any, Final, NamedTuple, TypeVar

from toril.engines.shared import child_failed, refused
from toril.engines.sql.add import refuse_overfull_queue, store_nodes, store_parents
from toril.engines.sql.calls import recall, remember
from toril.engines.sql.changes import ChildEnded, QueueChanges
from toril.engines.sql.groups import make_ready, refuse_overfull_groups
from toril.engines.sql.options import ParentLink, StoredOptions, dump_options, load_options
from toril.engines.sql.schema import STATE_OF, Place, job_id
from toril.engines.sql.statements import query, statements
from toril.engines.sql.transaction import QueueRow, Steps, Transaction, keys_of, refusal
from toril.model import (
    BUILDING,
    Added,
    AddOutcome,
    Call,
    Child,
    ChildCounts,
    ChildState,
    EventKind,
    FlowNode,
    JobRef,
    Kept,
    Lease,
    Page,
    Rested,
    Verdict,
    letter_id,
)
from toril.model.states import State
from toril.store.capabilities import FlowStore
from toril.store.checked import implements

__all__ = [
    "ChildStatus",
    "FlowInsert",
    "FlowMember",
    "SqlFlows",
    "add_and_wait",
    "add_children",
    "add_flow",
    "child_counts",
    "child_discarded",
    "child_names",
    "children",
    "children_ended",
    "dead_parent_key",
    "forgive",
    "is_gone",
    "member",
    "overwrite_end",
    "rejoin",
    "release_if_done",
    "release_stuck_parents",
    "remove_from_flows",
    "reopen",
    "roll_back",
]

T = TypeVar("T")
_FEW: Final = 10  # open children that are named


@implements(FlowStore)
class SqlFlows:
    """Jobs that wait for other jobs."""

    def __init__(self, steps: Steps) -> None:
        self._steps = steps

    async def add(
        self,
        nodes: Sequence[FlowNode],
        *,
        held: Sequence[JobRef] = (),
        hold_for: int = BUILDING,
        closed: Sequence[JobRef] = (),
        call: Call | None = None,
        now: int | None = None,
    ) -> list[Added]:
        op = partial(add_flow, nodes=nodes, held=held, hold_for=hold_for, closed=closed, call=call)
        return await self._steps.write(op, now, grows=True)

    async def add_children(
        self, lease: Lease, nodes: Sequence[FlowNode], *, call: Call | None = None, now: int | None = None
    ) -> Verdict:
        return await self._steps.write(partial(add_children, lease=lease, nodes=nodes, call=call), now, grows=True)

    async def child_counts(self, job: JobRef, *, where: Kept = "queue") -> ChildCounts:
        return await self._steps.read_now(partial(child_counts, ref=job, where=where, few=_FEW))

    async def children(
        self, job: JobRef, *, cursor: str | None = None, limit: int = 100, where: Kept = "queue"
    ) -> Page[Child]:
        return await self._steps.read_now(partial(children, ref=job, where=where, cursor=cursor, limit=limit))

    async def child_names(self, job: JobRef) -> list[tuple[JobRef, str]]:
        return await self._steps.read_now(partial(child_names, ref=job))


_SQL: Final = statements("flows")
_PARENTS_A_ROUND: Final = 100  # parents per round, and open children of each
_CHILDREN_A_ROUND: Final = 20


class ChildStatus:
    """What a parent knows about a child."""

    OPEN: Final = 0
    COMPLETED: Final = 1
    IGNORED: Final = 2
    FAILED: Final = 3


class FlowMember(NamedTuple):
    """A job of a flow, and its place."""

    key: int
    chosen: str | None
    place: int
    rank: int
    priority: int
    delay: int
    options_text: str | None
    logs: int
    result: str | None
    running: int
    rests_for_children: int | None

    @property
    def id(self) -> str:
        return job_id(self.key, self.chosen)

    @property
    def waits(self) -> bool:
        return not self.running and (self.place == Place.WAITING_CHILDREN or bool(self.rests_for_children))

    @property
    def ended(self) -> bool:
        return self.place in {Place.COMPLETED, Place.FAILED} and not self.running

    @property
    def failed(self) -> bool:
        return self.place == Place.FAILED and not self.running

    @property
    def stored(self) -> StoredOptions:
        return load_options(self.options_text)


_MEMBER: Final = query("flows", "member", FlowMember)


class Located(NamedTuple):
    """A job of a flow, with its queue's row."""

    row: QueueRow
    job: FlowMember


def member(tx: Transaction, queue: str, identity: str) -> Located | None:
    """A job by its queue and id, with the queue's row."""
    row = tx.find(queue)
    key = None if row is None else keys_of(tx, row, (identity,)).get(identity)
    found = None if key is None else tx.row(_MEMBER, (key,))
    return None if row is None or found is None or found.id != identity else Located(row, found)


def children_ended(step: QueueChanges) -> None:
    """Children have ended: notify their parents, and release those whose policy allows it."""
    ended, step.ended_children = step.ended_children, []
    tx, queue = step.tx, step.row.name
    parents: dict[tuple[str, str], Located | None] = {}
    failing: dict[int, str] = {}
    impatient: set[int] = set()
    for each in ended:
        place = (each.parent.queue, each.parent.id)
        parent = parents.pop(place) if place in parents else member(tx, *place)
        parents[place] = parent  # in the order in which their last children ended
        if each.ending == "failed" and each.parent.policy == "wait" and each.stays:
            continue
        key = dead_parent_key(tx, *place) if parent is None else parent.job.key
        if key is None:
            continue
        if _record_end(tx, key, queue, each):
            if each.ending == "failed" and each.parent.policy == "fail":
                failing.setdefault(key, child_failed(queue, each.id, each.text))
            elif each.ending == "failed" and each.parent.policy == "continue":
                impatient.add(key)
    for parent in parents.values():
        if parent is not None and parent.job.key in failing:
            _fail_parent(tx, *parent, failing[parent.job.key])
        elif parent is not None:
            _release_if_done(tx, *parent, impatient)


def dead_parent_key(tx: Transaction, queue: str, identity: str) -> int | None:
    """The key under which a dead letter that is a parent keeps its children: they continue, and it may be replayed."""
    key: int | None = tx.value(_SQL["dead_letter_children"], (letter_id(queue, identity),))
    return key


def _record_end(tx: Transaction, parent: int, queue: str, child: ChildEnded) -> int:
    """Record how a child ended, unless its policy discards that. Returns whether the parent was waiting for it."""
    if child.ending == "completed":
        known: tuple[int, str | None] = (ChildStatus.COMPLETED, child.text)
    elif child.ending == "failed" and child.parent.policy in {"continue", "ignore"}:
        known = (ChildStatus.IGNORED, child.text)
    elif child.ending == "failed" and child.parent.policy == "fail":
        known = (ChildStatus.FAILED, None)
    else:
        return tx.run(_SQL["close"], (parent, queue, child.id))
    return tx.run(_SQL["end"], (*known, parent, queue, child.id))


def _release_if_done(tx: Transaction, row: QueueRow, parent: FlowMember, impatient: set[int]) -> None:
    if parent.waits and (parent.key in impatient or tx.one(_SQL["has_open"], (parent.key,)) is None):
        _release(tx, row, parent, parent.delay)


def _release(tx: Transaction, row: QueueRow, parent: FlowMember, delay: int) -> None:
    """Let a parent run: at the front, after its own delay if it has one."""
    step = QueueChanges(tx, row)
    identity = parent.id
    step.leave(parent.key, parent.place, parent.rank)
    if delay:
        step.delay(parent.key, tx.now + delay)
        step.event(EventKind.DELAYED, identity, delay=str(tx.now + delay))
    else:
        make_ready(step, parent.key, row.back(parent.priority) if parent.priority else row.front(0))
        prev = "delayed" if parent.place == Place.DELAYED else "waiting-children"
        step.event(EventKind.WAITING, identity, prev=prev)
    step.flush()


def _fail_parent(tx: Transaction, row: QueueRow, parent: FlowMember, reason: str) -> None:
    """Make a parent fail for its child at its next claim, as BullMQ does, so that it fails in its own queue."""
    if parent.ended:
        return
    tx.run(_SQL["fail_parent"], (reason, parent.key))
    if parent.waits or (parent.place == Place.DELAYED and not parent.running):
        _release(tx, row, parent, 0)


def release_if_done(tx: Transaction, queue: str, identity: str) -> None:
    """Release a parent that waits for nothing any longer."""
    found = member(tx, queue, identity)
    if found is not None:
        _release_if_done(tx, *found, set())


def remove_from_flows(step: QueueChanges) -> None:
    """Jobs are about to be deleted: their parents stop waiting for them, and what they know of their own children
    goes."""
    removed, step.removed_early = step.removed_early, []
    for key, chosen, text in step.tx.all(_SQL["of_keys"], (json.dumps(removed),)):
        stored = load_options(text)
        if stored.parent is not None:
            step.ended_children.append(ChildEnded(job_id(key, chosen), stored.parent, "removed"))
        if stored.parked is not None:
            step.write("orphan", [(key,)])


def child_discarded(tx: Transaction, queue: str, identity: str, link: ParentLink) -> None:
    """A failed child that could have been run again is gone for good."""
    found = member(tx, link.queue, link.id)
    if found is not None and tx.run(_SQL["close"], (found.job.key, queue, identity)):
        _release_if_done(tx, *found, set())


def rejoin(tx: Transaction, queue: str, identity: str, link: ParentLink) -> None:
    """A child runs again: its parent waits for it again, if it still waits, or will once it runs again itself."""
    found = member(tx, link.queue, link.id)
    parent = dead_parent_key(tx, link.queue, link.id) if found is None else found.job.key
    if parent is not None and (found is None or found.job.waits or found.job.failed):
        reopen(tx, parent, queue, identity)


def reopen(tx: Transaction, parent: int, queue: str, identity: str) -> None:
    tx.run(_SQL["reopen"], (parent, queue, identity))
    tx.run(_SQL["open"], (parent, queue, identity))


def overwrite_end(tx: Transaction, parent: int, standing: int, child: tuple[str, str], text: str) -> None:
    """Record how a child ended, whatever was recorded before."""
    reopen(tx, parent, *child)
    tx.run(_SQL["end"], (standing, text, parent, *child))


def forgive(tx: Transaction, parent: int) -> None:
    """A parent that was to fail for its children may run again."""
    tx.run(_SQL["forgive"], (parent,))


def release_stuck_parents(tx: Transaction, row: QueueRow) -> int:
    """Release parents whose remaining children are gone, for example through retention. A few parents per round, and
    the first few open children of each."""
    released = 0
    for (key,) in _waiting_parents(tx, row):
        first_open = tx.all(_SQL["first_open"], (key, _CHILDREN_A_ROUND))
        gone = [each for each in first_open if is_gone(tx, *each)]
        if len(gone) == len(first_open):
            for queue, identity in gone:
                released += tx.run(_SQL["close"], (key, queue, identity))
            parent = tx.row(_MEMBER, (key,))
            if parent is not None:
                _release_if_done(tx, row, parent, set())
    return released


def _waiting_parents(tx: Transaction, row: QueueRow) -> list[tuple[int]]:
    """Some of those that wait for children: others in the next minute."""
    minute = tx.now // 60_000 * _PARENTS_A_ROUND
    found: list[tuple[int]] = []
    if row.waiting_children:
        first = minute % row.waiting_children
        found += tx.all(_SQL["waiting"], (row.key, Place.WAITING_CHILDREN, _PARENTS_A_ROUND, first))
    if row.resting:
        first = minute % row.resting
        found += tx.all(_SQL["resting"], (row.key, Place.DELAYED, _PARENTS_A_ROUND, first))
    return found


def is_gone(tx: Transaction, queue: str, identity: str) -> bool:
    """Whether nothing is left of a child: neither the job nor its dead letter."""
    return (
        member(tx, queue, identity) is None and tx.one(_SQL["has_dead_letter"], (letter_id(queue, identity),)) is None
    )


_STATES = (ChildState.OPEN, ChildState.COMPLETED, ChildState.IGNORED, ChildState.FAILED)
_HOLD = ("", "")  # the child that holds a parent back while its flow is added


def add_flow(
    tx: Transaction,
    nodes: Sequence[FlowNode],
    held: Sequence[JobRef],
    hold_for: int,
    closed: Sequence[JobRef],
    call: Call | None,
) -> list[Added]:
    """Implements `Flows.add_flow`."""
    before = recall(tx, call)
    if before is not None:
        return [Added(job, AddOutcome(outcome), State(state)) for job, outcome, state in before]
    flow = FlowInsert(tx, nodes)
    answers = flow.write()
    for queue, count in flow.fresh.items():
        refuse_overfull_queue(tx.queue(queue), count)
        refuse_overfull_groups(tx, tx.queue(queue), flow.fresh_of[queue])
    _hold_back(tx, held, flow, hold_for)
    for ref in closed:
        _close(tx, ref)
    for ref in dict.fromkeys([*flow.parents, *closed]):
        if ref not in held:
            release_if_done(tx, ref.queue, ref.id)
    remember(tx, call, [(answer.id, answer.outcome, answer.state) for answer in answers])
    return answers


def add_children(tx: Transaction, lease: Lease, nodes: Sequence[FlowNode], call: Call | None) -> Verdict:
    """Add children to a job that is running."""
    before = recall(tx, call)
    if before is not None:
        return Verdict(before)
    row = tx.find(lease.queue)
    key = 0 if row is None else keys_of(tx, row, (lease.id,)).get(lease.id, 0)
    verdict = Verdict.OK
    if tx.one(_SQL["holds"], (key, lease.token, tx.now)) is None:
        verdict = refusal(tx, key, lease.id)
    else:
        FlowInsert(tx, nodes).write()
    remember(tx, call, verdict)
    return verdict


def add_and_wait(step: QueueChanges, key: int, rested: Rested) -> bool:
    """Add the children with which a run ends. Returns whether there are any to wait for."""
    tx = step.tx
    FlowInsert(tx, rested.children).write()
    if rested.children_round:
        tx.run(_SQL["parked"], (rested.children_round, key))
        step.row.flows = 1
    return tx.one(_SQL["has_open"], (key,)) is not None


def _hold_back(tx: Transaction, held: Sequence[JobRef], flow: "FlowInsert", hold_for: int) -> None:
    """The parents that are added here, or are already held back; not those that were complete before."""
    for ref in held:
        found = member(tx, ref.queue, ref.id)
        if found is not None and (
            (ref in flow.parents and flow.parents[ref] is None)
            or tx.one(_SQL["is_known"], (found.job.key, *_HOLD)) is not None
        ):
            tx.run(_SQL["open"], (found.job.key, *_HOLD))
            tx.run(_SQL["build"], (found.job.key, found.row.key, tx.now + hold_for))


def _close(tx: Transaction, ref: JobRef) -> None:
    found = member(tx, ref.queue, ref.id)
    if found is not None:
        tx.run(_SQL["close"], (found.job.key, *_HOLD))
        tx.run(_SQL["built"], (found.job.key,))


class _NewChild(NamedTuple):
    """A job that becomes a child: a new one, or one that exists already."""

    node: FlowNode
    there: FlowMember | None = None


class FlowInsert:
    """Jobs to be added together. The constructor decides what happens to each, and raises if that is impossible;
    `write` stores them."""

    def __init__(self, tx: Transaction, nodes: Sequence[FlowNode]) -> None:
        self._tx = tx
        self._answers: list[tuple[FlowNode, AddOutcome, State]] = []
        self._states: dict[JobRef, State] = {}  # of new jobs, after they are stored
        self.fresh: dict[str, int] = {}
        self.fresh_of: defaultdict[str, Counter[str]] = defaultdict(Counter)  # new jobs per group
        self.parents: dict[JobRef, FlowMember | None] = {}  # None: it is among those added
        self._new: list[FlowNode] = []
        self._new_children: list[_NewChild] = []  # in the order in which they are added
        self._left_out: set[JobRef] = set()
        self._taken = _taken(tx, nodes)
        for node in nodes:
            self._decide(node)

    def _decide(self, node: FlowNode) -> None:
        ref, parent = node.ref, node.parent
        there = self._taken.get(ref)
        if parent is not None and parent in self._left_out:
            self._leave_out(node, there)
            return
        stored = None if parent is None else self._parent(ref, parent)
        if stored is not None and self._tx.one(_SQL["is_known"], (stored.key, ref.queue, ref.id)) is not None:
            self._known(node, there)
        elif there is None:
            self._new.append(node)
            self._new_children.append(_NewChild(node))
            if node.waits:
                self.parents[ref] = None
            else:
                self.fresh[node.queue] = self.fresh.get(node.queue, 0) + 1
                self.fresh_of[node.queue].update(filter(None, (node.job.group,)))
            self._answers.append((node, AddOutcome.ADDED, State.WAITING_CHILDREN))
        elif parent is None:
            self._root(node, there)
        else:
            self._adopt(node, parent, there)

    def _known(self, node: FlowNode, there: FlowMember | None) -> None:
        """A job that this parent has or had as a child already."""
        if node.waits and there is not None:
            self.parents[node.ref] = there
        elif node.waits:
            self._left_out.add(node.ref)
        self._answer(node, there)

    def _parent(self, ref: JobRef, parent: JobRef) -> FlowMember | None:
        """The job that gets a child; None if it is among those added."""
        if parent not in self.parents:
            found = member(self._tx, parent.queue, parent.id)
            if found is None:
                raise refused("no_parent", str(ref), str(parent))
            if not (found.job.waits or found.job.running):
                raise refused("parent_state", str(parent), STATE_OF[found.job.place].value)
            self.parents[parent] = found.job
        return self.parents[parent]

    def _root(self, node: FlowNode, there: FlowMember) -> None:
        """If the first job of a flow exists, the flow exists, unless it was never completed."""
        hold = (there.key, *_HOLD)
        if node.waits and there.waits and self._tx.one(_SQL["is_known"], hold) is not None:
            self.parents[node.ref] = there
            self._answers.append((node, AddOutcome.ADDED, State.WAITING_CHILDREN))
        else:
            self._leave_out(node, there)

    def _adopt(self, node: FlowNode, parent: JobRef, there: FlowMember) -> None:
        link = there.stored.parent
        if link is not None and (link.queue, link.id) != (parent.queue, parent.id):
            other = member(self._tx, link.queue, link.id)
            if other is not None and not other.job.ended:
                raise refused("taken", str(node.ref), f"{link.queue}:{link.id}")
        if node.waits or there.stored.parked is not None or node.ref in self.parents:
            raise refused("has_children", str(node.ref), str(parent))
        if there.place == Place.FAILED and not there.running:
            raise refused("has_failed", str(node.ref), str(parent))
        self._new_children.append(_NewChild(node, there))
        self._answer(node, there)

    def _leave_out(self, node: FlowNode, there: FlowMember | None) -> None:
        self._left_out.add(node.ref)
        self._answer(node, there)

    def _answer(self, node: FlowNode, there: FlowMember | None) -> None:
        """What exists already, or did: a child that has ended may be gone."""
        state = State.COMPLETED if there is None else State.ACTIVE if there.running else STATE_OF[there.place]
        self._answers.append((node, AddOutcome.DUPLICATE, state))

    def write(self) -> list[Added]:
        """Store them, and return the outcome of each."""
        self._store()
        self._link()
        return [
            Added(node.ref.id, outcome, self._states.get(node.ref, state)) for node, outcome, state in self._answers
        ]

    def _store(self) -> None:
        tx = self._tx
        for queue in dict.fromkeys(child.node.queue for child in self._new_children):
            row = tx.queue(queue)
            row.flows = 1
            new = [node for node in self._new if node.queue == queue]
            for added in store_nodes(tx, row, [(node.job, _text(node)) for node in new if not node.waits]):
                self._states[JobRef(queue, added.id)] = added.state
            store_parents(tx, row, [(node.job, _text(node)) for node in new if node.waits])

    def _link(self) -> None:
        tx = self._tx
        keys = {ref: self._key(ref) for ref in self.parents}
        for ref, stored in self.parents.items():
            if stored is not None and stored.stored.parked is None:
                tx.run(_SQL["parked"], (0, stored.key))
                tx.queue(ref.queue).flows = 1
        numbers = {key: itertools.count(tx.value(_SQL["last_number"], (key,)) + 1) for key in keys.values()}
        tx.run_all(
            _SQL["add_child"],
            [
                (key, *self._standing(node, there), next(numbers[key]), node.job.name)
                for node, there in self._new_children
                if node.parent is not None
                for key in (keys[node.parent],)
            ],
        )

    def _key(self, ref: JobRef) -> int:
        stored = self.parents[ref]
        return stored.key if stored is not None else keys_of(self._tx, self._tx.queue(ref.queue), (ref.id,))[ref.id]

    def _standing(self, node: FlowNode, child: FlowMember | None) -> tuple[int, str, str, str | None]:
        """The state of a child that is new, or that exists and becomes one."""
        if child is not None:
            self._tx.run(_SQL["adopt"], (json.dumps(_link(node)), child.key))
            if child.place == Place.COMPLETED and not child.running:
                return ChildStatus.COMPLETED, node.queue, node.ref.id, child.result or "null"
        return ChildStatus.OPEN, node.queue, node.ref.id, None


def _taken(tx: Transaction, nodes: Iterable[FlowNode]) -> dict[JobRef, FlowMember]:
    """The ids among these that jobs already have."""
    by_queue: dict[str, list[str]] = {}
    for node in nodes:
        by_queue.setdefault(node.queue, []).append(node.ref.id)
    found = {}
    for queue, ids in by_queue.items():
        row = tx.find(queue)
        for identity, key in tx.all(_SQL["owners"], (json.dumps(ids), row.key)) if row else ():
            job = tx.row(_MEMBER, (key,))
            assert job is not None  # noqa: S101 - ids and jobs are written and deleted together
            found[JobRef(queue, identity)] = job
    return found


def _link(node: FlowNode) -> ParentLink | None:
    return None if node.parent is None else ParentLink(node.parent.queue, node.parent.id, node.on_failure.value)


def _text(node: FlowNode) -> str | None:
    job, parked = node.job, 0 if node.waits else None
    return dump_options(StoredOptions(options=job.options, trace=job.trace, parent=_link(node), parked=parked))


def roll_back(tx: Transaction, row: QueueRow, limit: int) -> int:
    """Take back flows whose remaining parts never came: remove their jobs that have not started, and then the
    parents."""
    removed = 0
    for (key,) in tx.all(_SQL["abandoned"], (row.key, tx.now)):
        children = tx.all(_SQL["first_open"], (key, limit))
        for queue, identity in children:
            removed += _remove_child(tx, queue, identity)
        if len(children) < limit:
            removed += _remove_child(tx, row.name, _id_of(tx, key), whole=True)
            tx.run(_SQL["built"], (key,))
    return removed


def _id_of(tx: Transaction, key: int) -> str:
    found = tx.row(_MEMBER, (key,))
    return "" if found is None else found.id


def _remove_child(tx: Transaction, queue: str, identity: str, *, whole: bool = False) -> int:
    """Remove jobs that have not started. A parent among them is removed once its own children are gone."""
    found = member(tx, queue, identity)
    if found is None or found.job.running or found.job.ended:
        return 0
    row, job = found
    if job.waits and not whole:
        tx.run(_SQL["build"], (job.key, row.key, tx.now))
        return 0
    step = QueueChanges(tx, row)
    step.leave(job.key, job.place, job.rank)
    step.discard(job.key, job.chosen, job.logs)
    step.event(EventKind.REMOVED, identity, prev=STATE_OF[job.place].value.replace("_", "-"))
    step.flush()
    return 1


def child_counts(tx: Transaction, ref: JobRef, where: Kept, few: int) -> ChildCounts:
    key = _children_key(tx, ref, where)
    if key is None:
        return ChildCounts()
    counts = dict(tx.all(_SQL["count"], (key,)))
    first = tuple(JobRef(*each) for each in tx.all(_SQL["first_open"], (key, few)))
    return ChildCounts(**{state.value: counts.get(n, 0) for n, state in enumerate(_STATES)}, first_open=first)


def _children_key(tx: Transaction, ref: JobRef, where: Kept) -> int | None:
    """The key under which the children of a job, or of its dead letter, are stored."""
    if where == "dead_letters":
        return dead_parent_key(tx, ref.queue, ref.id)
    found = member(tx, ref.queue, ref.id)
    return None if found is None else found.job.key


def children(tx: Transaction, ref: JobRef, where: Kept, cursor: str | None, limit: int) -> Page[Child]:
    key = _children_key(tx, ref, where)
    if key is None:
        return Page(())
    after: list[Any] = [-1, "", ""] if cursor is None else json.loads(cursor)
    rows = tx.all(_SQL["page"], (key, *after, limit + 1))
    items = tuple(Child(JobRef(queue, identity), _STATES[n], text) for n, queue, identity, text in rows[:limit])
    return Page(items, json.dumps(rows[limit - 1][:3]) if len(rows) > limit else None)


def child_names(tx: Transaction, ref: JobRef) -> list[tuple[JobRef, str]]:
    found = member(tx, ref.queue, ref.id)
    rows = [] if found is None else tx.all(_SQL["names"], (found.job.key,))
    return [(JobRef(queue, identity), name) for queue, identity, name in rows]
