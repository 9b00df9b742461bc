"""Runs failed jobs again: kept jobs, dead letters, and the children of either."""

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from toril.engines.shared import CHILD_GONE
from toril.engines.sql.add import state_of
from toril.engines.sql.calls import recall, recall_changed, remember_changed
from toril.engines.sql.changes import QueueChanges
from toril.engines.sql.control import WIRE_WORD, FoundJob, each_job
from toril.engines.sql.flows import ChildStatus, forgive, member, overwrite_end, rejoin, reopen
from toril.engines.sql.groups import make_ready
from toril.engines.sql.options import ParentLink, dump_again, load_failure, load_options
from toril.engines.sql.recorded import adopt, recorded_at, run_again
from toril.engines.sql.schema import Place, first_key, job_key
from toril.engines.sql.statements import query, statement, statements
from toril.engines.sql.transaction import Transaction
from toril.errors import NotFound, preview
from toril.model import (
    Backoff,
    Call,
    Cause,
    ControlResult,
    DeadLetterRow,
    EventKind,
    Failure,
    JobRef,
    OnFailure,
    Refused,
    Replay,
    letter_id,
)
from toril.model.states import FINISHED, State

__all__ = ["DETAIL_KEYS", "StoredDeadLetter", "dead_letter_of", "find_dead_letters", "replay", "retry", "rewind"]


class StoredDeadLetter(NamedTuple):
    """A dead letter as it is stored."""

    id: str
    queue: str
    job: str
    name: str
    data: str
    cause: str
    failure: str
    failed_at: int
    max_attempts: int
    attempts_made: int
    stalls: int
    stall_cause: str | None
    worker: str | None
    added_at: int
    started_at: int | None
    priority: int
    options_text: str | None
    metadata: str | None
    checkpoint: str | None
    progress: str | None
    group_name: str | None


class DetailKeys(NamedTuple):
    """Other data of a dead letter, and where it is stored."""

    queue: str
    job: str
    options_text: str | None
    children_key: int | None
    log_key: int | None
    steps_key: int | None


_SQL: Final = statements("dead_letters")
_FLOWS: Final = statements("flows")
_RENEW: Final = statement("control", "renew")
_OF_IDS: Final = query("dead_letters", "of_ids", StoredDeadLetter)
DETAIL_KEYS: Final = query("dead_letters", "details", DetailKeys)


def retry(
    tx: Transaction, queue: str, ids: Sequence[str], call: Call | None, with_parent: set[tuple[str, str]] | None = None
) -> ControlResult:
    """Run finished jobs again. A failed parent waits for its children that have not succeeded, which run again with it;
    their ids go to `with_parent`."""
    along = set[tuple[str, str]]() if with_parent is None else with_parent

    def act(step: QueueChanges, found: FoundJob) -> bool:
        if (queue, found.job.id) in along:
            return True  # it runs again already
        waits = bool(step.row.flows) and _join_again(step, found, along)
        step.leave(found.job.key, found.place, found.rank)
        tx.run(_RENEW, (found.job.key,))
        run_again(tx, step.row, found.job.key, since=0 if found.state is State.COMPLETED else None)
        if waits:
            step.wait_for_children(found.job.key)
        else:
            make_ready(step, found.job.key, step.row.back(found.job.priority))
        step.event(EventKind.WAITING_CHILDREN if waits else EventKind.WAITING, found.job.id, prev=found.state)
        return True

    return each_job(tx, queue, ids, call, FINISHED, act)


