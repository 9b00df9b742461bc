"""Queues in figures: what `panel.lua` answers."""

from collections.abc import Sequence
from typing import Any

from toril.engines.redis.options import number
from toril.engines.redis.records import counts_of, minutes_of, worker_of
from toril.engines.redis.store import RedisStore
from toril.model import Figures, Minutes, QueueFigures, Tally, Window
from toril.names import check_queue_name
from toril.policy.figures import check_window

__all__ = ["RedisFigures"]


class RedisFigures(RedisStore):
    """A part of the engine."""

    async def figures(self, queues: Sequence[str], window: Window, *, now: int | None = None) -> Figures:
        check_window(queues, window)
        names = [check_queue_name(name) for name in queues]
        bases = [self._base(name) for name in names]
        moment, workers, rows = await self._read("panel", "", [window.minutes, *bases], now)
        found = tuple(_figures_of(name, row, moment, window) for name, row in zip(names, rows, strict=True))
        return Figures(moment, found, tuple(sorted(map(worker_of, workers), key=lambda worker: worker.id)))


def _figures_of(name: str, row: Sequence[Any], now: int, window: Window) -> QueueFigures:
    counts, oldest, completed, failed = row
    this, minutes = now // 60_000, window.minutes
    return QueueFigures(
        name=name, counts=counts_of(counts), oldest=oldest, completed_total=number(completed[0]),
        failed_total=number(failed[0]),
        minutes=Minutes(this - minutes + 1, minutes_of(completed, this, minutes), minutes_of(failed, this, minutes)),
        slices={}, total=Tally(),
    )  # fmt: skip
