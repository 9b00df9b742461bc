"""`SqlInspector`: pages, counts, logs, events, `explain`."""

import json
import re
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, TypeVar

from toril.engines.sql import dead_letters as letters
from toril.engines.sql.flows import family
from toril.engines.sql.groups import standing
from toril.engines.sql.options import load_failure, load_options, load_rate
from toril.engines.sql.recording import MINUTE
from toril.engines.sql.schema import (
    PAGE_BYTES,
    STATE_OF,
    Place,
    due_of,
    first_key,
    first_rank,
    job_id,
    places_of,
    priority_of,
    run_key,
)
from toril.engines.sql.statements import statement
from toril.engines.sql.transaction import QueueRow, Steps, Transaction, exists, keys_of, settings_of
from toril.errors import InvalidOption, preview
from toril.model import (
    BATCH,
    CANCELLED_KIND,
    REAPER,
    AttemptFailure,
    Cancelled,
    Cause,
    ChildCounts,
    Completed,
    Counts,
    Declarations,
    Ended,
    EventKind,
    EventPage,
    EventRow,
    Failed,
    Failure,
    Finished,
    Gone,
    JobBlockers,
    JobRef,
    JobRow,
    Kept,
    Limits,
    MetricsWindow,
    MetricTotals,
    MinuteCounts,
    Page,
    Pending,
    Precedence,
    QueueSnapshot,
    QueueSummary,
    RateLimit,
    RunRow,
    RunStatus,
    Settings,
    Snapshot,
    StackRequest,
    WorkerRow,
    check_int,
    known,
    letter_id,
    per_ms,
)
from toril.model.names import check_queue_name
from toril.model.states import FINISHED, State
from toril.policy.attempts import all_errors, load_errors
from toril.policy.metrics import ALL_NAMES, Counted, check_window, sliced, tally_of
from toril.policy.retention import MINUTES

__all__ = [
    "SqlInspector",
    "SqlMetrics",
    "arrivals",
    "declarations",
    "ended_job",
    "ended_run",
    "errors",
    "events",
    "events_of",
    "explain",
    "figures",
    "finished",
    "jobs",
    "logs",
    "metrics",
    "page",
    "pokes",
    "queue_view",
    "queues",
    "record_of",
    "run_of",
    "runs",
    "worker_of",
    "workers",
]

_EXPLAIN_SQL = {name: statement("explain", name) for name in ("place", "before", "running", "starts", "runs_alone")}


def explain(tx: Transaction, queue: str, identity: str, limits: Limits) -> JobBlockers:
    """What `Inspector.explain` promises."""
    row = tx.find(queue)
    if row is None:
        return JobBlockers(now=tx.now)
    rate = load_rate(row.rate) or limits.rate
    key = keys_of(tx, row, [identity]).get(identity)
    place, rank = (None, 0) if key is None else tx.one(_EXPLAIN_SQL["place"], (key,)) or (None, 0)
    return JobBlockers(
        now=tx.now,
        ahead=0 if place is None else _ahead(tx, row, place, rank, limits.precedence),
        running=tuple(job_id(key, chosen) for key, chosen in tx.all(_EXPLAIN_SQL["running"], (row.key,))),
        rate_till=None if rate is None else _till(tx, row, rate),
        family=family(tx, JobRef(queue, identity), "queue", 10) if row.waiting_children else ChildCounts(),
        group=standing(tx, row, identity) if row.grouped else None,
        alone=place == Place.SUSPECT or tx.one(_EXPLAIN_SQL["runs_alone"], (key,)) is not None,
    )


def _ahead(tx: Transaction, row: QueueRow, place: int, rank: int, precedence: Precedence) -> int:
    if place not in {Place.SUSPECT, Place.WAITING, Place.PRIORITIZED}:
        return 0
    before = int(tx.one(_EXPLAIN_SQL["before"], (row.key, place, rank))[0])
    if place == Place.PRIORITIZED and precedence is Precedence.PLAIN_FIRST:
        return before + row.waiting
    if place == Place.WAITING and precedence is Precedence.PRIORITY_FIRST:
        return before + row.prioritized
    return before


