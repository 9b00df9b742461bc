"""Settle, then claim, in one step."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from toril.engines.sql.calls import answered, remember
from toril.engines.sql.changes import QueueChanges
from toril.engines.sql.claim import claim_jobs
from toril.engines.sql.options import dump_failure, load_failure, load_options
from toril.engines.sql.schema import job_id
from toril.engines.sql.settle import settle
from toril.engines.sql.statements import statement
from toril.engines.sql.transaction import Transaction, keys_of
from toril.model import Call, Claim, Claimed, EventKind, Exchange, Failure, Gate, Lease, Settlement, Unstarted, Verdict

__all__ = ["Exchanged", "exchange"]

_HELD_AGAIN = statement("claim", "held_again")


@dataclass(frozen=True, slots=True)
class Exchanged:
    """An answer, and, if nothing more could be claimed, the mark of what had arrived in the queue by then."""

    answer: Exchange
    exhausted_at: str | None = None


def exchange(tx: Transaction, queue: str, batch: Sequence[Settlement], claim: Claim, call: Call | None) -> Exchanged:
    """What `Engine.exchange` promises."""
    before = answered(tx, call)
    if before is not None:
        return Exchanged(_recall(tx, queue, claim.token, before))
    answer = _exchange(tx, queue, batch, claim)
    remember(tx, call, [
        [verdict.value for verdict in answer.verdicts], [job.lease.id for job in answer.jobs], answer.now,
        answer.wake_at, answer.blocked_by, answer.suspects,
        [[each.id, each.name, dump_failure(each.failure)] for each in answer.unstarted],
    ])  # fmt: skip
    more = len(answer.jobs) == claim.want or (answer.jobs[:1] and answer.jobs[0].suspect)
    row = tx.queue(queue)
    return Exchanged(answer, None if more else f"{row.key}.{row.arrivals}")


def _exchange(tx: Transaction, queue: str, batch: Sequence[Settlement], claim: Claim) -> Exchange:
    row = tx.queue(queue)
    step = QueueChanges(tx, row)
    ended_before = row.ended_total
    verdicts = settle(step, batch)
    step.flush()
    taken = claim_jobs(step, claim)
    ended = row.ended_total > ended_before
    if ended and not (row.waiting or row.suspects or row.prioritized or row.active or row.delayed or row.parked):
        step.event(EventKind.DRAINED, None)
    step.flush()
    unstarted = tuple(step.unstarted)
    return Exchange(verdicts, taken.jobs, tx.now, taken.wake_at, taken.blocked_by, taken.suspects, unstarted)


def _recall(tx: Transaction, queue: str, token: str, before: Any) -> Exchange:
    """The first answer again. Jobs that were lost since are left out: their lease is no longer this token's."""
    verdicts, ids, now, wake_at, gate, suspects, unstarted = before
    keys = keys_of(tx, tx.queue(queue), ids)
    held = tx.all(_HELD_AGAIN, (json.dumps([keys[i] for i in ids if i in keys]), token, tx.now))
    return Exchange(
        tuple(Verdict(verdict) for verdict in verdicts),
        tuple(_claimed(queue, token, entry) for entry in held),
        now,
        wake_at,
        None if gate is None else Gate(gate),
        suspects,
        tuple(_unstarted(*each) for each in unstarted),
    )


def _unstarted(identity: str, name: str, text: str) -> Unstarted:
    return Unstarted(identity, name, load_failure(text) or Failure("unknown"))


def _claimed(queue: str, token: str, entry: tuple[Any, ...]) -> Claimed:
    (key, chosen, name, data, starts, fence, attempts, made, stalls, added_at, delay, priority, text,
     metadata, checkpoint, alone) = entry  # fmt: skip
    options = load_options(text)
    return Claimed(
        Lease(queue, job_id(key, chosen), token), name, data, starts, fence, attempts, made, stalls, added_at, delay,
        priority, options.timeout, options.backoff, metadata, checkpoint, bool(alone), options.breaker,
        options.subject, options.parked or 0, options.trace,
    )  # fmt: skip
