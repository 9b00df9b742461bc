"""What jobs and their parents, who may be in other queues, do to each other when one of them ends or is removed."""

import json
from typing import Final, NamedTuple

from toril.engines.flows import child_failed
from toril.engines.sql.groups import make_ready
from toril.engines.sql.options import Link, Options, load_options
from toril.engines.sql.schema import Place, job_id
from toril.engines.sql.statements import statement
from toril.engines.sql.step import Step
from toril.engines.sql.told import Told
from toril.engines.sql.transaction import QueueRow, Tx, keys_of
from toril.model import EventKind, letter_id

__all__ = [
    "Member",
    "Standing",
    "forgive",
    "free_if_done",
    "heal",
    "is_gone",
    "kin_of",
    "leave",
    "member",
    "note",
    "part",
    "rejoin",
    "reopen",
    "tell",
]

_SQL = {name: statement("family", name) for name in (
    "member", "of_keys", "open", "close", "reopen", "end", "has_open", "doom", "waiting", "first_open", "has_letter",
    "forgive", "kin",
)}  # fmt: skip
_HEALED: Final = 100  # parents looked at in a round, and open children of each
_LOOKED_AT: Final = 20


class Standing:
    """What a parent knows of a child."""

    OPEN: Final = 0
    COMPLETED: Final = 1
    IGNORED: Final = 2
    FAILED: Final = 3


class Member(NamedTuple):
    """A job of a flow, and where it stands."""

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

    @property
    def waits(self) -> bool:
        return self.place == Place.WAITING_CHILDREN and not self.running

    @property
    def ended(self) -> bool:
        return self.place in {Place.COMPLETED, Place.FAILED} and not self.running

    @property
    def failed(self) -> bool:
        return self.place == Place.FAILED and not self.running

    @property
    def options(self) -> Options:
        return load_options(self.options_text)


def member(tx: Tx, queue: str, identity: str) -> tuple[QueueRow, Member] | None:
    """A job by its queue and id, with the queue's row."""
    row = tx.find(queue)
    key = None if row is None else keys_of(tx, row, (identity,)).get(identity)
    found = None if key is None else tx.one(_SQL["member"], (key,))
    if row is None or found is None or job_id(found[0], found[1]) != identity:
        return None
    return row, Member._make(found)


def tell(step: Step) -> None:
    """Children have ended: their parents know, and go on where the policy says so."""
    told, step.told = step.told, []
    tx, queue = step.tx, step.row.name
    parents: dict[tuple[str, str], tuple[QueueRow, Member] | None] = {}
    doomed: dict[int, str] = {}
    hurried: set[int] = set()
    for each in told:
        place = (each.parent.queue, each.parent.id)
        parent = parents.pop(place) if place in parents else member(tx, *place)
        parents[place] = parent  # in the order in which they were told last
        if each.ending == "failed" and each.parent.policy == "wait" and each.stays:
            continue
        key = kin_of(tx, *place) if parent is None else parent[1].key
        if key is None:
            continue
        if _end(tx, key, queue, each):
            if each.ending == "failed" and each.parent.policy == "fail":
                doomed.setdefault(key, child_failed(queue, each.id, each.text))
            elif each.ending == "failed" and each.parent.policy == "continue":
                hurried.add(key)
    for parent in parents.values():
        if parent is not None and parent[1].key in doomed:
            _doom(tx, *parent, doomed[parent[1].key])
        elif parent is not None:
            _go_on(tx, *parent, hurried)


def kin_of(tx: Tx, queue: str, identity: str) -> int | None:
    """Under which key a parent that is a dead letter has its children: they go on, and it may be run again."""
    found = tx.one(_SQL["kin"], (letter_id(queue, identity),))
    return None if found is None else found[0]


def _end(tx: Tx, parent: int, queue: str, told: Told) -> int:
    """Write down how a child has ended, or nothing where its policy says so; whether it was waited for."""
    if told.ending == "completed":
        known: tuple[int, str | None] = (Standing.COMPLETED, told.text)
    elif told.ending == "failed" and told.parent.policy in {"continue", "ignore"}:
        known = (Standing.IGNORED, told.text)
    elif told.ending == "failed" and told.parent.policy == "fail":
        known = (Standing.FAILED, None)
    else:
        return tx.run(_SQL["close"], (parent, queue, told.id))
    return tx.run(_SQL["end"], (*known, parent, queue, told.id))


