"""Run failed jobs again: those that were kept, dead letters, and the children of either."""

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from toril.engines.shared import CHILD_GONE
from toril.engines.sql.add import state_of
from toril.engines.sql.calls import answered, recall_changed, remember_changed
from toril.engines.sql.changes import QueueChanges
from toril.engines.sql.control import FoundJob, each_job
from toril.engines.sql.flows import ChildStatus, forgive, member, note, rejoin, reopen
from toril.engines.sql.groups import make_ready
from toril.engines.sql.options import ParentLink, dump_options, load_failure, load_options
from toril.engines.sql.schema import Place, first_key, job_key
from toril.engines.sql.statements import statement
from toril.engines.sql.transaction import Transaction
from toril.errors import InvalidOption
from toril.model import (
    BATCH,
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

__all__ = ["found_letters", "letter_of", "replay", "retry"]

_SQL = {name: statement("letters", name) for name in (
    "of_ids", "taken", "id_taken", "family", "insert_job", "insert_id", "forget_result", "not_succeeded", "move_kin",
    "parked", "move_log", "count_log", "delete",
)}  # fmt: skip
_SQL |= {name: statement("family", name) for name in ("has_open", "close")}
_SQL["renew"] = statement("control", "renew")


def retry(
    tx: Transaction, queue: str, ids: Sequence[str], call: Call | None, with_parent: set[tuple[str, str]] | None = None
) -> ControlResult:
    """Run finished jobs again. A parent that failed waits for its children that have not succeeded, which run again
    with it: those go to `with_parent`."""
    along = set[tuple[str, str]]() if with_parent is None else with_parent

    def act(step: QueueChanges, found: FoundJob) -> bool:
        if (queue, found.job.id) in along:
            return True  # it runs again already
        waits = bool(step.row.flows) and _join_again(step, found, along)
        step.leave(found.job.key, found.place, found.rank)
        tx.run(_SQL["renew"], (found.job.key,))
        if waits:
            step.rest(found.job.key)
        else:
            make_ready(step, found.job.key, step.row.back(found.job.priority))
        step.event(EventKind.WAITING_CHILDREN if waits else EventKind.WAITING, found.job.id, prev=found.state)
        return True

    return each_job(tx, queue, ids, call, FINISHED, act)


def _join_again(step: QueueChanges, found: FoundJob, along: set[tuple[str, str]]) -> bool:
    """A child is waited for once more. A parent that failed calls its children back; whether it waits for some."""
    tx, job = step.tx, found.job
    if job.options.parent is not None:
        rejoin(tx, step.row.name, job.id, job.options.parent)
    if job.options.parked is None:
        return False
    forgive(tx, job.key)
    step.flush()  # children that were retried before their parent are seen where they are now
    return found.state is State.FAILED and _call_back(tx, job.key, [], along)


def replay(tx: Transaction, queue: str, replays: Sequence[Replay], call: Call | None) -> ControlResult:
    """Store each letter's job again, and delete the letter. Dead children run again with their parent: they are done
    too."""
    before = answered(tx, call)
    if before is not None:
        return recall_changed(before)
    found = found_letters(tx, [each.id for each in replays])
    done: list[str] = []
    refused: list[Refused] = []
    if any(letter.queue == queue for letter in found.values()):
        step = QueueChanges(tx, tx.queue(queue))
        for each in replays:
            letter = found.pop(each.id, None)
            if each.id in done and letter is not None:
                continue  # it was run again with its parent
            if letter is None or letter.queue != queue:
                refused.append(Refused(each.id, None))
                continue
            taken = _replay(step, letter, each, done)
            if taken is not None:
                refused.append(Refused(each.id, taken))
        step.flush()
    else:
        refused = [Refused(each.id, None) for each in replays]
    return remember_changed(tx, call, ControlResult(tuple(done), (), tuple(refused)))


def _replay(step: QueueChanges, letter: DeadLetterRow, wish: Replay, done: list[str]) -> State | None:
    """None, or the state of the job that has taken this one's id."""
    tx, row = step.tx, step.row
    key = job_key(row.key, letter.job_id)
    chosen = letter.job_id if key is None else None
    owner = tx.one(_SQL["taken"], (key,)) if chosen is None else tx.one(_SQL["id_taken"], (row.key, chosen))
    if owner is not None:
        return state_of(tx, owner[0])
    if key is None:
        row.last_number += 1
        key = first_key(row.key) + row.last_number
        tx.run(_SQL["insert_id"], (row.key, chosen, key))
    row.last_number = max(row.last_number, key - first_key(row.key))  # the queue may be another, numbered anew
    *_, kin, log = tx.one(_SQL["family"], (letter.id,))
    waits = kin is not None and _call_back(tx, kin, done, set())
    place, rank = row.back(letter.priority)
    if letter.group is not None:
        row.grouped, row.orders = 1, row.orders + 1
    if waits:
        place, rank = Place.WAITING_CHILDREN, row.moves + 1
    elif letter.group is not None:
        place, rank = Place.PARKED, row.orders
        step.touch(letter.group)
    tx.run(_SQL["insert_job"], (
        key, chosen, letter.name, place, rank, wish.attempts or letter.max_attempts, letter.priority, letter.added_at,
        dump_options(replace(letter, backoff=wish.backoff or letter.backoff), tx.now), letter.metadata,
        letter.checkpoint, letter.data if wish.data is None else wish.data, letter.group,
        0 if letter.group is None else row.orders,
    ))  # fmt: skip
    tx.run(_SQL["forget_result"], (row.key, letter.job_id))
    if kin is not None:
        row.flows = 1
        tx.run(_SQL["move_kin"], (key, kin))
        tx.run(_SQL["parked"], (0, key))
    if log is not None:
        tx.run(_SQL["move_log"], (key, log))
        tx.run(_SQL["count_log"], (key,))
    tx.run(_SQL["delete"], (letter.id,))
    done.append(letter.id)
    if letter.parent is not None:
        row.flows = 1
        rejoin(tx, row.name, letter.job_id, ParentLink(letter.parent.queue, letter.parent.id, letter.on_failure))
    step.enter(key, place, rank)
    step.event(EventKind.WAITING_CHILDREN if waits else EventKind.WAITING, letter.job_id, prev="failed")
    step.arrived()
    return None


def _call_back(tx: Transaction, kin: int, done: list[str], retried: set[tuple[str, str]]) -> bool:
    """Run children again that have not succeeded; whether there are any to wait for. Those that were dead letters go to
    `done`, those that were kept to `retried`."""
    tx.run(_SQL["close"], (kin, "", ""))  # what held it back while its flow was added
    for queue, identity in tx.all(_SQL["not_succeeded"], (kin,)):
        found = member(tx, queue, identity)
        if found is None:
            _from_letter(tx, kin, (queue, identity), done)
        elif found[1].failed:
            retry(tx, queue, [identity], None, retried)
            retried.add((queue, identity))
            reopen(tx, kin, queue, identity)
        elif found[1].ended:
            note(tx, kin, ChildStatus.COMPLETED, (queue, identity), found[1].result or "null")
        else:
            reopen(tx, kin, queue, identity)
    return tx.one(_SQL["has_open"], (kin,)) is not None


def _from_letter(tx: Transaction, kin: int, child: tuple[str, str], done: list[str]) -> None:
    """A child that is no job: its letter is replayed. Of one that is gone, its parent knows that it failed."""
    identity = letter_id(*child)
    letter = found_letters(tx, [identity]).get(identity)
    if letter is None:
        note(tx, kin, ChildStatus.IGNORED, child, CHILD_GONE)
        return
    step = QueueChanges(tx, tx.queue(letter.queue))
    _replay(step, letter, Replay(identity), done)
    step.flush()
    reopen(tx, kin, *child)


def found_letters(tx: Transaction, ids: Sequence[str]) -> dict[str, DeadLetterRow]:
    if len(ids) > BATCH:
        raise InvalidOption(f"one call takes at most {BATCH} dead letters, not {len(ids)}")
    letters = map(letter_of, tx.all(_SQL["of_ids"], (json.dumps(list(ids)),)))
    return {letter.id: letter for letter in letters}


def letter_of(row: tuple[Any, ...]) -> DeadLetterRow:
    (identity, queue, job, name, data, cause, failure, failed_at, attempts, made, stalls, stall_cause, worker, added_at,
     started_at, priority, text, metadata, checkpoint, progress, group) = row  # fmt: skip
    options = load_options(text)
    return DeadLetterRow(
        id=identity, queue=queue, job_id=job, name=name, data=data, cause=Cause(cause),
        failure=load_failure(failure) or Failure("unknown"), failed_at=failed_at, max_attempts=attempts,
        attempts_made=made, stalls=stalls, stall_cause=stall_cause, worker=worker, added_at=added_at,
        started_at=started_at, priority=priority, backoff=options.backoff, timeout=options.timeout,
        keep_completed=options.keep_completed, keep_logs=options.keep_logs, result_ttl=options.result_ttl,
        parent=None if options.parent is None else JobRef(options.parent.queue, options.parent.id),
        on_failure=OnFailure.FAIL if options.parent is None else OnFailure(options.parent.policy),
        breaker=options.breaker, subject=options.subject, metadata=metadata, checkpoint=checkpoint, progress=progress,
        group=group,
    )  # fmt: skip
