"""Deduplication keys in SQL, each owned by one job at a time."""

from typing import Final, NamedTuple

from toril.codec.new_jobs import dump_new_job, load_new_job
from toril.engines.sql.changes import QueueChanges
from toril.engines.sql.schema import STATE_OF, Place
from toril.engines.sql.statements import query, statement, statements
from toril.engines.sql.transaction import QueueRow, Transaction
from toril.model import Dedup, EventKind, NewJob, ttl_ms
from toril.model.states import State

__all__ = ["KeyOwner", "left_by", "next_jobs", "owner_of", "repeated", "take"]

_SQL: Final = statements("dedup")
_SET_DELAY: Final = statement("control", "set_delay")


class KeyOwner(NamedTuple):
    """The job that owns a key. Without a place, it is gone."""

    owner: str
    key: int
    till: int | None
    place: int | None
    rank: int | None
    running: int
    logs: int | None
    chosen: str | None

    @property
    def state(self) -> State:
        if self.place is None:
            return State.COMPLETED
        return State.ACTIVE if self.running else STATE_OF[self.place]


_OWNER: Final = query("dedup", "owner", KeyOwner)


def owner_of(tx: Transaction, row: QueueRow, key: str) -> KeyOwner | None:
    """The owner of a key; None if the owner has ended, or the key has expired."""
    found = tx.row(_OWNER, (row.key, key))
    if found is None or (found.place is None if found.till is None else found.till <= tx.now):
        return None
    return found


def left_by(tx: Transaction, row: QueueRow, key: str) -> list[tuple[int, str]]:
    """The former owner of a key that nobody owns, if it is gone without having ended and a next job was kept."""
    return [(job, key) for (job,) in tx.all(_SQL["left"], (row.key, key))]


def take(tx: Transaction, row: QueueRow, dedup: Dedup, identity: str, key: int) -> None:
    """Make this job the owner of the key."""
    ttl = ttl_ms(dedup)
    tx.run(_SQL["take"], (row.key, dedup.key, identity, key, None if ttl is None else tx.now + ttl))


def repeated(step: QueueChanges, job: NewJob, owner: KeyOwner) -> bool:
    """An add used an owned key: do to the owner what the mode says. True if the new job replaces it."""
    dedup, tx, queue = job.dedup, step.tx, step.row.key
    assert dedup is not None  # noqa: S101 - only such jobs have owners
    due = tx.now + job.delay if job.due is None else max(job.due, tx.now)
    match dedup.mode:
        case "extend":
            tx.run(_SQL["extend"], (tx.now + (ttl_ms(dedup) or 0), queue, dedup.key))
        case "replace" if owner.state is State.DELAYED and owner.rank is not None:
            step.leave(owner.key, Place.DELAYED, owner.rank)
            step.delete(owner.key, owner.chosen, owner.logs or 0)
            step.event(EventKind.REMOVED, owner.owner, prev="delayed")
            return True
        case "reschedule" if owner.state is State.DELAYED and owner.rank is not None:
            tx.run(_SET_DELAY, (due - tx.now, owner.key))
            step.leave(owner.key, Place.DELAYED, owner.rank)
            step.delay(owner.key, due)
            step.event(EventKind.DELAYED, owner.owner, delay=str(due))
        case "keep_last" if owner.state is State.ACTIVE:
            tx.run(_SQL["keep"], (dump_new_job(job), queue, dedup.key))
        case _:
            pass
    return False


def next_jobs(tx: Transaction, row: QueueRow, ended: list[tuple[int, str]]) -> list[NewJob]:
    """Jobs with these keys have ended. Owners give up their keys to the next jobs that were kept; these are returned to
    be stored."""
    found_jobs = []
    for key, name in ended:
        found = tx.one(_SQL["next"], (row.key, name, key))
        if found is not None:
            tx.run(_SQL["release"], (row.key, name))
            (text,) = found
            if text is not None:
                found_jobs.append(load_new_job(text))
    return found_jobs
