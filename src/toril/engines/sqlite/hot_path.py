"""Adds usual jobs with few statements, which read and write only what these jobs change."""

import json
from collections.abc import Sequence
from typing import Any, Final

from toril.engines.sql import add as general
from toril.engines.sql.add import is_usual
from toril.engines.sql.calls import remember
from toril.engines.sql.changes import trim_events
from toril.engines.sql.options import options_of
from toril.engines.sql.schema import Place, first_key
from toril.engines.sql.statements import statements
from toril.engines.sql.transaction import Transaction
from toril.model import Added, AddOutcome, Call, EventKind, NewJob
from toril.model.jobs import AlikeJobs, runs_of
from toril.model.states import State

__all__ = ["add"]

_SQL: Final = statements("hot_path", __package__)
_ADDED: Final = EventKind.ADDED.value
_WAITING: Final = EventKind.WAITING.value


def add(tx: Transaction, queue: str, jobs: Sequence[NewJob], call: Call | None) -> list[Added]:
    """`toril.engines.sql.add.add`, with the same effect."""
    runs = runs_of(jobs)
    if jobs and all(is_usual(job) for job, _ in runs) and not tx.knows(queue):
        added = _add_usual(tx, queue, runs, len(jobs), call)
        if added is not None:
            return added
    return general.add(tx, queue, jobs, call)


def _add_usual(
    tx: Transaction, queue: str, runs: Sequence[AlikeJobs], count: int, call: Call | None
) -> list[Added] | None:
    """None: the queue is new or has a limit, or this is an earlier call again."""
    found = tx.one(_SQL["standing"], (None if call is None else call.sender, queue))
    if found is None:
        return None
    key, last, moves, events, limit, seq = found
    if limit is not None or (call is not None and seq is not None and seq >= call.seq):
        return None
    now, waiting, base = tx.now, Place.WAITING, first_key(key)
    jobs: list[tuple[Any, ...]] = []
    for job, texts in runs:
        expires, options = None if job.expires is None else now + job.expires, options_of(job)
        name, own = job.name, (job.attempts, now, expires, options, job.metadata)
        number, move = base + last + len(jobs), moves + len(jobs)
        jobs += [(number + n, name, waiting, move + n, *own, text) for n, text in enumerate(texts, 1)]
    tx.run_all(_SQL["job"], jobs)
    tx.run_all(_SQL["line"], [(key, waiting, move, number, move) for number, _, _, move, *_ in jobs])
    ids = [str(last + n) for n in range(1, count + 1)]
    listed, names = json.dumps(ids), json.dumps({"name": [name for _, name, *_ in jobs]})
    middle, end = events + count, events + 2 * count
    rows = (base + middle, now, _ADDED, count, listed, names, base + end, now, _WAITING, count, listed)
    tx.run(_SQL["events"], rows)
    trim_events(tx, key, events, end)
    remember(tx, call, [last + count, count])
    tx.run(_SQL["count"], (last + count, moves + count, end, count, key))
    tx.notify(queue)
    outcome, state = AddOutcome.ADDED, State.WAITING
    return [Added(identity, outcome, state) for identity in ids]
