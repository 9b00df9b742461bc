"""What comes from another store is stored in one step: all of a load, and once."""

import json
from collections.abc import Sequence
from typing import Any, Final

from toril.engines.sql.add import place_job
from toril.engines.sql.crates import STANDINGS
from toril.engines.sql.dedup import dump_kept, owner_of
from toril.engines.sql.ledgers import put_ledger, put_settings
from toril.engines.sql.letters import keep_letters
from toril.engines.sql.options import dump_failure, dump_options, dump_parcel
from toril.engines.sql.schedules import drop_run, run_job, template_of, timing_of
from toril.engines.sql.schema import Place, finished_rank, first_key, job_key
from toril.engines.sql.statements import statement
from toril.engines.sql.step import Step
from toril.engines.sql.transaction import QueueRow, Tx
from toril.model import (
    KEEP_ALL,
    Arrival,
    Child,
    FactsParcel,
    JobParcel,
    JobRef,
    LedgerParcel,
    LetterParcel,
    Load,
    Parcel,
    ScheduleParcel,
    SettingsParcel,
    Unloaded,
    age_ms,
    run_id,
)
from toril.model.states import State
from toril.policy.attempts import dump_errors

__all__ = ["unload"]

_SQL: Final = {name: statement("moving", name) for name in (
    "fact", "set_fact", "insert_job", "insert_id", "is_taken", "owner", "insert_line", "insert_child", "hold_key",
    "put_schedule", "timing", "insert_letter", "put_circuit",
)}  # fmt: skip
_FORGET_RESULT: Final = statement("letters", "forget_result")


def unload(tx: Tx, load: Load, sender: str) -> Arrival:
    """Store what has not been stored before, or (a clash) nothing."""
    name = f"arrived:{sender}"
    found = tx.one(_SQL["fact"], (name,))
    number, mark = (0, "") if found is None else json.loads(found[0])
    if (number, mark) == (load.number, load.mark):
        return Arrival(Unloaded.AGAIN)
    if load.number <= number:
        return Arrival(Unloaded.STALE)
    unloading = _Unloading(tx)
    jobs = [parcel for parcel in load.parcels if isinstance(parcel, JobParcel)]
    clashes = unloading.clashes(jobs)
    if clashes:
        return Arrival(Unloaded.CLASH, clashes)
    for parcel in load.parcels:
        unloading.put(parcel)
    unloading.flush()
    tx.run(_SQL["set_fact"], (name, json.dumps([load.number, load.mark])))
    return Arrival(Unloaded.STORED, tuple(unloading.taken))


