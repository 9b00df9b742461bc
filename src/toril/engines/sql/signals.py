"""Signals in SQL: sent to jobs, or by key to whoever waits for it; each received once."""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from toril.codec.steps import dump_received, load_rest, load_step
from toril.engines.sql.calls import recall, remember
from toril.engines.sql.changes import QueueChanges
from toril.engines.sql.groups import make_ready
from toril.engines.sql.metrics import record as count
from toril.engines.sql.recorded import RecordedJob, holder, recorded_job, steps_key
from toril.engines.sql.rests import await_keys, stop_awaiting
from toril.engines.sql.schema import RECORDED, SIGNALS, Place, job_id
from toril.engines.sql.statements import query, statements
from toril.engines.sql.transaction import QueueRow, Transaction, keys_of
from toril.model import (
    MAX_INBOX,
    MAX_INBOX_BYTES,
    MAX_KEPT_SIGNAL_BYTES,
    MAX_KEPT_SIGNALS,
    MAX_SENT_IDS,
    SIGNAL_IDS,
    Call,
    DeliveredSignal,
    EventKind,
    Kept,
    Lease,
    NewSignal,
    ReceivedSignal,
    SentId,
    SignalOutcome,
    SignalRow,
    SignalWait,
    StepAnswer,
    StepKind,
    StepRow,
    StepVerdict,
    letter_id,
)
from toril.policy.metrics import RECORDS, SIGNALLED

__all__ = ["deliver", "inbox", "keep_signal", "put_signal", "receive", "remember_sent"]

_SQL: Final = statements("signals")
_REACHED_NOBODY: Final = (SignalOutcome.MISSING, SignalOutcome.ENDED)
_TAKEN: Final = (SignalOutcome.WOKEN, SignalOutcome.KEPT)
_OPEN: Final = (StepKind.WAIT, StepKind.FAILED, StepKind.RETRY)  # rows under which a signal may still be received


class Addressee(NamedTuple):
    """The job that a signal goes to, and why it rests, if it does."""

    key: int
    chosen: str | None
    place: int
    rank: int
    priority: int
    running: int
    rest: str | None

    @property
    def id(self) -> str:
        return job_id(self.key, self.chosen)

    @property
    def has_ended(self) -> bool:
        return not self.running and self.place in {Place.COMPLETED, Place.FAILED}

    def rests_for(self, wait: SignalWait) -> bool:
        rest = load_rest(self.rest)
        return rest is not None and any(wait in reason.signals for reason in rest.reasons)


class StoredSignal(NamedTuple):
    """A signal that nobody has received, in a job's inbox or kept by its key."""

    number: int
    name: str
    word: str | None
    id: str | None
    at: int
    text: str


_ADDRESSEE: Final = query("signals", "addressee", Addressee)
_INBOX: Final = query("signals", "inbox", StoredSignal)
_KEPT: Final = query("signals", "kept", StoredSignal)


def deliver(tx: Transaction, queue: str, signals: Sequence[NewSignal], call: Call | None) -> list[DeliveredSignal]:
    """Send each signal, one after the other."""
    before = recall(tx, call)
    if before is not None:
        return [DeliveredSignal(SignalOutcome(outcome), job) for outcome, job in before]
    answers = [_deliver(tx, queue, each) for each in signals]
    counted = Counter(f"{SIGNALLED}{each.outcome.value}" for each in answers if each.outcome not in _REACHED_NOBODY)
    if counted:
        count(tx, tx.queue(queue), counted)
    remember(tx, call, [(each.outcome, each.job_id) for each in answers])
    return answers


def _deliver(tx: Transaction, queue: str, signal: NewSignal) -> DeliveredSignal:
    wait = SignalWait(signal.name, signal.key)
    if signal.job_id is not None:
        row = tx.find(queue)
        key = None if row is None else keys_of(tx, row, (signal.job_id,)).get(signal.job_id)
        job = None if key is None else tx.row(_ADDRESSEE, (key,))
        if row is None or job is None or job.id != signal.job_id:
            known = tx.one(_SQL["has_dead_letter"], (letter_id(queue, signal.job_id),)) is not None
            return DeliveredSignal(SignalOutcome.ENDED if known else SignalOutcome.MISSING)
        return _to_job(QueueChanges(tx, row), job, wait, signal)
    row = tx.queue(queue)
    owner = tx.row(_ADDRESSEE, (tx.value(_SQL["awaits"], (row.key, signal.name, signal.key)),))
    if signal.id is not None and tx.one(_SQL["was_sent"], (row.key, signal.name, signal.key, signal.id, tx.now)):
        return DeliveredSignal(SignalOutcome.DUPLICATE, None if owner is None else owner.id)
    if owner is None:
        answer = DeliveredSignal(_keep(tx, row, signal))
    else:
        answer = _to_job(QueueChanges(tx, row), owner, wait, signal)
    if signal.key is not None and signal.id is not None and answer.outcome in _TAKEN:
        remember_sent(tx, row, [SentId(signal.name, signal.key, signal.id, tx.now + signal.ttl)])
    return answer


