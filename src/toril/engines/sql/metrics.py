"""Metrics in SQL: attempts counted per step, summed per minute, read as snapshots.

What is counted beside how many jobs completed and failed is added to the current minute, which the queue's own row has;
see `slices` in the schema for the rest.
"""

import json
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Final, NamedTuple

from toril.engines.sql.inspector import queue_view, workers
from toril.engines.sql.options import load_options
from toril.engines.sql.schema import Held, Place, first_rank, priority_of
from toril.engines.sql.statements import query, statements
from toril.engines.sql.transaction import QueueRow, Steps, Transaction
from toril.model import (
    REAPER,
    MetricsWindow,
    MetricTotals,
    MinuteCounts,
    Outcome,
    QueueSnapshot,
    Released,
    Rested,
    Snapshot,
    Snoozed,
)
from toril.policy.metrics import (
    ALL_NAMES,
    LEAP,
    NAMES,
    SLICES,
    STEPS,
    Counted,
    bucket_of,
    sliced,
    totals_of,
)
from toril.store.capabilities import MetricsStore
from toril.store.checked import implements

__all__ = ["MINUTE", "SqlMetrics", "add_to_slice", "count_attempt", "fold_minute", "record"]


class WaitingJob(NamedTuple):
    """A job in the line, and since when it has been waiting."""

    rank: int
    added_at: int
    delay: int
    starts: int
    started_at: int | None
    options_text: str | None


_SQL: Final = statements("metrics")
_NEXT: Final = query("metrics", "next", WaitingJob)
_SCANNED: Final = 8  # jobs and priorities to examine for the one that has waited longest
_LENGTHS: Final = sorted(set(STEPS.values()))
_UNENDED: Final = (Snoozed, Released, Rested)
MINUTE: Final = "m"


def count_attempt(counted: Counted, held: Held, outcome: Outcome, now: int) -> None:
    """Count an attempt. How long a job waited is known at its first start; a parent waited for its children."""
    job, stored = held.job, held.job.stored
    started = job.started_at or now
    if job.starts == 1 and stored.parked is None:
        ready = job.added_at + held.delay if stored.ready is None else stored.ready
        field = f"w{bucket_of(started - ready)}"
        counted[field] = counted.get(field, 0) + 1
    if type(outcome) not in _UNENDED:
        field = f"r{bucket_of(now - started)}"
        counted[field] = counted.get(field, 0) + 1


def record(tx: Transaction, row: QueueRow, counted: Counted) -> None:
    """Add to the current minute. If the clock went back a little, that minute continues; if it had been far ahead, the
    minute is set to now, or nothing would be counted until then."""
    minute = tx.now // 60_000
    under_way: Counted = json.loads(row.figures) if row.figures else {}
    last = under_way.pop(MINUTE, minute)
    if last > minute + LEAP:
        last = minute
    if last < minute:
        fold_minute(tx, row, last, under_way)
        last, under_way = minute, {}
    row.figures = json.dumps({MINUTE: last, **sliced(under_way, counted)}, ensure_ascii=False)


def fold_minute(tx: Transaction, row: QueueRow, minute: int, counted: Counted) -> None:
    """Add a minute that is over to its slices and to the total."""
    for step in _LENGTHS:
        slice_ = minute // step
        add_to_slice(tx, (row.key, step, slice_), counted, NAMES)
        tx.run(_SQL["old_slices"], (row.key, step, slice_ - SLICES))
    add_to_slice(tx, (row.key, 0, 0), counted, ALL_NAMES)


def add_to_slice(tx: Transaction, place: tuple[int, int, int], counted: Counted, names: int) -> None:
    before = tx.value(_SQL["slice"], place)
    total = sliced({} if before is None else json.loads(before), counted, names)
    tx.run(_SQL["put_slice"], (*place, json.dumps(total, ensure_ascii=False)))


