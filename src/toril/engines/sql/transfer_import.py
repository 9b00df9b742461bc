"""Imports jobs into a SQL store: store each batch once, merge settings and records."""

import json
from collections.abc import Sequence
from functools import partial
from typing import Any, Final, TypeVar

from toril.codec.new_jobs import dump_new_job
from toril.engines.sql import transfer_export
from toril.engines.sql.add import store_job
from toril.engines.sql.changes import QueueChanges
from toril.engines.sql.dead_letters import keep_dead_letters
from toril.engines.sql.dedup import owner_of
from toril.engines.sql.inspector import StoredRun
from toril.engines.sql.metrics import add_to_slice
from toril.engines.sql.options import dump_again, dump_failure, dump_rate, dump_transferred
from toril.engines.sql.schedules import drop_run, run_job, timing_of
from toril.engines.sql.schema import Place, finished_rank, first_key, job_key, run_key
from toril.engines.sql.statements import query, statement, statements
from toril.engines.sql.transaction import QueueRow, Steps, Transaction
from toril.engines.sql.transfer_export import STANDINGS
from toril.engines.sql.transfer_steps import import_kept, import_rest, import_steps
from toril.model import (
    HEADROOM,
    KEEP_ALL,
    LOAD,
    Child,
    ImportOutcome,
    ImportResult,
    JobRef,
    RunRow,
    RunStatus,
    TransferBatch,
    TransferDeadLetter,
    TransferItem,
    TransferJob,
    TransferPart,
    TransferRecords,
    TransferSchedule,
    TransferSettings,
    TransferStoreFacts,
    age_ms,
    run_id,
)
from toril.model.names import check_queue_name
from toril.model.states import State
from toril.policy.attempts import dump_errors
from toril.policy.metrics import ALL_NAMES, NAMES
from toril.policy.retention import RUNS
from toril.runtime.clock import SYSTEM
from toril.store.capabilities import TransferStore
from toril.store.checked import implements

__all__ = ["SqlTransfers", "import_batch", "put_records", "put_settings"]

_SQL: Final = statements("transfer")
_RUN_RECORDS: Final = query("transfer", "run_records", StoredRun)
_START: Final = statement("claim", "start")
_GROUP_START: Final = statement("groups", "start")
_MINUTE: Final = statement("changes", "minute")
_RUN: Final = statement("changes", "run")
_RESULT: Final = statement("changes", "result")
_FORGET_RUNS: Final = statement("control", "forget_runs")
_OWNER: Final = statement("dedup", "owner")


def put_settings(step: QueueChanges, item: TransferSettings) -> None:
    """Apply the settings of the source, and number jobs far above those that may still come."""
    row, tx = step.row, step.tx
    row.paused = int(item.paused)
    row.concurrency, row.max_waiting, row.rate = item.concurrency, item.max_waiting, dump_rate(item.rate)
    row.held_till = max(row.held_till, item.held_till or 0)
    row.groups_set = None if item.groups_set is None else item.groups_set.dump()
    if item.groups_declared is not None:
        row.groups_declared = item.groups_declared.dump()
    row.last_number = max(row.last_number, item.numbers + HEADROOM)
    row.claims = max(row.claims, item.fences)
    tx.run(_SQL["return"], (row.key,))
    tx.run(_SQL["is_back"], (row.key,))
    for name, (limits, paused) in item.groups.items():
        row.grouped = 1
        tx.run(_SQL["set_group"], (row.key, name, limits.dump(), int(paused)))
        step.touch(name)
    for time, count in item.starts:
        tx.run(_START, (row.key, time, count))
    for name, starts in (item.group_starts or {}).items():
        for time, count in starts:
            tx.run(_GROUP_START, (row.key, name, time, count))
    import_kept(tx, row, item.signals, item.sent_ids)
    step.arrived()


