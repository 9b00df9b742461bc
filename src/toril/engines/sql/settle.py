"""Settles jobs in SQL, with a fast path for completed ones."""

import json
from collections.abc import Sequence
from typing import Any, Final, NamedTuple, TypeAlias, assert_never

from toril.engines.sql.changes import ChildEnded, QueueChanges
from toril.engines.sql.groups import make_ready
from toril.engines.sql.metrics import count_attempt
from toril.engines.sql.options import StoredOptions
from toril.engines.sql.rests import begin_rest
from toril.engines.sql.schema import Held, JobFacts, Place
from toril.engines.sql.statements import query
from toril.engines.sql.transaction import keys_of, refusal
from toril.model import (
    CANCELLED_KIND,
    Cancelled,
    Cause,
    Completed,
    EventKind,
    Failed,
    Failure,
    Outcome,
    Released,
    Rested,
    Retried,
    Settlement,
    Snoozed,
    Verdict,
)
from toril.policy.metrics import RETRIES
from toril.policy.retention import shortened

__all__ = ["complete", "settle"]


_HELD: Final = query("settle", "held", Held)
_Unfinished: TypeAlias = Failed | Cancelled | Retried | Snoozed | Released | Rested


class _Freed(NamedTuple):
    """A job that goes back to the front of the line."""

    job: JobFacts
    suspect: bool


def complete(step: QueueChanges, ended: Sequence[tuple[Held, str, Completed]]) -> None:
    """Record each run, then keep or delete the job."""
    now = step.tx.now
    number = step.completed(len(ended))
    runs: list[tuple[Any, ...]] = []
    returned: list[str] = []
    removed: list[int] = []
    for held, identity, outcome in ended:
        job = held.job
        result, whole = shortened(outcome.result)
        returned.append(result)
        if outcome.summary is not None:
            result, whole = shortened(outcome.summary)[0], False
        number += 1
        stored = job.stored
        runs.append(
            (
                number,
                identity,
                job.name,
                "completed",
                job.added_at,
                job.started_at,
                now,
                job.attempts_made + 1,
                job.stalls,
                job.worker,
                result,
                whole,
                stored.options.subject,
                stored.flow,
            )
        )
        if job.chosen is None and not job.logs and stored.leaves_nothing:
            removed.append(job.key)  # the usual case: nothing but the record is kept
        else:
            _retain(step, job, stored, identity, outcome.result)
    step.write("run", runs)
    step.write("delete_job", [(key,) for key in removed])
    step.events(EventKind.COMPLETED, [identity for _, identity, _ in ended], returnvalue=returned)


def _retain(step: QueueChanges, job: JobFacts, stored: StoredOptions, identity: str, result: str) -> None:
    options = stored.options
    if stored.parent is not None:
        step.ended_children.append(ChildEnded(identity, stored.parent, "completed", result))
    if stored.dedup is not None and stored.dedup.key is not None:
        step.ended_keys.append((job.key, stored.dedup.key))
    if options.result_ttl is not None:
        until = step.tx.now + options.result_ttl
        step.write("result", [(step.row.key, identity, until, "completed", result)])
    if options.keep_completed.count == 0:
        if stored.parked is not None:
            step.write("orphan", [(job.key,)])
        step.delete(job.key, job.chosen, job.logs)
    else:
        step.keep(job, job.attempts_made + 1, Place.COMPLETED, options.keep_completed, result, None)


def settle(step: QueueChanges, batch: Sequence[Settlement]) -> tuple[Verdict, ...]:
    """Settle in order, and return a verdict for each."""
    if not batch:
        return ()
    parts = _parts(batch)
    if len(parts) > 1:
        by_settlement: dict[int, Verdict] = {}
        for part in parts:
            by_settlement |= zip(map(id, part), settle(step, part), strict=True)
            step.flush()
        return tuple(by_settlement[id(each)] for each in batch)
    tx = step.tx
    keys = keys_of(tx, step.row, [settlement.lease.id for settlement in batch])
    held = {row.job.key: row for row in tx.gather(_HELD, (json.dumps(list(keys.values())),))}
    verdicts, now = list[Verdict](), tx.now
    settled, released = list[int](), list[_Freed]()
    completed: list[tuple[Held, str, Completed]] = []
    for settlement in batch:
        lease, outcome = settlement.lease, settlement.outcome
        key = keys.get(lease.id, 0)
        row = held.get(key)
        if (
            row is None
            or row.token != lease.token
            or row.deadline <= now
            or (row.job.chosen is not None and row.job.chosen != lease.id)
        ):
            verdicts.append(refusal(tx, key, lease.id))
            continue
        del held[key]
        settled.append(key)
        count_attempt(step.counted, row, outcome, now)
        if step.row.flows and (failure := _deferred(row, outcome)) is not None:
            _fail(step, row.job, failure)
        elif isinstance(outcome, Completed):
            completed.append((row, lease.id, outcome))
        else:
            _settle_one(step, row, outcome, released)
        verdicts.append(Verdict.OK)
    step.leave_active(settled)
    if completed:
        complete(step, completed)
    for freed in reversed(released):  # each goes to the very front, so the last one first keeps their order
        _release(step, freed.job, suspect=freed.suspect)
    return tuple(verdicts)