def _till(tx: Transaction, row: QueueRow, rate: RateLimit) -> int | None:
    """When a used-up rate lets more start; None if it does now."""
    if rate.window == "fixed":
        return row.window_till if row.window_till > tx.now and row.window_starts >= rate.max else None
    count, oldest = tx.one(_EXPLAIN_SQL["starts"], (row.key, tx.now - per_ms(rate)))
    return oldest + per_ms(rate) if count >= rate.max else None


def record_of(queue: str, row: tuple[Any, ...]) -> JobRow:
    (key, chosen, name, data, place, rank, attempts, attempts_made, stalls, starts, fence, priority, delay, expires_at,
     text, metadata, checkpoint, progress, result, failure, stall_cause, cancelling, worker, added_at, started_at,
     finished_at, group, deadline) = row  # fmt: skip
    options = load_options(text)
    state = STATE_OF[place] if deadline is None else State.ACTIVE
    return JobRow(
        queue=queue, id=job_id(key, chosen), name=name, data=data, state=state, max_attempts=attempts,
        attempts_made=attempts_made, stalls=stalls, starts=starts, fence=fence, priority=priority, delay=delay,
        due=due_of(rank) if state is State.DELAYED else None, backoff=options.backoff, timeout=options.timeout,
        expires_at=expires_at, keep_completed=options.keep_completed, keep_failed=options.keep_failed,
        keep_logs=options.keep_logs, result_ttl=options.result_ttl, breaker=options.breaker, subject=options.subject,
        metadata=metadata, checkpoint=checkpoint,
        progress=progress, result=result, failure=load_failure(failure), stall_cause=stall_cause,
        cancelling=cancelling, worker=worker, added_at=added_at, started_at=started_at, finished_at=finished_at,
        deadline=deadline, group=group, unreadable=options.fault,
        parent=None if options.parent is None else JobRef(options.parent.queue, options.parent.id),
    )  # fmt: skip


def run_of(ending: RunStatus, row: tuple[Any, ...]) -> RunRow:
    (
        _, identity, name, cause, added_at, started_at, finished_at, attempts_made, stalls, worker, text, whole,
        subject, parent,
    ) = row  # fmt: skip
    return RunRow(
        id=identity, name=name, ending=ending, cause=Cause(cause), added_at=added_at, started_at=started_at,
        finished_at=finished_at, attempts_made=attempts_made, stalls=stalls, worker=worker, text=text,
        whole=bool(whole), subject=subject, parent=JobRef(*parent.split(":", 1)) if parent else None,
        flow=parent is not None,
    )  # fmt: skip


def events_of(before: int, time: int, kind: str, jobs: str, details: str | None) -> list[EventRow]:
    """The events of one row; `before` is the number of the event before them."""
    columns = json.loads(details) if details else {}
    return [
        EventRow(str(before + n), time, EventKind(kind), job, {name: values[n - 1] for name, values in columns.items()})
        for n, job in enumerate(json.loads(jobs), 1)
    ]


def worker_of(row: tuple[Any, ...]) -> WorkerRow:
    identity, seen_at, orders, text = row
    beat = json.loads(text)
    return WorkerRow(
        id=identity, queues=tuple(beat["queues"]), slots=beat["slots"], running=beat["running"], host=beat["host"],
        pid=beat["pid"], version=beat["version"], started_at=beat["started_at"], seen_at=seen_at,
        orders=tuple(word for word in orders.split() if StackRequest.read(word) is None), lag=beat["lag"],
        queue_slots={queue: (slots, used) for queue, (slots, used) in beat["queue_slots"].items()},
        stacks=beat["stacks"], silent=beat["silent"],
    )  # fmt: skip


