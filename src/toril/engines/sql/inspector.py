"""The read side of the SQL engine: pages, counts, logs, events and explanations."""

import json
import re
from collections.abc import Sequence
from functools import partial
from typing import Any, Final, NamedTuple, TypeVar

from toril.engines.sql import dead_letters
from toril.engines.sql.flows import child_counts
from toril.engines.sql.groups import group_blockers
from toril.engines.sql.options import load_failure, load_options, load_rate
from toril.engines.sql.schema import (
    PAGE_BYTES,
    STATE_OF,
    Place,
    due_of,
    first_key,
    job_id,
    places_of,
    run_key,
)
from toril.engines.sql.statements import query, statements
from toril.engines.sql.transaction import QueueRow, Steps, Transaction, exists, keys_of, settings_of
from toril.errors import InvalidOption, preview, unknown_cursor
from toril.model import (
    CANCELLED_KIND,
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
    Page,
    Pending,
    Precedence,
    QueueSummary,
    RateLimit,
    RunRow,
    RunStatus,
    Settings,
    WorkerRow,
    letter_id,
    per_ms,
)
from toril.model.states import FINISHED, State
from toril.policy.attempts import all_errors, load_errors
from toril.store.checked import implements
from toril.store.engine import Inspector

__all__ = [
    "STORED_JOB",
    "SqlInspector",
    "StoredJob",
    "StoredRun",
    "arrivals",
    "finished",
    "queue_view",
    "run_of",
    "worker_calls",
    "workers",
]

T = TypeVar("T")


class StoredJob(NamedTuple):
    """Everything stored about a job, running or not."""

    key: int
    chosen: str | None
    name: str
    data: str
    place: int
    rank: int
    max_attempts: int
    attempts_made: int
    stalls: int
    starts: int
    fence: int
    priority: int
    delay: int
    expires_at: int | None
    options_text: str | None
    metadata: str | None
    checkpoint: str | None
    progress: str | None
    result: str | None
    failure: str | None
    stall_cause: str | None
    cancelling: str | None
    worker: str | None
    added_at: int
    started_at: int | None
    finished_at: int | None
    group_name: str | None
    logs: int
    deadline: int | None
    rest: str | None

    @property
    def id(self) -> str:
        return job_id(self.key, self.chosen)

    @property
    def is_running(self) -> bool:
        return self.deadline is not None

    @property
    def has_ended(self) -> bool:
        return not self.is_running and self.place in {Place.COMPLETED, Place.FAILED}


class StoredRun(NamedTuple):
    """A run record."""

    key: int
    id: str
    name: str
    cause: str
    added_at: int
    started_at: int | None
    finished_at: int
    attempts_made: int
    stalls: int
    worker: str | None
    text: str
    whole: int
    subject: str | None
    parent: str | None


class StoredEvents(NamedTuple):
    """The events of one step that have one kind."""

    key: int
    time: int
    kind: str
    size: int
    jobs: str
    details: str | None


_SQL: Final = statements("inspector")
STORED_JOB: Final = query("inspector", "job", StoredJob)
_RUNS: Final = query("inspector", "runs", StoredRun)
_EVENTS: Final = query("inspector", "events", StoredEvents)
_END = 2**63 - 1
_NUMBER = re.compile(r"-?[0-9]{1,19}\Z")


def explain(tx: Transaction, queue: str, identity: str, limits: Limits) -> JobBlockers:
    """Implements `Inspector.explain`."""
    row = tx.find(queue)
    if row is None:
        return JobBlockers(now=tx.now)
    rate = load_rate(row.rate) or limits.rate
    key = keys_of(tx, row, [identity]).get(identity)
    place, rank = (None, 0) if key is None else tx.one(_SQL["place_of"], (key,)) or (None, 0)
    return JobBlockers(
        now=tx.now,
        ahead=0 if place is None else _ahead(tx, row, place, rank, limits.precedence),
        running=tuple(job_id(key, chosen) for key, chosen in tx.all(_SQL["first_running"], (row.key,))),
        rate_till=None if rate is None else _rate_opens_at(tx, row, rate),
        family=_family(tx, row, identity),
        group=group_blockers(tx, row, identity) if row.grouped else None,
        alone=place == Place.SUSPECT or tx.one(_SQL["runs_alone"], (key,)) is not None,
    )


