"""Controls jobs and queues: retry, promote, cancel, remove, update, drain, clean, obliterate, configure."""

import json
from collections.abc import Callable, Sequence
from typing import Final, Literal, NamedTuple, assert_never

from toril.engines.shared import still_running
from toril.engines.sql.calls import recall, recall_changed, recall_swept, remember, remember_changed, remember_swept
from toril.engines.sql.changes import QueueChanges
from toril.engines.sql.groups import make_ready, refill_all
from toril.engines.sql.options import dump_rate
from toril.engines.sql.rests import end_times
from toril.engines.sql.schema import (
    STATE_OF,
    JobFacts,
    Place,
    finished_bound,
    first_key,
    job_id,
    places_of,
    run_key,
)
from toril.engines.sql.statements import query, statement, statements
from toril.engines.sql.transaction import QueueRow, Transaction, keys_of, settings_of
from toril.model import (
    CANCELLED_KIND,
    Call,
    Cause,
    ControlResult,
    DeclareGroups,
    EventKind,
    Failure,
    Hold,
    Pause,
    Refused,
    Resume,
    RunStatus,
    SetConcurrency,
    SetData,
    SetDelay,
    SetGroups,
    SetMaxWaiting,
    SetPriority,
    SetRateLimit,
    Setting,
    Settings,
    Swept,
    Update,
    control,
)
from toril.model.states import FINISHED, NOT_STARTED, State

__all__ = [
    "WIRE_WORD",
    "FoundJob",
    "cancel",
    "clean",
    "configure",
    "drain",
    "each_job",
    "obliterate",
    "promote",
    "remove",
    "update",
]

_SQL: Final = statements("control")

WIRE_WORD = {state: state.value.replace("_", "-") for state in State} | {State.WAITING: "wait"}  # for `removed` events


class FoundJob(NamedTuple):
    """A job and its place."""

    job: JobFacts
    place: int
    rank: int
    running: int
    rests: int

    @property
    def state(self) -> State:
        return State.ACTIVE if self.running else STATE_OF[self.place]


_JOBS: Final = query("control", "jobs", FoundJob)


# An operation on one job whose state allows it; the id goes to `done` or to `asked`.
Act = Callable[[QueueChanges, FoundJob], bool | None]


def promote(tx: Transaction, queue: str, ids: Sequence[str], call: Call | None) -> ControlResult:
    """Make delayed jobs ready now."""

    def act(step: QueueChanges, found: FoundJob) -> bool:
        if found.rests:
            end_times(tx, step.row, found.job.key)
        step.leave(found.job.key, found.place, found.rank)
        make_ready(step, found.job.key, step.row.back(found.job.priority))
        step.event(EventKind.WAITING, found.job.id, prev="delayed")
        return True

    return each_job(tx, queue, ids, call, frozenset({State.DELAYED}), act)


def cancel(tx: Transaction, queue: str, ids: Sequence[str], reason: str, call: Call | None) -> ControlResult:
    """End jobs that have not started; ask running ones to stop."""

    def act(step: QueueChanges, found: FoundJob) -> bool:
        if found.state is State.ACTIVE:
            tx.run(_SQL["ask_to_stop"], (reason, found.job.key))
            call_worker(tx, found.job.worker)
            return False
        step.leave(found.job.key, found.place, found.rank)
        failure = Failure(reason, CANCELLED_KIND)
        step.fail(found.job, Cause.CANCELLED, failure, made=found.job.attempts_made)
        return True

    return each_job(tx, queue, ids, call, NOT_STARTED | {State.WAITING_CHILDREN, State.ACTIVE}, act)


def remove(tx: Transaction, queue: str, ids: Sequence[str], call: Call | None) -> ControlResult:
    """Delete jobs that are not running."""

    def act(step: QueueChanges, found: FoundJob) -> bool:
        step.leave(found.job.key, found.place, found.rank)
        step.discard(found.job.key, found.job.chosen, found.job.logs)
        step.event(EventKind.REMOVED, found.job.id, prev=WIRE_WORD[found.state])
        return True

    return each_job(tx, queue, ids, call, frozenset(State) - {State.ACTIVE}, act)


