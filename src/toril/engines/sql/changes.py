"""`QueueChanges`: the writes of a step, gathered, then made."""

import json
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

from toril.engines.sql.options import DEFAULTS, ParentLink, StoredOptions, dump_failure, load_options
from toril.engines.sql.schema import Place, delayed_rank, due_bound, finished_rank, first_key, job_id, run_key
from toril.engines.sql.statements import statement
from toril.engines.sql.transaction import QueueRow, Transaction
from toril.model import (
    ATTEMPT_ERRORS,
    BURIED,
    Cause,
    EventKind,
    Failure,
    Keep,
    RunStatus,
    Unstarted,
    age_ms,
    letter_id,
)
from toril.policy.attempts import error_line
from toril.policy.metrics import CANCELLED, Counted
from toril.policy.retention import EVENTS, RUNS, shortened

__all__ = ["JOB_COLUMNS", "ChildEnded", "JobFacts", "QueueChanges"]


class ChildEnded(NamedTuple):
    """A child's end, for its parent to know. `stays`: it can still be run again."""

    id: str
    parent: ParentLink
    ending: Literal["completed", "failed", "removed"]
    text: str = ""
    stays: bool = False


# In this order, so that a place left and entered again in one step ends as entered.
_ORDER = (
    "unbury_logs", "unbury_kin", "bury", "bury_logs", "bury_kin", "error", "leave", "leave_active", "delete_job",
    "delete_id", "delete_logs", "orphan", "disown", "enter", "place", "stand", "keep", "age", "forget_age", "run",
    "result",
)  # fmt: skip
_SQL = {name: statement("step", name) for name in _ORDER}
_EVENT = statement("step", "event")
_TRIM_EVENTS = statement("step", "trim_events")
_TRIM_RUNS = statement("step", "trim_runs")
_MINUTE = statement("step", "minute")
_OLDEST_KEPT = statement("step", "oldest_kept")
_LAST_DUE = statement("step", "last_due")

_NONE_ENDED = dict.fromkeys(RunStatus, 0)
_TRIM_SLACK = 1_000  # events over the cap that are tolerated, so that trimming is rare and in bulk
_TRIMMED_A_STEP = 1_000


class JobFacts(NamedTuple):
    """The facts of a job that a step needs; `chosen` is the id if a user chose it."""

    key: int
    chosen: str | None
    name: str
    priority: int
    max_attempts: int
    attempts_made: int
    stalls: int
    starts: int
    fence: int
    added_at: int
    started_at: int | None
    worker: str | None
    logs: int
    options_text: str | None

    @property
    def id(self) -> str:
        return job_id(self.key, self.chosen)

    @property
    def options(self) -> StoredOptions:
        return DEFAULTS if self.options_text is None else load_options(self.options_text)


JOB_COLUMNS = len(JobFacts._fields)


