"""Schedules in SQL: each step finds the schedule as it expects it, or changes nothing."""

import json
from collections.abc import Sequence
from dataclasses import fields, replace
from functools import partial
from typing import Final, NamedTuple, TypeVar

from toril.codec.new_jobs import dump_new_job, load_new_job
from toril.engines.sql.add import store_job
from toril.engines.sql.changes import QueueChanges
from toril.engines.sql.control import WIRE_WORD
from toril.engines.sql.schema import STATE_OF, Place, job_id
from toril.engines.sql.statements import query, statements
from toril.engines.sql.transaction import QueueRow, Steps, Transaction
from toril.model import (
    CatchUp,
    EventKind,
    Moved,
    NewJob,
    Overlap,
    Page,
    Schedule,
    ScheduleLookup,
    ScheduleRow,
    run_id,
)
from toril.store.capabilities import ScheduleStore
from toril.store.checked import implements

__all__ = [
    "SqlSchedules",
    "StoredSchedule",
    "drop_run",
    "run_job",
    "timing_of",
    "view_of",
]

T = TypeVar("T")


class StoredSchedule(NamedTuple):
    """A recurring job."""

    id: str
    slot: int
    runs: int
    paused: int
    over: int
    owner: str
    timing: str
    template: str
    busy: int


class CurrentRun(NamedTuple):
    """The current run of a schedule."""

    key: int
    chosen: str | None
    logs: int
    place: int
    rank: int
    running: int


_SQL: Final = statements("schedules")
_FIND: Final = query("schedules", "find", StoredSchedule)
_PAGE: Final = query("schedules", "page", StoredSchedule)
_OVERDUE: Final = query("schedules", "overdue", StoredSchedule)
_RUN: Final = query("schedules", "run", CurrentRun)
_APART = {"id", "job", "owner"}  # fields with columns of their own; the rest is timing
_TIMING = tuple(field.name for field in fields(Schedule) if field.name not in _APART)


@implements(ScheduleStore)
class SqlSchedules:
    """The schedules of a store, through its runner."""

    def __init__(self, steps: Steps) -> None:
        self._steps = steps

    async def get(self, queue: str, schedule: str, *, now: int | None = None) -> ScheduleLookup:
        return await self._steps.read_now(partial(_get, queue=queue, schedule=schedule), now)

    async def page(self, queue: str, *, cursor: str | None = None, limit: int = 100) -> Page[ScheduleRow]:
        op = partial(_page, queue=queue, after=cursor or "", limit=limit)
        return await self._steps.read_now(op, None)

    async def overdue(self, queue: str, *, limit: int = 100, now: int | None = None) -> list[ScheduleRow]:
        return await self._steps.read_now(partial(_overdue, queue=queue, limit=limit), now)

    async def put(
        self, queue: str, schedule: Schedule, slot: int, *, expects: int | None, now: int | None = None
    ) -> Moved:
        op = partial(_put, queue=queue, schedule=schedule, slot=slot, expects=expects)
        return await self._steps.write(op, now, grows=True)

    async def advance(
        self,
        queue: str,
        schedule: str,
        *,
        since: int,
        to: int | None,
        started: str | None = None,
        now: int | None = None,
    ) -> Moved:
        op = partial(_advance, queue=queue, schedule=schedule, since=since, to=to, started=started is not None)
        return await self._steps.write(op, now)

    async def pause(self, queue: str, schedule: str, *, now: int | None = None) -> bool:
        return await self._steps.write(partial(_pause, queue=queue, schedule=schedule), now)

    async def resume(self, queue: str, schedule: str, *, since: int, to: int | None, now: int | None = None) -> Moved:
        op = partial(_resume, queue=queue, schedule=schedule, since=since, to=to)
        return await self._steps.write(op, now)

    async def remove(self, queue: str, schedule: str, *, now: int | None = None) -> bool:
        return await self._steps.write(partial(_remove, queue=queue, schedule=schedule), now)

    async def sync(self, queue: str, owner: str, keep: Sequence[str], *, now: int | None = None) -> list[str]:
        op = partial(_sync, queue=queue, owner=owner, keep=frozenset(keep))
        return await self._steps.write(op, now)


def _get(tx: Transaction, queue: str, schedule: str) -> ScheduleLookup:
    row = tx.find(queue)
    return ScheduleLookup(tx.now, _found(tx, row, schedule) if row else None)


def _found(tx: Transaction, row: QueueRow, schedule: str) -> ScheduleRow | None:
    found = tx.row(_FIND, (row.key, schedule))
    return None if found is None else view_of(row.name, found)


def _page(tx: Transaction, queue: str, after: str, limit: int) -> Page[ScheduleRow]:
    row = tx.find(queue)
    found = tx.rows(_PAGE, (row.key, after, limit + 1)) if row else []
    items = tuple(view_of(queue, each) for each in found[:limit])
    return Page(items, items[-1].schedule.id if len(found) > limit else None)


def _overdue(tx: Transaction, queue: str, limit: int) -> list[ScheduleRow]:
    row = tx.find(queue)
    return [view_of(queue, each) for each in tx.rows(_OVERDUE, (row.key, tx.now, limit))] if row else []


