"""Metrics of queues on Redis, from the answer of `snapshot.lua`."""

import json
from collections.abc import Iterator, Sequence
from typing import Any, Final

from toril.engines.redis.layout import FIELDS
from toril.engines.redis.options import number
from toril.engines.redis.records import counts_of, minutes_of, worker_of
from toril.engines.redis.runner import ScriptRunner
from toril.model import MetricsWindow, MinuteCounts, QueueSnapshot, Snapshot
from toril.policy.metrics import ALL_NAMES, Counted, sliced, totals_of
from toril.store.capabilities import MetricsStore
from toril.store.checked import implements

__all__ = ["RedisMetrics"]

_MINUTE: Final = FIELDS["minute"]
_NAMES: Final = FIELDS["names"]


@implements(MetricsStore)
class RedisMetrics:
    """Metrics of the seam."""

    def __init__(self, runner: ScriptRunner) -> None:
        self._runner = runner

    async def snapshot(self, queues: Sequence[str], window: MetricsWindow, *, now: int | None = None) -> Snapshot:
        bases = [self._runner.base(name) for name in queues]
        asked = [window.minutes, window.step, window.slices, *bases]
        moment, workers, rows, leader = await self._runner.read("snapshot", "", asked, now)
        found = tuple(_figures_of(name, row, moment, window) for name, row in zip(queues, rows, strict=True))
        return Snapshot(moment, found, tuple(sorted(map(worker_of, workers), key=lambda worker: worker.id)), leader)

    async def minutes(self, queue: str, *, minutes: int, now: int | None = None) -> MinuteCounts:
        at, completed, failed = await self._runner.read("minute_counts", queue, [minutes], now)
        this = at // 60_000
        return MinuteCounts(this - minutes + 1, minutes_of(completed, this, minutes), minutes_of(failed, this, minutes))


def _figures_of(name: str, row: Sequence[Any], now: int, window: MetricsWindow) -> QueueSnapshot:
    counts, oldest, completed, failed, under_way, total, past = row
    this, minutes = now // 60_000, window.minutes
    minute, latest = _counted(under_way)
    slices = dict(_slices(past, this // window.step, window.slices))
    if minute is not None and this // window.step - window.slices < minute // window.step:
        slices[minute // window.step] = sliced(slices.get(minute // window.step, {}), latest)
    return QueueSnapshot(
        name=name,
        counts=counts_of(counts),
        oldest=oldest,
        completed_total=number(completed[0]),
        failed_total=number(failed[0]),
        minutes=MinuteCounts(
            this - minutes + 1, minutes_of(completed, this, minutes), minutes_of(failed, this, minutes)
        ),
        slices={slice_: totals_of(counted) for slice_, counted in slices.items()},
        total=totals_of(sliced(_counted(total)[1], latest, ALL_NAMES)),
    )


def _counted(flat: Sequence[str]) -> tuple[int | None, Counted]:
    """The minute, and what was counted in it."""
    pairs = iter(flat)
    found: Counted = {}
    for field, value in zip(pairs, pairs, strict=True):  # a field that occurs twice is counted twice
        found[field] = found.get(field, 0) + number(value)
    found.pop(_NAMES, None)
    return found.pop(_MINUTE, None), found


def _slices(past: Sequence[str | None], last: int, count: int) -> Iterator[tuple[int, Counted]]:
    """The slices of this period, the newest first; older ones in the same places are left out."""
    for back, text in enumerate(past):
        counted: Counted = {} if text is None else json.loads(text)
        counted.pop(_NAMES, None)
        if back < count and counted.pop(_MINUTE, None) == last - back:
            yield last - back, counted
