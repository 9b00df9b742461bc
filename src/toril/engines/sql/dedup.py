"""Keys of which one job at a time is the owner."""

import json
from typing import NamedTuple

from toril.engines.sql.changes import QueueChanges
from toril.engines.sql.options import load_options, options_of
from toril.engines.sql.schema import STATE_OF, Place
from toril.engines.sql.statements import statement
from toril.engines.sql.transaction import QueueRow, Transaction
from toril.model import Dedup, EventKind, NewJob, ttl_ms
from toril.model.states import State

__all__ = ["Owner", "dump_kept", "kept_job", "kept_jobs", "left_by", "owner_of", "repeated", "take"]

_SQL = {name: statement("dedup", name) for name in ("owner", "take", "extend", "keep", "next", "left", "let_go")}
_SET_DELAY = statement("control", "set_delay")


class Owner(NamedTuple):
    """The job that owns a key, as it stands."""

    id: str
    key: int
    state: State
    place: int | None
    rank: int | None
    logs: int
    chosen: str | None


def owner_of(tx: Transaction, row: QueueRow, key: str) -> Owner | None:
    """Who owns a key; nobody, if it is owned until a job ends that is gone, or if its time is up."""
    found = tx.one(_SQL["owner"], (row.key, key))
    if found is None:
        return None
    identity, job, till, place, rank, running, logs, chosen = found
    if (till is not None and till <= tx.now) or (till is None and place is None):
        return None
    state = State.COMPLETED if place is None else State.ACTIVE if running else STATE_OF[place]
    return Owner(identity, job, state, place, rank, logs or 0, chosen)


def left_by(tx: Transaction, row: QueueRow, key: str) -> list[tuple[int, str]]:
    """Of a key that nobody owns: the owner that is gone without having ended, if a job was kept for its end."""
    return [(job, key) for (job,) in tx.all(_SQL["left"], (row.key, key))]


def take(tx: Transaction, row: QueueRow, dedup: Dedup, identity: str, key: int) -> None:
    """From now on this job owns the key."""
    ttl = ttl_ms(dedup)
    till = None if ttl is None else tx.now + ttl
    tx.run(_SQL["take"], (row.key, dedup.key, identity, key, till))


def repeated(step: QueueChanges, job: NewJob, owner: Owner) -> bool:
    """The owner is asked for once more: do to it what the mode says. True if the new job is to take its place."""
    dedup, tx, queue = job.dedup, step.tx, step.row.key
    assert dedup is not None  # noqa: S101 - only such jobs have owners
    due = tx.now + job.delay if job.due is None else max(job.due, tx.now)
    match dedup.mode:
        case "extend":
            tx.run(_SQL["extend"], (tx.now + (ttl_ms(dedup) or 0), queue, dedup.key))
        case "replace" if owner.state is State.DELAYED and owner.rank is not None:
            step.leave(owner.key, Place.DELAYED, owner.rank)
            step.delete(owner.key, owner.chosen, owner.logs)
            step.event(EventKind.REMOVED, owner.id, prev="delayed")
            return True
        case "reschedule" if owner.state is State.DELAYED and owner.rank is not None:
            tx.run(_SET_DELAY, (due - tx.now, owner.key))
            step.leave(owner.key, Place.DELAYED, owner.rank)
            step.delay(owner.key, due)
            step.event(EventKind.DELAYED, owner.id, delay=str(due))
        case "keep_last" if owner.state is State.ACTIVE:
            tx.run(_SQL["keep"], (dump_kept(job), queue, dedup.key))
        case _:
            pass
    return False


def kept_jobs(tx: Transaction, row: QueueRow, ended: list[tuple[int, str]]) -> list[NewJob]:
    """Jobs have ended that were added with these keys. Those that owned them until then let go, to the jobs that were
    kept for this moment: these are to be stored now."""
    kept = []
    for key, name in ended:
        found = tx.one(_SQL["next"], (row.key, name, key))
        if found is not None:
            tx.run(_SQL["let_go"], (row.key, name))
            if found[0] is not None:
                kept.append(kept_job(found[0]))
    return kept


def dump_kept(job: NewJob) -> str:
    return json.dumps([
        job.name, job.data, job.id, job.delay, job.due, job.priority, job.lifo, job.attempts, job.expires, job.metadata,
        options_of(job), job.group,
    ])  # fmt: skip


def kept_job(text: str) -> NewJob:
    name, data, chosen, delay, due, priority, lifo, attempts, expires, metadata, options, group = json.loads(text)
    made = load_options(options)
    return NewJob(
        name=name, data=data, id=chosen, delay=delay, due=due, priority=priority, lifo=lifo, attempts=attempts,
        expires=expires, metadata=metadata, backoff=made.backoff, timeout=made.timeout,
        keep_completed=made.keep_completed, keep_failed=made.keep_failed, keep_logs=made.keep_logs,
        result_ttl=made.result_ttl, dedup=made.dedup, breaker=made.breaker, subject=made.subject,
        trace=made.trace, group=group,
    )  # fmt: skip