def update(tx: Transaction, queue: str, updates: Sequence[Update], call: Call | None) -> ControlResult:
    """Apply each update whose job is in a state that allows it, in order."""
    before = recall(tx, call)
    if before is not None:
        return recall_changed(before)
    done: list[str] = []
    refused: list[Refused] = []
    for each in updates:
        row = tx.find(queue)
        found = _find(tx, row, [each.id]).get(each.id) if row else None
        if (
            row is None
            or found is None
            or found.state not in _allowed(each)
            or (found.rests and isinstance(each, SetDelay))
        ):
            refused.append(Refused(each.id, found.state if found else None))
            continue
        step = QueueChanges(tx, row)
        _update(step, found, each)
        step.flush()
        done.append(each.id)
    return remember_changed(tx, call, ControlResult(tuple(done), (), tuple(refused)))


def _allowed(each: Update) -> frozenset[State]:
    match each:
        case SetData():
            return frozenset(State)
        case SetPriority():
            return NOT_STARTED
        case SetDelay():
            return frozenset({State.DELAYED})
        case _:
            assert_never(each)


def _update(step: QueueChanges, found: FoundJob, each: Update) -> None:
    tx, key, row = step.tx, found.job.key, step.row
    match each:
        case SetData(_, data):
            tx.run(_SQL["set_data"], (data, key))
        case SetDelay(_, delay):
            tx.run(_SQL["set_delay"], (delay, key))
            step.leave(key, found.place, found.rank)
            step.delay(key, tx.now + delay)
            step.event(EventKind.DELAYED, found.job.id, delay=str(tx.now + delay))
        case SetPriority(_, priority, lifo):
            tx.run(_SQL["set_priority"], (priority, key))
            if found.place in {Place.WAITING, Place.PRIORITIZED}:  # a suspect stays where it will be claimed alone
                step.leave(key, found.place, found.rank)
                make_ready(step, key, row.front(priority) if lifo else row.back(priority))
        case _:
            assert_never(each)


def call_worker(tx: Transaction, worker: str | None) -> None:
    """Wake a worker that listens under `control(worker)`."""
    if worker is not None:
        tx.run(_SQL["call"], (worker, tx.now))
        tx.notify(control(worker))


def each_job(
    tx: Transaction, queue: str, ids: Sequence[str], call: Call | None, allowed: frozenset[State], act: Act
) -> ControlResult:
    before = recall(tx, call)
    if before is not None:
        return recall_changed(before)
    row = tx.find(queue)
    found = _find(tx, row, ids) if row else {}
    step = QueueChanges(tx, row) if row else None
    done: list[str] = []
    asked: list[str] = []
    refused: list[Refused] = []
    for identity in dict.fromkeys(ids):
        job = found.get(identity)
        if step is None or job is None or job.state not in allowed:
            refused.append(Refused(identity, job.state if job else None))
        else:
            did = act(step, job)
            if did is None:
                refused.append(Refused(identity, job.state))
            else:
                (done if did else asked).append(identity)
    if step is not None:
        step.flush()
    return remember_changed(tx, call, ControlResult(tuple(done), tuple(asked), tuple(refused)))


def _find(tx: Transaction, row: QueueRow, ids: Sequence[str]) -> dict[str, FoundJob]:
    keys = keys_of(tx, row, ids)
    return {found.job.id: found for found in tx.rows(_JOBS, (json.dumps(list(keys.values())),))}


_FORGOTTEN: Final = (
    "forget_minutes",
    "forget_slices",
    "forget_results",
    "forget_starts",
    "forget_schedules",
    "forget_dedups",
    "forget_ageing",
)
_DELETE_QUEUE = statement("queues", "delete")


def drain(tx: Transaction, queue: str, states: frozenset[State], limit: int, call: Call | None) -> Swept:
    """Remove jobs that have not started. A schedule keeps its next run, because it would stop without it."""
    before = recall(tx, call)
    if before is not None:
        return recall_swept(before)
    row = tx.find(queue)
    ids: list[str] = []
    if row is not None:
        step = QueueChanges(tx, row)
        for place in (place for state in sorted(states) for place in places_of(state)):
            ids += _sweep(step, place, tx.all(_SQL["drainable"], (row.key, row.key, place, limit - len(ids))))
        step.flush()
    return remember_swept(tx, call, Swept(tuple(ids), more=len(ids) == limit))


