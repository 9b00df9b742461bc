"""Queues in figures, at one moment."""

import json
from collections.abc import Iterator, Sequence

from toril.engines.sql.options import load_options
from toril.engines.sql.reads import metrics, queue_view, workers
from toril.engines.sql.recording import MINUTE
from toril.engines.sql.schema import Place, first_rank, priority_of
from toril.engines.sql.statements import statement
from toril.engines.sql.transaction import QueueRow, Tx
from toril.model import REAPER, Figures, QueueFigures, Tally, Window
from toril.policy.tallies import ALL_NAMES, Counted, sliced, tally_of

__all__ = ["figures"]

_NEXT = statement("figures", "next")
_LEADER = statement("figures", "leader")
_SLICE = statement("figures", "slice")
_SLICES = statement("figures", "slices")
_LOOKED_AT = 8  # jobs, and priorities, among which the one is looked for that has waited longest


def figures(tx: Tx, names: Sequence[str], window: Window) -> Figures:
    """What `Measures.figures` promises."""
    return Figures(tx.now, tuple(_figures(tx, name, window) for name in names), tuple(workers(tx, None)), _leader(tx))


def _leader(tx: Tx) -> str | None:
    found = tx.one(_LEADER, (REAPER, tx.now))
    return None if found is None else str(found[0])


def _figures(tx: Tx, name: str, window: Window) -> QueueFigures:
    view, row = queue_view(tx, name), tx.find(name)
    slices, total = ({}, Tally()) if row is None else _counted(tx, row, window)
    return QueueFigures(
        name=name, counts=view.counts, oldest=None if row is None else _oldest(tx, row),
        completed_total=view.completed_total, failed_total=view.failed_total,
        minutes=metrics(tx, name, window.minutes), slices=slices, total=total,
    )  # fmt: skip


def _counted(tx: Tx, row: QueueRow, window: Window) -> tuple[dict[int, Tally], Tally]:
    """What was counted in each slice of the window, and ever; with the minute under way."""
    first = tx.now // 60_000 // window.step - window.slices
    found: dict[int, Counted] = {
        number: json.loads(counted) for number, counted in tx.all(_SLICES, (row.key, window.step, first))
    }
    before = tx.one(_SLICE, (row.key, 0, 0))
    total: Counted = {} if before is None else json.loads(before[0])
    latest: Counted = json.loads(row.figures) if row.figures else {MINUTE: 0}
    number = latest.pop(MINUTE) // window.step
    if number > first:
        found[number] = sliced(found.get(number, {}), latest)
    slices = {number: tally_of(counted) for number, counted in found.items()}
    return slices, tally_of(sliced(total, latest, ALL_NAMES))


def _oldest(tx: Tx, row: QueueRow) -> int | None:
    """Since when the job waits that has waited longest, as far as a few looks tell: at the next ones in the line, and
    at the next one of each priority. Parents are passed over, whose time began with the end of their last child."""
    since = []
    for _, added_at, delay, starts, started_at, text in _next(tx, row):
        options = load_options(text)
        if options.parked is None:
            ready = options.ready or added_at + (0 if starts else delay)
            since.append(min(tx.now, max(ready, started_at or 0)))
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