def _snapshot(tx: Transaction, names: Sequence[str], window: MetricsWindow) -> Snapshot:
    """Implements `MetricsStore.snapshot`."""
    queues = tuple(_queue_snapshot(tx, name, window) for name in names)
    return Snapshot(tx.now, queues, tuple(workers(tx, None)), _leader(tx))


def _leader(tx: Transaction) -> str | None:
    owner: str | None = tx.value(_SQL["leader"], (REAPER, tx.now))
    return owner


def _queue_snapshot(tx: Transaction, name: str, window: MetricsWindow) -> QueueSnapshot:
    view, row = queue_view(tx, name), tx.find(name)
    slices, total = ({}, MetricTotals()) if row is None else _counted(tx, row, window)
    return QueueSnapshot(
        name=name,
        counts=view.counts,
        oldest=None if row is None else _oldest(tx, row),
        completed_total=view.completed_total,
        failed_total=view.failed_total,
        minutes=_minutes(tx, name, window.minutes),
        slices=slices,
        total=total,
    )


def _counted(tx: Transaction, row: QueueRow, window: MetricsWindow) -> tuple[dict[int, MetricTotals], MetricTotals]:
    """What was counted in each slice of the window and in total, including the current minute."""
    first = tx.now // 60_000 // window.step - window.slices
    found: dict[int, Counted] = {
        number: json.loads(counted) for number, counted in tx.all(_SQL["slices"], (row.key, window.step, first))
    }
    before = tx.value(_SQL["total"], (row.key,))
    total: Counted = {} if before is None else json.loads(before)
    latest: Counted = json.loads(row.figures) if row.figures else {MINUTE: 0}
    number = latest.pop(MINUTE) // window.step
    if number > first:
        found[number] = sliced(found.get(number, {}), latest)
    slices = {number: totals_of(counted) for number, counted in found.items()}
    return slices, totals_of(sliced(total, latest, ALL_NAMES))


def _oldest(tx: Transaction, row: QueueRow) -> int | None:
    """Since when the job that has waited longest has been waiting, judged by a few jobs: the next ones in the line, and
    the next one of each priority. Parents are skipped, as their time began with the end of their last child."""
    since = []
    for job in _next(tx, row):
        stored = load_options(job.options_text)
        if stored.parked is None:
            ready = stored.ready or job.added_at + (0 if job.starts else job.delay)
            since.append(min(tx.now, max(ready, job.started_at or 0)))
    return min(since, default=None)


def _next(tx: Transaction, row: QueueRow) -> Iterator[WaitingJob]:
    for place, count in ((Place.WAITING, row.waiting), (Place.SUSPECT, row.suspects)):
        if count:
            yield from tx.rows(_NEXT, (row.key, place, -(2**62), _SCANNED))
    rank = 0
    for _ in range(_SCANNED if row.prioritized else 0):
        job = tx.row(_NEXT, (row.key, Place.PRIORITIZED, rank, 1))
        if job is None:
            return
        yield job
        rank = first_rank(priority_of(job.rank) + 1)


def _minutes(tx: Transaction, name: str, minutes: int) -> MinuteCounts:
    """The last `minutes` minutes, including the current one."""
    this = tx.now // 60_000
    completed, failed = [0] * minutes, [0] * minutes
    row = tx.find(name)
    for minute, good, bad in tx.all(_SQL["minutes"], (row.key, this - minutes, this)) if row else ():
        completed[minute - this - 1], failed[minute - this - 1] = good, bad
    return MinuteCounts(this - minutes + 1, tuple(completed), tuple(failed))


@implements(MetricsStore)
class SqlMetrics:
    """Queues in numbers."""

    def __init__(self, steps: Steps) -> None:
        self._steps = steps

    async def snapshot(self, queues: Sequence[str], window: MetricsWindow, *, now: int | None = None) -> Snapshot:
        return await self._steps.read(partial(_snapshot, names=queues, window=window), now)

    async def minutes(self, queue: str, *, minutes: int, now: int | None = None) -> MinuteCounts:
        return await self._steps.read(partial(_minutes, name=queue, minutes=minutes), now)