def _family(tx: Transaction, row: QueueRow, identity: str) -> ChildCounts:
    if not (row.waiting_children or row.resting):
        return ChildCounts()
    return child_counts(tx, JobRef(row.name, identity), "queue", 10)


def _ahead(tx: Transaction, row: QueueRow, place: int, rank: int, precedence: Precedence) -> int:
    if place not in {Place.SUSPECT, Place.WAITING, Place.PRIORITIZED}:
        return 0
    before = int(tx.value(_SQL["ahead"], (row.key, place, rank)))
    if place == Place.PRIORITIZED and precedence is Precedence.PLAIN_FIRST:
        return before + row.waiting
    if place == Place.WAITING and precedence is Precedence.PRIORITY_FIRST:
        return before + row.prioritized
    return before


def _rate_opens_at(tx: Transaction, row: QueueRow, rate: RateLimit) -> int | None:
    """When a used-up rate allows more starts; None if it does now."""
    if rate.window == "fixed":
        return row.window_till if row.window_till > tx.now and row.window_starts >= rate.max else None
    count, oldest = tx.one(_SQL["starts_since"], (row.key, tx.now - per_ms(rate)))
    return oldest + per_ms(rate) if count >= rate.max else None


def record_of(queue: str, job: StoredJob) -> JobRow:
    stored = load_options(job.options_text)
    state = STATE_OF[job.place] if job.deadline is None else State.ACTIVE
    return JobRow(
        queue=queue,
        id=job.id,
        name=job.name,
        data=job.data,
        state=state,
        max_attempts=job.max_attempts,
        attempts_made=job.attempts_made,
        stalls=job.stalls,
        starts=job.starts,
        fence=job.fence,
        priority=job.priority,
        delay=job.delay,
        due=due_of(job.rank) if state is State.DELAYED else None,
        expires_at=job.expires_at,
        options=stored.options,
        metadata=job.metadata,
        checkpoint=job.checkpoint,
        progress=job.progress,
        result=job.result,
        failure=load_failure(job.failure),
        stall_cause=job.stall_cause,
        cancelling=job.cancelling,
        worker=job.worker,
        added_at=job.added_at,
        started_at=job.started_at,
        finished_at=job.finished_at,
        deadline=job.deadline,
        group=job.group_name,
        unreadable=stored.fault,
        rest=job.rest,
        parent=None if stored.parent is None else JobRef(stored.parent.queue, stored.parent.id),
    )


def run_of(ending: RunStatus, run: StoredRun) -> RunRow:
    return RunRow(
        id=run.id,
        name=run.name,
        ending=ending,
        cause=Cause(run.cause),
        added_at=run.added_at,
        started_at=run.started_at,
        finished_at=run.finished_at,
        attempts_made=run.attempts_made,
        stalls=run.stalls,
        worker=run.worker,
        text=run.text,
        whole=bool(run.whole),
        subject=run.subject,
        parent=JobRef(*run.parent.split(":", 1)) if run.parent else None,
        flow=run.parent is not None,
    )


def _events_of(before: int, row: StoredEvents) -> list[EventRow]:
    """The events of one row; `before` is the number of the event before them."""
    kind, columns = EventKind(row.kind), json.loads(row.details) if row.details else {}
    return [
        EventRow(str(before + n), row.time, kind, job, {name: values[n - 1] for name, values in columns.items()})
        for n, job in enumerate(json.loads(row.jobs), 1)
    ]


def _ended_job(job: StoredJob) -> Ended:
    """How a job that is still stored ended, if it has."""
    if not job.has_ended:
        return Pending()
    if job.place == Place.COMPLETED:
        return Completed(job.result or "null")
    why = load_failure(job.failure) or Failure("unknown")
    return Cancelled(why.reason) if why.kind == CANCELLED_KIND else Failed(why)


