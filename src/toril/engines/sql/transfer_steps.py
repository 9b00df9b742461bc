"""Steps and signals of jobs that move to another store, and of dead letters."""

from collections.abc import Sequence
from typing import Any, Final, TypeAlias

from toril.codec.steps import load_rest, load_step, load_waits
from toril.engines.sql.changes import QueueChanges
from toril.engines.sql.recorded import recorded_job
from toril.engines.sql.rests import await_keys
from toril.engines.sql.schema import RECORDED, SIGNALS, STEPS, Place
from toril.engines.sql.signals import keep_signal, put_signal, remember_sent
from toril.engines.sql.statements import statements
from toril.engines.sql.transaction import QueueRow, Transaction
from toril.errors import Undecodable
from toril.model import MAX_DELAY, SentId, SignalRow, StepKind, TransferSteps

__all__ = ["export_kept", "export_sent", "export_steps", "import_kept", "import_rest", "import_steps", "steps_of"]

_SQL: Final = statements("steps")
_SIGNALS: Final = statements("signals")
_Exported: TypeAlias = list[Any]


def export_steps(tx: Transaction, key: int | None, rest: str | None = None) -> _Exported | None:
    """What there is of the steps of a job or dead letter, as it is kept in transit."""
    found = None if key is None else tx.one(_SQL["of_job"], (key,))
    if key is None or (found is None and rest is None):
        return None
    seq, _, _, reruns, epoch = found or (0, 0, 0, 0, 0)
    rows, inbox = tx.all(_SQL["all_rows"], (key,)), tx.all(_SIGNALS["inbox"], (key,))
    ids = [identity for (identity,) in tx.all(_SIGNALS["ids"], (key,))]
    return [dict(rows), seq, reruns, epoch, rest, inbox, ids]


def steps_of(exported: _Exported | None) -> TransferSteps | None:
    """The same, as it is sent."""
    if exported is None:
        return None
    rows, seq, reruns, epoch, rest, inbox, ids = exported
    signals = tuple(SignalRow(n, name, text, at, known, word) for n, name, word, known, at, text in inbox)
    return TransferSteps(rows=rows, seq=seq, reruns=reruns, epoch=epoch, rest=rest, inbox=signals, signal_ids=ids)


def import_steps(tx: Transaction, row: QueueRow, key: int, steps: TransferSteps | None) -> None:
    """Store the steps of a job or dead letter that has arrived."""
    if steps is None or not (steps.rows or steps.seq or steps.reruns or steps.epoch or steps.inbox or steps.signal_ids):
        return
    job = recorded_job(tx, key)
    job.seq, job.reruns, job.epoch, job.count = steps.seq, steps.reruns, steps.epoch, len(steps.rows)
    job.bytes = sum(len(name.encode()) + len(text.encode()) for name, text in steps.rows.items())
    job.save(tx, row)
    row.stepping |= RECORDED | STEPS | SIGNALS
    last = 0
    for name, text in steps.rows.items():
        found = load_step(name, text)
        last = last if found is None else found.seq
        tx.run(_SQL["put"], (key, name, last, text))
    for identity in steps.signal_ids:
        put_signal(tx, row, key, SignalRow(0, "", "", 0, identity), received=True)
    for signal in steps.inbox:
        put_signal(tx, row, key, signal, received=False)


def import_rest(step: QueueChanges, key: int, steps: TransferSteps | None, place: int, due: int | None) -> None:
    """A job that rests goes on resting here, and signals by the keys that it waits for are sent to it."""
    if steps is None or place in {Place.COMPLETED, Place.FAILED}:
        return
    for name, text in steps.rows.items():
        found = load_step(name, text)
        if found is not None and found.kind is StepKind.WAIT:
            try:
                await_keys(step.tx, step.row, key, load_waits(found.text))
            except Undecodable:
                continue
    rest = load_rest(steps.rest)
    if rest is None or place not in {Place.DELAYED, Place.WAITING_CHILDREN}:
        return
    if place == Place.DELAYED:
        step.row.resting += 1
    else:
        step.row.resting_for_children += 1
    until = rest.since + MAX_DELAY if due is None else due
    step.write("rest", [(key, step.row.key, until, rest.children, steps.rest)])


def export_kept(tx: Transaction, row: QueueRow) -> _Exported:
    """Signals by key that are kept: they leave with the queue."""
    kept = tx.all(_SIGNALS["all_kept"], (row.key, tx.now)) if row.stepping & SIGNALS else []
    if kept:
        tx.run(_SIGNALS["forget_kept"], (row.key,))
    return kept


def export_sent(tx: Transaction, row: QueueRow) -> _Exported:
    """Which signals were sent by a key: that leaves with the queue too."""
    sent = tx.all(_SIGNALS["all_sent"], (row.key, tx.now)) if row.stepping & SIGNALS else []
    if sent:
        tx.run(_SIGNALS["forget_sent"], (row.key,))
    return sent


def import_kept(tx: Transaction, row: QueueRow, signals: Sequence[SignalRow], sent: Sequence[SentId]) -> None:
    for signal in signals:
        keep_signal(tx, row, signal)
    remember_sent(tx, row, sent)