def put_records(tx: Transaction, row: QueueRow, item: TransferRecords) -> None:
    """Add the counts of the source to those here."""
    _put_runs(tx, row, item)
    for minute, completed, failed in item.minutes:
        tx.run(_MINUTE, (row.key, minute, completed, failed))
    for (length, number), counted in item.slices.items():
        add_to_slice(tx, (row.key, length, number), dict(counted), NAMES if length else ALL_NAMES)
    for job, till, cause, text in item.results:
        tx.run(_RESULT, (row.key, job, till, cause, text))
    for key, owner, till in item.keys:
        if tx.one(_OWNER, (row.key, key)) is None:
            tx.run(_SQL["hold_key"], (row.key, key, owner, 0, till, None))


def _put_runs(tx: Transaction, row: QueueRow, item: TransferRecords) -> None:
    """Merge the run records of both by time, as many as a queue keeps. The last number is how many there were in
    total."""
    row.completed_total += item.completed
    row.failed_total += item.failed
    row.cancelled_total += item.cancelled
    for ending in RunStatus:
        first, last = run_key(row.key, ending, 0), run_key(row.key, ending, (1 << 40) - 1)
        before = tx.rows(_RUN_RECORDS, (first, last))
        came = [_stored(run) for run in item.runs if run.ending is ending]
        if came or item.completed or item.failed or item.cancelled:
            both = sorted(before + came, key=lambda run: run.finished_at)[-RUNS:]
            tx.run(_FORGET_RUNS, (first, last))
            number = first + max(row.total(ending), len(both)) - len(both)
            tx.run_all(_RUN, [run._replace(key=number + place) for place, run in enumerate(both, 1)])


def _stored(run: RunRow) -> StoredRun:
    return StoredRun(
        0,
        run.id,
        run.name,
        run.cause.value,
        run.added_at,
        run.started_at,
        run.finished_at,
        run.attempts_made,
        run.stalls,
        run.worker,
        run.text,
        int(run.whole),
        run.subject,
        str(run.parent) if run.parent is not None else "" if run.flow else None,
    )


_FORGET_RESULT: Final = statement("dead_letters", "forget_result")


def import_batch(tx: Transaction, load: TransferBatch, sender: str) -> ImportResult:
    """Store what has not been stored before or, on a clash, nothing."""
    name = f"arrived:{sender}"
    found = tx.value(_SQL["fact"], (name,))
    number, mark = (0, "") if found is None else json.loads(found)
    if (number, mark) == (load.number, load.mark):
        return ImportResult(ImportOutcome.AGAIN)
    if load.number <= number:
        return ImportResult(ImportOutcome.STALE)
    importing = _Import(tx)
    jobs = [item for item in load.items if isinstance(item, TransferJob)]
    clashes = importing.clashes(jobs)
    if clashes:
        return ImportResult(ImportOutcome.CLASH, clashes)
    for item in load.items:
        importing.put(item)
    importing.flush()
    tx.run(_SQL["set_fact"], (name, json.dumps([load.number, load.mark])))
    return ImportResult(ImportOutcome.STORED, tuple(importing.taken))