def _parts(batch: Sequence[Settlement]) -> list[Sequence[Settlement]]:
    """The batch, with jobs that rest with new children apart. These may adopt a job that ends in the same exchange, so
    all other ends are written first; then the last of them, as each that need not rest goes to the very front."""
    apart: dict[str, list[Settlement]] = {}
    for settlement in batch:
        if type(settlement.outcome) is Rested and settlement.outcome.children:
            apart[settlement.lease.id] = []
    if not apart:
        return [batch]
    others: list[Settlement] = []
    for settlement in batch:
        apart.get(settlement.lease.id, others).append(settlement)
    return [part for part in (others, *reversed(apart.values())) if part]


def _deferred(row: Held, outcome: Outcome) -> Failure | None:
    """The failure of a child for which this job fails too, unless it failed by itself."""
    reason = row.job.stored.deferred
    return None if reason is None or isinstance(outcome, Failed | Cancelled) else Failure(reason, "ChildFailed")


def _settle_one(step: QueueChanges, row: Held, outcome: _Unfinished, released: list[_Freed]) -> None:
    """Settle an attempt that has not completed its job. A job that is being cancelled does not run again, whatever its
    attempt asked for; nor does one without attempts left."""
    job = row.job
    if row.cancelling is not None and not isinstance(outcome, Failed | Cancelled):
        outcome = Cancelled(row.cancelling)
    elif isinstance(outcome, Retried) and job.attempts_made + 1 >= job.max_attempts:
        outcome = Failed(outcome.failure)
    match outcome:
        case Failed(failure):
            _fail(step, job, failure)
        case Cancelled(reason):
            step.fail(job, Cause.CANCELLED, Failure(reason, CANCELLED_KIND), made=job.attempts_made + 1)
        case Retried(failure, delay):
            _retry(step, job, failure, delay)
        case Snoozed(delay):
            step.stand(job, made=job.attempts_made, delay=delay)
            _delay(step, job, delay)
        case Released():
            step.stand(job, made=job.attempts_made)
            released.append(_Freed(job, suspect=bool(row.alone)))
            step.event(EventKind.WAITING, job.id, prev="active")
        case Rested():
            _rest(step, job, outcome, released)
        case _:
            assert_never(outcome)


def _rest(step: QueueChanges, job: JobFacts, rested: Rested, released: list[_Freed]) -> None:
    """Rest, or go to the front where something has come already. A run that ends so has shown that it is innocent."""
    rests = begin_rest(step, job, rested)
    if isinstance(rests, Failure):
        _fail(step, job, rests)
        return
    step.stand(job._replace(stalls=0), made=job.attempts_made, delay=0)
    if not rests:
        released.append(_Freed(job, suspect=False))
        step.event(EventKind.WAITING, job.id, prev="active")


def _release(step: QueueChanges, job: JobFacts, *, suspect: bool) -> None:
    """Put it at the front. A suspect has not been cleared yet, so it will be claimed alone again."""
    place, rank = step.row.front(0 if suspect else job.priority)
    make_ready(step, job.key, (Place.SUSPECT if suspect else place, rank))


def _fail(step: QueueChanges, job: JobFacts, failure: Failure) -> None:
    made = job.attempts_made + 1
    step.fail(job, Cause.FAILED, failure, made=made)
    if made >= job.max_attempts:
        step.event(EventKind.RETRIES_EXHAUSTED, job.id, attemptsMade=str(made))


def _retry(step: QueueChanges, job: JobFacts, failure: Failure, delay: int) -> None:
    step.count(RETRIES)
    step.stand(job, made=job.attempts_made + 1, delay=delay, failure=failure)
    step.note_error(job, failure, made=job.attempts_made + 1)
    if delay:
        _delay(step, job, delay)
    else:
        make_ready(step, job.key, step.row.back(job.priority))
        step.event(EventKind.WAITING, job.id, prev="active")


def _delay(step: QueueChanges, job: JobFacts, delay: int) -> None:
    due = step.tx.now + delay
    step.delay(job.key, due)
    step.event(EventKind.DELAYED, job.id, delay=str(due))
