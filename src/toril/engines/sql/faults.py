"""Finds and repairs faults in SQL, a bounded part at a time."""

from collections.abc import AsyncGenerator, Callable, Sequence
from functools import partial
from itertools import groupby
from typing import Any, Final, Literal, NamedTuple, Protocol, TypeAlias

from toril.engines.sql.changes import QueueChanges
from toril.engines.sql.flows import is_gone, release_if_done
from toril.engines.sql.leases import recover
from toril.engines.sql.options import load_options
from toril.engines.sql.schema import STATE_OF, Place, first_key, job_id
from toril.engines.sql.statements import query, statements
from toril.engines.sql.transaction import COUNTERS, Op, QueueRow, Steps, Transaction
from toril.errors import unknown_cursor
from toril.model import Checkup, Fault, FaultKind, Page
from toril.policy.doctor import ScanOrder, ScanPosition, cursor_of
from toril.store.capabilities import RepairStore
from toril.store.checked import implements

__all__ = ["SqlRepairs"]


class JobPlace(NamedTuple):
    """The place that a job's own row names."""

    key: int
    priority: int
    place: int
    rank: int

    @property
    def spot(self) -> tuple[int, int]:
        return self.place, self.rank


_SQL: Final = statements("faults")
_JOB: Final = query("faults", "job", JobPlace)
_PATIENCE: Final = 5_000  # ms after its deadline in which a job may still be waiting for recovery
_STALE: Final = 420_000  # ms after which a dead worker's entry should have been pruned
_PAGE: Final = 1_000
_AT_ONCE: Final = 100  # faults per transaction
_ENDED: Final = 4  # the last place of a job that has not ended

Position: TypeAlias = Sequence[Any] | None  # where a scan continues; None: at the beginning
Scanned: TypeAlias = tuple[list[Fault], Position]


def _jobs(tx: Transaction, row: QueueRow, after: Position) -> Scanned:
    """Jobs that are in no place, in an unknown one, or cannot be read. A queue that was removed and created again since
    the last part has other keys: it is scanned from its beginning."""
    start, end = max([first_key(row.key), *(after or ())]), first_key(row.key + 1)
    found = tx.all(_SQL["jobs"], (row.key, start, end, _PAGE))
    faults = [
        Fault(kind=kind, queue=row.name, subject=job_id(key, chosen), place=f"jobs:{key}")
        for key, chosen, place, running, options, entries in found
        for kind, there in (
            (FaultKind.ORPHAN, not running and (not entries or place not in STATE_OF)),
            (FaultKind.UNREADABLE, load_options(options).fault is not None),
        )
        if there
    ]
    return faults, [found[-1][0]] if len(found) == _PAGE else None


def _line(tx: Transaction, row: QueueRow, after: Position) -> Scanned:
    """Entries without a job, entries that their job does not know of, and parents that nobody will release."""
    found = tx.all(_SQL["line"], (row.key, *(after or (-(2**63),) * 3), _PAGE))
    faults = []
    for place, rank, key, known, chosen, strange in found:
        kind = FaultKind.GHOST if not known else FaultKind.DOUBLE if strange else None
        if kind is None and place == Place.WAITING_CHILDREN and _is_stuck(tx, key):
            kind = FaultKind.PARENT
        if kind is not None:
            where = f"line:{key}:{place}:{rank}"
            faults.append(Fault(kind=kind, queue=row.name, subject=job_id(key, chosen), place=where))
    return faults, list(found[-1][:3]) if len(found) == _PAGE else None


def _is_stuck(tx: Transaction, parent: int) -> bool:
    """Whether a parent waits for nobody, or only for children that are gone. An open child without an id means that
    more will be added."""
    still = tx.all(_SQL["open"], (parent, _PAGE))
    return len(still) < _PAGE and all(identity and is_gone(tx, queue, identity) for queue, identity in still)


def _active(tx: Transaction, row: QueueRow, after: Position) -> Scanned:
    found = tx.all(_SQL["active"], (row.key, *(after or (-1,)), _PAGE))
    faults = [
        Fault(
            kind=FaultKind.LOST if known else FaultKind.GHOST,
            queue=row.name,
            subject=job_id(key, chosen),
            place=f"active:{key}",
        )
        for key, known, chosen, deadline in found
        if not known or deadline + _PATIENCE < tx.now
    ]
    return faults, [found[-1][0]] if len(found) == _PAGE else None