class _Import:
    """An import in progress. Schedules come last, because they know their runs by key."""

    def __init__(self, tx: Transaction) -> None:
        self._tx = tx
        self._steps: dict[str, QueueChanges] = {}
        self._schedules: list[TransferSchedule] = []
        self.taken: list[JobRef] = []

    def clashes(self, jobs: Sequence[TransferJob]) -> tuple[JobRef, ...]:
        """Jobs whose number another job has here."""
        keyed = ((job, job_key(self._step(job.queue).row.key, job.id)) for job in jobs)
        return tuple(job.ref for job, key in keyed if key is not None and self._tx.one(_SQL["is_taken"], (key,)))

    def put(self, item: TransferItem) -> None:
        match item:
            case TransferJob():
                self._put_job(item)
            case TransferSchedule():
                self._schedules.append(item)
            case TransferDeadLetter():
                self._put_dead_letter(item)
            case TransferSettings():
                put_settings(self._step(item.queue), item)
            case TransferRecords():
                put_records(self._tx, self._tx.queue(item.queue), item)
            case TransferStoreFacts():
                self._put_facts(item)

    def flush(self) -> None:
        for step in self._steps.values():
            step.flush()
        for item in self._schedules:
            self._put_schedule(item)

    def _step(self, queue: str) -> QueueChanges:
        if queue not in self._steps:
            self._steps[queue] = QueueChanges(self._tx, self._tx.queue(queue))
        return self._steps[queue]

    def _put_job(self, job: TransferJob) -> None:
        step, tx = self._step(job.queue), self._tx
        row = step.row
        key = job_key(row.key, job.id)
        chosen = job.id if key is None else None
        if chosen is not None and tx.one(_SQL["owner"], (row.key, chosen)) is not None:
            self.taken.append(job.ref)
            return
        if key is None:
            row.last_number += 1
            key = first_key(row.key) + row.last_number
            tx.run(_SQL["insert_id"], (row.key, chosen, key))
        row.last_number = max(row.last_number, key - first_key(row.key))
        row.claims = max(row.claims, job.fence)
        place, rank, order = self._spot(step, job)
        tx.run(
            _SQL["insert_job"],
            (
                key,
                chosen,
                job.name,
                job.data,
                place,
                rank,
                job.max_attempts,
                job.attempts_made,
                job.stalls,
                job.starts,
                job.fence,
                job.priority,
                job.delay,
                job.expires_at,
                dump_transferred(job),
                job.metadata,
                job.checkpoint,
                job.progress,
                job.result,
                dump_failure(job.failure) if job.failure else None,
                job.stall_cause,
                job.worker,
                job.added_at,
                job.started_at,
                job.finished_at,
                job.group,
                order,
                len(job.logs),
                dump_errors(job.errors),
            ),
        )
        step.enter(key, place, rank)
        step.arrived()
        self._put_details(step, job, key)
        import_steps(tx, row, key, job.steps)
        import_rest(step, key, job.steps, place, job.due)

    def _spot(self, step: QueueChanges, job: TransferJob) -> tuple[int, int, int]:
        """Place, rank, and order within its group."""
        row = step.row
        order = 0
        if job.group is not None:
            row.grouped, row.orders = 1, row.orders + 1
            order = row.orders
        match job.state:
            case State.DELAYED:
                return Place.DELAYED, step.due_rank(job.due or 0), order
            case State.WAITING_CHILDREN:
                return Place.WAITING_CHILDREN, row.moves + 1, order
            case State.COMPLETED | State.FAILED:
                place = Place.COMPLETED if job.state is State.COMPLETED else Place.FAILED
                return place, finished_rank(job.finished_at or 0, row.moves + 1), order
            case _ if job.group is not None:
                step.touch(job.group)
                return (Place.PARKED_SUSPECT if job.suspect else Place.PARKED), order, order
            case _ if job.suspect:
                return Place.SUSPECT, row.moves + 1, order
            case _:
                return (*row.back(job.priority), order)

    def _put_details(self, step: QueueChanges, job: TransferJob, key: int) -> None:
        row, tx = step.row, self._tx
        tx.run(_FORGET_RESULT, (row.key, job.id))
        self._put_log(key, job.logs)
        self._put_children(key, job.children)
        if job.children or job.parked is not None or job.parent is not None:
            row.flows = 1
        keep = job.options.keep_completed if job.state is State.COMPLETED else job.options.keep_failed
        if job.state in {State.COMPLETED, State.FAILED} and (age := age_ms(keep)) is not None:
            step.write("age", [(row.key, (job.finished_at or 0) + age + 1, key)])
        if job.held is not None and owner_of(tx, row, job.held.key) is None:
            kept = None if job.held.next is None else dump_new_job(job.held.next)
            tx.run(_SQL["hold_key"], (row.key, job.held.key, job.id, key, job.held.till, kept))

    def _put_log(self, key: int, lines: Sequence[str]) -> None:
        self._tx.run_all(_SQL["insert_line"], [(key, number, line) for number, line in enumerate(lines, 1)])

    def _put_children(self, key: int, children: Sequence[Child]) -> None:
        rows: list[Sequence[Any]] = [
            (key, STANDINGS.index(each.state), each.ref.queue, each.ref.id, each.text, each.number, each.name)
            for each in children
        ]
        self._tx.run_all(_SQL["insert_child"], rows)

    def _put_dead_letter(self, item: TransferDeadLetter) -> None:
        dead, row, key = item.letter, self._step(item.letter.queue).row, 0
        if item.children or item.logs or item.steps is not None:
            row.last_number += 1
            key = -(first_key(row.key) + row.last_number)
        stored = self._tx.run(
            _SQL["insert_dead_letter"],
            (
                dead.id,
                dead.queue,
                dead.job_id,
                dead.name,
                dead.data,
                dead.cause.value,
                dump_failure(dead.failure),
                dead.failed_at,
                dead.max_attempts,
                dead.attempts_made,
                dead.stalls,
                dead.stall_cause,
                dead.worker,
                dead.added_at,
                dead.started_at,
                dead.priority,
                dump_again(dead, dead.failed_at),
                dead.metadata,
                dead.checkpoint,
                dead.progress,
                dead.group,
                dump_errors(item.errors),
                key if item.logs else None,
                key if item.children else None,
                key if item.steps is not None else None,
            ),
        )
        if not stored:
            self.taken.append(JobRef(dead.queue, dead.job_id))
            return
        self._put_log(key, item.logs)
        self._put_children(key, item.children)
        import_steps(self._tx, row, key, item.steps)

    def _put_schedule(self, item: TransferSchedule) -> None:
        """Replace a schedule that has the same timing; one with another timing was declared later, and stays."""
        view, tx, row = item.view, self._tx, self._tx.queue(item.view.queue)
        schedule, timing = view.schedule, timing_of(view.schedule)
        before = tx.value(_SQL["timing"], (row.key, schedule.id))
        if before is not None and before != timing:
            return
        drop_run(QueueChanges(tx, row), schedule.id)
        run = self._key(row, run_id(schedule.id, view.slot))
        if item.waits and run is None:
            run = store_job(tx, row, run_job(schedule, view.slot))
        last = None if item.last is None else self._key(row, item.last)
        tx.run(
            _SQL["put_schedule"],
            (
                row.key,
                schedule.id,
                view.slot,
                run,
                view.count,
                last,
                int(view.paused),
                int(view.over),
                schedule.owner or "",
                timing,
                dump_new_job(schedule.job),
            ),
        )

    def _key(self, row: QueueRow, identity: str) -> int | None:
        key: int | None = self._tx.value(_SQL["owner"], (row.key, identity))
        return key

    def _put_facts(self, item: TransferStoreFacts) -> None:
        if keep_dead_letters(self._tx, None) == KEEP_ALL and item.letters != KEEP_ALL:
            keep_dead_letters(self._tx, item.letters)
        for key, text in item.circuits.items():
            self._tx.run(_SQL["put_circuit"], (key, text))


