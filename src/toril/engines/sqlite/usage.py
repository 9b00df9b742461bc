"""Estimates how much space a queue takes in a SQLite file."""

from collections.abc import Sequence
from typing import Final

from toril.engines.sql.schema import first_key, run_key
from toril.engines.sql.statements import statements
from toril.engines.sql.transaction import Transaction
from toril.model import USAGE_SAMPLE, RunStatus, Usage

__all__ = ["usage"]

_SQL: Final = statements("usage", __package__)
_ROW: Final = 14  # bytes of a row besides its contents: key, header, and pointer in the page
_LINE: Final = 32  # an entry of `line`
_OF_STEPS: Final = ("steps", "recorded", "signals", "rests")
_HELD: Final = 0.9  # the share of a page that rows fill if they are inserted in order


def usage(tx: Transaction, name: str) -> Usage:
    """The space that a queue takes; 0 if it was never used."""
    row = tx.find(name)
    if row is None:
        return Usage(bytes=0, jobs=0, sampled=0)
    (page,) = tx.one("PRAGMA page_size") or (4096,)
    first, end = first_key(row.key), first_key(row.key + 1)
    jobs = row.jobs
    recorded = _OF_STEPS if row.stepping else ()
    sizes = [_job(tx, key, end, page, recorded) for key in _sample(tx, first, end, jobs)]
    held = sum(sizes) / len(sizes) * jobs if sizes else 0.0
    beside = (
        ("runs", (run_key(row.key, RunStatus.COMPLETED, 0), run_key(row.key + 1, RunStatus.COMPLETED, 0))),
        ("events", (first, end)),
        ("results", (row.key,)),
        ("schedules", (row.key,)),
        ("slices", (row.key,)),
        ("minutes", (row.key,)),
        ("awaited", (row.key,)),
        ("kept_signals", (row.key,)),
        ("sent_ids", (row.key,)),
    )
    for statement_name, parameters in beside:
        count, size = tx.one(_SQL[statement_name], parameters) or (0, 0)
        held += count * _ROW + size
    return Usage(bytes=round(held / _HELD), jobs=jobs, sampled=len(sizes))


def _sample(tx: Transaction, first: int, end: int, jobs: int) -> list[int]:
    """Keys from which to search for a job, spread evenly; if there are few jobs, each job's own key."""
    last = tx.one(_SQL["last_job"], (first, end))
    found = tx.one(_SQL["job"], (first, end))
    if last is None or found is None:
        return []
    if jobs <= USAGE_SAMPLE:
        keys = []
        while found is not None:
            keys.append(found[0])
            found = tx.one(_SQL["job"], (found[0] + 1, end))
        return keys
    span = last[0] - found[0]
    return [found[0] + span * n // (USAGE_SAMPLE - 1) for n in range(USAGE_SAMPLE)]


def _job(tx: Transaction, key: int, end: int, page: int, recorded: Sequence[str]) -> float:
    """The space of the first job from a key on, with its rows in other tables; `recorded` names those of durable
    steps."""
    key, size, identity, group, logs = tx.one(_SQL["job"], (key, end)) or (key, 0, 0, 0, 0)
    taken = _in_pages(size + _ROW, page) + _LINE
    if identity:
        taken += identity + _ROW + 8
    if group:
        taken += group + _ROW + 24
    for statement_name in (*(("logs",) if logs else ()), "children", *recorded):
        count, more = tx.one(_SQL[statement_name], (key,)) or (0, 0)
        taken += count * (_ROW + 8) + more
    return taken


def _in_pages(size: int, page: int) -> float:
    """The space of a row. Rows share a page as far as they fit; what does not fit continues in pages of its own."""
    if size <= page - 35:
        return max(size, page * _HELD / ((page - 8) // size))
    least = (page - 12) * 32 // 255 - 23  # what SQLite keeps in the table's own page
    return least + -(-(size - least) // (page - 4)) * page * _HELD