def _ids(tx: Transaction, row: QueueRow, after: Position) -> Scanned:
    found = tx.all(_SQL["ids"], (row.key, *(after or ("",)), _PAGE))
    faults = [
        Fault(kind=FaultKind.ID, queue=row.name, subject=identity, place="ids") for identity, stale in found if stale
    ]
    return faults, [found[-1][0]] if len(found) == _PAGE else None


def _dedups(tx: Transaction, row: QueueRow, after: Position) -> Scanned:
    found = tx.all(_SQL["dedups"], (row.key, *(after or ("",)), _PAGE))
    faults = [Fault(kind=FaultKind.DEDUP, queue=row.name, subject=key, place="dedups") for key, stale in found if stale]
    return faults, [found[-1][0]] if len(found) == _PAGE else None


def _rests(tx: Transaction, row: QueueRow, after: Position) -> Scanned:
    """Notes of jobs that do not rest, and parents that rest for children that are gone."""
    found = tx.all(_SQL["rests"], (row.key, *(after or (-1, -1)), _PAGE))
    faults = []
    for _, key, chosen, place, rank, stale, for_children in found:
        identity = job_id(key, chosen)
        if stale:
            faults.append(Fault(kind=FaultKind.REST, queue=row.name, subject=identity, place=f"rests:{key}"))
        elif for_children and place == Place.DELAYED and _is_stuck(tx, key):
            where = f"line:{key}:{place}:{rank}"
            faults.append(Fault(kind=FaultKind.PARENT, queue=row.name, subject=identity, place=where))
    return faults, list(found[-1][:2]) if len(found) == _PAGE else None


def _waits(tx: Transaction, row: QueueRow, after: Position) -> Scanned:
    found = tx.all(_SQL["waits_for_keys"], (row.key, *(after or ("", "")), _PAGE))
    faults = [
        Fault(kind=FaultKind.WAIT, queue=row.name, subject=f"{name} {word}", place="awaited")
        for name, word, stale in found
        if stale
    ]
    return faults, list(found[-1][:2]) if len(found) == _PAGE else None


def _counts(tx: Transaction, row: QueueRow, _: Position) -> Scanned:
    wrong = [name for name, count in _true_counts(tx, row).items() if getattr(row, name) != count]
    return [Fault(kind=FaultKind.COUNT, queue=row.name, subject=name, place="queues") for name in wrong], None


_SCANS: Final[dict[str, Callable[[Transaction, QueueRow, Position], Scanned]]] = {
    "jobs": _jobs, "line": _line, "active": _active, "ids": _ids, "dedups": _dedups, "rests": _rests, "waits": _waits,
    "counts": _counts,
}  # fmt: skip
_GROWING: Final = frozenset({"counts"})  # takes longer the more jobs there are
_POSITIONS: Final = {
    "jobs": (int,), "line": (int, int, int), "active": (int,), "ids": (str,), "dedups": (str,), "rests": (int, int),
    "waits": (str, str),
}  # fmt: skip


def _is_position(kind: str, after: object) -> bool:
    """Whether a scan can continue there."""
    kinds = _POSITIONS.get(kind, ())
    return (
        isinstance(after, list)
        and [type(each) for each in after] == [*kinds]
        and all(isinstance(each, str) or -(2**63) <= each < 2**63 for each in after)
    )


def _true_counts(tx: Transaction, row: QueueRow) -> dict[str, int]:
    """The actual number of jobs in each place."""
    counts = dict.fromkeys(COUNTERS.values(), 0)
    for place, count in tx.all(_SQL["places"], (row.key,)):
        if place in COUNTERS:
            counts[COUNTERS[place]] += count
    rests = dict(tx.all(_SQL["count_rests"], (row.key,)))
    return counts | {
        "active": tx.value(_SQL["running"], (row.key,)),
        "resting": rests.get(Place.DELAYED, 0),
        "resting_for_children": rests.get(Place.WAITING_CHILDREN, 0),
    }


