"""Statistics of a queue by job name: how many jobs, how fast, how many failed, how long they ran.

They are computed from run records. A queue remembers the last 1,000 jobs of each ending, so statistics about all names
reach back to the oldest record of the ending with more jobs, and to a day at most.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Final

from toril.model import RunRow, RunStatus
from toril.policy.retention import RUNS

__all__ = ["ByName", "JobName", "by_name"]

_DAY: Final = 86_400_000
_MINUTE: Final = 60_000
_MOMENT: Final = 100  # the least time in ms for a thousand jobs, whatever the clocks say


@dataclass(frozen=True, slots=True, kw_only=True)
class JobName:
    """The jobs of one name that ended: `completed`, `failed` (for good, stalled too often or expired) and `cancelled`.
    `rate` is how many ended per minute; `p50` and `p95` are how long they ran, in ms."""

    name: str
    completed: int
    failed: int
    cancelled: int
    rate: float
    p50: int | None
    p95: int | None
    last_at: int

    @property
    def ended(self) -> int:
        return self.completed + self.failed + self.cancelled

    @property
    def failure_rate(self) -> float:
        """The percentage of failures among those that completed or failed."""
        counted = self.completed + self.failed
        return 100 * self.failed / counted if counted else 0.0


@dataclass(frozen=True, slots=True)
class ByName:
    """Job names, those that failed most first, then the most frequent, of jobs that ended since `since`."""

    since: int
    names: tuple[JobName, ...]


def by_name(endings: Sequence[Sequence[RunRow]], now: int) -> ByName:
    """Statistics from the newest run records of each ending."""
    since = max([now - _DAY, *(runs[-1].finished_at for runs in endings if len(runs) >= RUNS)])
    found: dict[str, list[RunRow]] = {}
    for run in chain.from_iterable(endings):
        if run.finished_at >= since:
            found.setdefault(run.name, []).append(run)
    if since == now - _DAY:  # records cover the whole day: count from the first one, and at least a minute
        first = min((run.finished_at for runs in found.values() for run in runs), default=now)
        since = min(first, now - _MINUTE)
    minutes = max(now - since, _MOMENT) / _MINUTE
    names = [_of(name, runs, minutes) for name, runs in found.items()]
    names.sort(key=lambda each: (-each.failed, -each.ended, each.name))
    return ByName(since, tuple(names))


def _of(name: str, runs: Sequence[RunRow], minutes: float) -> JobName:
    times = sorted(run.finished_at - run.started_at for run in runs if run.started_at is not None)
    ended = Counter(run.ending for run in runs)
    return JobName(
        name=name,
        completed=ended[RunStatus.COMPLETED],
        failed=ended[RunStatus.FAILED],
        cancelled=ended[RunStatus.CANCELLED],
        rate=len(runs) / minutes,
        p50=_nearest(times, 50),
        p95=_nearest(times, 95),
        last_at=max(run.finished_at for run in runs),
    )


def _nearest(times: Sequence[int], percent: int) -> int | None:
    """The time within which this percentage ended."""
    return times[-(-len(times) * percent // 100) - 1] if times else None
