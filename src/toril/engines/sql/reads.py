"""The read side, on one consistent view of the file."""

import json
import re
from collections.abc import Sequence
from typing import Any

from toril.engines.sql import letters
from toril.engines.sql.options import load_failure
from toril.engines.sql.records import ended_job, ended_run, events_of, record_of, run_of, worker_of
from toril.engines.sql.schema import PAGE_BYTES, first_key, job_id, places_of, run_key
from toril.engines.sql.statements import statement
from toril.engines.sql.transaction import QueueRow, Tx, exists, keys_of, settings_of
from toril.errors import InvalidOption, shown
from toril.model import (
    AttemptFailure,
    Counts,
    Declarations,
    Ended,
    Ending,
    Event,
    Events,
    Finished,
    Gone,
    JobRecord,
    Kept,
    Minutes,
    Page,
    QueueView,
    Run,
    Settings,
    WorkerView,
    known,
    letter_id,
    whole,
)
from toril.model.states import FINISHED, State
from toril.policy.attempts import all_errors, load_errors
from toril.policy.retention import MINUTES

__all__ = [
    "arrivals",
    "declarations",
    "errors",
    "events",
    "finished",
    "jobs",
    "logs",
    "metrics",
    "page",
    "pokes",
    "queue_view",
    "queues",
    "runs",
    "workers",
]


_SQL = {name: statement("reads", name) for name in (
    "queues", "job", "running", "forward", "backward", "logs", "errors", "events", "first_events", "workers",
    "declared", "runs", "runs_of", "result", "minutes", "arrivals", "pokes",
)}  # fmt: skip
_MOST = 1_000  # items in one page
_END = 2**63 - 1
_NUMBER = re.compile(r"-?[0-9]{1,19}\Z")


def queues(tx: Tx) -> list[str]:
    return [name for (name,) in tx.all(_SQL["queues"])]


def queue_view(tx: Tx, name: str) -> QueueView:
    """A queue's view; one that nothing was ever put into is empty."""
    row = tx.find(name)
    if row is None:
        return QueueView(
            name=name, counts=Counts(), settings=Settings(), completed_total=0, failed_total=0, cancelled_total=0
        )
    return QueueView(
        name=name, counts=_counts(row), settings=settings_of(row, tx.now), completed_total=row.completed_total,
        failed_total=row.failed_total, cancelled_total=row.cancelled_total,
    )  # fmt: skip


def _counts(row: QueueRow) -> Counts:
    return Counts(
        waiting=row.waiting + row.suspects + row.parked, prioritized=row.prioritized, active=row.active,
        delayed=row.delayed,
        waiting_children=row.waiting_children, completed=row.completed, failed=row.failed, paused=bool(row.paused),
    )  # fmt: skip


def jobs(tx: Tx, name: str, ids: Sequence[str]) -> list[JobRecord | None]:
    row = tx.find(name)
    keys = keys_of(tx, row, ids) if row else {}
    found = [_job(tx, name, keys[identity]) if identity in keys else None for identity in ids]
    return [job if job is not None and job.id == identity else None for job, identity in zip(found, ids, strict=True)]


def _job(tx: Tx, name: str, key: int) -> JobRecord | None:
    found = tx.one(_SQL["job"], (key,))
    return None if found is None else record_of(name, found)


def page(tx: Tx, name: str, state: State, cursor: str | None, limit: int) -> Page[JobRecord]:
    """Jobs of a state: the next to run first, the last to end first."""
    limit, state = _limit(limit), known(State, state)
    row = tx.find(name)
    if row is None:
        return Page(())
    if state is State.ACTIVE:
        keys, after = _running(tx, row, cursor, limit)
    else:
        keys, after = _standing(tx, row, state, cursor, limit)
    found, room = [], PAGE_BYTES
    for count, key in enumerate(keys, 1):
        if (job := _job(tx, name, key)) is not None:
            found.append(job)
            room -= sum(map(len, filter(None, (job.data, job.result, job.progress, job.metadata, job.checkpoint))))
        if room < 0 and count < len(keys):
            return page(tx, name, state, cursor, count)  # once more, for the cursor that stands there
    return Page(tuple(found), after)


