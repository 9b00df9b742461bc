"""What people and programs do to single jobs: retry, promote, cancel, remove, update."""

import json
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, assert_never

from toril.engines.sql.calls import answered, recall_changed, remember_changed
from toril.engines.sql.groups import make_ready
from toril.engines.sql.schema import STATE_OF, Place
from toril.engines.sql.statements import statement
from toril.engines.sql.step import JOB_COLUMNS, Job, Step
from toril.engines.sql.transaction import QueueRow, Tx, keys_of
from toril.errors import InvalidOption
from toril.model import (
    BATCH,
    CANCELLED_KIND,
    Call,
    Cause,
    Changed,
    EventKind,
    Failure,
    Refused,
    SetData,
    SetDelay,
    SetPriority,
    Update,
    control,
)
from toril.model.states import NOT_STARTED, State

__all__ = ["WIRE_WORD", "Found", "cancel", "each_job", "poke", "promote", "remove", "update"]

_SQL = {name: statement("control", name) for name in (
    "jobs", "ask_to_stop", "poke", "renew", "set_data", "set_priority", "set_delay",
)}  # fmt: skip

WIRE_WORD = {state: state.value.replace("_", "-") for state in State} | {State.WAITING: "wait"}  # in `removed` events


class Found(NamedTuple):
    """A job and where it stands."""

    job: Job
    place: int
    rank: int
    state: State


# What a control does to one job whose state allows it: its id goes to `done`, or to `asked`.
Act = Callable[[Step, Found], bool]


def promote(tx: Tx, queue: str, ids: Sequence[str], call: Call | None) -> Changed:
    """Make delayed jobs ready now."""

    def act(step: Step, found: Found) -> bool:
        step.leave(found.job.key, found.place, found.rank)
        make_ready(step, found.job.key, step.row.back(found.job.priority))
        step.event(EventKind.WAITING, found.job.id, prev="delayed")
        return True

    return each_job(tx, queue, ids, call, frozenset({State.DELAYED}), act)


def cancel(tx: Tx, queue: str, ids: Sequence[str], reason: str, call: Call | None) -> Changed:
    """End what has not started; ask what runs."""

    def act(step: Step, found: Found) -> bool:
        if found.state is State.ACTIVE:
            tx.run(_SQL["ask_to_stop"], (reason, found.job.key))
            poke(tx, found.job.worker)
            return False
        step.leave(found.job.key, found.place, found.rank)
        failure = Failure(reason, CANCELLED_KIND)
        step.fail(found.job, Cause.CANCELLED, failure, made=found.job.attempts_made)
        return True

    return each_job(tx, queue, ids, call, NOT_STARTED | {State.WAITING_CHILDREN, State.ACTIVE}, act)


def remove(tx: Tx, queue: str, ids: Sequence[str], call: Call | None) -> Changed:
    """Delete what does not run."""

    def act(step: Step, found: Found) -> bool:
        step.leave(found.job.key, found.place, found.rank)
        step.discard(found.job.key, found.job.chosen, found.job.logs)
        step.event(EventKind.REMOVED, found.job.id, prev=WIRE_WORD[found.state])
        return True

    return each_job(tx, queue, ids, call, frozenset(State) - {State.ACTIVE}, act)


def update(tx: Tx, queue: str, updates: Sequence[Update], call: Call | None) -> Changed:
    """Apply each update whose job is in a state that allows it, in order."""
    before = answered(tx, call)
    if before is not None:
        return recall_changed(before)
    _check_size(updates)
    done: list[str] = []
    refused: list[Refused] = []
    for each in updates:
        row = tx.find(queue)
        found = _find(tx, row, [each.id]).get(each.id) if row else None
        if row is None or found is None or found.state not in _allowed(each):
            refused.append(Refused(each.id, found.state if found else None))
            continue
        step = Step(tx, row)
        _update(step, found, each)
        step.flush()
        done.append(each.id)
    return remember_changed(tx, call, Changed(tuple(done), (), tuple(refused)))


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


def _update(step: Step, found: Found, each: Update) -> None:
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
            if found.place in {Place.WAITING, Place.PRIORITIZED}:  # a suspect stays where it is claimed alone
                step.leave(key, found.place, found.rank)
                make_ready(step, key, row.front(priority) if lifo else row.back(priority))
        case _:
            assert_never(each)


def poke(tx: Tx, worker: str | None) -> None:
    """Wake a worker that listens under `control(worker)`."""
    if worker is not None:
        tx.run(_SQL["poke"], (worker, tx.now))
        tx.ring(control(worker))


def each_job(tx: Tx, queue: str, ids: Sequence[str], call: Call | None, allowed: frozenset[State], act: Act) -> Changed:
    before = answered(tx, call)
    if before is not None:
        return recall_changed(before)
    _check_size(ids)
    row = tx.find(queue)
    found = _find(tx, row, ids) if row else {}
    step = Step(tx, row) if row else None
    done: list[str] = []
    asked: list[str] = []
    refused: list[Refused] = []
    for identity in dict.fromkeys(ids):
        job = found.get(identity)
        if step is None or job is None or job.state not in allowed:
            refused.append(Refused(identity, job.state if job else None))
        else:
            (done if act(step, job) else asked).append(identity)
    if step is not None:
        step.flush()
    return remember_changed(tx, call, Changed(tuple(done), tuple(asked), tuple(refused)))


def _find(tx: Tx, row: QueueRow, ids: Sequence[str]) -> dict[str, Found]:
    keys = keys_of(tx, row, ids)
    found = [_found(entry) for entry in tx.all(_SQL["jobs"], (json.dumps(list(keys.values())),))]
    return {each.job.id: each for each in found}


def _found(entry: tuple[Any, ...]) -> Found:
    job = Job._make(entry[:JOB_COLUMNS])
    place, rank, running = entry[JOB_COLUMNS:]
    return Found(job, place, rank, State.ACTIVE if running else STATE_OF[place])


def _check_size(batch: Sequence[object]) -> None:
    if len(batch) > BATCH:
        raise InvalidOption(f"one call changes at most {BATCH} jobs, not {len(batch)}")
