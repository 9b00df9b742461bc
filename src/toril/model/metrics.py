"""Counts over time: per minute, and in slices that can be added up."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from toril.model.records import Counts, MinuteCounts, WorkerRow

__all__ = ["REAPER", "MetricTotals", "MetricsWindow", "QueueSnapshot", "Snapshot"]

REAPER: Final = "reaper"  # the role of whoever leads the recovery of lost jobs


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricTotals:
    """What was counted in a stretch of time. Waits and runs are histograms: bucket -> how many; see
    `policy.histogram`. `other_failures` are of names beyond those that are told apart."""

    waits: Mapping[int, int] = field(default_factory=dict)
    runs: Mapping[int, int] = field(default_factory=dict)
    failures: Mapping[str, int] = field(default_factory=dict)
    other_failures: int = 0
    cancelled: int = 0
    retries: int = 0
    stalls: int = 0
    lost: int = 0


@dataclass(frozen=True, slots=True)
class MetricsWindow:
    """Which figures are asked for, up to now: so many single minutes, and so many slices of `step` minutes."""

    minutes: int
    step: int
    slices: int


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueSnapshot:
    """A queue at one moment. `oldest` is since when the job waits that has waited longest; `slices` has, by its number
    (minute // step), each slice in which something was counted; `total` is all that ever was."""

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
    """Queues in the order in which they were asked for, all workers that are alive, and which reaper leads."""

    now: int
    queues: tuple[QueueSnapshot, ...]
    workers: tuple[WorkerRow, ...]
    leader: str | None = None