def _go_on(tx: Tx, row: QueueRow, parent: Member, hurried: set[int]) -> None:
    if parent.waits and (parent.key in hurried or tx.one(_SQL["has_open"], (parent.key,)) is None):
        _free(tx, row, parent, parent.delay)


def _free(tx: Tx, row: QueueRow, parent: Member, delay: int) -> None:
    """Let a parent run: at the front, after its own delay if it has one."""
    step = Step(tx, row)
    identity = job_id(parent.key, parent.chosen)
    step.leave(parent.key, parent.place, parent.rank)
    if delay:
        step.delay(parent.key, tx.now + delay)
        step.event(EventKind.DELAYED, identity, delay=str(tx.now + delay))
    else:
        make_ready(step, parent.key, row.back(parent.priority) if parent.priority else row.front(0))
        prev = "delayed" if parent.place == Place.DELAYED else "waiting-children"
        step.event(EventKind.WAITING, identity, prev=prev)
    step.flush()


def _doom(tx: Tx, row: QueueRow, parent: Member, reason: str) -> None:
    """A parent fails for its child: by whoever claims it next, as in BullMQ, so that it fails in its own queue."""
    if parent.ended:
        return
    tx.run(_SQL["doom"], (reason, parent.key))
    if parent.waits or (parent.place == Place.DELAYED and not parent.running):
        _free(tx, row, parent, 0)


def free_if_done(tx: Tx, queue: str, identity: str) -> None:
    """Let a parent go on that waits for nothing any more."""
    found = member(tx, queue, identity)
    if found is not None:
        _go_on(tx, *found, set())


def part(step: Step) -> None:
    """Jobs are about to be deleted: their parents wait for them no longer, and nothing is known of their children."""
    parted, step.parted = step.parted, []
    for key, chosen, text in step.tx.all(_SQL["of_keys"], (json.dumps(parted),)):
        options = load_options(text)
        if options.parent is not None:
            step.told.append(Told(job_id(key, chosen), options.parent, "removed"))
        if options.parked is not None:
            step.write("orphan", [(key,)])


def leave(tx: Tx, queue: str, identity: str, link: Link) -> None:
    """A child is gone for good that had failed and could have been run again."""
    found = member(tx, link.queue, link.id)
    if found is not None and tx.run(_SQL["close"], (found[1].key, queue, identity)):
        _go_on(tx, *found, set())


def rejoin(tx: Tx, queue: str, identity: str, link: Link) -> None:
    """A child runs again: its parent waits for it once more, if it still waits, or will when it runs again itself."""
    found = member(tx, link.queue, link.id)
    parent = kin_of(tx, link.queue, link.id) if found is None else found[1].key
    if parent is not None and (found is None or found[1].waits or found[1].failed):
        reopen(tx, parent, queue, identity)


def reopen(tx: Tx, parent: int, queue: str, identity: str) -> None:
    tx.run(_SQL["reopen"], (parent, queue, identity))
    tx.run(_SQL["open"], (parent, queue, identity))


def note(tx: Tx, parent: int, standing: int, child: tuple[str, str], text: str) -> None:
    """How a child has ended, whatever was known of it."""
    reopen(tx, parent, *child)
    tx.run(_SQL["end"], (standing, text, parent, *child))


def forgive(tx: Tx, parent: int) -> None:
    """A parent that was to fail for its children runs once more."""
    tx.run(_SQL["forgive"], (parent,))


def heal(tx: Tx, row: QueueRow) -> int:
    """Parents that wait for children of which nothing is left, as when retention took them, wait no longer. Some
    parents a round, others in the next minute; and of each the first few open children."""
    if not row.waiting_children:
        return 0
    first = tx.now // 60_000 * _HEALED % row.waiting_children
    healed = 0
    for (key,) in tx.all(_SQL["waiting"], (row.key, Place.WAITING_CHILDREN, _HEALED, first)):
        looked_at = tx.all(_SQL["first_open"], (key, _LOOKED_AT))
        gone = [each for each in looked_at if is_gone(tx, *each)]
        if len(gone) == len(looked_at):
            for queue, identity in gone:
                healed += tx.run(_SQL["close"], (key, queue, identity))
            _go_on(tx, row, Member._make(tx.one(_SQL["member"], (key,))), set())
    return healed


def is_gone(tx: Tx, queue: str, identity: str) -> bool:
    """Whether nothing is left of a child: neither the job nor its dead letter."""
    return member(tx, queue, identity) is None and tx.one(_SQL["has_letter"], (letter_id(queue, identity),)) is None