class QueueChanges:
    """Gathers what an operation decides; `flush` writes it."""

    __slots__ = (
        "_ended", "_events", "_last_due", "_trims", "_writes", "counted", "ended_keys",
        "left", "parted", "row", "told", "touched", "tx", "unstarted",
    )  # fmt: skip

    def __init__(self, tx: Transaction, row: QueueRow) -> None:
        self.tx = tx
        self.row = row
        self._ended = _NONE_ENDED.copy()
        self.counted: Counted = {}
        self.touched: dict[str, None] = {}  # groups that may let in more
        self.left: list[int] = []  # jobs that left the line, or ended, in a queue with groups
        self._last_due: dict[int, int | None] = {}  # ranks of this step that may not be written yet
        self.ended_keys: list[tuple[int, str]] = []  # jobs that ended, and the deduplication keys they came with
        self.unstarted: list[Unstarted] = []
        self.told: list[ChildEnded] = []  # children that ended
        self.parted: list[int] = []  # jobs removed before their time, which may be someone's children, or have some
        self._events: list[tuple[EventKind, list[str | None], dict[str, list[str]]]] = []
        self._trims: dict[int, list[Keep]] = {}
        self._writes: dict[str, list[tuple[Any, ...]]] = {name: [] for name in _ORDER}

    def write(self, name: str, rows: list[tuple[Any, ...]]) -> None:
        """Many rows for one statement."""
        self._writes[name] += rows

    def event(self, kind: EventKind, job: str | None, **detail: str) -> None:
        """Something happened to a job, or (None) to the queue."""
        if self._events:
            last, jobs, details = self._events[-1]
            if last is kind and details.keys() == detail.keys():
                jobs.append(job)
                for name, value in detail.items():
                    details[name].append(value)
                return
        self._events.append((kind, [job], {name: [value] for name, value in detail.items()}))

    def events(self, kind: EventKind, jobs: Sequence[str | None], **details: list[str]) -> None:
        """The same thing happened to many jobs."""
        if jobs:
            self._events.append((kind, list(jobs), details))

    def enter(self, key: int, place: int, rank: int) -> None:
        """Put a job into the line, and into the count."""
        row = self.row
        row.moves += 1
        row.count(place, 1)
        self._writes["enter"].append((row.key, place, rank, key, row.moves))

    def leave(self, key: int, place: int, rank: int) -> None:
        """Take a job out of the line."""
        self.row.count(place, -1)
        if self.row.grouped:
            self.left.append(key)
        self._writes["leave"].append((self.row.key, place, rank, key))

    def leave_active(self, keys: Sequence[int]) -> None:
        """Take jobs out of the hands of those who ran them."""
        self.row.active -= len(keys)
        if self.row.grouped:
            self.left += keys
        if keys and self.row.concurrency is not None:
            self.arrived()  # slots of the whole fleet are free again
        self._writes["leave_active"] += [(key,) for key in keys]

    def arrived(self) -> None:
        """A claim may now find what it did not find before."""
        self.row.arrivals += 1
        self.tx.notify(self.row.name)

    def touch(self, group: str) -> None:
        """A group may have more to let in once this step's writes are made."""
        self.touched[group] = None

    def stand_at(self, key: int, spot: tuple[int, int]) -> None:
        """Put a job that is there already at this spot."""
        self.enter(key, *spot)
        self._writes["place"].append((key, *spot))
        self.arrived()

    def due_rank(self, due: int) -> int:
        """The rank behind all who are due at that time."""
        if due not in self._last_due:
            bounds = (self.row.key, Place.DELAYED, due_bound(due - 1), due_bound(due))
            self._last_due[due] = self.tx.one(_LAST_DUE, bounds)[0]
        rank = self._last_due[due] = delayed_rank(due, self._last_due[due])
        return rank

    def delay(self, key: int, due: int) -> None:
        """Make a job wait until `due`. A sleeping worker must learn of it: its due time may be the next."""
        rank = self.due_rank(due)
        self.enter(key, Place.DELAYED, rank)
        self._writes["place"].append((key, Place.DELAYED, rank))
        self.arrived()

    def rest(self, key: int) -> None:
        """Make a job wait for its children."""
        rank = self.row.moves + 1
        self.enter(key, Place.WAITING_CHILDREN, rank)
        self._writes["place"].append((key, Place.WAITING_CHILDREN, rank))

    def stand(
        self,
        job: JobFacts,
        *,
        made: int,
        delay: int | None = None,
        failure: Failure | None = None,
        cause: str | None = None,
    ) -> None:
        """Write back what running changed of a job that will run again."""
        self._writes["stand"].append(
            (job.key, made, job.stalls, job.starts, job.fence, job.started_at, job.worker, delay,
             dump_failure(failure) if failure else None, cause)
        )  # fmt: skip

    def note_error(self, job: JobFacts, failure: Failure, *, made: int) -> None:
        """Keep the error of an attempt that is followed by another."""
        line = error_line(made, self.tx.now, failure)
        self._writes["error"].append((job.key, line, ATTEMPT_ERRORS - 1))

    def delete(self, key: int, chosen: str | None, logs: int) -> None:
        """Remove a job's record with all that belongs to it. Its place is left apart."""
        self.tx.notify(f"={self.row.name}")  # who waits for its result waits for nothing now
        self._writes["delete_job"].append((key,))
        if chosen is not None:
            self._writes["delete_id"].append((chosen,))
        if logs:
            self._writes["delete_logs"].append((key,))

    def discard(self, key: int, chosen: str | None, logs: int) -> None:
        """Remove a job that someone wants gone: it owns nothing any more."""
        self.delete(key, chosen, logs)
        self.parted.append(key)
        self._writes["disown"].append((key,))

    def count(self, field: str) -> None:
        """Count one more, for the figures."""
        self.counted[field] = self.counted.get(field, 0) + 1

    def completed(self, count: int) -> int:
        """Count jobs that returned. Gives the key of the last run record before them."""
        key = run_key(self.row.key, RunStatus.COMPLETED, self.row.completed_total)
        self.row.completed_total += count
        self._ended[RunStatus.COMPLETED] += count
        return key

    def fail(self, job: JobFacts, cause: Cause, failure: Failure, *, made: int) -> None:
        """A job ended without a result: it failed, or was cancelled."""
        row = self.row
        if row.grouped:
            self.left.append(job.key)
        reason, whole = shortened(failure.reason)
        if cause is Cause.CANCELLED:
            ending, kind = RunStatus.CANCELLED, EventKind.CANCELLED
            row.cancelled_total += 1
            self.count(CANCELLED)
        else:
            ending, kind = RunStatus.FAILED, EventKind.FAILED
            row.failed_total += 1
            self.count(f"n{job.name}")
        self._ended[ending] += 1
        self.event(kind, job.id, failedReason=reason)
        self._writes["run"].append(
            (run_key(row.key, ending, row.total(ending)), job.id, job.name, cause.value, job.added_at,
             job.started_at, self.tx.now, made, job.stalls, job.worker, reason, whole, job.options.subject,
             job.options.flow)
        )  # fmt: skip
        options = job.options
        if options.dedup is not None and options.dedup.key is not None:
            self.ended_keys.append((job.key, options.dedup.key))
        if options.result_ttl is not None:
            values = (row.key, job.id, self.tx.now + options.result_ttl, cause.value, failure.reason)
            self._writes["result"].append(values)
        kept = options.keep_failed.count != 0
        if options.parent is not None:
            self.told.append(ChildEnded(job.id, options.parent, "failed", failure.reason, kept or cause in BURIED))
        if not kept:
            if options.parked is not None and cause not in BURIED:
                self._writes["orphan"].append((job.key,))
            if cause in BURIED:
                self._bury(job, cause, failure, made)
            self.delete(job.key, job.chosen, 0 if cause in BURIED else job.logs)
        else:
            self.keep(job, made, Place.FAILED, options.keep_failed, None, failure)

    def never_starts(self, job: JobFacts, cause: Cause, failure: Failure, *, made: int) -> None:
        """A job ended instead of being handed out; whoever claimed is told."""
        self.fail(job, cause, failure, made=made)
        self.unstarted.append(Unstarted(job.id, job.name, failure))

    def _bury(self, job: JobFacts, cause: Cause, failure: Failure, made: int) -> None:
        """Move a job that is about to be deleted to the dead letters, in place of an older one of its id."""
        letter = letter_id(self.row.name, job.id)
        self._writes["unbury_logs"].append((letter,))
        self._writes["unbury_kin"].append((letter,))
        self._writes["bury"].append(
            (job.key, letter, self.row.name, job.id, cause.value, dump_failure(failure), self.tx.now, made, job.stalls,
             job.started_at, job.worker)
        )  # fmt: skip
        if job.logs:
            self._writes["bury_logs"].append((job.key,))
        if job.options.parked is not None:
            self._writes["bury_kin"].append((job.key,))

    def keep(
        self, job: JobFacts, made: int, place: int, keep: Keep, result: str | None, failure: Failure | None
    ) -> None:
        """Leave a finished job in the store, for as long as `keep` says."""
        now = self.tx.now
        rank = finished_rank(now, self.row.moves + 1)
        self.enter(job.key, place, rank)
        self._writes["keep"].append(
            (job.key, place, rank, made, job.stalls, job.starts, job.fence, job.started_at, now, job.worker, result,
             dump_failure(failure) if failure else None)
        )  # fmt: skip
        self._trims.setdefault(place, []).append(keep)
        if (age := age_ms(keep)) is not None:
            self._writes["age"].append((self.row.key, now + age + 1, job.key))

    def flush(self) -> None:
        """Make the gathered writes, and all that follows from them."""
        self.tx.commit(self)

    def make(self) -> None:
        """Make the gathered writes, then trim, then the figures."""
        self.make_writes()
        for place, keeps in self._trims.items():
            self._trim(place, keeps)
        self._trims = {}
        if any(self._ended.values()):
            self._flush_figures()

    def tell_events(self) -> None:
        """Write what happened to the queue's events."""
        for kind, jobs, details in self._events:
            self._flush_events(kind, jobs, details)
        self._events = []

    def make_writes(self) -> None:
        for name, rows in self._writes.items():
            if rows:
                self.tx.run_all(_SQL[name], rows, *((self.row.key,) if name == "delete_id" else ()))
                self._writes[name] = []

    def _trim(self, place: int, keeps: list[Keep]) -> None:
        """Remove what the jobs that just ended leave no room for, oldest first, a bounded number.

        Each of them trims to its own count before the next one ends, so those after it may stay on top of that.
        """
        total = self.row.completed if place == Place.COMPLETED else self.row.failed
        overs = [total - after - keep.count for after, keep in enumerate(reversed(keeps)) if keep.count is not None]
        over = min(max(overs, default=0), _TRIMMED_A_STEP)
        self._remove_oldest(place, 2**62, over)
        ages = [age for keep in keeps if (age := age_ms(keep)) is not None]
        if ages and over < _TRIMMED_A_STEP:
            self._remove_oldest(place, finished_rank(self.tx.now - min(ages), 0), _TRIMMED_A_STEP)

    def _remove_oldest(self, place: int, up_to: int, limit: int) -> None:
        if limit > 0:
            oldest = self.tx.all(_OLDEST_KEPT, (self.row.key, place, up_to, limit))
            for key, chosen, logs, rank, finished_at, text in oldest:
                self.leave(key, place, rank)
                self.delete(key, chosen, logs)
                options = load_options(text)
                if options.parked is not None:
                    self._writes["orphan"].append((key,))
                keep = options.keep_completed if place == Place.COMPLETED else options.keep_failed
                if (age := age_ms(keep)) is not None:
                    self._writes["forget_age"].append((self.row.key, finished_at + age + 1, key))
            self.make_writes()

    def _flush_figures(self) -> None:
        row, tx = self.row, self.tx
        completed, failed = self._ended[RunStatus.COMPLETED], self._ended[RunStatus.FAILED]
        if completed or failed:
            tx.run(_MINUTE, (row.key, tx.now // 60_000, completed, failed))
        for ending, count in self._ended.items():
            if count and row.total(ending) > RUNS:
                trimmed = row.total(ending) - RUNS
                tx.run(_TRIM_RUNS, (run_key(row.key, ending, 0), run_key(row.key, ending, trimmed)))
        tx.notify(f"={row.name}")
        self._ended = _NONE_ENDED.copy()

    def _flush_events(self, kind: EventKind, jobs: list[str | None], details: dict[str, list[str]]) -> None:
        row, tx = self.row, self.tx
        base, before = first_key(row.key), row.events
        row.events += len(jobs)
        detail = json.dumps(details) if details else None
        tx.run(_EVENT, (base + row.events, tx.now, kind.value, len(jobs), json.dumps(jobs), detail))
        if before // _TRIM_SLACK != row.events // _TRIM_SLACK and row.events > EVENTS:
            tx.run(_TRIM_EVENTS, (base, base + row.events - EVENTS))