def clean(tx: Transaction, queue: str, state: State, grace: int, limit: int, call: Call | None) -> Swept:
    """Remove jobs in a state that are older than `grace`, counted from when they ended or were added."""
    before = recall(tx, call)
    if before is not None:
        return recall_swept(before)
    row = tx.find(queue)
    ids: list[str] = []
    if row is not None:
        step, cutoff = QueueChanges(tx, row), tx.now - grace
        for place in places_of(state):
            left = limit - len(ids)
            if state in FINISHED:
                found = tx.all(_SQL["entered_by"], (row.key, place, finished_bound(cutoff), left))
            else:
                found = tx.all(_SQL["added_by"], (row.key, row.key, place, cutoff, left))
            ids += _sweep(step, place, found)
        if ids:
            step.event(EventKind.CLEANED, None, count=str(len(ids)))
        step.flush()
    return remember_swept(tx, call, Swept(tuple(ids), more=len(ids) == limit))


def obliterate(
    tx: Transaction, queue: str, running: Literal["refuse", "remove"], limit: int, call: Call | None
) -> Swept:
    """Remove a queue with everything in it. It is paused first, so that nothing starts between two calls."""
    before = recall(tx, call)
    if before is not None:
        return recall_swept(before)
    row = tx.find(queue)
    if row is None:
        return remember_swept(tx, call, Swept())
    if row.active and running == "refuse":
        raise still_running(queue, row.active)
    row.paused = 1
    step = QueueChanges(tx, row)
    ids = []
    for key, chosen, logs in tx.all(_SQL["running"], (row.key, limit)):
        step.leave_active([key])
        step.discard(key, chosen, logs)
        ids.append(job_id(key, chosen))
    for place in STATE_OF:
        ids += _sweep(step, place, tx.all(_SQL["of_place"], (row.key, place, limit - len(ids))))
    step.flush()
    if len(ids) < limit:
        _forget(tx, row)
    return remember_swept(tx, call, Swept(tuple(ids), more=len(ids) == limit))


def _forget(tx: Transaction, row: QueueRow) -> None:
    tx.run(_SQL["forget_events"], (first_key(row.key), first_key(row.key + 1)))
    tx.run(
        _SQL["forget_runs"],
        (run_key(row.key, RunStatus.COMPLETED, 0), run_key(row.key + 1, RunStatus.COMPLETED, 0)),
    )
    for name in _FORGOTTEN:
        tx.run(_SQL[name], (row.key,))
    for name in ("forget_groups", "forget_ring", "forget_starts"):
        tx.run(statement("groups", name), (row.key,))
    for name in ("forget_kept", "forget_sent", "forget_awaited"):
        tx.run(statement("signals", name), (row.key,))
    tx.run(_DELETE_QUEUE, (row.key,))
    tx.forget(row.name)


def _sweep(step: QueueChanges, place: int, found: Sequence[tuple[int, str | None, int, int]]) -> list[str]:
    for key, chosen, logs, rank in found:
        step.leave(key, place, rank)
        step.discard(key, chosen, logs)
    return [job_id(key, chosen) for key, chosen, *_ in found]


def configure(tx: Transaction, queue: str, settings: Sequence[Setting], call: Call | None) -> Settings:
    """Change settings in order, and return all of them. A repeated call changes nothing, and reads them again."""
    if not settings or recall(tx, call) is not None:
        known = tx.find(queue)
        return settings_of(known, tx.now) if known else Settings()
    remember(tx, call, [])
    row = tx.queue(queue)
    step = QueueChanges(tx, row)
    for setting in settings:
        _set(step, setting)
    step.arrived()  # a gate may have opened
    step.flush()
    return settings_of(row, tx.now)


def _set(step: QueueChanges, setting: Setting) -> None:
    row = step.row
    match setting:
        case Pause():
            if not row.paused:
                step.event(EventKind.PAUSED, None)
            row.paused = 1
        case Resume():
            if row.paused:
                step.event(EventKind.RESUMED, None)
            row.paused = 0
        case SetConcurrency(limit):
            row.concurrency = limit
        case SetRateLimit(rate):
            row.rate = dump_rate(rate)
        case SetMaxWaiting(limit):
            row.max_waiting = limit
        case Hold(ms):
            row.held_till = 0 if ms is None else step.tx.now + ms
        case SetGroups(limits):
            row.groups_set = None if limits is None else limits.dump()
            refill_all(step)
        case DeclareGroups(limits) if row.groups_declared == limits.dump():
            pass  # every process declares this when it starts
        case DeclareGroups(limits):
            row.groups_declared = limits.dump()
            refill_all(step)
        case _:
            assert_never(setting)
