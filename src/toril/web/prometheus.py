"""Metrics in Prometheus's text format. They cover the whole fleet, whichever process is asked."""

import asyncio
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from prometheus_client.registry import Collector
from starlette.responses import Response

from toril.app import App
from toril.model import MetricsWindow, QueueSnapshot, Snapshot, WorkerRow
from toril.operate.lookup import find_queues
from toril.outbox.database import OutboxStatus
from toril.policy.metrics import AT_ONCE, merged, middle_of, quantile
from toril.runtime.clock import Clock

__all__ = ["Exporter"]

_FRESH: Final = 1.0  # seconds for which an answer is reused, so that many scrapes cost no more than one
_QUEUES: Final = 500  # queues to report, to bound labels: the app's own, then others by name
_WINDOW: Final = MetricsWindow(1, 6, 2)  # recent run times are those of the last six to twelve minutes
_OCTAVES: Final = range(23)  # bounds of histograms: 1 ms, 2 ms, … 70 minutes
_OTHERS: Final = "(other)"


class Exporter:
    """Reads the store at most once a second."""

    def __init__(self, app: App, clock: Clock) -> None:
        self._app = app
        self._clock = clock
        self._asked: float | None = None
        self._asking = asyncio.Lock()  # concurrent requests get the same answer
        self._text = b""

    async def response(self) -> Response:
        async with self._asking:
            now = self._clock.monotonic()
            if self._asked is None or now - self._asked >= _FRESH:
                self._text = await self._written()
                self._asked = now
        return Response(self._text, media_type=CONTENT_TYPE_PLAIN_0_0_4)

    async def _written(self) -> bytes:
        app = self._app
        others = sorted({*await find_queues(app.store)} - {*app.queues})
        every = [*sorted(app.queues), *others]
        names = every[:_QUEUES]
        parts = [names[at : at + AT_ONCE] for at in range(0, len(names) or 1, AT_ONCE)]
        found = [await app.store.metrics.snapshot(part, _WINDOW) for part in parts]
        leases = {name: queue.options.lease for name, queue in app.queues.items()}
        registry = CollectorRegistry(auto_describe=False)
        registry.register(_Fleet(found, leases, len(every) - len(names)))
        registry.register(_Outbox(await app.outbox_status()))
        return generate_latest(registry)


class _Fleet(Collector):
    """What was read, as metrics."""

    def __init__(self, found: list[Snapshot], leases: Mapping[str, int], left_out: int) -> None:
        self._left_out = left_out
        self._queues = [each for figures in found for each in figures.queues]
        self._last = found[-1]
        self._leases = leases

    def collect(self) -> Iterator[Metric]:
        yield from _counters(self._queues)
        yield _times(
            "toril_job_wait_seconds",
            "Time from when a job was due to its first start.",
            ((each.name, each.total.waits) for each in self._queues),
        )
        yield _times(
            "toril_job_run_seconds",
            "Duration of attempts.",
            ((each.name, each.total.runs) for each in self._queues),
        )
        yield from _gauges(self._queues, self._last.now)
        yield from _workers(self._last.workers)
        leader = GaugeMetricFamily("toril_leader", "Whether there is a recovery leader.")
        leader.add_metric([], 0 if self._last.leader is None else 1)
        yield leader
        left_out = GaugeMetricFamily("toril_queues_left_out", "Queues left out because there are too many.")
        left_out.add_metric([], self._left_out)
        yield left_out
        yield self._shares()

    def _shares(self) -> Metric:
        share = GaugeMetricFamily(
            "toril_run_p95_lease_ratio",
            "Recent p95 run time divided by the lease; above 0.5 the lease is too short.",
            labels=["queue"],
        )
        for each in self._queues:
            late = quantile(merged(part.runs for part in each.slices.values()), 0.95)
            if late is not None and each.name in self._leases:
                share.add_metric([each.name], round(late / self._leases[each.name], 4))
        return share


class _Outbox(Collector):
    """Metrics of the outbox; none if there is no outbox, or its database does not answer."""

    def __init__(self, found: OutboxStatus | None) -> None:
        self._found = found

    def collect(self) -> Iterator[Metric]:
        if self._found is not None:
            rows = GaugeMetricFamily("toril_outbox_rows", "Jobs in the outbox, up to 100,000.", labels=["state"])
            rows.add_metric(["waiting"], self._found.waiting)
            rows.add_metric(["refused"], self._found.refused)
            oldest = GaugeMetricFamily("toril_outbox_oldest_seconds", "Age of the oldest job in the outbox.")
            oldest.add_metric([], self._found.oldest)
            yield from (rows, oldest)


