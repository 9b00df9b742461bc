"""Rows as the values that readers see."""

import json
from typing import Any

from toril.engines.sql.options import load_failure, load_options
from toril.engines.sql.schema import STATE_OF, Place, due_of, job_id
from toril.model import (
    CANCELLED_KIND,
    Cancelled,
    Cause,
    Completed,
    Ended,
    Ending,
    Event,
    EventKind,
    Failed,
    Failure,
    Gone,
    JobRecord,
    JobRef,
    Pending,
    Run,
    StackRequest,
    WorkerView,
)
from toril.model.states import State

__all__ = ["ended_job", "ended_run", "events_of", "record_of", "run_of", "worker_of"]


def record_of(queue: str, row: tuple[Any, ...]) -> JobRecord:
    (key, chosen, name, data, place, rank, attempts, attempts_made, stalls, starts, fence, priority, delay, expires_at,
     text, metadata, checkpoint, progress, result, failure, stall_cause, cancelling, worker, added_at, started_at,
     finished_at, group, deadline) = row  # fmt: skip
    options = load_options(text)
    state = STATE_OF[place] if deadline is None else State.ACTIVE
    return JobRecord(
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


def run_of(ending: Ending, row: tuple[Any, ...]) -> Run:
    (
        _, identity, name, cause, added_at, started_at, finished_at, attempts_made, stalls, worker, text, whole,
        subject, parent,
    ) = row  # fmt: skip
    return Run(
        id=identity, name=name, ending=ending, cause=Cause(cause), added_at=added_at, started_at=started_at,
        finished_at=finished_at, attempts_made=attempts_made, stalls=stalls, worker=worker, text=text,
        whole=bool(whole), subject=subject, parent=JobRef(*parent.split(":", 1)) if parent else None,
        flow=parent is not None,
    )  # fmt: skip


def events_of(before: int, time: int, kind: str, jobs: str, details: str | None) -> list[Event]:
    """The events of one row; `before` is the number of the event before them."""
    columns = json.loads(details) if details else {}
    return [
        Event(str(before + n), time, EventKind(kind), job, {name: values[n - 1] for name, values in columns.items()})
        for n, job in enumerate(json.loads(jobs), 1)
    ]


def worker_of(row: tuple[Any, ...]) -> WorkerView:
    identity, seen_at, orders, text = row
    beat = json.loads(text)
    return WorkerView(
        id=identity, queues=tuple(beat["queues"]), slots=beat["slots"], running=beat["running"], host=beat["host"],
        pid=beat["pid"], version=beat["version"], started_at=beat["started_at"], seen_at=seen_at,
        orders=tuple(word for word in orders.split() if StackRequest.read(word) is None), lag=beat.get("lag", 0),
        queue_slots={queue: (slots, used) for queue, (slots, used) in beat.get("queue_slots", {}).items()},
        stacks=beat.get("stacks", {}), silent=beat.get("silent", 0),
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