class _Unloading:
    """A load on its way into the queues. Schedules come last: they know runs by their keys."""

    def __init__(self, tx: Tx) -> None:
        self._tx = tx
        self._steps: dict[str, Step] = {}
        self._schedules: list[ScheduleParcel] = []
        self.taken: list[JobRef] = []

    def clashes(self, jobs: Sequence[JobParcel]) -> tuple[JobRef, ...]:
        """Jobs whose number another one has here."""
        keyed = ((job, job_key(self._step(job.queue).row.key, job.id)) for job in jobs)
        return tuple(job.ref for job, key in keyed if key is not None and self._tx.one(_SQL["is_taken"], (key,)))

    def put(self, parcel: Parcel) -> None:
        match parcel:
            case JobParcel():
                self._put_job(parcel)
            case ScheduleParcel():
                self._schedules.append(parcel)
            case LetterParcel():
                self._put_letter(parcel)
            case SettingsParcel():
                put_settings(self._step(parcel.queue), parcel)
            case LedgerParcel():
                put_ledger(self._tx, self._tx.queue(parcel.queue), parcel)
            case FactsParcel():
                self._put_facts(parcel)

    def flush(self) -> None:
        for step in self._steps.values():
            step.flush()
        for parcel in self._schedules:
            self._put_schedule(parcel)

    def _step(self, queue: str) -> Step:
        if queue not in self._steps:
            self._steps[queue] = Step(self._tx, self._tx.queue(queue))
        return self._steps[queue]

    def _put_job(self, job: JobParcel) -> None:
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
        tx.run(_SQL["insert_job"], (
            key, chosen, job.name, job.data, place, rank, job.max_attempts, job.attempts_made, job.stalls, job.starts,
            job.fence, job.priority, job.delay, job.expires_at, dump_parcel(job), job.metadata, job.checkpoint,
            job.progress, job.result, dump_failure(job.failure) if job.failure else None, job.stall_cause, job.worker,
            job.added_at, job.started_at, job.finished_at, job.group, order, len(job.logs),
            dump_errors(job.errors),
        ))  # fmt: skip
        step.enter(key, place, rank)
        step.arrived()
        self._put_belongings(step, job, key)

    def _spot(self, step: Step, job: JobParcel) -> tuple[int, int, int]:
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

    def _put_belongings(self, step: Step, job: JobParcel, key: int) -> None:
        row, tx = step.row, self._tx
        tx.run(_FORGET_RESULT, (row.key, job.id))
        self._put_log(key, job.logs)
        self._put_children(key, job.children)
        if job.children or job.parked is not None or job.parent is not None:
            row.flows = 1
        keep = job.keep_completed if job.state is State.COMPLETED else job.keep_failed
        if job.state in {State.COMPLETED, State.FAILED} and (age := age_ms(keep)) is not None:
            step.write("age", [(row.key, (job.finished_at or 0) + age + 1, key)])
        if job.held is not None and owner_of(tx, row, job.held.key) is None:
            kept = None if job.held.next is None else dump_kept(job.held.next)
            tx.run(_SQL["hold_key"], (row.key, job.held.key, job.id, key, job.held.till, kept))

    def _put_log(self, key: int, lines: Sequence[str]) -> None:
        self._tx.run_all(_SQL["insert_line"], [(key, number, line) for number, line in enumerate(lines, 1)])

    def _put_children(self, key: int, children: Sequence[Child]) -> None:
        rows: list[Sequence[Any]] = [
            (key, STANDINGS.index(each.state), each.ref.queue, each.ref.id, each.text, each.number, each.name)
            for each in children
        ]
        self._tx.run_all(_SQL["insert_child"], rows)

    def _put_letter(self, parcel: LetterParcel) -> None:
        letter, row, key = parcel.letter, self._step(parcel.letter.queue).row, 0
        if parcel.children or parcel.logs:
            row.last_number += 1
            key = -(first_key(row.key) + row.last_number)
        stored = self._tx.run(_SQL["insert_letter"], (
            letter.id, letter.queue, letter.job_id, letter.name, letter.data, letter.cause.value,
            dump_failure(letter.failure), letter.failed_at, letter.max_attempts, letter.attempts_made, letter.stalls,
            letter.stall_cause, letter.worker, letter.added_at, letter.started_at, letter.priority,
            dump_options(letter, letter.failed_at), letter.metadata, letter.checkpoint, letter.progress,
            letter.group, dump_errors(parcel.errors), key if parcel.logs else None, key if parcel.children else None,
        ))  # fmt: skip
        if not stored:
            self.taken.append(JobRef(letter.queue, letter.job_id))
            return
        self._put_log(key, parcel.logs)
        self._put_children(key, parcel.children)

    def _put_schedule(self, parcel: ScheduleParcel) -> None:
        """In place of one that keeps the same time; one that keeps another was declared later, and stays."""
        view, tx, row = parcel.view, self._tx, self._tx.queue(parcel.view.queue)
        schedule, timing = view.schedule, timing_of(view.schedule)
        before = tx.one(_SQL["timing"], (row.key, schedule.id))
        if before is not None and before[0] != timing:
            return
        drop_run(Step(tx, row), schedule.id)
        run = self._key(row, run_id(schedule.id, view.slot))
        if parcel.waits and run is None:
            run = place_job(tx, row, run_job(schedule, view.slot))
        last = None if parcel.last is None else self._key(row, parcel.last)
        tx.run(_SQL["put_schedule"], (
            row.key, schedule.id, view.slot, run, view.count, last, int(view.paused), int(view.over),
            schedule.owner or "", timing, template_of(schedule),
        ))  # fmt: skip

    def _key(self, row: QueueRow, identity: str) -> int | None:
        found = self._tx.one(_SQL["owner"], (row.key, identity))
        return None if found is None else int(found[0])

    def _put_facts(self, parcel: FactsParcel) -> None:
        if keep_letters(self._tx, None) == KEEP_ALL and parcel.letters != KEEP_ALL:
            keep_letters(self._tx, parcel.letters)
        for key, text in parcel.circuits.items():
            self._tx.run(_SQL["put_circuit"], (key, text))
