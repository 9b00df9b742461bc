"""Settles and claims jobs in one step, in SQL."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from toril.engines.sql.calls import recall, remember
from toril.engines.sql.changes import QueueChanges
from toril.engines.sql.claim import claim_jobs, claimed_jobs
from toril.engines.sql.options import dump_failure, load_failure
from toril.engines.sql.recorded import RecordedJobs
from toril.engines.sql.schema import HeldJob
from toril.engines.sql.settle import settle
from toril.engines.sql.statements import query
from toril.engines.sql.transaction import Transaction, keys_of
from toril.model import (
    Call,
    Claim,
    EventKind,
    Exchange,
    Failure,
    Gate,
    Settlement,
    Unstarted,
    Verdict,
)

__all__ = ["Exchanged", "exchange"]


class RememberedExchange(NamedTuple):
    """What is kept of an answer."""

    verdicts: list[str]
    ids: list[str]
    now: int
    wake_at: int | None
    blocked_by: str | None
    suspects: int
    unstarted: list[list[str]]


_HELD_AGAIN: Final = query("claim", "held_again", HeldJob)


@dataclass(frozen=True, slots=True)
class Exchanged:
    """An answer and, if nothing more could be claimed, the mark of what had arrived in the queue by then."""

    answer: Exchange
    exhausted_at: str | None = None


def exchange(tx: Transaction, queue: str, batch: Sequence[Settlement], claim: Claim, call: Call | None) -> Exchanged:
    """Implements `Engine.exchange`."""
    before = recall(tx, call)
    if before is not None:
        return Exchanged(_granted_before(tx, queue, claim.token, RememberedExchange._make(before)))
    row = tx.queue(queue)
    step = QueueChanges(tx, row)
    ended_before = row.ended_total
    verdicts = settle(step, batch)
    step.flush()
    claimed = claim_jobs(step, claim)
    ended = row.ended_total > ended_before
    if ended and not (row.waiting or row.suspects or row.prioritized or row.active or row.delayed or row.parked):
        step.event(EventKind.DRAINED, None)
    step.flush()
    answer = Exchange(
        verdicts,
        claimed.jobs,
        tx.now,
        claimed.wake_at,
        claimed.blocked_by,
        claimed.suspects,
        tuple(step.unstarted),
    )
    remember(
        tx,
        call,
        RememberedExchange(
            [verdict.value for verdict in answer.verdicts],
            [job.lease.id for job in answer.jobs],
            answer.now,
            answer.wake_at,
            answer.blocked_by,
            answer.suspects,
            [[each.id, each.name, dump_failure(each.failure)] for each in answer.unstarted],
        ),
    )
    more = len(answer.jobs) == claim.want or (answer.jobs[:1] and answer.jobs[0].suspect)
    return Exchanged(answer, None if more else f"{row.key}.{row.arrivals}")


def _granted_before(tx: Transaction, queue: str, token: str, before: RememberedExchange) -> Exchange:
    """The first answer again, without jobs that have been lost since: their leases no longer have this token."""
    keys = keys_of(tx, tx.queue(queue), before.ids)
    held = tx.rows(_HELD_AGAIN, (json.dumps([keys[i] for i in before.ids if i in keys]), token, tx.now))
    recorded = RecordedJobs(tx, tx.queue(queue), most=2**62)
    recorded.read([row.job.key for row in held])
    again = [(row.job, row, row.job.stored, row.held_fence, bool(row.alone), recorded.of(row.job.key)) for row in held]
    return Exchange(
        tuple(Verdict(verdict) for verdict in before.verdicts),
        tuple(claimed_jobs(queue, token, again)),
        before.now,
        before.wake_at,
        None if before.blocked_by is None else Gate(before.blocked_by),
        before.suspects,
        tuple(_unstarted(*each) for each in before.unstarted),
    )


def _unstarted(identity: str, name: str, text: str) -> Unstarted:
    return Unstarted(identity, name, load_failure(text) or Failure("unknown"))