def _running(tx: Tx, row: QueueRow, cursor: str | None, limit: int) -> tuple[list[int], str | None]:
    (after,) = _numbers(cursor, 1) or (first_key(row.key),)
    keys = [key for (key,) in tx.all(_SQL["running"], (row.key, after, limit + 1))]
    return keys[:limit], str(keys[limit - 1]) if len(keys) > limit else None


def _standing(tx: Tx, row: QueueRow, state: State, cursor: str | None, limit: int) -> tuple[list[int], str | None]:
    """A walk sees the jobs that were there when it began. One that moves meanwhile has a `moved` above the walk's
    ceiling wherever it goes, so it is not seen again."""
    newest_first = state in FINISHED
    places = list(reversed(places_of(state)))
    start = (places[0], _END if newest_first else -_END, _END if newest_first else -_END, row.moves)
    place, rank, key, ceiling = _numbers(cursor, 4) or start
    if place not in places:
        raise InvalidOption(f"{shown(cursor)} is not a cursor of {state} jobs")
    found: list[tuple[int, int, int]] = []
    for each in places[places.index(place) :]:
        values = (row.key, each, rank, key, ceiling, limit + 1 - len(found))
        found += [(each, *entry) for entry in tx.all(_SQL["backward" if newest_first else "forward"], values)]
        rank, key = start[1], start[2]
    keys = [entry[1] for entry in found[:limit]]
    if len(found) <= limit:
        return keys, None
    place, key, rank = found[limit - 1]
    return keys, f"{place}.{rank}.{key}.{ceiling}"


def logs(tx: Tx, name: str, identity: str, where: Kept, cursor: str | None, limit: int) -> Page[str]:
    limit = _limit(limit)
    key = _key(tx, name, identity) if where == "queue" else letters.log_key(tx, letter_id(name, identity))
    (after,) = _numbers(cursor, 1) or (0,)
    if key is None:
        return Page(())
    found = tx.all(_SQL["logs"], (key, after, limit + 1))
    return Page(tuple(line for _, line in found[:limit]), str(found[limit - 1][0]) if len(found) > limit else None)


def errors(tx: Tx, name: str, identity: str, where: Kept) -> tuple[AttemptFailure, ...]:
    """Why each attempt failed."""
    if where == "dead_letters":
        return letters.errors(tx, letter_id(name, identity))
    key = _key(tx, name, identity)
    if key is None:
        return ()
    text, failure, made, finished_at = tx.one(_SQL["errors"], (key,))
    return all_errors(load_errors(text), load_failure(failure), made=made, at=finished_at)


def _key(tx: Tx, name: str, identity: str) -> int | None:
    """The key of a job that is there."""
    row = tx.find(name)
    key = keys_of(tx, row, (identity,)).get(identity) if row else None
    return key if key is not None and exists(tx, key, identity) else None


def events(tx: Tx, name: str, after: str | None, limit: int, of: str | None) -> Events:
    """What happened after an event, to all jobs or to one; from the beginning of what is kept where none is named."""
    limit = _limit(limit)
    row = tx.find(name)
    (seen,) = _numbers(after, 1) or (None,)
    if row is None:
        return Events((), str(seen or 0))
    base, end = first_key(row.key), first_key(row.key) + row.events
    first = tx.one(_SQL["first_events"], (base, end))
    oldest = row.events + 1 if first is None else first[0] - base - first[1] + 1
    start = oldest - 1 if seen is None else seen
    items: list[Event] = []
    values = (base + min(max(start, 0), row.events), end, limit)
    sought, last = json.dumps(of), start
    for key, time, kind, size, happened, details in tx.all(_SQL["events"], values):
        last = key - base
        if of is None or sought in happened:  # most rows are of other jobs, and need not be taken apart
            found = events_of(last - size, time, kind, happened, details)
            items += [event for event in found if int(event.at) > start and of in {None, event.job_id}]
    if of is None and len(items) >= limit:
        del items[limit:]
        last = int(items[-1].at)
    return Events(tuple(items), str(last), gap=start < oldest - 1)


def workers(tx: Tx, name: str | None) -> list[WorkerView]:
    found = [worker_of(row) for row in tx.all(_SQL["workers"], (tx.now,))]
    return [worker for worker in found if name is None or name in worker.queues]