def _to_job(step: QueueChanges, job: Addressee, wait: SignalWait, signal: NewSignal) -> DeliveredSignal:
    tx, row = step.tx, step.row
    if job.has_ended:
        return DeliveredSignal(SignalOutcome.ENDED, job.id)
    if signal.id is not None and tx.one(_SQL["knows"], (job.key, signal.id)) is not None:
        return DeliveredSignal(SignalOutcome.DUPLICATE, job.id)
    wakes = job.rests_for(wait)
    if signal.only_if_waiting and not wakes:
        return DeliveredSignal(SignalOutcome.NOT_WAITING, job.id)
    if not wakes and not _has_room(tx, job, signal):
        return DeliveredSignal(SignalOutcome.FULL, job.id)
    put_signal(tx, row, job.key, SignalRow(0, signal.name, signal.payload, tx.now, signal.id, signal.key))
    tx.run(_SQL["note"], (job.key,))
    if not wakes:
        return DeliveredSignal(SignalOutcome.KEPT, job.id)
    step.leave(job.key, job.place, job.rank)
    make_ready(step, job.key, row.front(job.priority))
    step.event(EventKind.WAITING, job.id, prev="delayed")
    step.flush()
    return DeliveredSignal(SignalOutcome.WOKEN, job.id)


def _has_room(tx: Transaction, job: Addressee, signal: NewSignal) -> bool:
    """Whether the inbox has room for a signal that the job does not rest for: what wakes it is always let in."""
    count, size = tx.one(_SQL["unread"], (job.key,))
    return bool(count < MAX_INBOX and size + len(signal.payload.encode()) <= MAX_INBOX_BYTES)


def _keep(tx: Transaction, row: QueueRow, signal: NewSignal) -> SignalOutcome:
    """Keep a signal by key for whoever will wait for it."""
    if signal.only_if_waiting:
        return SignalOutcome.NOT_WAITING
    size = len(signal.payload.encode())
    count, total = tx.one(_SQL["kept_size"], (row.key, tx.now))
    if count >= MAX_KEPT_SIGNALS or total + size > MAX_KEPT_SIGNAL_BYTES:
        return SignalOutcome.FULL
    till = tx.now + signal.ttl
    keep_signal(tx, row, SignalRow(0, signal.name, signal.payload, tx.now, signal.id, signal.key, till))
    return SignalOutcome.KEPT


def put_signal(tx: Transaction, row: QueueRow, key: int, signal: SignalRow, *, received: bool = False) -> None:
    """Put a signal into a job's inbox, behind those that are there; or remember that it has been received."""
    row.moves += 1
    row.stepping |= RECORDED | SIGNALS
    text = None if received else signal.payload
    tx.run(_SQL["add"], (key, row.moves, signal.name, signal.key, signal.id, signal.at, text))


def keep_signal(tx: Transaction, row: QueueRow, signal: SignalRow) -> None:
    """Keep a signal by its key, behind those that are kept."""
    row.moves += 1
    row.stepping |= SIGNALS
    size = len(signal.payload.encode())
    place = (row.key, signal.name, signal.key, row.moves)
    tx.run(_SQL["keep"], (*place, signal.id, signal.at, signal.until, size, signal.payload))


def remember_sent(tx: Transaction, row: QueueRow, ids: Sequence[SentId]) -> None:
    """Remember that signals were sent by a key; of all of the queue, the newest."""
    if not ids:
        return
    row.stepping |= SIGNALS
    last: int = tx.value(_SQL["last_sent"], (row.key,)) or 0
    rows = [(row.key, each.name, each.key, each.id, last + n, each.until) for n, each in enumerate(ids, 1)]
    tx.run_all(_SQL["remember_sent"], rows)
    tx.run(_SQL["trim_sent"], (row.key, last + len(ids) - MAX_SENT_IDS))


def inbox(tx: Transaction, queue: str, identity: str, where: Kept) -> list[SignalRow]:
    """The signals of a job that nobody has received yet."""
    key = steps_key(tx, queue, identity, where)
    found = [] if key is None else tx.rows(_INBOX, (key,))
    return [SignalRow(each.number, each.name, each.text, each.at, each.id, each.word) for each in found]


