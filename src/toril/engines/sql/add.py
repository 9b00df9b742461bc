"""Adds jobs, in SQL."""

import json
from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

from toril.engines.shared import full
from toril.engines.sql.calls import recall, remember
from toril.engines.sql.changes import QueueChanges
from toril.engines.sql.dedup import left_by, next_jobs, owner_of, repeated, take
from toril.engines.sql.groups import GroupAdmission, next_order, refuse_overfull_groups
from toril.engines.sql.options import options_of
from toril.engines.sql.schema import STATE_OF, Place, first_key
from toril.engines.sql.statements import statements
from toril.engines.sql.transaction import QueueRow, Transaction
from toril.model import Added, AddOutcome, Call, EventKind, NewJob
from toril.model.states import State

__all__ = [
    "add",
    "is_usual",
    "refuse_overfull_queue",
    "release_keys",
    "state_of",
    "store_job",
    "store_nodes",
    "store_parents",
]

_SQL: Final = statements("add")
_STORED = frozenset({AddOutcome.ADDED, AddOutcome.REPLACED})


def add(tx: Transaction, queue: str, jobs: Sequence[NewJob], call: Call | None) -> list[Added]:
    """All of the jobs in this order, or none."""
    before = recall(tx, call)
    if before is not None:
        return [Added(job, AddOutcome(outcome), State(state)) for job, outcome, state in _spelled_out(before)]
    if not jobs:
        remember(tx, call, [])
        return []
    row = tx.queue(queue)
    jobs = list(jobs)
    if any(job.dedup is not None for job in jobs):
        answers = _add_one_by_one(tx, row, jobs)
    else:
        answers = _Adding(tx, row, jobs).add()
    remember(tx, call, [(a.id, a.outcome, a.state) for a in answers])
    return answers


def is_usual(job: NewJob) -> bool:
    """Whether it goes to the end of the line under a number of its own, as nearly every job does."""
    return job.id is None and not (
        job.delay or job.due is not None or job.priority or job.lifo or job.dedup is not None or job.group is not None
    )


def store_job(tx: Transaction, row: QueueRow, job: NewJob) -> int:
    """Store one job whose id is free, whatever the queue's limit, and return its key."""
    adding = _Adding(tx, row, [job])
    adding.store(job)
    return first_key(row.key) + row.last_number


def store_nodes(tx: Transaction, row: QueueRow, nodes: Sequence[tuple[NewJob, str | None]]) -> list[Added]:
    """Store jobs of a flow whose ids are free, each with its options as text, whatever the queue's limit."""
    adding = _Adding(tx, row, [job for job, _ in nodes], texts={str(job.id): text for job, text in nodes})
    return adding.store(*(job for job, _ in nodes))


def store_parents(tx: Transaction, row: QueueRow, nodes: Sequence[tuple[NewJob, str | None]]) -> None:
    """The same for parents that wait for their children. Their delays begin when the children have ended."""
    step, rows = QueueChanges(tx, row), []
    for job, text in nodes:
        row.last_number += 1
        key, rank = first_key(row.key) + row.last_number, row.moves + 1
        delay = job.delay if job.due is None else max(0, job.due - tx.now)
        expires = None if job.expires is None else tx.now + job.expires
        order = 0 if job.group is None else next_order(row, job)
        rows.append(
            (
                key,
                job.id,
                job.name,
                Place.WAITING_CHILDREN,
                rank,
                job.attempts,
                job.priority,
                delay,
                tx.now,
                expires,
                text,
                job.metadata,
                job.data,
                job.group,
                order,
            )
        )
        step.enter(key, Place.WAITING_CHILDREN, rank)
    tx.run_all(_SQL["insert_grouped"], rows)
    ids = [job.id for job, _ in nodes]
    tx.run_all(_SQL["insert_id"], [(row.key, identity, key) for identity, (key, *_) in zip(ids, rows, strict=True)])
    tx.run_all(_SQL["forget_results"], [(identity,) for identity in ids], row.key)
    step.events(EventKind.ADDED, ids, name=[job.name for job, _ in nodes])
    step.events(EventKind.WAITING_CHILDREN, ids)
    step.flush()


