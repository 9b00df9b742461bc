"""Counts over time: per minute, and in slices that can be added up."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from toril.model.records import Counts, MinuteCounts, WorkerRow

__all__ = ["REAPER", "MetricTotals", "MetricsWindow", "QueueSnapshot", "Snapshot"]

REAPER: Final = "reaper"  # the role of the leader of the recovery


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricTotals:
    """What was counted over a period. Waits and runs are histograms, from bucket to count; see `policy.metrics`.
    `other_failures` counts the names beyond those that are listed. `rests` are those that began, `steps` the rows that
    jobs recorded of durable steps, `signals` those that reached a job or a key, by their outcome."""

    waits: Mapping[int, int] = field(default_factory=dict)
    runs: Mapping[int, int] = field(default_factory=dict)
    failures: Mapping[str, int] = field(default_factory=dict)
    other_failures: int = 0
    cancelled: int = 0
    retries: int = 0
    stalls: int = 0
    lost: int = 0
    rests: int = 0
    steps: int = 0
    signals: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class MetricsWindow:
    """Which metrics to read, up to now: a number of minutes, and a number of slices of `step` minutes."""

    minutes: int
    step: int
    slices: int


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueSnapshot:
    """A queue at one moment. `oldest` is when the longest-waiting job began to wait; `slices` has, by its number
    (minute // step), each slice with a count; `total` is all that ever ended."""

    name: str
    counts: Counts
    oldest: int | None
    completed_total: int
    failed_total: int
    minutes: MinuteCounts
    slices: Mapping[int, MetricTotals]
    total: MetricTotals


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The queues in the order in which they were asked for, all workers that are alive, and the leading reaper."""

    now: int
    queues: tuple[QueueSnapshot, ...]
    workers: tuple[WorkerRow, ...]
    leader: str | None = None
