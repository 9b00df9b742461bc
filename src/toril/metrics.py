"""A queue in figures: what is in it now, and what ended in a range of time."""

import asyncio
from dataclasses import dataclass

from toril.engine import Store
from toril.model import Counts
from toril.policy.figures import bucketed, check_range, failure_rate

__all__ = ["QueueMetrics", "Series", "metrics"]


@dataclass(frozen=True, slots=True)
class Series:
    """Points in time, the oldest first: when each begins, in ms, and how many jobs ended so within it."""

    id: str
    data: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueMetrics:
    """`counts` and `workers` are of now; `completed`, `failed`, `failure_rate` (percent) and the two series of the
    range."""

    queue: str
    range: str
    counts: Counts
    workers: int
    completed: int
    failed: int
    failure_rate: float
    series: tuple[Series, Series]


async def metrics(store: Store, queue: str, given: str) -> QueueMetrics:
    """All of it, asked for at once."""
    minutes = check_range(given)
    counts, workers, figures = await asyncio.gather(
        store.counts(queue), store.workers(queue), store.metrics(queue, minutes=minutes)
    )
    completed, failed = sum(figures.completed), sum(figures.failed)
    return QueueMetrics(
        queue=queue,
        range=given,
        counts=counts,
        workers=len(workers),
        completed=completed,
        failed=failed,
        failure_rate=failure_rate(completed, failed),
        series=(
            Series("Completed", bucketed(figures.first, figures.completed)),
            Series("Failed", bucketed(figures.first, figures.failed)),
        ),
    )