def declarations(tx: Tx, name: str) -> Declarations:
    return Declarations.of(tx.all(_SQL["declared"], (name, tx.now)))


def runs(tx: Tx, name: str, ending: Ending, cursor: str | None, limit: int) -> Page[Run]:
    """Run records, newest first."""
    limit, ending = _limit(limit), known(Ending, ending)
    row = tx.find(name)
    if row is None:
        return Page(())
    base, total = run_key(row.key, ending, 0), row.total(ending)
    (before,) = _numbers(cursor, 1) or (total + 1,)
    found = tx.all(_SQL["runs"], (base, base + min(max(before, 0), total + 1), limit + 1))
    after = str(found[limit - 1][0] - base) if len(found) > limit else None
    return Page(tuple(run_of(ending, entry) for entry in found[:limit]), after)


def metrics(tx: Tx, name: str, minutes: int) -> Minutes:
    """The last `minutes` minutes, the one under way included."""
    whole("minutes", minutes, 1, MINUTES)
    this = tx.now // 60_000
    completed, failed = [0] * minutes, [0] * minutes
    row = tx.find(name)
    for minute, good, bad in tx.all(_SQL["minutes"], (row.key, this - minutes, this)) if row else ():
        completed[minute - this - 1], failed[minute - this - 1] = good, bad
    return Minutes(this - minutes + 1, tuple(completed), tuple(failed))


def finished(tx: Tx, name: str, ids: Sequence[str]) -> list[Finished]:
    """How each of these jobs ended, as far as the store can tell."""
    row = tx.find(name)
    if row is None:
        return [Finished(identity, Gone()) for identity in ids]
    keys = keys_of(tx, row, ids)
    told = {identity: _ended(tx, row, identity, keys.get(identity)) for identity in ids}
    runs = _last_runs(tx, row, [identity for identity, ended in told.items() if ended is None])
    return [Finished(identity, told[identity] or runs.get(identity) or Gone()) for identity in ids]


def _ended(tx: Tx, row: QueueRow, identity: str, key: int | None) -> Ended | None:
    """How a job ended, as it tells itself or the result that was kept of it."""
    found = None if key is None else tx.one(_SQL["job"], (key,))
    if key is not None and found is not None and job_id(key, found[1]) == identity:
        return ended_job((found[4], found[-1]), found[18], found[19])
    kept = tx.one(_SQL["result"], (row.key, identity, tx.now))
    return None if kept is None else ended_run(*kept, whole=True)


def _last_runs(tx: Tx, row: QueueRow, ids: Sequence[str]) -> dict[str, Ended]:
    """How the last runs of these ended, as the records tell. They have no index of ids: all are looked for at once."""
    last: dict[str, tuple[Any, ...]] = {}
    for ending in Ending if ids else ():
        base = run_key(row.key, ending, 0)
        for identity, *run in tx.all(_SQL["runs_of"], (base, base + (1 << 40), json.dumps(ids))):
            if identity not in last or run[0] >= last[identity][0]:
                last[identity] = tuple(run)
    return {identity: ended_run(cause, text, whole=bool(uncut)) for identity, (_, cause, text, uncut) in last.items()}


def arrivals(tx: Tx, names: Sequence[str]) -> dict[str, str]:
    """A mark of what has arrived in each of these queues so far; another one means that a claim may find work."""
    return dict(tx.all(_SQL["arrivals"], (json.dumps(names),)))


def pokes(tx: Tx, names: Sequence[str]) -> dict[str, str]:
    """A mark of the last call to each of these workers. With its time, as the count begins anew once it was pruned."""
    return dict(tx.all(_SQL["pokes"], (json.dumps(names),)))


def _limit(limit: int) -> int:
    return min(whole("limit", limit, 1, 2**53), _MOST)


def _numbers(cursor: object, count: int) -> tuple[int, ...] | None:
    if cursor is None:
        return None
    parts = cursor.split(".") if isinstance(cursor, str) else []
    numbers = tuple(int(part) for part in parts if _NUMBER.match(part))
    if not len(numbers) == len(parts) == count or not all(-_END <= number <= _END for number in numbers):
        raise InvalidOption(f"{shown(cursor)} is not a cursor that was given out")
    return numbers
