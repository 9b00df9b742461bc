"""Outcomes to writes; the batch path for completed jobs."""

import json
from collections.abc import Sequence
from typing import Any, assert_never

from toril.engines.sql.changes import JOB_COLUMNS, ChildEnded, JobFacts, QueueChanges
from toril.engines.sql.flows import add_and_wait
from toril.engines.sql.groups import make_ready
from toril.engines.sql.options import DEFAULTS, load_options
from toril.engines.sql.recording import count_attempt
from toril.engines.sql.schema import Place
from toril.engines.sql.statements import statement
from toril.engines.sql.transaction import keys_of, refusal
from toril.errors import InvalidOption, UsageError
from toril.model import (
    CANCELLED_KIND,
    EXCHANGE,
    Cancelled,
    Cause,
    Completed,
    EventKind,
    Failed,
    Failure,
    Outcome,
    Released,
    Retried,
    Settlement,
    Snoozed,
    Verdict,
    WaitsForChildren,
)
from toril.policy.metrics import RETRIES
from toril.policy.retention import shortened

__all__ = ["complete", "settle"]


def complete(step: QueueChanges, ended: Sequence[tuple[list[Any], str, Completed]]) -> None:
    """Record each run, then keep or delete the job. An entry begins with the columns of `JobFacts`."""
    now = step.tx.now
    number = step.completed(len(ended))
    runs: list[tuple[Any, ...]] = []
    returned: list[str] = []
    removed: list[int] = []
    for entry, identity, outcome in ended:
        key, chosen, name, _, _, made, stalls, _, _, added_at, started_at, worker, logs, options, *_ = entry
        text, whole = shortened(outcome.result)
        returned.append(text)
        if outcome.summary is not None:
            text, whole = shortened(outcome.summary)[0], False
        number += 1
        own = DEFAULTS if options is None else load_options(options)
        runs.append((
            number, identity, name, "completed", added_at, started_at, now, made + 1, stalls, worker, text, whole,
            own.subject, own.flow,
        ))  # fmt: skip
        if options is None and chosen is None and not logs:
            removed.append(key)  # by far the most: nothing is kept of it but the record
        else:
            _retain(step, entry, options, identity, outcome.result)
    step.write("run", runs)
    step.write("delete_job", [(key,) for key in removed])
    step.events(EventKind.COMPLETED, [identity for _, identity, _ in ended], returnvalue=returned)


def _retain(step: QueueChanges, entry: list[Any], text: str | None, identity: str, result: str) -> None:
    options = load_options(text)
    if options.parent is not None:
        step.told.append(ChildEnded(identity, options.parent, "completed", result))
    if options.dedup is not None and options.dedup.key is not None:
        step.ended_keys.append((entry[0], options.dedup.key))
    if options.result_ttl is not None:
        till = step.tx.now + options.result_ttl
        step.write("result", [(step.row.key, identity, till, "completed", result)])
    job = JobFacts._make(entry[:JOB_COLUMNS])
    if options.keep_completed.count == 0:
        if options.parked is not None:
            step.write("orphan", [(job.key,)])
        step.delete(job.key, job.chosen, job.logs)
    else:
        step.keep(job, job.attempts_made + 1, Place.COMPLETED, options.keep_completed, result, None)


_HELD = statement("settle", "held")


def settle(step: QueueChanges, batch: Sequence[Settlement]) -> tuple[Verdict, ...]:
    """A verdict for each settlement, in order."""
    if not batch:
        return ()
    if len(batch) > EXCHANGE:
        raise InvalidOption(f"one exchange settles at most {EXCHANGE} jobs, not {len(batch)}")
    last = _bringing_children(batch)
    if not last:
        return tuple(_settle(step, batch))
    others = [settlement for settlement in batch if settlement.lease.id not in last]
    verdicts = {id(each): verdict for each, verdict in zip(others, _settle(step, others), strict=True)}
    for part in reversed(last.values()):  # each that need not rest goes to the very front
        step.flush()
        verdicts |= {id(each): verdict for each, verdict in zip(part, _settle(step, part), strict=True)}
    return tuple(verdicts[id(each)] for each in batch)


