"""Maintenance in SQL: pruning, heartbeats and worker commands, leadership, and what happens once per fleet."""

from typing import Final, NamedTuple

from toril.engines.sql.breakers import prune_circuits
from toril.engines.sql.changes import QueueChanges
from toril.engines.sql.control import call_worker
from toril.engines.sql.dead_letters import prune_dead_letters
from toril.engines.sql.flows import release_stuck_parents, roll_back
from toril.engines.sql.options import load_options
from toril.engines.sql.schema import SIGNALS, Place
from toril.engines.sql.statements import query, statement, statements
from toril.engines.sql.transaction import Transaction
from toril.model import LASTING, Heartbeat, WorkerCommand, WorkerRequest, age_ms, order_of
from toril.policy.retention import MINUTES

__all__ = ["heartbeat", "lead", "once", "prune", "resign", "signal"]

_SQL: Final = statements("maintenance")

_OLD_GROUP_STARTS = statement("groups", "old_starts")
_OLD_SIGNALS = statement("signals", "overdue")
_OLD_SENT_IDS = statement("signals", "overdue_sent")
_LONGEST_RATE = 31 * 86_400_000  # the longest window of a rate


class AgedJob(NamedTuple):
    """A kept job whose retention is over; without a place it is gone."""

    till: int
    key: int
    chosen: str | None
    logs: int
    place: int | None
    rank: int
    finished_at: int
    options_text: str | None


_AGED: Final = query("maintenance", "aged", AgedJob)
# A caller that has not repeated its call for this long has given up.
_CALLS_KEPT = 3_600_000
# A worker whose loop was blocked for longer than its heartbeat is valid still gets its commands.
_ORDERS_KEPT = 300_000


def prune(tx: Transaction, queue: str, limit: int) -> int:
    """Remove what has outlived its retention, up to `limit` of each kind."""
    removed = tx.run(_SQL["old_calls"], (tx.now - _CALLS_KEPT, f"{LASTING}*", limit))
    removed += tx.run(_SQL["old_worker_calls"], (tx.now - _CALLS_KEPT, limit))
    removed += tx.run(_SQL["dead_workers"], (tx.now - _ORDERS_KEPT,))
    removed += tx.run(_SQL["old_onces"], (tx.now, limit))
    removed += prune_dead_letters(tx, limit) + prune_circuits(tx)
    row = tx.find(queue)
    if row is None:
        return removed
    removed += tx.run(_SQL["overdue_results"], (row.key, row.key, tx.now, limit))
    removed += tx.run(_SQL["old_dedups"], (row.key, tx.now))
    removed += tx.run(_OLD_GROUP_STARTS, (row.key, tx.now - _LONGEST_RATE, limit)) if row.grouped else 0
    removed += tx.run(_SQL["old_minutes"], (row.key, tx.now // 60_000 - MINUTES))
    if row.stepping & SIGNALS:
        removed += tx.run(_OLD_SIGNALS, (row.key, tx.now, limit))
        removed += tx.run(_OLD_SENT_IDS, (row.key, tx.now, limit))
    if row.flows:
        removed += roll_back(tx, row, limit) + release_stuck_parents(tx, row)
    return removed + _prune_aged(QueueChanges(tx, row), limit)


def _prune_aged(step: QueueChanges, limit: int) -> int:
    """Remove kept jobs whose retention is over, unless they have run again since."""
    row, tx = step.row, step.tx
    aged = tx.rows(_AGED, (row.key, tx.now, limit))
    for job in aged:
        if job.place is not None and job.place in {Place.COMPLETED, Place.FAILED}:
            stored = load_options(job.options_text)
            options = stored.options
            keep = options.keep_completed if job.place == Place.COMPLETED else options.keep_failed
            if (age := age_ms(keep)) is not None and job.finished_at + age < tx.now:
                step.leave(job.key, job.place, job.rank)
                step.delete(job.key, job.chosen, job.logs)
                if stored.parked is not None:
                    step.write("orphan", [(job.key,)])
        tx.run(_SQL["forget_aged"], (row.key, job.till, job.key))
    step.flush()
    return len(aged)


def heartbeat(tx: Transaction, beat: Heartbeat, ttl: int) -> tuple[WorkerRequest, ...]:
    """Store a worker's heartbeat, and return the commands that it has not received. A worker that has stopped is
    removed."""
    if ttl == 0:
        tx.run(_SQL["stopped"], (beat.worker, beat.started_at))
        return ()
    forgotten = beat.again and tx.one(_SQL["orders"], (beat.worker,)) is None
    tx.run(_SQL["heartbeat"], (beat.worker, tx.now + ttl, tx.now, beat.dump()))
    if beat.declares is not None:
        tx.run(_SQL["undeclare"], (beat.worker,))
        tx.run_all(_SQL["declare"], [(name, beat.worker, tx.now, said.dump()) for name, said in beat.declares.items()])
    waiting = tx.value(_SQL["orders"], (beat.worker,)).split()
    left = [order for order in waiting if order not in beat.heard]
    if left != waiting:
        tx.run(_SQL["set_orders"], (" ".join(left), beat.worker))
    orders = tuple(order_of(word) for word in left)
    return (WorkerCommand.DECLARE, *orders) if forgotten else orders


def signal(tx: Transaction, worker: str, order: WorkerRequest) -> bool:
    """Leave a command for a live worker, and wake it."""
    orders = tx.value(_SQL["living_orders"], (worker, tx.now))
    if orders is None:
        return False
    if order not in orders.split():
        tx.run(_SQL["set_orders"], (f"{orders} {order}".strip(), worker))
    call_worker(tx, worker)
    return True


def lead(tx: Transaction, role: str, owner: str, ttl: int) -> bool:
    """Take or renew the leadership, unless another holds it."""
    return tx.run(_SQL["lead"], (role, owner, tx.now + ttl, tx.now)) > 0


def resign(tx: Transaction, role: str, owner: str) -> bool:
    return tx.run(_SQL["resign"], (role, owner)) > 0


def once(tx: Transaction, key: str, owner: str, ttl: int) -> bool:
    """Whether the caller is the first within `ttl`, or was."""
    tx.run(_SQL["once"], (key, owner, tx.now + ttl, tx.now))
    return bool(tx.value(_SQL["first"], (key,)) == owner)