def ended_job(record: tuple[Any, ...], result: str | None, failure: str | None) -> Ended:
    """How a job that is still in the store ended, if it has."""
    place, deadline = record
    if deadline is not None or place not in {Place.COMPLETED, Place.FAILED}:
        return Pending()
    if place == Place.COMPLETED:
        return Completed(result or "null")
    why = load_failure(failure) or Failure("unknown")
    return Cancelled(why.reason) if why.kind == CANCELLED_KIND else Failed(why)


def ended_run(cause: str, text: str, *, whole: bool) -> Ended:
    """How a job ended, as its kept result or its run record tells."""
    match Cause(cause):
        case Cause.COMPLETED:
            return Completed(text) if whole else Gone()
        case Cause.CANCELLED:
            return Cancelled(text)
        case Cause.FAILED | Cause.EXPIRED | Cause.STALLED:
            return Failed(Failure(text))


_SQL = {name: statement("reads", name) for name in (
    "queues", "job", "running", "forward", "backward", "logs", "errors", "events", "first_events", "workers",
    "declared", "runs", "runs_of", "result", "minutes", "arrivals", "pokes",
)}  # fmt: skip
_MOST = 1_000  # items in one page
_END = 2**63 - 1
_NUMBER = re.compile(r"-?[0-9]{1,19}\Z")


def queues(tx: Transaction) -> list[str]:
    return [name for (name,) in tx.all(_SQL["queues"])]


def queue_view(tx: Transaction, name: str) -> QueueSummary:
    """A queue's view; one that nothing was ever put into is empty."""
    row = tx.find(name)
    if row is None:
        return QueueSummary(
            name=name, counts=Counts(), settings=Settings(), completed_total=0, failed_total=0, cancelled_total=0
        )
    return QueueSummary(
        name=name, counts=_counts(row), settings=settings_of(row, tx.now), completed_total=row.completed_total,
        failed_total=row.failed_total, cancelled_total=row.cancelled_total,
    )  # fmt: skip


def _counts(row: QueueRow) -> Counts:
    return Counts(
        waiting=row.waiting + row.suspects + row.parked, prioritized=row.prioritized, active=row.active,
        delayed=row.delayed,
        waiting_children=row.waiting_children, completed=row.completed, failed=row.failed, paused=bool(row.paused),
    )  # fmt: skip


def jobs(tx: Transaction, name: str, ids: Sequence[str]) -> list[JobRow | None]:
    row = tx.find(name)
    keys = keys_of(tx, row, ids) if row else {}
    found = [_job(tx, name, keys[identity]) if identity in keys else None for identity in ids]
    return [job if job is not None and job.id == identity else None for job, identity in zip(found, ids, strict=True)]


def _job(tx: Transaction, name: str, key: int) -> JobRow | None:
    found = tx.one(_SQL["job"], (key,))
    return None if found is None else record_of(name, found)


def page(tx: Transaction, name: str, state: State, cursor: str | None, limit: int) -> Page[JobRow]:
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


def _running(tx: Transaction, row: QueueRow, cursor: str | None, limit: int) -> tuple[list[int], str | None]:
    (after,) = _numbers(cursor, 1) or (first_key(row.key),)
    keys = [key for (key,) in tx.all(_SQL["running"], (row.key, after, limit + 1))]
    return keys[:limit], str(keys[limit - 1]) if len(keys) > limit else None


def _standing(
    tx: Transaction, row: QueueRow, state: State, cursor: str | None, limit: int
) -> tuple[list[int], str | None]:
    """A walk sees the jobs that were there when it began. One that moves meanwhile has a `moved` above the walk's
    ceiling wherever it goes, so it is not seen again."""
    newest_first = state in FINISHED
    places = list(reversed(places_of(state)))
    start = (places[0], _END if newest_first else -_END, _END if newest_first else -_END, row.moves)
    place, rank, key, ceiling = _numbers(cursor, 4) or start
    if place not in places:
        raise InvalidOption(f"{preview(cursor)} is not a cursor of {state} jobs")
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


