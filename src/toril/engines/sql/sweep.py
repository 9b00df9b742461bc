"""Remove many jobs, a bounded number a step: drain, clean, obliterate, prune. And the queue's settings."""

from collections.abc import Sequence
from typing import Literal, assert_never

from toril.engines.sql.calls import answered, recall_swept, remember, remember_swept
from toril.engines.sql.groupviews import let_in_more
from toril.engines.sql.options import dump_rate
from toril.engines.sql.schema import STATE_OF, finished_bound, first_key, job_id, places_of, run_key
from toril.engines.sql.statements import statement
from toril.engines.sql.step import Step
from toril.engines.sql.transaction import QueueRow, Tx, settings_of
from toril.errors import InvalidOption, WrongState
from toril.model import (
    Call,
    DeclareGroups,
    Ending,
    EventKind,
    Hold,
    Pause,
    Resume,
    SetConcurrency,
    SetGroups,
    SetMaxWaiting,
    SetRateLimit,
    Setting,
    Settings,
    Swept,
    whole,
)
from toril.model.states import FINISHED, NOT_STARTED, State

__all__ = ["clean", "configure", "drain", "obliterate"]

_SQL = {name: statement("control", name) for name in (
    "of_place", "drainable", "entered_by", "added_by", "running", "forget_events", "forget_runs", "forget_minutes",
    "forget_slices", "forget_results", "forget_starts", "forget_schedules", "forget_dedups", "forget_ageing",
)}  # fmt: skip
_DELETE_QUEUE = statement("queues", "delete")


def drain(tx: Tx, queue: str, states: frozenset[State], limit: int, call: Call | None) -> Swept:
    """Remove jobs that have not started; but a schedule keeps its next run, without which it would stop."""
    before = answered(tx, call)
    if before is not None:
        return recall_swept(before)
    if not states <= NOT_STARTED:
        raise InvalidOption(f"drain removes {_words(NOT_STARTED)} jobs, not {_words(states - NOT_STARTED)}")
    whole("limit", limit, 1, 10_000)
    row = tx.find(queue)
    ids: list[str] = []
    if row is not None:
        step = Step(tx, row)
        for place in (place for state in sorted(states) for place in places_of(state)):
            ids += _sweep(step, place, tx.all(_SQL["drainable"], (row.key, row.key, place, limit - len(ids))))
        step.flush()
    return remember_swept(tx, call, Swept(tuple(ids), more=len(ids) == limit))


def clean(tx: Tx, queue: str, state: State, grace: int, limit: int, call: Call | None) -> Swept:
    """Remove jobs that are older than `grace` in a state: since they ended, or since they were added."""
    before = answered(tx, call)
    if before is not None:
        return recall_swept(before)
    if state not in FINISHED | NOT_STARTED:
        raise InvalidOption(f"clean removes {_words(FINISHED | NOT_STARTED)} jobs, not {state} ones")
    whole("grace", grace, 0, 2**42)
    whole("limit", limit, 1, 10_000)
    row = tx.find(queue)
    ids: list[str] = []
    if row is not None:
        step, cutoff = Step(tx, row), tx.now - grace
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


def obliterate(tx: Tx, queue: str, running: Literal["refuse", "remove"], limit: int, call: Call | None) -> Swept:
    """Remove a queue with everything in it. Paused first, so that nothing starts between two calls."""
    before = answered(tx, call)
    if before is not None:
        return recall_swept(before)
    whole("limit", limit, 1, 10_000)
    row = tx.find(queue)
    if row is None:
        return remember_swept(tx, call, Swept())
    if row.active and running == "refuse":
        raise WrongState(f"queue {queue!r} has {row.active} running jobs; stop them, or force it")
    row.paused = 1
    step = Step(tx, row)
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


def _forget(tx: Tx, row: QueueRow) -> None:
    tx.run(_SQL["forget_events"], (first_key(row.key), first_key(row.key + 1)))
    tx.run(_SQL["forget_runs"], (run_key(row.key, Ending.COMPLETED, 0), run_key(row.key + 1, Ending.COMPLETED, 0)))
    for name in (
        "forget_minutes",
        "forget_slices",
        "forget_results",
        "forget_starts",
        "forget_schedules",
        "forget_dedups",
        "forget_ageing",
    ):
        tx.run(_SQL[name], (row.key,))
    for name in ("forget_groups", "forget_ring", "forget_starts"):
        tx.run(statement("groups", name), (row.key,))
    tx.run(_DELETE_QUEUE, (row.key,))
    tx.forget(row.name)


def _sweep(step: Step, place: int, found: Sequence[tuple[int, str | None, int, int]]) -> list[str]:
    for key, chosen, logs, rank in found:
        step.leave(key, place, rank)
        step.discard(key, chosen, logs)
    return [job_id(key, chosen) for key, chosen, *_ in found]


def configure(tx: Tx, queue: str, settings: Sequence[Setting], call: Call | None) -> Settings:
    """Change settings in order; answer with all of them. A call sent again changes nothing, and reads them anew."""
    if not settings or answered(tx, call) is not None:
        known = tx.find(queue)
        return settings_of(known, tx.now) if known else Settings()
    remember(tx, call, [])
    row = tx.queue(queue)
    step = Step(tx, row)
    for setting in settings:
        _set(step, setting)
    step.arrived()  # whatever was shut may be open now
    step.flush()
    return settings_of(row, tx.now)


def _set(step: Step, setting: Setting) -> None:
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
            let_in_more(step)
        case DeclareGroups(limits) if row.groups_declared == limits.dump():
            pass  # every process says so when it starts
        case DeclareGroups(limits):
            row.groups_declared = limits.dump()
            let_in_more(step)
        case _:
            assert_never(setting)


def _words(states: frozenset[State]) -> str:
    return ", ".join(sorted(states))
