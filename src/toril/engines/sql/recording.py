"""What is counted of jobs, beside how many completed and failed: gathered in a step, then added to the minute under
way, which the queue's own row has."""

import json
from typing import Any, Final

from toril.engines.sql.options import load_options
from toril.engines.sql.statements import statement
from toril.engines.sql.transaction import QueueRow, Transaction
from toril.model import Outcome, Released, Snoozed, WaitsForChildren
from toril.policy.metrics import ALL_NAMES, LEAP, NAMES, SLICES, STEPS, Counted, bucket_of, sliced

__all__ = ["MINUTE", "add_to_slice", "count_attempt", "put_by", "record"]

_SQL: Final = {name: statement("figures", name) for name in ("slice", "put_slice", "old_slices")}
_LENGTHS: Final = sorted(set(STEPS.values()))
_UNENDED: Final = (Snoozed, Released, WaitsForChildren)
MINUTE: Final = "m"


def count_attempt(counted: Counted, entry: list[Any], outcome: Outcome, now: int) -> None:
    """One attempt came back; the entry is one of `settle.held`. How long a job waited is known of its first start; a
    parent waited for its children."""
    starts, added_at, started_at, options, delay = entry[7], entry[9], entry[10], entry[13], entry[14]
    own = load_options(options)
    if starts == 1 and own.parked is None:
        ready = added_at + delay if own.ready is None else own.ready
        field = f"w{bucket_of(started_at - ready)}"
        counted[field] = counted.get(field, 0) + 1
    if type(outcome) not in _UNENDED:
        field = f"r{bucket_of(now - started_at)}"
        counted[field] = counted.get(field, 0) + 1


def record(tx: Transaction, row: QueueRow, counted: Counted) -> None:
    """Add to the minute under way. Where the clock went back a little, that goes on; where it was far ahead, it is the
    minute of now, or nothing more would be told until then."""
    minute = tx.now // 60_000
    under_way: Counted = json.loads(row.figures) if row.figures else {}
    last = under_way.pop(MINUTE, minute)
    if last > minute + LEAP:
        last = minute
    if last < minute:
        put_by(tx, row, last, under_way)
        last, under_way = minute, {}
    row.figures = json.dumps({MINUTE: last, **sliced(under_way, counted)}, ensure_ascii=False)


def put_by(tx: Transaction, row: QueueRow, minute: int, counted: Counted) -> None:
    """Add a minute that is over to its slices, and to the sum of all."""
    for step in _LENGTHS:
        slice_ = minute // step
        add_to_slice(tx, (row.key, step, slice_), counted, NAMES)
        tx.run(_SQL["old_slices"], (row.key, step, slice_ - SLICES))
    add_to_slice(tx, (row.key, 0, 0), counted, ALL_NAMES)


def add_to_slice(tx: Transaction, place: tuple[int, int, int], counted: Counted, names: int) -> None:
    before = tx.one(_SQL["slice"], place)
    total = sliced({} if before is None else json.loads(before[0]), counted, names)
    tx.run(_SQL["put_slice"], (*place, json.dumps(total, ensure_ascii=False)))