def _put(tx: Transaction, queue: str, schedule: Schedule, slot: int, expects: int | None) -> Moved:
    row = tx.queue(queue)
    before = _found(tx, row, schedule.id)
    if (before.slot if before else None) != expects:
        return Moved.STALE
    waiting = waiting_run(tx, row, schedule.id)
    # A slot whose run has started has been run, even if nothing is left of that run.
    used = before is not None and before.slot == slot and waiting is None and not before.paused
    if used or _is_taken(tx, row, run_id(schedule.id, slot), waiting):
        return Moved.TAKEN
    drop_run(QueueChanges(tx, row), schedule.id)
    paused = before is not None and before.paused
    run = None if paused else store_job(tx, row, run_job(schedule, slot))
    texts = (schedule.owner or "", timing_of(schedule), dump_new_job(schedule.job))
    tx.run(_SQL["put"], (row.key, schedule.id, slot, run, *texts))
    return Moved.DONE


def _advance(tx: Transaction, queue: str, schedule: str, since: int, to: int | None, *, started: bool) -> Moved:
    row = tx.find(queue)
    view = _found(tx, row, schedule) if row else None
    if row is None or view is None or view.slot != since or view.over:
        return Moved.STALE
    if started:
        tx.run(_SQL["started"], (row.key, schedule, since))
    if view.paused:
        return Moved.STALE
    return _next_run(tx, row, view, to, "advance", otherwise="over")


def _next_run(
    tx: Transaction, row: QueueRow, view: ScheduleRow, to: int | None, statement: str, *, otherwise: str
) -> Moved:
    """Store the run of this slot, and say so in the schedule; without a slot, the schedule is over."""
    if to is None:
        tx.run(_SQL[otherwise], (row.key, view.schedule.id))
        return Moved.DONE
    if _is_taken(tx, row, run_id(view.schedule.id, to)):
        return Moved.TAKEN
    run = store_job(tx, row, run_job(view.schedule, to))
    tx.run(_SQL[statement], (to, run, row.key, view.schedule.id))
    return Moved.DONE


def _pause(tx: Transaction, queue: str, schedule: str) -> bool:
    row = tx.find(queue)
    if row is None or _found(tx, row, schedule) is None:
        return False
    drop_run(QueueChanges(tx, row), schedule)
    tx.run(_SQL["pause"], (row.key, schedule))
    return True


def _resume(tx: Transaction, queue: str, schedule: str, since: int, to: int | None) -> Moved:
    row = tx.find(queue)
    view = _found(tx, row, schedule) if row else None
    if row is None or view is None or not view.paused or view.slot != since:
        return Moved.STALE
    return _next_run(tx, row, view, to, "resume", otherwise="end")


def _remove(tx: Transaction, queue: str, schedule: str) -> bool:
    row = tx.find(queue)
    if row is None:
        return False
    drop_run(QueueChanges(tx, row), schedule)
    return tx.run(_SQL["remove"], (row.key, schedule)) > 0


def _sync(tx: Transaction, queue: str, owner: str, keep: frozenset[str]) -> list[str]:
    row = tx.find(queue)
    found = [schedule for (schedule,) in tx.all(_SQL["declared"], (row.key, owner))] if row else []
    return [schedule for schedule in found if schedule not in keep and _remove(tx, queue, schedule)]


def _is_taken(tx: Transaction, row: QueueRow, identity: str, but: CurrentRun | None = None) -> bool:
    """Whether another job has this id, apart from the run that it would replace."""
    (key,) = tx.one(_SQL["owner"], (row.key, identity)) or (None,)
    return key is not None and (but is None or key != but.key)


def waiting_run(tx: Transaction, row: QueueRow, schedule: str) -> CurrentRun | None:
    """The current run, unless it has started."""
    run = tx.row(_RUN, (row.key, schedule))
    return None if run is None or run.running or run.place > Place.DELAYED else run


def drop_run(step: QueueChanges, schedule: str) -> None:
    """Remove the current run, unless it has started."""
    run = waiting_run(step.tx, step.row, schedule)
    if run is not None:
        step.leave(run.key, run.place, run.rank)
        step.discard(run.key, run.chosen, run.logs)
        step.event(EventKind.REMOVED, job_id(run.key, run.chosen), prev=WIRE_WORD[STATE_OF[run.place]])
        step.flush()


def run_job(schedule: Schedule, slot: int) -> NewJob:
    return replace(schedule.job, id=run_id(schedule.id, slot), due=slot, dedup=None, trace=None)


def timing_of(schedule: Schedule) -> str:
    return json.dumps([getattr(schedule, name) for name in _TIMING])


def view_of(queue: str, row: StoredSchedule) -> ScheduleRow:
    given = dict(zip(_TIMING, json.loads(row.timing), strict=True))
    given["overlap"], given["catch_up"] = Overlap(given["overlap"]), CatchUp(given["catch_up"])
    return ScheduleRow(
        queue=queue,
        schedule=Schedule(id=row.id, job=load_new_job(row.template), owner=row.owner or None, **given),
        slot=row.slot,
        count=row.runs,
        paused=bool(row.paused),
        busy=bool(row.busy),
        over=bool(row.over),
    )