def release_keys(step: QueueChanges) -> None:
    """Jobs have ended: store the next jobs of their deduplication keys."""
    ended, step.ended_keys = step.ended_keys, []
    for job in next_jobs(step.tx, step.row, ended):
        _Adding(step.tx, step.row, [job]).store(job)


def _spelled_out(before: list[Any]) -> list[Any]:
    """A remembered answer, job by job. For usual jobs, the last number and the count are enough."""
    if before and isinstance(before[0], int):
        last, count = before
        return [(str(number), AddOutcome.ADDED, State.WAITING) for number in range(last - count + 1, last + 1)]
    return before


def _add_one_by_one(tx: Transaction, row: QueueRow, jobs: Sequence[NewJob]) -> list[Added]:
    """Each job finds the ones before it in the store, as it must if one may own a key that another uses."""
    answers = [answer for job in jobs for answer in _Adding(tx, row, [job]).store(job)]
    refuse_overfull_queue(row, sum(answer.outcome is AddOutcome.ADDED for answer in answers))
    refuse_overfull_groups(tx, row, _groups_of(jobs, answers))
    return answers


def _groups_of(jobs: Sequence[NewJob], answers: Sequence[Added]) -> Counter[str]:
    """How many jobs of each group were stored."""
    stored = (job.group for job, answer in zip(jobs, answers, strict=True) if answer.outcome is AddOutcome.ADDED)
    return Counter(group for group in stored if group is not None)


def refuse_overfull_queue(row: QueueRow, added: int) -> None:
    """Raise if these jobs exceed the limit of a queue; then none of them is stored."""
    held = row.waiting + row.suspects + row.prioritized + row.delayed - row.resting + row.parked
    if row.max_waiting is not None and added and held > row.max_waiting:
        raise full(row.name, most=row.max_waiting, held=held - added, refused=added)


def state_of(tx: Transaction, key: int) -> State | None:
    """Where a job is, or None if there is no such job."""
    place, running = tx.one(_SQL["place_of"], (key,)) or (None, 0)
    if place is None:
        return None
    return State.ACTIVE if running else STATE_OF[place]


