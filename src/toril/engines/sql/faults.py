"""What does not fit together in the file: one bounded look at a time, each at one moment of it."""

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias

from toril.engines.sql.flows import is_gone
from toril.engines.sql.options import load_options
from toril.engines.sql.schema import STATE_OF, first_key, job_id
from toril.engines.sql.schema import Place as Stand
from toril.engines.sql.statements import statement
from toril.engines.sql.transaction import COUNTERS, QueueRow, Transaction
from toril.model import Fault, FaultKind

__all__ = [
    "GROWING", "LOOKS", "MOURNED", "PATIENCE", "Looked", "dead_workers", "is_place", "is_there", "numbers_of",
    "true_counts",
]  # fmt: skip

_SQL = {name: statement("repairs", name) for name in (
    "jobs", "line", "active", "ids", "dedups", "places", "running", "workers", "worker", "entry", "job", "held",
    "taken", "dedup", "open",
)}  # fmt: skip
PATIENCE: Final = 5_000  # ms after its deadline that a job may still be waiting to be taken back
MOURNED: Final = 420_000  # ms after which a dead worker's entry should have been pruned
_PAGE: Final = 1_000
_ENDED: Final = 4  # the last place of a job that has not ended

Place: TypeAlias = Sequence[Any] | None  # where a look goes on; None: from the beginning
Looked: TypeAlias = tuple[list[Fault], Place]


def _jobs(tx: Transaction, row: QueueRow, after: Place) -> Looked:
    """Jobs that stand nowhere, or in a place that there is not, and such as cannot be read. A queue that was removed
    and made again since the look before has other keys: it is looked at from its beginning."""
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


def _line(tx: Transaction, row: QueueRow, after: Place) -> Looked:
    """Entries without a job, those that their job knows nothing of, and parents that nobody will release."""
    found = tx.all(_SQL["line"], (row.key, *(after or (-(2**63),) * 3), _PAGE))
    faults = []
    for place, rank, key, known, chosen, strange in found:
        kind = FaultKind.GHOST if not known else FaultKind.DOUBLE if strange else None
        if kind is None and place == Stand.WAITING_CHILDREN and is_stuck(tx, key):
            kind = FaultKind.PARENT
        if kind is not None:
            where = f"line:{key}:{place}:{rank}"
            faults.append(Fault(kind=kind, queue=row.name, subject=job_id(key, chosen), place=where))
    return faults, list(found[-1][:3]) if len(found) == _PAGE else None


def is_stuck(tx: Transaction, parent: int) -> bool:
    """Whether a parent waits for nobody, or only for such as are gone. An open child without an id says that more are
    on their way."""
    still = tx.all(_SQL["open"], (parent, _PAGE))
    return len(still) < _PAGE and all(identity and is_gone(tx, queue, identity) for queue, identity in still)


def _active(tx: Transaction, row: QueueRow, after: Place) -> Looked:
    found = tx.all(_SQL["active"], (row.key, *(after or (-1,)), _PAGE))
    faults = [
        Fault(
            kind=FaultKind.LOST if known else FaultKind.GHOST, queue=row.name, subject=job_id(key, chosen),
            place=f"active:{key}",
        )
        for key, known, chosen, deadline in found
        if not known or deadline + PATIENCE < tx.now
    ]  # fmt: skip
    return faults, [found[-1][0]] if len(found) == _PAGE else None


def _ids(tx: Transaction, row: QueueRow, after: Place) -> Looked:
    found = tx.all(_SQL["ids"], (row.key, *(after or ("",)), _PAGE))
    faults = [
        Fault(kind=FaultKind.ID, queue=row.name, subject=identity, place="ids") for identity, stale in found if stale
    ]
    return faults, [found[-1][0]] if len(found) == _PAGE else None


def _dedups(tx: Transaction, row: QueueRow, after: Place) -> Looked:
    found = tx.all(_SQL["dedups"], (row.key, *(after or ("",)), _PAGE))
    faults = [Fault(kind=FaultKind.DEDUP, queue=row.name, subject=key, place="dedups") for key, stale in found if stale]
    return faults, [found[-1][0]] if len(found) == _PAGE else None