def _counters(queues: Iterable[QueueSnapshot]) -> Iterator[Metric]:
    ended = CounterMetricFamily("toril_jobs", "Jobs that have ended.", labels=["queue", "outcome"])
    failures = CounterMetricFamily(
        "toril_job_failures", "Jobs that failed permanently, by name.", labels=["queue", "name"]
    )
    retries = CounterMetricFamily("toril_job_retries", "Failed attempts that are retried.", labels=["queue"])
    stalled = CounterMetricFamily("toril_stalled", "Jobs recovered from dead workers.", labels=["queue"])
    lost = CounterMetricFamily("toril_lease_losses", "Leases that expired before they were renewed.", labels=["queue"])
    rests = CounterMetricFamily("toril_rests", "Times that jobs began to rest.", labels=["queue"])
    steps = CounterMetricFamily("toril_steps", "Rows that jobs recorded of durable steps.", labels=["queue"])
    signals = CounterMetricFamily(
        "toril_signals", "Signals to jobs and keys, by what became of them.", labels=["queue", "outcome"]
    )
    for each in queues:
        ended.add_metric([each.name, "completed"], each.completed_total)
        ended.add_metric([each.name, "failed"], each.failed_total)
        ended.add_metric([each.name, "cancelled"], each.total.cancelled)
        named = Counter(each.total.failures)
        named[_OTHERS] += each.total.other_failures  # which may also be a job's name
        for name, count in named.items():
            if count:
                failures.add_metric([each.name, name], count)
        retries.add_metric([each.name], each.total.retries)
        stalled.add_metric([each.name], each.total.stalls)
        lost.add_metric([each.name], each.total.lost)
        rests.add_metric([each.name], each.total.rests)
        steps.add_metric([each.name], each.total.steps)
        for outcome, count in each.total.signals.items():
            signals.add_metric([each.name, outcome], count)
    yield from (ended, failures, retries, stalled, lost, rests, steps, signals)


def _times(name: str, about: str, histograms: Iterable[tuple[str, Mapping[int, int]]]) -> Metric:
    """A histogram per queue. Its sum is calculated from the middles of the buckets."""
    family = HistogramMetricFamily(name, about, labels=["queue"])
    for queue, histogram in histograms:
        below = [
            (repr(2**octave / 1000), sum(count for bucket, count in histogram.items() if bucket <= 8 * octave))
            for octave in _OCTAVES
        ]
        whole = sum(middle_of(bucket) * count for bucket, count in histogram.items()) / 1000
        family.add_metric([queue], [*below, ("+Inf", sum(histogram.values()))], round(whole, 3))
    return family


def _gauges(queues: Iterable[QueueSnapshot], now: int) -> Iterator[Metric]:
    depth = GaugeMetricFamily("toril_queue_jobs", "Jobs by state.", labels=["queue", "state"])
    resting = GaugeMetricFamily(
        "toril_queue_resting_jobs", "Jobs that rest, which are also delayed or wait for children.", labels=["queue"]
    )
    paused = GaugeMetricFamily("toril_queue_paused", "Whether a queue is paused.", labels=["queue"])
    oldest = GaugeMetricFamily(
        "toril_queue_oldest_seconds", "How long the oldest waiting job has waited.", labels=["queue"]
    )
    for each in queues:
        for state in each.counts:
            depth.add_metric([each.name, state], each.counts[state])
        resting.add_metric([each.name], each.counts.resting)
        paused.add_metric([each.name], int(each.counts.paused))
        oldest.add_metric([each.name], 0 if each.oldest is None else max(0, now - each.oldest) / 1000)
    yield from (depth, resting, paused, oldest)


def _workers(workers: Iterable[WorkerRow]) -> Iterator[Metric]:
    alive = list(workers)
    for name, about, value in (
        ("toril_workers", "Live worker processes.", len(alive)),
        ("toril_slots", "Jobs that live workers can run at once.", sum(each.slots for each in alive)),
        ("toril_slots_used", "Jobs that live workers are running.", sum(each.running for each in alive)),
        ("toril_loop_lag_seconds", "Largest recent event loop lag of any worker.", _lag(alive)),
    ):
        family = GaugeMetricFamily(name, about)
        family.add_metric([], value)
        yield family


def _lag(workers: list[WorkerRow]) -> float:
    return max((each.lag for each in workers), default=0) / 1000
