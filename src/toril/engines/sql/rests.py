"""Jobs that rest: what is written when a job begins to, what may have come already, and what ends it early."""

import json
from collections.abc import Sequence
from typing import Final

from toril.codec.steps import dump_rest, load_rest, load_step
from toril.engines.sql.changes import QueueChanges
from toril.engines.sql.flows import add_and_wait
from toril.engines.sql.recorded import RecordedJob, recorded_job, replaces
from toril.engines.sql.schema import AWAITED, SIGNALS, JobFacts
from toril.engines.sql.statements import statements
from toril.engines.sql.transaction import QueueRow, Transaction
from toril.errors import UsageError
from toril.model import (
    MAX_DELAY,
    EventKind,
    Failure,
    Rest,
    Rested,
    RestReason,
    RestRow,
    SignalWait,
    StepKind,
    StepRow,
)
from toril.policy.metrics import RECORDS, RESTS

__all__ = ["await_keys", "begin_rest", "end_times", "is_awaited_elsewhere", "stop_awaiting"]

_SQL: Final = statements("rests")
_TOO_LARGE: Final = (
    "the steps of this job take more than 16 MB, or there are more than 10,000: store large values elsewhere, and "
    "return where they are"
)


def begin_rest(step: QueueChanges, job: JobFacts, rested: Rested) -> Failure | bool:
    """Whether a job rests now. It does not if something that it would rest for has come already, and fails where its
    rows or children cannot be added."""
    reasons = _record(step, job, rested.rests)
    if reasons is None:
        return Failure(_TOO_LARGE, "StepsTooLarge")
    for_children = not rested.rests or any(each.kind is StepKind.CALLED for each in rested.rests)
    open_children = False
    if for_children or rested.children:
        try:
            open_children = add_and_wait(step, job.key, rested)
        except UsageError as error:
            return Failure(str(error), "WrongState")
    step.write("never_expires", [(job.key,)])
    now = step.tx.now
    if (
        not _await(step, job.key, rested.rests)
        or (for_children and not open_children)
        or any(each.until is not None and each.until <= now for each in reasons)
        or _has_come(step, job.key, rested.rests)
    ):
        return False
    first = min((each.until for each in reasons if each.until is not None), default=None)
    text = dump_rest(RestRow(now, first, reasons, for_children))
    due = now + MAX_DELAY if first is None else first
    step.write("rest", [(job.key, step.row.key, due, for_children, text)])
    step.count(RESTS)
    if all(each.kind is StepKind.CALLED for each in rested.rests):
        step.row.resting_for_children += 1
        step.wait_for_children(job.key)
        step.event(EventKind.WAITING_CHILDREN, job.id, prev="active")
    else:
        step.row.resting += 1
        step.delay(job.key, due)
        step.event(EventKind.DELAYED, job.id, delay=str(due))
    return True


def _record(step: QueueChanges, job: JobFacts, rests: Sequence[Rest]) -> tuple[RestReason, ...] | None:
    """Write the row of each rest that has none; None if there is no room. What is recorded otherwise under its key has
    ended the rest already."""
    if not rests:
        return ()
    recorded = recorded_job(step.tx, job.key)
    before, reasons = recorded.seq, list[RestReason]()
    for each in rests:
        row = _row_of(step, recorded, job, each)
        if row is None:
            break
        until = row.until if row.kind is each.kind else step.tx.now
        reasons.append(RestReason(each.key, each.kind, until, each.signals))
    recorded.save(step.tx, step.row)
    step.count(RECORDS, recorded.seq - before)
    return tuple(reasons) if len(reasons) == len(rests) else None


def _row_of(step: QueueChanges, recorded: RecordedJob, job: JobFacts, rest: Rest) -> StepRow | None:
    """The row that counts for a rest, written if need be; None if there is no room for it."""
    tx = step.tx
    before = recorded.row(tx, rest.key)
    ended = StepRow(rest.key, StepKind.DONE, 0, tx.now, 0, None, 0, 0, None, "")
    if rest.recorded and before is None:
        return ended  # somebody has dropped it: the handler runs again and sees that
    if before is not None and not replaces(rest.kind, before, recorded=rest.recorded):
        return load_step(rest.key, before) or ended
    row = StepRow(
        rest.key,
        rest.kind,
        recorded.seq + 1,
        tx.now,
        0,
        rest.digest,
        recorded.reruns,
        job.attempts_made,
        None if rest.delay is None else tx.now + rest.delay,
        rest.text,
    )
    return None if recorded.put(tx, row, before) is None else row


def _await(step: QueueChanges, key: int, rests: Sequence[Rest]) -> bool:
    """Have signals by key sent to this job; False if one goes to another."""
    waits = [each for rest in rests for each in rest.signals if each.key is not None]
    return not waits or await_keys(step.tx, step.row, key, waits)


def is_awaited_elsewhere(tx: Transaction, row: QueueRow, key: int, wait: SignalWait) -> bool:
    """Whether another job waits for a signal by this key."""
    owner = tx.value(_SQL["awaits"], (row.key, wait.name, wait.key))
    return owner is not None and owner != key


def await_keys(tx: Transaction, row: QueueRow, key: int, waits: Sequence[SignalWait]) -> bool:
    """Have the signals by these keys sent to this job; False, and nothing is changed, if one goes to another."""
    by_key = [each for each in waits if each.key is not None]
    if any(is_awaited_elsewhere(tx, row, key, each) for each in by_key):
        return False
    if by_key:
        row.stepping |= AWAITED
        for each in by_key:
            tx.run(_SQL["await"], (row.key, each.name, each.key, key))
    return True


def stop_awaiting(tx: Transaction, row: QueueRow, key: int, waits: Sequence[SignalWait]) -> None:
    """Signals by these keys are no longer sent to this job."""
    for each in waits:
        if each.key is not None:
            tx.run(_SQL["await_no_more"], (row.key, each.name, each.key, key))


def _has_come(step: QueueChanges, key: int, rests: Sequence[Rest]) -> bool:
    """Whether a signal that one of these waits for is there."""
    tx, row = step.tx, step.row
    waits = {each for rest in rests for each in rest.signals}
    if not waits:
        return False
    if row.stepping & SIGNALS:
        unread = {SignalWait(name, word) for name, word in tx.all(_SQL["unread"], (key,))}
        if unread & waits:
            return True
    by_key = json.dumps([[each.name, each.key] for each in waits if each.key is not None])
    return tx.one(_SQL["kept"], (by_key, row.key, tx.now)) is not None


def end_times(tx: Transaction, row: QueueRow, key: int) -> None:
    """A job that rests is run now by hand: its sleeps, and the pauses before the retries of its steps, are over."""
    rest = load_rest(tx.value(_SQL["rest_of"], (key,)))
    if rest is None:
        return
    recorded = recorded_job(tx, key)
    for reason in rest.reasons:
        if reason.kind not in {StepKind.SLEEP, StepKind.RETRY}:
            continue
        before = recorded.row(tx, reason.key)
        found = None if before is None else load_step(reason.key, before)
        if found is not None and found.kind is reason.kind and found.until is not None and found.until > tx.now:
            recorded.set_until(tx, found, before or "", tx.now)
    recorded.save(tx, row)