def _dead_workers(tx: Transaction) -> list[Fault]:
    return [
        Fault(kind=FaultKind.WORKER, queue="", subject=worker, place="workers")
        for (worker,) in tx.all(_SQL["workers"], (tx.now - _STALE, _PAGE))
    ]


def _is_there(tx: Transaction, fault: Fault) -> bool:
    """Whether this fault exists now."""
    if fault.kind is FaultKind.WORKER:
        return tx.one(_SQL["worker"], (fault.subject, tx.now - _STALE)) is not None
    row = tx.find(fault.queue)
    return row is not None and _is_in_queue(tx, row, fault)


def _is_in_queue(tx: Transaction, row: QueueRow, fault: Fault) -> bool:
    match fault.kind:
        case FaultKind.ID:
            taken = tx.one(_SQL["taken"], (row.key, fault.subject))
            return taken is not None and tx.row(_JOB, taken) is None
        case FaultKind.DEDUP:
            owner = tx.one(_SQL["dedup"], (row.key, fault.subject))
            return owner is not None and ((job := tx.row(_JOB, owner)) is None or job.place > _ENDED)
        case FaultKind.REST:
            return bool(tx.value(_SQL["is_stale_rest"], _numbers_of(fault)))
        case FaultKind.WAIT:
            name, _, word = fault.subject.partition(" ")
            return bool(tx.value(_SQL["is_orphan_wait"], (row.key, name, word)))
        case FaultKind.COUNT:
            return bool(getattr(row, fault.subject) != _true_counts(tx, row)[fault.subject])
        case _:
            return _of_a_job(tx, row, fault)


def _of_a_job(tx: Transaction, row: QueueRow, fault: Fault) -> bool:
    """Whether a fault of a job, or of its entry in `line`, exists."""
    key, *entry = _numbers_of(fault)
    job, (deadline,) = tx.row(_JOB, (key,)), tx.one(_SQL["held"], (key,)) or (None,)
    stands = bool(entry) and tx.one(_SQL["entry"], (row.key, *entry, key)) is not None
    match fault.kind:
        case FaultKind.GHOST:
            return job is None and (stands or (not entry and deadline is not None))
        case FaultKind.DOUBLE:
            return job is not None and stands and (deadline is not None or job.spot != tuple(entry))
        case FaultKind.PARENT:
            return job is not None and stands and job.spot == tuple(entry) and _is_stuck(tx, key)
        case FaultKind.ORPHAN:
            own = first_key(row.key) < key < first_key(row.key + 1)  # it does not belong in another queue's line
            return (
                own
                and job is not None
                and deadline is None
                and (job.place not in STATE_OF or tx.one(_SQL["entry"], (row.key, *job.spot, key)) is None)
            )
        case FaultKind.LOST:
            return job is not None and deadline is not None and deadline + _PATIENCE < tx.now
        case _:
            return False


def _numbers_of(fault: Fault) -> list[int]:
    """The job's key and, for an entry in `line`, its place and rank, parsed from the fault's name."""
    return [int(number) for number in fault.place.split(":")[1:]]


class ReadFacts(Protocol):
    """Reads the facts that the doctor needs from the database itself."""

    def __call__(self, tx: Transaction, *, quick: bool) -> Checkup: ...