def _counts(tx: Transaction, row: QueueRow, _: Place) -> Looked:
    wrong = [name for name, count in true_counts(tx, row).items() if getattr(row, name) != count]
    return [Fault(kind=FaultKind.COUNT, queue=row.name, subject=name, place="queues") for name in wrong], None


LOOKS: Final[dict[str, Callable[[Transaction, QueueRow, Place], Looked]]] = {
    "jobs": _jobs, "line": _line, "active": _active, "ids": _ids, "dedups": _dedups, "counts": _counts,
}  # fmt: skip
GROWING: Final = frozenset({"counts"})  # takes the longer the more jobs there are
_PLACES: Final = {"jobs": (int,), "line": (int, int, int), "active": (int,), "ids": (str,), "dedups": (str,)}


def is_place(look: str, after: object) -> bool:
    """Whether a look can go on there."""
    kinds = _PLACES.get(look, ())
    return (
        isinstance(after, list)
        and [type(each) for each in after] == [*kinds]
        and all(isinstance(each, str) or -(2**63) <= each < 2**63 for each in after)
    )


def true_counts(tx: Transaction, row: QueueRow) -> dict[str, int]:
    """How many jobs there are in each place, counted."""
    counts = dict.fromkeys(COUNTERS.values(), 0)
    for place, count in tx.all(_SQL["places"], (row.key,)):
        if place in COUNTERS:
            counts[COUNTERS[place]] += count
    return counts | {"active": tx.one(_SQL["running"], (row.key,))[0]}


def dead_workers(tx: Transaction) -> list[Fault]:
    return [
        Fault(kind=FaultKind.WORKER, queue="", subject=worker, place="workers")
        for (worker,) in tx.all(_SQL["workers"], (tx.now - MOURNED, _PAGE))
    ]


def is_there(tx: Transaction, fault: Fault) -> bool:
    """Whether this fault is there, now."""
    if fault.kind is FaultKind.WORKER:
        return tx.one(_SQL["worker"], (fault.subject, tx.now - MOURNED)) is not None
    row = tx.find(fault.queue)
    return row is not None and _is_there(tx, row, fault)


def _is_there(tx: Transaction, row: QueueRow, fault: Fault) -> bool:
    match fault.kind:
        case FaultKind.ID:
            taken = tx.one(_SQL["taken"], (row.key, fault.subject))
            return taken is not None and tx.one(_SQL["job"], taken) is None
        case FaultKind.DEDUP:
            owner = tx.one(_SQL["dedup"], (row.key, fault.subject))
            return owner is not None and ((of := tx.one(_SQL["job"], owner)) is None or of[2] > _ENDED)
        case FaultKind.COUNT:
            return bool(getattr(row, fault.subject) != true_counts(tx, row)[fault.subject])
        case _:
            return _of_a_job(tx, row, fault)


def _of_a_job(tx: Transaction, row: QueueRow, fault: Fault) -> bool:
    """Whether what is said of a job is so, or of an entry in `line` for one."""
    key, *entry = numbers_of(fault)
    job, held = tx.one(_SQL["job"], (key,)), tx.one(_SQL["held"], (key,))
    stands = bool(entry) and tx.one(_SQL["entry"], (row.key, *entry, key)) is not None
    match fault.kind:
        case FaultKind.GHOST:
            return job is None and (stands or (not entry and held is not None))
        case FaultKind.DOUBLE:
            return job is not None and stands and (held is not None or job[2:4] != tuple(entry))
        case FaultKind.PARENT:
            return job is not None and stands and job[2:4] == tuple(entry) and is_stuck(tx, key)
        case FaultKind.ORPHAN:
            own = first_key(row.key) < key < first_key(row.key + 1)  # in the line of another queue it has no place
            lost = own and job is not None and held is None
            return lost and (job[2] not in STATE_OF or tx.one(_SQL["entry"], (row.key, *job[2:4], key)) is None)
        case FaultKind.LOST:
            return job is not None and held is not None and held[0] + PATIENCE < tx.now
        case _:
            return False


def numbers_of(fault: Fault) -> list[int]:
    """The job's key, and of an entry in `line` its place and rank, as the fault names them after the table."""
    return [int(number) for number in fault.place.split(":")[1:]]