T = TypeVar("T")
_OF_THE_STORE = {TransferPart.LETTERS, TransferPart.FACTS}


@implements(TransferStore)
class SqlTransfers:
    """Transfers of the seam."""

    def __init__(self, steps: Steps) -> None:
        self._steps = steps

    async def store_id(self) -> str:
        return await self._steps.write(partial(transfer_export.identity, fresh=SYSTEM.unique()), None)

    async def destination(self, queue: str) -> str | None:
        return await self._steps.read(partial(transfer_export.departure, queue=queue))

    async def export_batch(
        self, part: TransferPart, queue: str, *, to: str, mark: str, limit: int = LOAD, now: int | None = None
    ) -> TransferBatch | None:
        queue = "" if part in _OF_THE_STORE else check_queue_name(queue)
        return await self._steps.write(
            partial(transfer_export.export_batch, part=part, queue=queue, to=to, mark=mark, limit=limit), now
        )

    async def import_batch(self, load: TransferBatch, *, sender: str, now: int | None = None) -> ImportResult:
        return await self._steps.write(partial(import_batch, load=load, sender=sender), now, grows=True)

    async def confirm_export(self, load: TransferBatch, *, now: int | None = None) -> bool:
        return await self._steps.write(partial(transfer_export.confirm_export, batch=load), now)