@implements(RepairStore)
class SqlRepairs:
    """Implements `RepairStore`. The driver's `facts` reads facts of the database itself."""

    def __init__(self, steps: Steps, facts: ReadFacts) -> None:
        self._steps = steps
        self._facts = facts

    async def facts(self, *, quick: bool = False) -> Checkup:
        return await self._steps.read(partial(self._facts, quick=quick))

    async def scan(
        self, queues: Sequence[str], *, cursor: str | None = None, quick: bool = False
    ) -> AsyncGenerator[Page[Fault], None]:
        course = ScanOrder(queues, [*_SCANS], ["workers"])
        spot: ScanPosition | None = course.first(cursor)
        while spot is not None:
            if spot.at is not None and not _is_position(spot.step, spot.at):
                raise unknown_cursor(cursor)
            left_out = quick and spot.step in _GROWING  # still a step, so that cursors are valid for both kinds of scan
            found, at = ([], None) if left_out else await self._steps.read(partial(_scan, spot=spot))
            spot = course.after(spot, at)
            yield Page(tuple(found), cursor_of(spot))

    async def repair(
        self, faults: Sequence[Fault], *, mode: Literal["look", "repair"], now: int | None = None
    ) -> list[bool]:
        answers: dict[Fault, bool] = {}
        for queue, group in groupby(sorted(faults, key=lambda fault: fault.queue), key=lambda fault: fault.queue):
            left = list(group)
            for start in range(0, len(left), _AT_ONCE):
                batch = left[start : start + _AT_ONCE]
                look: Op[list[bool]] = partial(_still_there, faults=batch)
                repair: Op[list[bool]] = partial(_repair_all, queue=queue, faults=batch)
                found = await (self._steps.read(look, now) if mode == "look" else self._steps.write(repair, now))
                answers |= dict(zip(batch, found, strict=True))
        return [answers[fault] for fault in faults]


def _scan(tx: Transaction, spot: ScanPosition) -> Scanned:
    if not spot.queue:
        return _dead_workers(tx), None
    row = tx.find(spot.queue)
    return ([], None) if row is None else _SCANS[spot.step](tx, row, spot.at)


def _still_there(tx: Transaction, faults: Sequence[Fault]) -> list[bool]:
    return [_is_there(tx, fault) for fault in faults]


def _repair_all(tx: Transaction, queue: str, faults: Sequence[Fault]) -> list[bool]:
    """Repair the faults of one queue, in one transaction. Counts are counted again, not taken from the fault."""
    found, row = [], tx.find(queue)
    for fault in faults:
        there = _is_there(tx, fault)
        found.append(there)
        if there and row is None:
            tx.run(_SQL["delete_worker"], (fault.subject,))
        elif there and row is not None:
            _repair(tx, row, fault)
    if row is not None and any(found):
        for name, count in _true_counts(tx, row).items():
            setattr(row, name, count)
        QueueChanges(tx, row).arrived()
    return found


def _repair(tx: Transaction, row: QueueRow, fault: Fault) -> None:
    match fault.kind:
        case FaultKind.GHOST | FaultKind.DOUBLE:
            key, *entry = _numbers_of(fault)
            if entry:
                tx.run(_SQL["leave"], (row.key, *entry, key))
            else:
                tx.run(_SQL["leave_active"], (key,))
        case FaultKind.PARENT:
            tx.run(_SQL["close"], _numbers_of(fault)[:1])
            release_if_done(tx, row.name, fault.subject)
        case FaultKind.ORPHAN:
            _put_back(tx, row, _numbers_of(fault)[0])
        case FaultKind.LOST:
            recover(tx, row.name, (), None, 1_000)
        case FaultKind.REST:
            tx.run(_SQL["forget_rest"], _numbers_of(fault))
        case FaultKind.WAIT:
            name, _, word = fault.subject.partition(" ")
            tx.run(_SQL["forget_wait"], (row.key, name, word))
        case FaultKind.ID:
            tx.run(_SQL["free_id"], (row.key, fault.subject))
        case FaultKind.DEDUP:
            step = QueueChanges(tx, row)
            step.ended_keys = [(key, fault.subject) for (key,) in tx.all(_SQL["dedup"], (row.key, fault.subject))]
            step.flush()  # as if its owner ended now: the next job is stored
        case _:
            pass  # counts


def _put_back(tx: Transaction, row: QueueRow, key: int) -> None:
    """Put a job in the place that its own row names. If there is no such place, put it with those that wait for
    children if it has any, else at the end of the line."""
    job = tx.row(_JOB, (key,))
    if job is None:
        return
    place, rank = job.spot
    if place not in STATE_OF:
        waits = tx.one(_SQL["waits"], (key,)) is not None
        place, rank = (Place.WAITING_CHILDREN, row.moves + 1) if waits else row.back(job.priority)
        tx.run(_SQL["stand"], (place, rank, key))
    row.moves += 1
    tx.run(_SQL["enter"], (row.key, place, rank, key, row.moves))
