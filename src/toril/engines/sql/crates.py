"""What is in the van, as the parcels that another store can read."""

import json
from collections.abc import Callable, Sequence
from typing import Any, Final

from toril.engines.sql.dedup import kept_job
from toril.engines.sql.options import load_failure, load_options, load_rate
from toril.engines.sql.records import run_of
from toril.engines.sql.replay import letter_of
from toril.engines.sql.schedules import view_of
from toril.engines.sql.schema import STATE_OF, Place, due_of, job_id
from toril.model import (
    KEEP_ALL,
    Child,
    ChildState,
    Ending,
    FactsParcel,
    GroupLimits,
    JobParcel,
    JobRef,
    Keep,
    KeyHeld,
    LedgerParcel,
    LetterParcel,
    OnFailure,
    Parcel,
    ScheduleParcel,
    SettingsParcel,
)
from toril.policy.attempts import load_errors

__all__ = ["STANDINGS", "parcel_of"]

STANDINGS: Final = (ChildState.OPEN, ChildState.COMPLETED, ChildState.IGNORED, ChildState.FAILED)


def parcel_of(text: str) -> Parcel:
    kind, *content = json.loads(text)
    return _KINDS[kind](*content)


def _job(queue: str, row: Sequence[Any], lines: list[str], children: list[Any], keys: list[Any]) -> JobParcel:
    (key, chosen, name, data, place, rank, attempts, made, stalls, starts, fence, priority, delay, expires_at, text,
     metadata, checkpoint, progress, result, failure, stall_cause, worker, added_at, started_at, finished_at, group,
     errors, _, _) = row  # fmt: skip
    options = load_options(text)
    parent = options.parent
    return JobParcel(
        queue=queue, id=job_id(key, chosen), name=name, data=data, state=STATE_OF[place],
        suspect=place in {Place.SUSPECT, Place.PARKED_SUSPECT}, due=due_of(rank) if place == Place.DELAYED else None,
        max_attempts=attempts, attempts_made=made, stalls=stalls, starts=starts, fence=fence, priority=priority,
        delay=delay, added_at=added_at, started_at=started_at, finished_at=finished_at, expires_at=expires_at,
        worker=worker, metadata=metadata, checkpoint=checkpoint, progress=progress, failure=load_failure(failure),
        stall_cause=stall_cause, result=result, group=group, backoff=options.backoff, timeout=options.timeout,
        keep_completed=options.keep_completed, keep_failed=options.keep_failed, keep_logs=options.keep_logs,
        result_ttl=options.result_ttl, dedup=options.dedup, breaker=options.breaker, subject=options.subject,
        trace=options.trace, parent=None if parent is None else JobRef(parent.queue, parent.id),
        on_failure=OnFailure.FAIL if parent is None else OnFailure(parent.policy), parked=options.parked,
        deferred=options.deferred, ready=options.ready, logs=tuple(lines), errors=load_errors(errors),
        children=_children(children),
        held=KeyHeld(keys[0][0], keys[0][1], None if keys[0][2] is None else kept_job(keys[0][2])) if keys else None,
        wire=None if options.fault is None else text,
    )  # fmt: skip


def _children(rows: Sequence[Any]) -> tuple[Child, ...]:
    return tuple(
        Child(JobRef(queue, child), STANDINGS[standing], text, name, number)
        for standing, queue, child, text, number, name in rows
    )


def _letter(row: list[Any], children: list[Any], lines: list[str]) -> LetterParcel:
    *told, errors, _, _ = row
    return LetterParcel(letter_of(tuple(told)), _children(children), tuple(lines), load_errors(errors))


def _schedule(queue: str, told: list[Any], waits: bool, started: str | None) -> ScheduleParcel:  # noqa: FBT001 - as it was packed
    return ScheduleParcel(view_of(queue, told), waits, started)


def _settings(
    queue: str, settings: list[Any], counted: list[int], groups: list[Any], starts: list[Any], of_groups: list[Any]
) -> SettingsParcel:
    paused, concurrency, rate, max_waiting, held_till, by_hand, declared = settings
    group_starts: dict[str, list[tuple[int, int]]] = {}
    for name, time, count in of_groups:
        group_starts.setdefault(name, []).append((time, count))
    return SettingsParcel(
        queue=queue, paused=bool(paused), concurrency=concurrency, rate=load_rate(rate), max_waiting=max_waiting,
        held_till=held_till or None, groups_set=None if by_hand is None else GroupLimits.load(by_hand),
        groups_declared=None if declared is None else GroupLimits.load(declared),
        groups={name: (GroupLimits.load(limits), bool(stopped)) for name, limits, stopped in groups},
        numbers=counted[0], fences=counted[1], starts=tuple((time, count) for time, count in starts),
        group_starts=group_starts,
    )  # fmt: skip


def _ledger(
    queue: str, totals: list[int], runs: list[Any], minutes: list[Any], slices: list[Any], results: list[Any],
    keys: list[Any],
) -> LedgerParcel:  # fmt: skip
    return LedgerParcel(
        queue=queue, completed=totals[0], failed=totals[1], cancelled=totals[2],
        minutes=tuple((m, done, bad) for m, done, bad in minutes),
        runs=tuple(run_of(ending, tuple(row)) for ending, rows in zip(Ending, runs, strict=True) for row in rows),
        slices={(step, number): json.loads(counted) for step, number, counted in slices},
        results=tuple((job, till, cause, text) for job, till, cause, text in results),
        keys=tuple((key, owner, till) for key, owner, till in keys),
    )  # fmt: skip


def _facts(kept: str | None, circuits: list[Any]) -> FactsParcel:
    return FactsParcel(KEEP_ALL if kept is None else Keep(*json.loads(kept)), dict(circuits))


_KINDS: Final[dict[str, Callable[..., Parcel]]] = {
    "job": _job,
    "letter": _letter,
    "schedule": _schedule,
    "settings": _settings,
    "ledger": _ledger,
    "facts": _facts,
}