class _Adding:
    """An add of jobs of any kind: the rows to insert, and which ids are taken."""

    def __init__(
        self, tx: Transaction, row: QueueRow, jobs: Sequence[NewJob], *, texts: dict[str, str | None] | None = None
    ) -> None:
        self._new = jobs
        self._texts = texts  # options as text, by id, if they have more than the job's own
        self._answers: list[Added] = []
        self._step = QueueChanges(tx, row)
        self._base = first_key(row.key)
        chosen = [job.id for job in jobs if job.id is not None]
        self._owners: dict[str, int] = dict(tx.all(_SQL["owners"], (json.dumps(chosen), row.key))) if chosen else {}
        self._states: dict[int, State] = {}
        self._ids: list[tuple[int, str, int]] = []
        self._jobs: list[tuple[Any, ...]] = []
        self._grouped: list[tuple[Any, ...]] = []
        self._names: list[str] = []
        self._groups = GroupAdmission(self._step, [job.group for job in jobs if job.group is not None])
        self._delayed: list[tuple[str, str]] = []

    def add(self) -> list[Added]:
        for job in self._new:
            self._one(job)
        refuse_overfull_queue(self._step.row, len(self._jobs) + len(self._grouped))
        self._flush()
        refuse_overfull_groups(self._step.tx, self._step.row, _groups_of(self._new, self._answers))
        return self._answers

    def store(self, *jobs: NewJob) -> list[Added]:
        """Store jobs, whatever the queue's limit."""
        for job in jobs:
            self._one(job)
        self._flush()
        return self._answers

    def _one(self, job: NewJob) -> None:
        step, row, chosen = self._step, self._step.row, job.id
        row.last_number += 1
        key, now = self._base + row.last_number, step.tx.now
        if chosen is not None and chosen in self._owners:
            self._duplicate(chosen)
            return
        identity = str(row.last_number) if chosen is None else chosen
        outcome = AddOutcome.ADDED
        if job.dedup is not None:
            deduplicated = self._deduplicated(job, identity, key)
            if deduplicated is AddOutcome.DEDUPLICATED:
                return
            outcome = deduplicated
        if chosen is not None:
            self._owners[chosen] = key
            self._ids.append((row.key, chosen, key))
        order = 0 if job.group is None else self._groups.order(job)
        if job.delay or job.due is not None or job.priority or job.lifo or job.group is not None:
            place, rank, delay = self._spot(job, identity, order)
        else:
            place, rank, delay = Place.WAITING, row.moves + 1, 0
        text = options_of(job) if self._texts is None else self._texts[identity]
        values = (
            key,
            chosen,
            job.name,
            place,
            rank,
            job.attempts,
            job.priority,
            delay,
            now,
            None if job.expires is None else now + job.expires,
            text,
            job.metadata,
            job.data,
        )
        self._names.append(job.name)
        if job.group is None:
            self._jobs.append(values)
        else:
            self._grouped.append((*values, job.group, order))
        step.enter(key, place, rank)
        state = STATE_OF[place]
        if chosen is not None:
            self._states[key] = state
        self._answers.append(Added(identity, outcome, state))

    def _deduplicated(self, job: NewJob, identity: str, key: int) -> AddOutcome:
        """Take the key for this job, or leave the job out if another owns the key."""
        step, dedup = self._step, job.dedup
        assert dedup is not None  # noqa: S101 - asked for by the caller
        owner = owner_of(step.tx, step.row, str(dedup.key))
        outcome = AddOutcome.ADDED
        if owner is None and (left := left_by(step.tx, step.row, str(dedup.key))):
            step.ended_keys = left
            release_keys(step)
            owner = owner_of(step.tx, step.row, str(dedup.key))
        if owner is not None:
            replaces = repeated(step, job, owner)
            winner, loser = (identity, owner.owner) if replaces else (owner.owner, identity)
            step.event(EventKind.DEDUPLICATED, winner, deduplicationId=str(dedup.key), deduplicatedJobId=loser)
            step.flush()
            if not replaces:
                self._answers.append(Added(owner.owner, AddOutcome.DEDUPLICATED, owner.state))
                return AddOutcome.DEDUPLICATED
            outcome = AddOutcome.REPLACED
        take(step.tx, step.row, dedup, identity, key)
        return outcome

    def _spot(self, job: NewJob, identity: str, order: int) -> tuple[int, int, int]:
        """Place, rank and delay of a job that does not simply go to the end of the line."""
        row, now = self._step.row, self._step.tx.now
        due = now + job.delay if job.due is None else max(job.due, now)
        if due > now:
            self._delayed.append((identity, str(due)))
            return Place.DELAYED, self._step.due_rank(due), due - now
        if job.group is not None:
            return *self._groups.spot(job.group, job.priority, order), 0
        return *(row.front(0) if job.lifo and not job.priority else row.back(job.priority)), 0

    def _duplicate(self, chosen: str) -> None:
        key = self._owners[chosen]
        state = self._states.get(key) or state_of(self._step.tx, key)
        assert state is not None  # noqa: S101 - ids and jobs are written and deleted together
        self._answers.append(Added(chosen, AddOutcome.DUPLICATE, state))

    def _flush(self) -> None:
        step, tx = self._step, self._step.tx
        tx.run_all(_SQL["insert_job"], self._jobs)
        tx.run_all(_SQL["insert_grouped"], self._grouped)
        tx.run_all(_SQL["insert_id"], self._ids)
        # The result of an earlier job with the same id does not belong to this one.
        tx.run_all(_SQL["forget_results"], [(chosen,) for _, chosen, _ in self._ids], step.row.key)
        added = [answer for answer in self._answers if answer.outcome in _STORED]
        step.events(EventKind.ADDED, [answer.id for answer in added], name=self._names)
        step.events(EventKind.WAITING, [answer.id for answer in added if answer.state is not State.DELAYED])
        step.events(EventKind.DELAYED, [i for i, _ in self._delayed], delay=[due for _, due in self._delayed])
        step.events(EventKind.DUPLICATED, [a.id for a in self._answers if a.outcome is AddOutcome.DUPLICATE])
        if self._jobs or self._grouped:
            step.arrived()
        step.flush()