def logs(tx: Transaction, name: str, identity: str, where: Kept, cursor: str | None, limit: int) -> Page[str]:
    limit = _limit(limit)
    key = _key(tx, name, identity) if where == "queue" else letters.log_key(tx, letter_id(name, identity))
    (after,) = _numbers(cursor, 1) or (0,)
    if key is None:
        return Page(())
    found = tx.all(_SQL["logs"], (key, after, limit + 1))
    return Page(tuple(line for _, line in found[:limit]), str(found[limit - 1][0]) if len(found) > limit else None)


def errors(tx: Transaction, name: str, identity: str, where: Kept) -> tuple[AttemptFailure, ...]:
    """Why each attempt failed."""
    if where == "dead_letters":
        return letters.errors(tx, letter_id(name, identity))
    key = _key(tx, name, identity)
    if key is None:
        return ()
    text, failure, made, finished_at = tx.one(_SQL["errors"], (key,))
    return all_errors(load_errors(text), load_failure(failure), made=made, at=finished_at)


def _key(tx: Transaction, name: str, identity: str) -> int | None:
    """The key of a job that is there."""
    row = tx.find(name)
    key = keys_of(tx, row, (identity,)).get(identity) if row else None
    return key if key is not None and exists(tx, key, identity) else None


def events(tx: Transaction, name: str, after: str | None, limit: int, of: str | None) -> EventPage:
    """What happened after an event, to all jobs or to one; from the beginning of what is kept where none is named."""
    limit = _limit(limit)
    row = tx.find(name)
    (seen,) = _numbers(after, 1) or (None,)
    if row is None:
        return EventPage((), str(seen or 0))
    base, end = first_key(row.key), first_key(row.key) + row.events
    first = tx.one(_SQL["first_events"], (base, end))
    oldest = row.events + 1 if first is None else first[0] - base - first[1] + 1
    start = oldest - 1 if seen is None else seen
    items: list[EventRow] = []
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
    return EventPage(tuple(items), str(last), gap=start < oldest - 1)


def workers(tx: Transaction, name: str | None) -> list[WorkerRow]:
    found = [worker_of(row) for row in tx.all(_SQL["workers"], (tx.now,))]
    return [worker for worker in found if name is None or name in worker.queues]


def declarations(tx: Transaction, name: str) -> Declarations:
    return Declarations.of(tx.all(_SQL["declared"], (name, tx.now)))


def runs(tx: Transaction, name: str, ending: RunStatus, cursor: str | None, limit: int) -> Page[RunRow]:
    """Run records, newest first."""
    limit, ending = _limit(limit), known(RunStatus, ending)
    row = tx.find(name)
    if row is None:
        return Page(())
    base, total = run_key(row.key, ending, 0), row.total(ending)
    (before,) = _numbers(cursor, 1) or (total + 1,)
    found = tx.all(_SQL["runs"], (base, base + min(max(before, 0), total + 1), limit + 1))
    after = str(found[limit - 1][0] - base) if len(found) > limit else None
    return Page(tuple(run_of(ending, entry) for entry in found[:limit]), after)


def metrics(tx: Transaction, name: str, minutes: int) -> MinuteCounts:
    """The last `minutes` minutes, the one under way included."""
    check_int("minutes", minutes, 1, MINUTES)
    this = tx.now // 60_000
    completed, failed = [0] * minutes, [0] * minutes
    row = tx.find(name)
    for minute, good, bad in tx.all(_SQL["minutes"], (row.key, this - minutes, this)) if row else ():
        completed[minute - this - 1], failed[minute - this - 1] = good, bad
    return MinuteCounts(this - minutes + 1, tuple(completed), tuple(failed))


def finished(tx: Transaction, name: str, ids: Sequence[str]) -> list[Finished]:
    """How each of these jobs ended, as far as the store can tell."""
    row = tx.find(name)
    if row is None:
        return [Finished(identity, Gone()) for identity in ids]
    keys = keys_of(tx, row, ids)
    told = {identity: _ended(tx, row, identity, keys.get(identity)) for identity in ids}
    runs = _last_runs(tx, row, [identity for identity, ended in told.items() if ended is None])
    return [Finished(identity, told[identity] or runs.get(identity) or Gone()) for identity in ids]


