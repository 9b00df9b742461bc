"""The slow rounds: prune, beats and orders, leadership, once a fleet."""

from toril.engines.sql.breakers import prune_circuits
from toril.engines.sql.changes import QueueChanges
from toril.engines.sql.control import poke
from toril.engines.sql.dead_letters import prune_letters
from toril.engines.sql.flows import heal, rollback
from toril.engines.sql.options import load_options
from toril.engines.sql.schema import Place
from toril.engines.sql.statements import statement
from toril.engines.sql.transaction import Transaction
from toril.model import LASTING, Heartbeat, WorkerCommand, WorkerRequest, age_ms, check_int, order_of
from toril.policy.retention import MINUTES

__all__ = ["heartbeat", "lead", "once", "prune", "resign", "signal"]

_SQL = {name: statement("upkeep", name) for name in (
    "overdue_results", "old_minutes", "old_calls", "old_pokes", "dead_workers", "old_onces", "aged", "forget_aged",
    "old_dedups", "heartbeat", "undeclare", "declare", "stopped", "orders", "living_orders", "set_orders", "lead",
    "resign", "once", "first",
)}  # fmt: skip

_OLD_GROUP_STARTS = statement("groups", "old_starts")
_LONGEST_RATE = 31 * 86_400_000  # the window of no rate is longer
# A caller that has not sent its call again for this long has given up on it.
_CALLS_KEPT = 3_600_000
# A worker whose loop stood still for longer than its sign of life lasts still hears what it was told.
_ORDERS_KEPT = 300_000


def prune(tx: Transaction, queue: str, limit: int) -> int:
    """Remove, up to `limit` of each kind, what has outlived its retention."""
    check_int("limit", limit, 1, 10_000)
    removed = tx.run(_SQL["old_calls"], (tx.now - _CALLS_KEPT, f"{LASTING}*", limit))
    removed += tx.run(_SQL["old_pokes"], (tx.now - _CALLS_KEPT, limit))
    removed += tx.run(_SQL["dead_workers"], (tx.now - _ORDERS_KEPT,))
    removed += tx.run(_SQL["old_onces"], (tx.now, limit))
    removed += prune_letters(tx, limit) + prune_circuits(tx)
    row = tx.find(queue)
    if row is None:
        return removed
    removed += tx.run(_SQL["overdue_results"], (row.key, row.key, tx.now, limit))
    removed += tx.run(_SQL["old_dedups"], (row.key, tx.now))
    removed += tx.run(_OLD_GROUP_STARTS, (row.key, tx.now - _LONGEST_RATE, limit)) if row.grouped else 0
    removed += tx.run(_SQL["old_minutes"], (row.key, tx.now // 60_000 - MINUTES))
    if row.flows:
        removed += rollback(tx, row, limit) + heal(tx, row)
    return removed + _prune_aged(QueueChanges(tx, row), limit)


def _prune_aged(step: QueueChanges, limit: int) -> int:
    """Jobs kept for an age that has passed, unless they have run again since."""
    row, tx = step.row, step.tx
    aged = tx.all(_SQL["aged"], (row.key, tx.now, limit))
    for till, key, chosen, logs, place, rank, finished_at, options in aged:
        if place in {Place.COMPLETED, Place.FAILED}:
            settings = load_options(options)
            keep = settings.keep_completed if place == Place.COMPLETED else settings.keep_failed
            if (age := age_ms(keep)) is not None and finished_at + age < tx.now:
                step.leave(key, place, rank)
                step.delete(key, chosen, logs)
                if settings.parked is not None:
                    step.write("orphan", [(key,)])
        tx.run(_SQL["forget_aged"], (row.key, till, key))
    step.flush()
    return len(aged)


def heartbeat(tx: Transaction, beat: Heartbeat, ttl: int) -> tuple[WorkerRequest, ...]:
    """Note a worker's sign of life; hand over the orders that it has not heard. One that has stopped is removed."""
    if ttl == 0:
        tx.run(_SQL["stopped"], (beat.worker, beat.started_at))
        return ()
    forgotten = beat.again and tx.one(_SQL["orders"], (beat.worker,)) is None
    tx.run(_SQL["heartbeat"], (beat.worker, tx.now + ttl, tx.now, beat.dump()))
    if beat.declares is not None:
        tx.run(_SQL["undeclare"], (beat.worker,))
        tx.run_all(_SQL["declare"], [(name, beat.worker, tx.now, said.dump()) for name, said in beat.declares.items()])
    waiting = tx.one(_SQL["orders"], (beat.worker,))[0].split()
    left = [order for order in waiting if order not in beat.heard]
    if left != waiting:
        tx.run(_SQL["set_orders"], (" ".join(left), beat.worker))
    told = tuple(order_of(word) for word in left)
    return (WorkerCommand.DECLARE, *told) if forgotten else told


def signal(tx: Transaction, worker: str, order: WorkerRequest) -> bool:
    """Leave an order for a living worker, and wake it."""
    alive = tx.one(_SQL["living_orders"], (worker, tx.now))
    if alive is None:
        return False
    if order not in alive[0].split():
        tx.run(_SQL["set_orders"], (f"{alive[0]} {order}".strip(), worker))
    poke(tx, worker)
    return True


def lead(tx: Transaction, role: str, owner: str, ttl: int) -> bool:
    """Take or renew the lead, unless another holds it."""
    return tx.run(_SQL["lead"], (role, owner, tx.now + ttl, tx.now)) > 0


def resign(tx: Transaction, role: str, owner: str) -> bool:
    return tx.run(_SQL["resign"], (role, owner)) > 0


def once(tx: Transaction, key: str, owner: str, ttl: int) -> bool:
    """Whether the caller is the first within `ttl`, or was."""
    tx.run(_SQL["once"], (key, owner, tx.now + ttl, tx.now))
    return bool(tx.one(_SQL["first"], (key,))[0] == owner)
