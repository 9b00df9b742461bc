"""A queue's settings, records and figures as they come from another store, put together with what is here."""

from typing import Any, Final

from toril.engines.sql.options import dump_rate
from toril.engines.sql.recording import add_to_slice
from toril.engines.sql.schema import run_key
from toril.engines.sql.statements import statement
from toril.engines.sql.step import Step
from toril.engines.sql.transaction import QueueRow, Tx
from toril.model import HEADROOM, Ending, LedgerParcel, Run, SettingsParcel
from toril.policy.retention import RUNS
from toril.policy.tallies import ALL_NAMES, NAMES

__all__ = ["put_ledger", "put_settings"]

_SQL: Final = {
    name: statement("moving", name) for name in ("return", "is_back", "set_group", "hold_key", "run_records")
}
_START: Final = statement("claim", "start")
_GROUP_START: Final = statement("groups", "start")
_MINUTE: Final = statement("step", "minute")
_RUN: Final = statement("step", "run")
_RESULT: Final = statement("step", "result")
_FORGET_RUNS: Final = statement("control", "forget_runs")
_OWNER: Final = statement("dedup", "owner")


def put_settings(step: Step, parcel: SettingsParcel) -> None:
    """The queue is set as it was there, and numbers its jobs from far behind those that may still come."""
    row, tx = step.row, step.tx
    row.paused = int(parcel.paused)
    row.concurrency, row.max_waiting, row.rate = parcel.concurrency, parcel.max_waiting, dump_rate(parcel.rate)
    row.held_till = max(row.held_till, parcel.held_till or 0)
    row.groups_set = None if parcel.groups_set is None else parcel.groups_set.dump()
    if parcel.groups_declared is not None:
        row.groups_declared = parcel.groups_declared.dump()
    row.last_number = max(row.last_number, parcel.numbers + HEADROOM)
    row.claims = max(row.claims, parcel.fences)
    tx.run(_SQL["return"], (row.key,))
    tx.run(_SQL["is_back"], (row.key,))
    for name, (limits, paused) in parcel.groups.items():
        row.grouped = 1
        tx.run(_SQL["set_group"], (row.key, name, limits.dump(), int(paused)))
        step.touch(name)
    for time, count in parcel.starts:
        tx.run(_START, (row.key, time, count))
    for name, starts in (parcel.group_starts or {}).items():
        for time, count in starts:
            tx.run(_GROUP_START, (row.key, name, time, count))
    step.arrived()


def put_ledger(tx: Tx, row: QueueRow, parcel: LedgerParcel) -> None:
    """Add what was counted there to what was counted here."""
    _put_runs(tx, row, parcel)
    for minute, completed, failed in parcel.minutes:
        tx.run(_MINUTE, (row.key, minute, completed, failed))
    for (length, number), counted in parcel.slices.items():
        add_to_slice(tx, (row.key, length, number), dict(counted), NAMES if length else ALL_NAMES)
    for job, till, cause, text in parcel.results:
        tx.run(_RESULT, (row.key, job, till, cause, text))
    for key, owner, till in parcel.keys:
        if tx.one(_OWNER, (row.key, key)) is None:
            tx.run(_SQL["hold_key"], (row.key, key, owner, 0, till, None))


def _put_runs(tx: Tx, row: QueueRow, parcel: LedgerParcel) -> None:
    """Records of both, by their time; as many as a queue keeps. Their numbers end with how many there were."""
    row.completed_total += parcel.completed
    row.failed_total += parcel.failed
    row.cancelled_total += parcel.cancelled
    for ending in Ending:
        first, last = run_key(row.key, ending, 0), run_key(row.key, ending, (1 << 40) - 1)
        before = [tuple(each[1:]) for each in tx.all(_SQL["run_records"], (first, last))]
        came = [_columns(run) for run in parcel.runs if run.ending is ending]
        if came or parcel.completed or parcel.failed or parcel.cancelled:
            both = sorted(before + came, key=lambda run: run[5])[-RUNS:]
            tx.run(_FORGET_RUNS, (first, last))
            number = first + max(row.total(ending), len(both)) - len(both)
            tx.run_all(_RUN, [(number + place, *run) for place, run in enumerate(both, 1)])


def _columns(run: Run) -> tuple[Any, ...]:
    return (
        run.id, run.name, run.cause.value, run.added_at, run.started_at, run.finished_at, run.attempts_made,
        run.stalls, run.worker, run.text, int(run.whole), run.subject,
        str(run.parent) if run.parent is not None else "" if run.flow else None,
    )  # fmt: skip