def rewind(tx: Transaction, queue: str, identity: str, to: str | None, call: Call | None) -> ControlResult:
    """Forget the steps of a job from this one on, and run it again."""

    def act(step: QueueChanges, found: FoundJob) -> bool | None:
        job, row = found.job, step.row
        if tx.one(_FLOWS["is_known"], (job.key, "", "")) is not None:
            return None  # more of its children are on their way
        since = 0 if to is None else recorded_at(tx, job.key, to)
        if since is None:
            raise NotFound(f"job {identity} of queue {queue!r} has recorded no step {preview(to)}")
        waits = found.place == Place.WAITING_CHILDREN and not found.rests  # of a flow: it has not run yet
        if found.state in FINISHED and row.flows:
            waits = _join_again(step, found, set())
        step.leave(job.key, found.place, found.rank)
        tx.run(_RENEW, (job.key,))
        run_again(tx, row, job.key, since=since)
        step.write("stop_awaiting", [(job.key,)])
        if waits:
            step.wait_for_children(job.key)
        else:
            make_ready(step, job.key, row.back(job.priority))
        step.event(EventKind.WAITING_CHILDREN if waits else EventKind.WAITING, job.id, prev=WIRE_WORD[found.state])
        return True

    return each_job(tx, queue, [identity], call, frozenset(State) - {State.ACTIVE}, act)


def _join_again(step: QueueChanges, found: FoundJob, along: set[tuple[str, str]]) -> bool:
    """Make the parent wait for this child again. A failed parent retries its children; returns whether it waits for
    any."""
    tx, job = step.tx, found.job
    if job.stored.parent is not None:
        rejoin(tx, step.row.name, job.id, job.stored.parent)
    if job.stored.parked is None:
        return False
    forgive(tx, job.key)
    step.flush()  # so that children retried before their parent are found where they are now
    return found.state is State.FAILED and _call_back(tx, job.key, [], along)


def replay(tx: Transaction, queue: str, replays: Sequence[Replay], call: Call | None) -> ControlResult:
    """Store the job of each dead letter again, and delete the dead letter. Dead children run again with their parent:
    they are done too."""
    before = recall(tx, call)
    if before is not None:
        return recall_changed(before)
    found = find_dead_letters(tx, [each.id for each in replays])
    done: list[str] = []
    refused: list[Refused] = []
    if any(dead.queue == queue for dead in found.values()):
        step = QueueChanges(tx, tx.queue(queue))
        for each in replays:
            dead = found.pop(each.id, None)
            if each.id in done and dead is not None:
                continue  # it has been replayed with its parent
            if dead is None or dead.queue != queue:
                refused.append(Refused(each.id, None))
                continue
            taken = _replay(step, dead, each, done)
            if taken is not None:
                refused.append(Refused(each.id, taken))
        step.flush()
    else:
        refused = [Refused(each.id, None) for each in replays]
    return remember_changed(tx, call, ControlResult(tuple(done), (), tuple(refused)))


def _replay(step: QueueChanges, dead: DeadLetterRow, change: Replay, done: list[str]) -> State | None:
    """Replay one dead letter. Returns None, or the state of the job that has taken its id."""
    tx, row = step.tx, step.row
    key = job_key(row.key, dead.job_id)
    chosen = dead.job_id if key is None else None
    owner = tx.value(_SQL["taken"], (key,)) if chosen is None else tx.value(_SQL["id_taken"], (row.key, chosen))
    if owner is not None:
        return state_of(tx, owner)
    if key is None:
        row.last_number += 1
        key = first_key(row.key) + row.last_number
        tx.run(_SQL["insert_id"], (row.key, chosen, key))
    row.last_number = max(row.last_number, key - first_key(row.key))  # the queue may be a new one, numbered anew
    details = tx.row(DETAIL_KEYS, (dead.id,))
    children_key, log_key = (None, None) if details is None else (details.children_key, details.log_key)
    adopt(tx, row, key, None if details is None else details.steps_key)
    waits = children_key is not None and _call_back(tx, children_key, done, set())
    place, rank = row.back(dead.priority)
    if dead.group is not None:
        row.grouped, row.orders = 1, row.orders + 1
    if waits:
        place, rank = Place.WAITING_CHILDREN, row.moves + 1
    elif dead.group is not None:
        place, rank = Place.PARKED, row.orders
        step.touch(dead.group)
    tx.run(
        _SQL["insert_job"],
        (
            key,
            chosen,
            dead.name,
            place,
            rank,
            change.attempts or dead.max_attempts,
            dead.priority,
            dead.added_at,
            dump_again(_with(dead, change.backoff), tx.now),
            dead.metadata,
            dead.checkpoint,
            dead.data if change.data is None else change.data,
            dead.group,
            0 if dead.group is None else row.orders,
        ),
    )
    tx.run(_SQL["forget_result"], (row.key, dead.job_id))
    if children_key is not None:
        row.flows = 1
        tx.run(_SQL["move_children"], (key, children_key))
        tx.run(_SQL["parked"], (0, key))
    if log_key is not None:
        tx.run(_SQL["move_log"], (key, log_key))
        tx.run(_SQL["count_log"], (key,))
    tx.run(_SQL["delete"], (dead.id,))
    done.append(dead.id)
    if dead.parent is not None:
        row.flows = 1
        rejoin(tx, row.name, dead.job_id, ParentLink(dead.parent.queue, dead.parent.id, dead.on_failure))
    step.enter(key, place, rank)
    step.event(EventKind.WAITING_CHILDREN if waits else EventKind.WAITING, dead.job_id, prev="failed")
    step.arrived()
    return None