def _ended(tx: Transaction, row: QueueRow, identity: str, key: int | None) -> Ended | None:
    """How a job ended, as it tells itself or the result that was kept of it."""
    found = None if key is None else tx.one(_SQL["job"], (key,))
    if key is not None and found is not None and job_id(key, found[1]) == identity:
        return ended_job((found[4], found[-1]), found[18], found[19])
    kept = tx.one(_SQL["result"], (row.key, identity, tx.now))
    return None if kept is None else ended_run(*kept, whole=True)


def _last_runs(tx: Transaction, row: QueueRow, ids: Sequence[str]) -> dict[str, Ended]:
    """How the last runs of these ended, as the records tell. They have no index of ids: all are looked for at once."""
    last: dict[str, tuple[Any, ...]] = {}
    for ending in RunStatus if ids else ():
        base = run_key(row.key, ending, 0)
        for identity, *run in tx.all(_SQL["runs_of"], (base, base + (1 << 40), json.dumps(ids))):
            if identity not in last or run[0] >= last[identity][0]:
                last[identity] = tuple(run)
    return {identity: ended_run(cause, text, whole=bool(uncut)) for identity, (_, cause, text, uncut) in last.items()}


def arrivals(tx: Transaction, names: Sequence[str]) -> dict[str, str]:
    """A mark of what has arrived in each of these queues so far; another one means that a claim may find work."""
    return dict(tx.all(_SQL["arrivals"], (json.dumps(names),)))


def pokes(tx: Transaction, names: Sequence[str]) -> dict[str, str]:
    """A mark of the last call to each of these workers. With its time, as the count begins anew once it was pruned."""
    return dict(tx.all(_SQL["pokes"], (json.dumps(names),)))


def _limit(limit: int) -> int:
    return min(check_int("limit", limit, 1, 2**53), _MOST)


def _numbers(cursor: object, count: int) -> tuple[int, ...] | None:
    if cursor is None:
        return None
    parts = cursor.split(".") if isinstance(cursor, str) else []
    numbers = tuple(int(part) for part in parts if _NUMBER.match(part))
    if not len(numbers) == len(parts) == count or not all(-_END <= number <= _END for number in numbers):
        raise InvalidOption(f"{preview(cursor)} is not a cursor that was given out")
    return numbers


_NEXT = statement("figures", "next")
_LEADER = statement("figures", "leader")
_SLICE = statement("figures", "slice")
_SLICES = statement("figures", "slices")
_LOOKED_AT = 8  # jobs, and priorities, among which the one is looked for that has waited longest


def figures(tx: Transaction, names: Sequence[str], window: MetricsWindow) -> Snapshot:
    """What `Measures.figures` promises."""
    return Snapshot(tx.now, tuple(_figures(tx, name, window) for name in names), tuple(workers(tx, None)), _leader(tx))


def _leader(tx: Transaction) -> str | None:
    found = tx.one(_LEADER, (REAPER, tx.now))
    return None if found is None else str(found[0])


def _figures(tx: Transaction, name: str, window: MetricsWindow) -> QueueSnapshot:
    view, row = queue_view(tx, name), tx.find(name)
    slices, total = ({}, MetricTotals()) if row is None else _counted(tx, row, window)
    return QueueSnapshot(
        name=name, counts=view.counts, oldest=None if row is None else _oldest(tx, row),
        completed_total=view.completed_total, failed_total=view.failed_total,
        minutes=metrics(tx, name, window.minutes), slices=slices, total=total,
    )  # fmt: skip


def _counted(tx: Transaction, row: QueueRow, window: MetricsWindow) -> tuple[dict[int, MetricTotals], MetricTotals]:
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


