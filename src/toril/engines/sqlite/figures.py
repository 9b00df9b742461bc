"""Queues in figures, at one moment."""

from collections.abc import Iterator, Sequence

from toril.engines.sqlite.layout import Place, first_rank, priority_of
from toril.engines.sqlite.options import load_options
from toril.engines.sqlite.reads import metrics, queue, workers
from toril.engines.sqlite.statements import statement
from toril.engines.sqlite.tx import QueueRow, Tx
from toril.model import Figures, QueueFigures, Tally, Window

__all__ = ["figures"]

_NEXT = statement("figures", "next")
_LOOKED_AT = 8  # jobs, and priorities, among which the one is looked for that has waited longest


def figures(tx: Tx, names: Sequence[str], window: Window) -> Figures:
    """What `Measures.figures` promises."""
    return Figures(tx.now, tuple(_figures(tx, name, window) for name in names), tuple(workers(tx, None)))


def _figures(tx: Tx, name: str, window: Window) -> QueueFigures:
    view, row = queue(tx, name), tx.find(name)
    return QueueFigures(
        name=name, counts=view.counts, oldest=None if row is None else _oldest(tx, row),
        completed_total=view.completed_total, failed_total=view.failed_total,
        minutes=metrics(tx, name, window.minutes), slices={}, total=Tally(),
    )  # fmt: skip


def _oldest(tx: Tx, row: QueueRow) -> int | None:
    """Since when the job waits that has waited longest, as far as a few looks tell: at the next ones in the line, and
    at the next one of each priority. Parents are passed over, whose time began with the end of their last child."""
    since = [
        min(tx.now, max(added_at + (0 if starts else delay), started_at or 0))
        for _, added_at, delay, starts, started_at, options in _next(tx, row)
        if options is None or load_options(options).parked is None
    ]
    return min(since, default=None)


def _next(tx: Tx, row: QueueRow) -> Iterator[tuple[int, int, int, int, int | None, str | None]]:
    for place, count in ((Place.WAITING, row.waiting), (Place.SUSPECT, row.suspects)):
        if count:
            yield from tx.all(_NEXT, (row.key, place, -(2**62), _LOOKED_AT))
    rank = 0
    for _ in range(_LOOKED_AT if row.prioritized else 0):
        found = tx.all(_NEXT, (row.key, Place.PRIORITIZED, rank, 1))
        if not found:
            return
        yield found[0]
        rank = first_rank(priority_of(found[0][0]) + 1)
