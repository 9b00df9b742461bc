"""Metrics of queues: what is in them now, and what has ended over a range of time."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from toril.model import Counts, MetricsWindow, MetricTotals, QueueSnapshot, Snapshot, WorkerRow, moment
from toril.policy.metrics import AT_ONCE, Spread, bucketed, failure_rate, merged, spread, sum_of, window_of
from toril.records import Seconds, WorkerRecord, as_record
from toril.store.engine import Store

__all__ = ["Overview", "QueueMetrics", "QueueOverview", "Series", "Spread", "metrics", "overview"]

_HOUR = MetricsWindow(60, 6, 10)
_RECENT = 2  # slices of six minutes from which the current waiting time is computed
_PACE = 5  # minutes from which the current rate is computed


@dataclass(frozen=True, slots=True)
class Series:
    """Points in time, oldest first: `times` is when each begins, the other fields how many jobs ended in it, and
    how."""

    id: str
    data: tuple[tuple[datetime, int], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueMetrics:
    """The metrics of a queue over a range of time.

    `counts` and `workers` are as of now; everything else covers the range, whose points have `step` seconds each. The
    first begins at `start`, the last is still under way. `completed`, `failed` and their series count every job,
    whichever library ran it; the rest covers Toril's workers only. Cancelled jobs are neither completed nor failed.
    `failures` has the names that failed most, `other_failures` the rest.
    """

    queue: str
    range: str
    start: datetime
    step: Seconds
    counts: Counts
    workers: int
    completed: int
    failed: int
    cancelled: int
    failure_rate: float
    series: tuple[Series, Series, Series]
    wait: Spread
    run: Spread
    waits: tuple[Spread, ...]
    runs: tuple[Spread, ...]
    failures: Mapping[str, int]
    other_failures: int
    retries: int
    stalls: int
    lost_leases: int


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueOverview:
    """The last hour of a queue in short.

    `completed` and `failed` have one entry per minute, the last still under way. `rate` is how many jobs ended per
    minute over the last five minutes. `wait_p95` (seconds) covers the jobs that ended in the last six to twelve
    minutes; `oldest` (seconds) is how long the longest-waiting job has waited.
    """

    queue: str
    counts: Counts
    workers: int
    completed: tuple[int, ...]
    failed: tuple[int, ...]
    cancelled: int
    failure_rate: float
    rate: float
    wait_p95: Seconds | None
    run_p95: Seconds | None
    oldest: Seconds | None
    retries: int
    stalls: int
    lost_leases: int
    target_wait: Seconds

    @property
    def waits_too_long(self) -> bool:
        """Whether jobs have recently waited longer than they should."""
        return self.wait_p95 is not None and self.wait_p95 > self.target_wait


@dataclass(frozen=True, slots=True)
class Overview:
    """All queues by name and the workers that are alive, as of `now` by the store's clock."""

    now: datetime
    queues: tuple[QueueOverview, ...]
    workers: tuple[WorkerRecord, ...]


async def metrics(store: Store, queue: str, given: str) -> QueueMetrics:
    """The metrics of a queue, in one call to the store."""
    window = window_of(given)
    found = await store.metrics.snapshot([queue], window)
    (figures,) = found.queues
    first, step = figures.minutes.first, window.step
    completed = bucketed(first, figures.minutes.completed, step)
    failed = bucketed(first, figures.minutes.failed, step)
    start = completed[0][0]
    slices = [figures.slices.get(start // 60_000 // step + n, MetricTotals()) for n in range(len(completed))]
    whole = sum_of(slices)
    cancelled = [(at, each.cancelled) for (at, _), each in zip(completed, slices, strict=True)]
    good, bad = _total(completed), _total(failed)
    return QueueMetrics(
        queue=queue,
        range=given,
        start=moment(start),
        step=step * 60.0,
        counts=figures.counts,
        workers=_serving(found.workers, queue),
        completed=good,
        failed=bad,
        cancelled=whole.cancelled,
        failure_rate=failure_rate(good, bad),
        series=(_series("Completed", completed), _series("Failed", failed), _series("Cancelled", cancelled)),
        wait=spread(whole.waits),
        run=spread(whole.runs),
        waits=tuple(spread(each.waits) for each in slices),
        runs=tuple(spread(each.runs) for each in slices),
        failures=whole.failures,
        other_failures=whole.other_failures,
        retries=whole.retries,
        stalls=whole.stalls,
        lost_leases=whole.lost,
    )


async def overview(store: Store, queues: Sequence[str], targets: Mapping[str, float]) -> Overview:
    """These queues, in a few calls. `targets` says how many seconds jobs should wait at most."""
    found = [
        await store.metrics.snapshot(queues[at : at + AT_ONCE], _HOUR) for at in range(0, len(queues) or 1, AT_ONCE)
    ]
    rows = [_hour(figures, each, targets[each.name]) for figures in found for each in figures.queues]
    last = found[-1]
    return Overview(moment(last.now), tuple(rows), tuple(as_record(WorkerRecord, worker) for worker in last.workers))


def _hour(found: Snapshot, figures: QueueSnapshot, target: float) -> QueueOverview:
    minutes, slices = figures.minutes, figures.slices
    last = found.now // 60_000 // _HOUR.step
    recent = [slices[number] for number in range(last - _RECENT + 1, last + 1) if number in slices]
    hour = sum_of(slices.values())
    ended = sum(minutes.completed[-_PACE - 1 :]) + sum(minutes.failed[-_PACE - 1 :])
    pace = _PACE + found.now % 60_000 / 60_000
    return QueueOverview(
        queue=figures.name,
        counts=figures.counts,
        workers=_serving(found.workers, figures.name),
        completed=minutes.completed,
        failed=minutes.failed,
        cancelled=hour.cancelled,
        failure_rate=failure_rate(sum(minutes.completed), sum(minutes.failed)),
        rate=ended / pace,
        wait_p95=spread(merged(each.waits for each in recent)).p95,
        run_p95=spread(merged(each.runs for each in recent)).p95,
        oldest=None if figures.oldest is None else max(0, found.now - figures.oldest) / 1000,
        retries=hour.retries,
        stalls=hour.stalls,
        lost_leases=hour.lost,
        target_wait=target,
    )


def _serving(workers: Iterable[WorkerRow], queue: str) -> int:
    """The workers whose event loop is not blocked."""
    return sum(queue in worker.queues and not worker.silent for worker in workers)


def _series(name: str, points: Iterable[tuple[int, int]]) -> Series:
    return Series(name, tuple((moment(start), count) for start, count in points))


def _total(points: Iterable[tuple[int, int]]) -> int:
    return sum(count for _, count in points)