def _bringing_children(batch: Sequence[Settlement]) -> dict[str, list[Settlement]]:
    """What is handed in of jobs that park with new children, by their ids. These may adopt a job that ends in the same
    exchange, so that all other ends must be written before."""
    found: dict[str, list[Settlement]] = {}
    for settlement in batch:
        if type(settlement.outcome) is WaitsForChildren and settlement.outcome.children:
            found[settlement.lease.id] = []
    if found:
        for settlement in batch:
            if settlement.lease.id in found:
                found[settlement.lease.id].append(settlement)
    return found


def _settle(step: QueueChanges, batch: Sequence[Settlement]) -> list[Verdict]:
    tx = step.tx
    keys = keys_of(tx, step.row, [settlement.lease.id for settlement in batch])
    found = tx.all_at_once(_HELD, (json.dumps(list(keys.values())),))
    held = {entry[0]: entry for entry in found}
    verdicts, now = list[Verdict](), tx.now
    settled, released, suspects = list[int](), list[JobFacts](), set[int]()
    completed: list[tuple[list[Any], str, Completed]] = []
    for settlement in batch:
        lease = settlement.lease
        key = keys.get(lease.id, 0)
        entry = held.get(key)
        if entry is None or entry[-2] != lease.token or entry[-1] <= now or entry[1] not in {None, lease.id}:
            verdicts.append(refusal(tx, key, lease.id))
            continue
        del held[key]
        settled.append(key)
        count_attempt(step.counted, entry, settlement.outcome, now)
        if step.row.flows and (doom := _doom(entry[JOB_COLUMNS - 1], settlement.outcome)) is not None:
            _fail(step, JobFacts._make(entry[:JOB_COLUMNS]), doom)
        elif type(settlement.outcome) is Completed:
            completed.append((entry, lease.id, settlement.outcome))
        else:
            job = JobFacts._make(entry[:JOB_COLUMNS])
            outcome = _final(settlement.outcome, job, entry[-3])
            if type(outcome) is Released and entry[-4]:
                suspects.add(key)
            _apply(step, job, outcome, released)
        verdicts.append(Verdict.OK)
    step.leave_active(settled)
    if completed:
        complete(step, completed)
    for job in reversed(released):  # each goes to the very front, so the last one first keeps their order
        _give_back(step, job, suspect=job.key in suspects)
    return verdicts


def _doom(options: str | None, outcome: Outcome) -> Failure | None:
    """The failure of a child that is this job's too, unless it has ended badly by itself."""
    reason = load_options(options).deferred
    return None if reason is None or isinstance(outcome, Failed | Cancelled) else Failure(reason, "ChildFailed")


def _final(outcome: Outcome, job: JobFacts, cancelling: str | None) -> Outcome:
    """A job that someone wants stopped does not run again, whatever its attempt asked for; nor does one that has no
    attempt left."""
    if cancelling is not None and isinstance(outcome, Retried | Snoozed | Released | WaitsForChildren):
        return Cancelled(cancelling)
    if isinstance(outcome, Retried) and job.attempts_made + 1 >= job.max_attempts:
        return Failed(outcome.failure)
    return outcome


def _apply(step: QueueChanges, job: JobFacts, outcome: Outcome, released: list[JobFacts]) -> None:
    match outcome:
        case Completed():
            complete(step, [([*job], job.id, outcome)])
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
            released.append(job)
            step.event(EventKind.WAITING, job.id, prev="active")
        case WaitsForChildren():
            _park(step, job, outcome, released)
        case _:
            assert_never(outcome)


def _park(step: QueueChanges, job: JobFacts, parked: WaitsForChildren, released: list[JobFacts]) -> None:
    """Add children, and wait for those that have not ended. Where one cannot be added the job fails."""
    try:
        if add_and_wait(step, job.key, parked):
            step.stand(job, made=job.attempts_made, delay=0)
            step.rest(job.key)
            step.event(EventKind.WAITING_CHILDREN, job.id, prev="active")
            return
    except UsageError as error:
        _fail(step, job, Failure(str(error), "WrongState"))
        return
    _apply(step, job, Released(), released)


def _give_back(step: QueueChanges, job: JobFacts, *, suspect: bool) -> None:
    """To the front. One that has stalled has not shown yet that it is innocent: it is claimed alone again."""
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