def _ended_run(cause: str, text: str, *, whole: bool) -> Ended:
    """How a job ended, from its kept result or its run record."""
    match Cause(cause):
        case Cause.COMPLETED:
            return Completed(text) if whole else Gone()
        case Cause.CANCELLED:
            return Cancelled(text)
        case Cause.FAILED | Cause.EXPIRED | Cause.STALLED:
            return Failed(Failure(text))


def queues(tx: Transaction) -> list[str]:
    return [name for (name,) in tx.all(_SQL["queues"])]


def queue_view(tx: Transaction, name: str) -> QueueSummary:
    """A queue's view; of a queue that was never used, an empty one."""
    row = tx.find(name)
    if row is None:
        return QueueSummary(
            name=name, counts=Counts(), settings=Settings(), completed_total=0, failed_total=0, cancelled_total=0
        )
    return QueueSummary(
        name=name,
        counts=_counts(row),
        settings=settings_of(row, tx.now),
        completed_total=row.completed_total,
        failed_total=row.failed_total,
        cancelled_total=row.cancelled_total,
    )


def _counts(row: QueueRow) -> Counts:
    return Counts(
        waiting=row.waiting + row.suspects + row.parked,
        prioritized=row.prioritized,
        active=row.active,
        delayed=row.delayed,
        waiting_children=row.waiting_children,
        completed=row.completed,
        failed=row.failed,
        paused=bool(row.paused),
        resting=row.resting + row.resting_for_children,
    )


def jobs(tx: Transaction, name: str, ids: Sequence[str]) -> list[JobRow | None]:
    row = tx.find(name)
    keys = keys_of(tx, row, ids) if row else {}
    found = [_job(tx, name, keys[identity]) if identity in keys else None for identity in ids]
    return [job if job is not None and job.id == identity else None for job, identity in zip(found, ids, strict=True)]


def _job(tx: Transaction, name: str, key: int) -> JobRow | None:
    found = tx.row(STORED_JOB, (key,))
    return None if found is None else record_of(name, found)


def page(tx: Transaction, name: str, state: State, cursor: str | None, limit: int) -> Page[JobRow]:
    """Jobs in a state: the next to run first, the last to end first."""
    row = tx.find(name)
    if row is None:
        return Page(())
    if state is State.ACTIVE:
        keys, after = _running(tx, row, cursor, limit)
    else:
        keys, after = _in_line(tx, row, state, cursor, limit)
    found, room = [], PAGE_BYTES
    for count, key in enumerate(keys, 1):
        if (job := _job(tx, name, key)) is not None:
            found.append(job)
            room -= sum(map(len, filter(None, (job.data, job.result, job.progress, job.metadata, job.checkpoint))))
        if room < 0 and count < len(keys):
            return page(tx, name, state, cursor, count)  # again, with the cursor found there
    return Page(tuple(found), after)


def _running(tx: Transaction, row: QueueRow, cursor: str | None, limit: int) -> tuple[list[int], str | None]:
    (after,) = _numbers(cursor, 1) or (first_key(row.key),)
    keys = [key for (key,) in tx.all(_SQL["running"], (row.key, after, limit + 1))]
    return keys[:limit], str(keys[limit - 1]) if len(keys) > limit else None


def _in_line(
    tx: Transaction, row: QueueRow, state: State, cursor: str | None, limit: int
) -> tuple[list[int], str | None]:
    """A listing sees the jobs that were there when it began. A job that moves meanwhile has a `moved` above the
    listing's ceiling wherever it goes, so it is not seen twice."""
    newest_first = state in FINISHED
    places = list(reversed(places_of(state)))
    start = (places[0], _END if newest_first else -_END, _END if newest_first else -_END, row.moves)
    place, rank, key, ceiling = _numbers(cursor, 4) or start
    if place not in places:
        raise InvalidOption(f"cursor {preview(cursor)} is not from a page of {state} jobs")
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
    key = _key(tx, name, identity) if where == "queue" else dead_letters.log_key(tx, letter_id(name, identity))
    (after,) = _numbers(cursor, 1) or (0,)
    if key is None:
        return Page(())
    found = tx.all(_SQL["logs"], (key, after, limit + 1))
    return Page(tuple(line for _, line in found[:limit]), str(found[limit - 1][0]) if len(found) > limit else None)