def receive(
    tx: Transaction, lease: Lease, key: str, signals: Sequence[SignalWait], digest: str | None, call: Call | None
) -> StepAnswer:
    """Receive the oldest of these signals. A repeated call reads the row again, which may be large."""
    before = recall(tx, call)
    if before is not None:
        verdict, at, has_row, steps, size = before
        held = holder(tx, lease.queue, lease) if has_row else None
        if isinstance(held, StepVerdict):
            return StepAnswer(held, tx.now)
        text = None if held is None else recorded_job(tx, held[0]).row(tx, key)
        return StepAnswer(StepVerdict(verdict), at, text, steps, size)
    answer = _receive(tx, lease, key, signals, digest)
    remember(tx, call, (answer.verdict, answer.now, answer.row is not None, answer.steps, answer.bytes))
    return answer


@dataclass(frozen=True, slots=True)
class _Reading:
    """A job that receives a signal: under which key, and what is there."""

    job: RecordedJob
    made: int
    key: str
    digest: str | None
    before: str | None

    @property
    def wait(self) -> StepRow | None:
        """The row of the wait, if it is recorded."""
        found = None if self.before is None else load_step(self.key, self.before)
        return found if found is not None and found.kind is StepKind.WAIT else None

    def record(self, tx: Transaction, row: QueueRow, received: ReceivedSignal | None) -> StepAnswer:
        """Record what was received, or that the time is over."""
        job, wait = self.job, self.wait
        until = None if wait is None else wait.until
        step = StepRow(
            self.key,
            StepKind.RECEIVED,
            job.seq + 1,
            tx.now,
            0,
            self.digest,
            job.reruns,
            self.made,
            until,
            dump_received(received),
        )
        text = job.put(tx, step, self.before)
        if text is None:
            return StepAnswer(StepVerdict.FULL, tx.now, None, job.count, job.bytes)
        job.save(tx, row)
        count(tx, row, {RECORDS: 1})
        return StepAnswer(StepVerdict.OK, tx.now, text, job.count, job.bytes)


def _receive(tx: Transaction, lease: Lease, key: str, signals: Sequence[SignalWait], digest: str | None) -> StepAnswer:
    held = holder(tx, lease.queue, lease)
    if isinstance(held, StepVerdict):
        return StepAnswer(held, tx.now)
    row, (number, made) = tx.queue(lease.queue), held
    job = recorded_job(tx, number)
    reading = _Reading(job, made, key, digest, job.row(tx, key))
    if reading.before is not None and reading.before[0] not in _OPEN:
        return StepAnswer(StepVerdict.OK, tx.now, reading.before, job.count, job.bytes)
    if not await_keys(tx, row, number, signals):
        return StepAnswer(StepVerdict.CLASH, tx.now, None, job.count, job.bytes)
    kept, signal = _oldest(tx, row, number, signals)
    if signal is not None:
        answer = reading.record(tx, row, ReceivedSignal(SignalWait(signal.name, signal.word), signal.text))
        if answer.verdict is StepVerdict.OK:
            _take(tx, row, number, signal, kept=kept)
            stop_awaiting(tx, row, number, signals)
        return answer
    wait = reading.wait
    if wait is not None and wait.until is not None and wait.until <= tx.now:
        stop_awaiting(tx, row, number, signals)
        return reading.record(tx, row, None)
    return StepAnswer(StepVerdict.OK, tx.now, None, job.count, job.bytes)


def _oldest(
    tx: Transaction, row: QueueRow, key: int, signals: Sequence[SignalWait]
) -> tuple[bool, StoredSignal | None]:
    """The signal to receive, and whether it was kept by its key. Those of one name and key that were kept are older
    than those in the inbox."""
    first: dict[SignalWait, tuple[bool, StoredSignal]] = {}
    if row.stepping & SIGNALS:
        by_key = json.dumps([[each.name, each.key] for each in signals if each.key is not None])
        found = [(True, each) for each in tx.rows(_KEPT, (by_key, row.key, tx.now))]
        found += [(False, each) for each in tx.rows(_INBOX, (key,))]
        for kept, each in found:
            first.setdefault(SignalWait(each.name, each.word), (kept, each))
    there = [first[each] for each in signals if each in first]
    return min(there, key=lambda each: (each[1].at, not each[0], each[1].number), default=(False, None))


def _take(tx: Transaction, row: QueueRow, key: int, signal: StoredSignal, *, kept: bool) -> None:
    """A signal has been received: the job remembers its id."""
    if kept:
        tx.run(_SQL["take_kept"], (row.key, signal.name, signal.word, signal.number))
    else:
        tx.run(_SQL["take"], (key, signal.number))
    if signal.id is not None:
        put_signal(tx, row, key, SignalRow(0, signal.name, "", signal.at, signal.id, signal.word), received=True)
        tx.run(_SQL["trim_ids"], (key, key, SIGNAL_IDS))
