"""Renews leases, stores reports made under them, and recovers jobs whose lease ran out."""

from collections.abc import Sequence
from typing import Final, assert_never

from toril.engines.sql.calls import recall, remember
from toril.engines.sql.changes import QueueChanges
from toril.engines.sql.groups import make_ready
from toril.engines.sql.options import load_options
from toril.engines.sql.schema import JobFacts, LeasedJob, Place
from toril.engines.sql.statements import query, statements
from toril.engines.sql.transaction import Transaction, keys_of, refusal
from toril.model import (
    CANCELLED_KIND,
    Call,
    Cancellation,
    Cause,
    Checkpoint,
    DataUpdate,
    EventKind,
    Failure,
    Lease,
    LogLine,
    Progress,
    Recovered,
    Renewed,
    Report,
    Verdict,
)
from toril.policy.metrics import LOST, STALLS

__all__ = ["recover", "renew", "report"]

_SQL: Final = statements("leases")
_OVERDUE: Final = query("leases", "overdue", LeasedJob)
_ONE: Final = query("leases", "one", LeasedJob)

STALLED_TOO_OFTEN = "job stalled more than allowable limit"  # BullMQ's wording, which its users search for


def renew(tx: Transaction, leases: Sequence[Lease], ttl: int) -> Renewed:
    """Renew each lease that is still valid."""
    lost, cancelled = [], []
    for lease in leases:
        row = tx.find(lease.queue)
        key = None if row is None else keys_of(tx, row, (lease.id,)).get(lease.id)
        if key is None or not tx.run(_SQL["renew"], (tx.now + ttl, key, lease.token, tx.now)):
            lost.append(lease)
            continue
        reason = tx.value(_SQL["cancelling"], (key,))
        if reason is not None:
            cancelled.append(Cancellation(lease, reason))
    return Renewed(tuple(lost), tuple(cancelled))


def report(tx: Transaction, queue: str, reports: Sequence[Report], call: Call | None) -> list[Verdict]:
    """Write each report whose lease is valid."""
    before = recall(tx, call)
    if before is not None:
        return [Verdict(verdict) for verdict in before]
    row = tx.find(queue)
    if row is None:
        return [Verdict.MISSING for _ in reports]
    step = QueueChanges(tx, row)
    verdicts = [_report(step, each) for each in reports]
    step.flush()
    remember(tx, call, verdicts)
    return verdicts


def _report(step: QueueChanges, each: Report) -> Verdict:
    tx, lease = step.tx, each.lease
    key = keys_of(tx, step.row, (lease.id,)).get(lease.id, 0)
    if tx.one(_SQL["holds"], (key, lease.token, tx.now)) is None:
        return refusal(tx, key, lease.id)
    match each:
        case Progress(_, value):
            tx.run(_SQL["progress"], (value, key))
            step.event(EventKind.PROGRESS, lease.id, data=value)
        case DataUpdate(_, data):
            tx.run(_SQL["data"], (data, key))
        case Checkpoint(_, value):
            tx.run(_SQL["checkpoint"], (value, key))
        case LogLine(_, line):
            _log(tx, key, line)
        case _:
            assert_never(each)
    return Verdict.OK


def _log(tx: Transaction, key: int, line: str) -> None:
    count, options = tx.one(_SQL["logs"], (key,))
    tx.run(_SQL["log"], (key, count + 1, line))
    tx.run(_SQL["count_logs"], (count + 1, key))
    tx.run(_SQL["trim_logs"], (key, count + 1 - load_options(options).options.keep_logs))


def recover(tx: Transaction, queue: str, dead: Sequence[Lease], cause: str | None, limit: int) -> Recovered:
    """Recover jobs whose lease has expired, and those of `dead` even before that."""
    row = tx.find(queue)
    if row is None:
        return Recovered(now=tx.now)
    step = QueueChanges(tx, row)
    found = [each for lease in dict.fromkeys(dead) for each in _held_by(step, lease)]
    seen = {each.job.key for each in found}
    overdue = tx.rows(_OVERDUE, (row.key, tx.now, limit))
    for each in overdue:
        if each.job.key not in seen:
            found.append(each)
            step.count(LOST)
    ended: dict[Cause | None, list[str]] = {None: [], Cause.STALLED: [], Cause.CANCELLED: []}
    for each in found:
        job = _stalled(each)
        ended[_recover(step, job, each, cause)].append(job.id)
        step.count(STALLS)
        step.event(EventKind.STALLED, job.id, **({} if cause is None else {"cause": cause}))
    step.flush()
    next_deadline = tx.value(_SQL["next_deadline"], (row.key,))
    returned, failed, cancelled = map(tuple, ended.values())
    return Recovered(returned, failed, cancelled, next_deadline, more=len(overdue) == limit, now=tx.now)


def _held_by(step: QueueChanges, lease: Lease) -> list[LeasedJob]:
    key = keys_of(step.tx, step.row, (lease.id,)).get(lease.id)
    return [] if key is None else step.tx.rows(_ONE, (key, lease.token))


def _stalled(row: LeasedJob) -> JobFacts:
    return row.job._replace(stalls=row.job.stalls + 1)


def _recover(step: QueueChanges, job: JobFacts, row: LeasedJob, cause: str | None) -> Cause | None:
    """Recover one job. Returns why it has ended, if it has. It fails only for a stall while it ran alone, when nothing
    else can have crashed the worker, or if it must not run twice at all."""
    step.leave_active([job.key])
    if row.cancelling is not None:
        step.fail(job, Cause.CANCELLED, Failure(row.cancelling, CANCELLED_KIND), made=job.attempts_made)
        return Cause.CANCELLED
    if job.stalls > row.max_stalls and (row.alone or row.max_stalls == 0):
        reason = STALLED_TOO_OFTEN if cause is None else f"{STALLED_TOO_OFTEN}: {cause}"
        step.fail(job, Cause.STALLED, Failure(reason, "JobStalled"), made=job.attempts_made)
        return Cause.STALLED
    step.stand(job, made=job.attempts_made, cause=cause)
    make_ready(step, job.key, (Place.SUSPECT, step.row.moves + 1))
    step.event(EventKind.WAITING, job.id, prev="active")
    return None