def errors(tx: Transaction, name: str, identity: str, where: Kept) -> tuple[AttemptFailure, ...]:
    """Why each attempt failed."""
    if where == "dead_letters":
        return dead_letters.errors(tx, letter_id(name, identity))
    key = _key(tx, name, identity)
    if key is None:
        return ()
    text, failure, made, finished_at = tx.one(_SQL["errors"], (key,))
    return all_errors(load_errors(text), load_failure(failure), made=made, at=finished_at)


def _key(tx: Transaction, name: str, identity: str) -> int | None:
    """The key of a job that exists."""
    row = tx.find(name)
    key = keys_of(tx, row, (identity,)).get(identity) if row else None
    return key if key is not None and exists(tx, key, identity) else None


def events(tx: Transaction, name: str, after: str | None, limit: int, of: str | None) -> EventPage:
    """The events after this one, of all jobs or of one job; without a position, from the beginning of what is kept."""
    row = tx.find(name)
    (seen,) = _numbers(after, 1) or (None,)
    if row is None:
        return EventPage((), str(seen or 0))
    base, end = first_key(row.key), first_key(row.key) + row.events
    last_of_first, size = tx.one(_SQL["first_events"], (base, end)) or (end + 1, 1)
    oldest = last_of_first - base - size + 1
    start = oldest - 1 if seen is None else seen
    items: list[EventRow] = []
    values = (base + min(max(start, 0), row.events), end, limit)
    sought, last = json.dumps(of), start
    for each in tx.rows(_EVENTS, values):
        last = each.key - base
        if of is None or sought in each.jobs:  # most rows are about other jobs, and need not be parsed
            found = _events_of(last - each.size, each)
            items += [event for event in found if int(event.at) > start and of in {None, event.job_id}]
    if of is None and len(items) >= limit:
        del items[limit:]
        last = int(items[-1].at)
    return EventPage(tuple(items), str(last), gap=start < oldest - 1)


def workers(tx: Transaction, name: str | None) -> list[WorkerRow]:
    found = [WorkerRow.load(*row) for row in tx.all(_SQL["workers"], (tx.now,))]
    return [worker for worker in found if name is None or name in worker.queues]


def declarations(tx: Transaction, name: str) -> Declarations:
    return Declarations.of(tx.all(_SQL["declared"], (name, tx.now)))


def runs(tx: Transaction, name: str, ending: RunStatus, cursor: str | None, limit: int) -> Page[RunRow]:
    """Run records, newest first."""
    row = tx.find(name)
    if row is None:
        return Page(())
    base, total = run_key(row.key, ending, 0), row.total(ending)
    (before,) = _numbers(cursor, 1) or (total + 1,)
    found = tx.rows(_RUNS, (base, base + min(max(before, 0), total + 1), limit + 1))
    after = str(found[limit - 1].key - base) if len(found) > limit else None
    return Page(tuple(run_of(ending, run) for run in found[:limit]), after)


def finished(tx: Transaction, name: str, ids: Sequence[str]) -> list[Finished]:
    """How each of these jobs ended, as far as the store knows."""
    row = tx.find(name)
    if row is None:
        return [Finished(identity, Gone()) for identity in ids]
    keys = keys_of(tx, row, ids)
    ended = {identity: _ended(tx, row, identity, keys.get(identity)) for identity in ids}
    runs = _last_runs(tx, row, [identity for identity, each in ended.items() if each is None])
    return [Finished(identity, ended[identity] or runs.get(identity) or Gone()) for identity in ids]


def _ended(tx: Transaction, row: QueueRow, identity: str, key: int | None) -> Ended | None:
    """How a job ended, from its row or its kept result."""
    job = None if key is None else tx.row(STORED_JOB, (key,))
    if job is not None and job.id == identity:
        return _ended_job(job)
    kept = tx.one(_SQL["result"], (row.key, identity, tx.now))
    return None if kept is None else _ended_run(*kept, whole=True)