def _with(dead: DeadLetterRow, backoff: Backoff | None) -> DeadLetterRow:
    return dead if backoff is None else replace(dead, options=replace(dead.options, backoff=backoff))


def _call_back(tx: Transaction, parent: int, done: list[str], retried: set[tuple[str, str]]) -> bool:
    """Run children again that have not succeeded; returns whether there are any to wait for. Former dead letters go to
    `done`, jobs that were kept to `retried`."""
    tx.run(_FLOWS["close"], (parent, "", ""))  # the entry that held it back while its flow was added
    for queue, identity in tx.all(_SQL["not_succeeded"], (parent,)):
        found = member(tx, queue, identity)
        if found is None:
            _replay_child(tx, parent, (queue, identity), done)
        elif found.job.failed:
            retry(tx, queue, [identity], None, retried)
            retried.add((queue, identity))
            reopen(tx, parent, queue, identity)
        elif found.job.ended:
            overwrite_end(tx, parent, ChildStatus.COMPLETED, (queue, identity), found.job.result or "null")
        else:
            reopen(tx, parent, queue, identity)
    return tx.one(_FLOWS["has_open"], (parent,)) is not None


def _replay_child(tx: Transaction, parent: int, child: tuple[str, str], done: list[str]) -> None:
    """Replay a child that is a dead letter. If it is gone, its parent knows that it failed."""
    identity = letter_id(*child)
    dead = find_dead_letters(tx, [identity]).get(identity)
    if dead is None:
        overwrite_end(tx, parent, ChildStatus.IGNORED, child, CHILD_GONE)
        return
    step = QueueChanges(tx, tx.queue(dead.queue))
    _replay(step, dead, Replay(identity), done)
    step.flush()
    reopen(tx, parent, *child)


def find_dead_letters(tx: Transaction, ids: Sequence[str]) -> dict[str, DeadLetterRow]:
    return {row.id: dead_letter_of(row) for row in tx.rows(_OF_IDS, (json.dumps(list(ids)),))}


def dead_letter_of(row: StoredDeadLetter) -> DeadLetterRow:
    stored = load_options(row.options_text)
    return DeadLetterRow(
        id=row.id,
        queue=row.queue,
        job_id=row.job,
        name=row.name,
        data=row.data,
        cause=Cause(row.cause),
        failure=load_failure(row.failure) or Failure("unknown"),
        failed_at=row.failed_at,
        max_attempts=row.max_attempts,
        attempts_made=row.attempts_made,
        stalls=row.stalls,
        stall_cause=row.stall_cause,
        worker=row.worker,
        added_at=row.added_at,
        started_at=row.started_at,
        priority=row.priority,
        options=stored.options,
        parent=None if stored.parent is None else JobRef(stored.parent.queue, stored.parent.id),
        on_failure=OnFailure.FAIL if stored.parent is None else OnFailure(stored.parent.policy),
        metadata=row.metadata,
        checkpoint=row.checkpoint,
        progress=row.progress,
        group=row.group_name,
    )