def _oldest(tx: Transaction, row: QueueRow) -> int | None:
    """Since when the job waits that has waited longest, as far as a few looks tell: at the next ones in the line, and
    at the next one of each priority. Parents are passed over, whose time began with the end of their last child."""
    since = []
    for _, added_at, delay, starts, started_at, text in _next(tx, row):
        options = load_options(text)
        if options.parked is None:
            ready = options.ready or added_at + (0 if starts else delay)
            since.append(min(tx.now, max(ready, started_at or 0)))
    return min(since, default=None)


def _next(tx: Transaction, row: QueueRow) -> Iterator[tuple[int, int, int, int, int | None, str | None]]:
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


T = TypeVar("T")


class SqlInspector:
    """Reads that see one moment of the store each."""

    def __init__(self, steps: Steps) -> None:
        self._steps = steps

    async def queues(self) -> list[str]:
        return await self._steps.read(queues)

    async def queue(self, queue: str) -> QueueSummary:
        queue = check_queue_name(queue)
        return await self._steps.read(partial(queue_view, name=queue))

    async def counts(self, queue: str) -> Counts:
        return (await self.queue(queue)).counts

    async def jobs(self, queue: str, ids: Sequence[str]) -> list[JobRow | None]:
        if len(ids) > BATCH:
            raise InvalidOption(f"one call reads at most {BATCH} jobs, not {len(ids)}")
        queue = check_queue_name(queue)
        return await self._steps.read(partial(jobs, name=queue, ids=ids))

    async def page(self, queue: str, state: State, *, cursor: str | None = None, limit: int = 50) -> Page[JobRow]:
        queue = check_queue_name(queue)
        return await self._steps.read(partial(page, name=queue, state=state, cursor=cursor, limit=limit))

    async def logs(
        self, queue: str, job_id: str, *, cursor: str | None = None, limit: int = 100, where: Kept = "queue"
    ) -> Page[str]:
        queue = check_queue_name(queue)
        read = partial(logs, name=queue, identity=job_id, where=where, cursor=cursor, limit=limit)
        return await self._steps.read(read)

    async def errors(self, queue: str, job_id: str, *, where: Kept = "queue") -> tuple[AttemptFailure, ...]:
        queue = check_queue_name(queue)
        return await self._steps.read(partial(errors, name=queue, identity=job_id, where=where))

    async def events(
        self, queue: str, *, after: str | None = None, limit: int = 100, of: str | None = None
    ) -> EventPage:
        queue = check_queue_name(queue)
        return await self._steps.read(partial(events, name=queue, after=after, limit=limit, of=of))

    async def workers(self, queue: str | None = None, *, now: int | None = None) -> list[WorkerRow]:
        return await self._steps.read(partial(workers, name=queue), now)

    async def declarations(self, queue: str, *, now: int | None = None) -> Declarations:
        queue = check_queue_name(queue)
        return await self._steps.read(partial(declarations, name=queue), now)

    async def runs(self, queue: str, ending: RunStatus, *, cursor: str | None = None, limit: int = 20) -> Page[RunRow]:
        queue = check_queue_name(queue)
        return await self._steps.read(partial(runs, name=queue, ending=ending, cursor=cursor, limit=limit))

    async def explain(self, queue: str, job_id: str, limits: Limits, *, now: int | None = None) -> JobBlockers:
        queue = check_queue_name(queue)
        return await self._steps.read(partial(explain, queue=queue, identity=job_id, limits=limits), now)


class SqlMetrics:
    """Queues in numbers."""

    def __init__(self, steps: Steps) -> None:
        self._steps = steps

    async def snapshot(self, queues: Sequence[str], window: MetricsWindow, *, now: int | None = None) -> Snapshot:
        check_window(queues, window)
        names = [check_queue_name(name) for name in queues]
        return await self._steps.read(partial(figures, names=names, window=window), now)

    async def minutes(self, queue: str, *, minutes: int, now: int | None = None) -> MinuteCounts:
        queue = check_queue_name(queue)
        return await self._steps.read(partial(metrics, name=queue, minutes=minutes), now)