def _last_runs(tx: Transaction, row: QueueRow, ids: Sequence[str]) -> dict[str, Ended]:
    """How the last runs of these jobs ended, from run records. These have no index of ids, so all are read at once."""
    last: dict[str, tuple[Any, ...]] = {}
    for ending in RunStatus if ids else ():
        base = run_key(row.key, ending, 0)
        for identity, *run in tx.all(_SQL["runs_of"], (base, base + (1 << 40), json.dumps(ids))):
            if identity not in last or run[0] >= last[identity][0]:
                last[identity] = tuple(run)
    return {identity: _ended_run(cause, text, whole=bool(uncut)) for identity, (_, cause, text, uncut) in last.items()}


def arrivals(tx: Transaction, names: Sequence[str]) -> dict[str, str]:
    """A mark of what has arrived in each of these queues so far; a different mark means that a claim may find work."""
    return dict(tx.all(_SQL["arrivals"], (json.dumps(names),)))


def worker_calls(tx: Transaction, names: Sequence[str]) -> dict[str, str]:
    """A mark of the last call to each of these workers. It contains the time, because counting starts again after
    pruning."""
    return dict(tx.all(_SQL["calls"], (json.dumps(names),)))


def _numbers(cursor: object, count: int) -> tuple[int, ...] | None:
    if cursor is None:
        return None
    parts = cursor.split(".") if isinstance(cursor, str) else []
    numbers = tuple(int(part) for part in parts if _NUMBER.match(part))
    if not len(numbers) == len(parts) == count or not all(-_END <= number <= _END for number in numbers):
        raise unknown_cursor(cursor)
    return numbers


@implements(Inspector)
class SqlInspector:
    """Reads that each see the store at one moment."""

    def __init__(self, steps: Steps) -> None:
        self._steps = steps

    async def queues(self) -> list[str]:
        return await self._steps.read(queues)

    async def queue(self, queue: str) -> QueueSummary:
        return await self._steps.read(partial(queue_view, name=queue))

    async def counts(self, queue: str) -> Counts:
        return (await self.queue(queue)).counts

    async def jobs(self, queue: str, ids: Sequence[str]) -> list[JobRow | None]:
        return await self._steps.read(partial(jobs, name=queue, ids=ids))

    async def page(self, queue: str, state: State, *, cursor: str | None = None, limit: int = 50) -> Page[JobRow]:
        return await self._steps.read(partial(page, name=queue, state=state, cursor=cursor, limit=limit))

    async def logs(
        self, queue: str, job_id: str, *, cursor: str | None = None, limit: int = 100, where: Kept = "queue"
    ) -> Page[str]:
        read = partial(logs, name=queue, identity=job_id, where=where, cursor=cursor, limit=limit)
        return await self._steps.read(read)

    async def errors(self, queue: str, job_id: str, *, where: Kept = "queue") -> tuple[AttemptFailure, ...]:
        return await self._steps.read(partial(errors, name=queue, identity=job_id, where=where))

    async def events(
        self, queue: str, *, after: str | None = None, limit: int = 100, of: str | None = None
    ) -> EventPage:
        return await self._steps.read(partial(events, name=queue, after=after, limit=limit, of=of))

    async def workers(self, queue: str | None = None, *, now: int | None = None) -> list[WorkerRow]:
        return await self._steps.read(partial(workers, name=queue), now)

    async def declarations(self, queue: str, *, now: int | None = None) -> Declarations:
        return await self._steps.read(partial(declarations, name=queue), now)

    async def runs(self, queue: str, ending: RunStatus, *, cursor: str | None = None, limit: int = 20) -> Page[RunRow]:
        return await self._steps.read(partial(runs, name=queue, ending=ending, cursor=cursor, limit=limit))

    async def explain(self, queue: str, job_id: str, limits: Limits, *, now: int | None = None) -> JobBlockers:
        return await self._steps.read(partial(explain, queue=queue, identity=job_id, limits=limits), now)
