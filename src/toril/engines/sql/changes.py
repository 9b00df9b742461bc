"""`QueueChanges`: collects the writes of a step, then makes them."""

import json
from collections.abc import Sequence
from typing import Any, Final, Literal, NamedTuple

from toril.engines.sql.options import ParentLink, dump_failure, load_options
from toril.engines.sql.schema import (
    AWAITED,
    RECORDED,
    SIGNALS,
    STEPS,
    JobFacts,
    Place,
    delayed_rank,
    due_bound,
    finished_rank,
    first_key,
    run_key,
)
from toril.engines.sql.statements import statements
from toril.engines.sql.transaction import QueueRow, Transaction
from toril.model import (
    ATTEMPT_ERRORS,
    DEAD_LETTER_CAUSES,
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

__all__ = ["ChildEnded", "QueueChanges", "trim_events"]


class ChildEnded(NamedTuple):
    """A child's end, for its parent to know. `stays`: it can still be run again."""

    id: str
    parent: ParentLink
    ending: Literal["completed", "failed", "removed"]
    text: str = ""
    stays: bool = False


# In this order, so that a place that a job leaves and enters in one step ends as entered.
_ORDER = (
    "forget_dead_letter_logs", "forget_dead_letter_children", "forget_dead_letter", "dead_letter", "move_logs",
    "move_children", "move_recorded", "move_steps", "move_signals", "error", "leave", "leave_active", "delete_job",
    "delete_id", "delete_logs", "orphan", "disown", "stop_awaiting", "drop_unread", "wake", "wake_parent", "rest",
    "never_expires", "enter", "place", "stand", "keep", "age", "forget_age", "run", "result",
)  # fmt: skip
_SQL: Final = statements("changes")
# What goes with a job that is deleted, by the bit of `stepping` that says whether a queue's jobs have any.
_STEP_TABLES: Final = (
    (RECORDED, "delete_recorded"), (STEPS, "delete_steps"), (SIGNALS, "delete_signals"), (AWAITED, "stop_awaiting")
)  # fmt: skip

_NONE_ENDED = dict.fromkeys(RunStatus, 0)
_TRIM_SLACK = 1_000  # events over the cap that are tolerated, so that trimming is rare and in bulk
_TRIMMED_A_STEP = 1_000


class QueueChanges:
    """Collects what an operation decides; `flush` writes it."""

    __slots__ = (
        "_ended", "_events", "_last_due", "_trims", "_writes", "counted", "ended_children", "ended_keys",
        "left", "removed_early", "row", "touched", "tx", "unstarted",
    )  # fmt: skip

    def __init__(self, tx: Transaction, row: QueueRow) -> None:
        self.tx = tx
        self.row = row
        self._ended = _NONE_ENDED.copy()
        self.counted: Counted = {}
        self.touched: dict[str, None] = {}  # groups that may admit more
        self.left: list[int] = []  # jobs that left the line, or ended, in a queue with groups
        self._last_due: dict[int, int | None] = {}  # ranks from this step, which may not be written yet
        self.ended_keys: list[tuple[int, str]] = []  # jobs that ended, and their deduplication keys
        self.unstarted: list[Unstarted] = []
        self.ended_children: list[ChildEnded] = []  # children that ended
        self.removed_early: list[int] = []  # jobs removed before their end, which may have parents or children
        self._events: list[tuple[EventKind, list[str | None], dict[str, list[str]]]] = []
        self._trims: dict[int, list[Keep]] = {}
        self._writes: dict[str, list[tuple[Any, ...]]] = {name: [] for name in _ORDER}

    def write(self, name: str, rows: list[tuple[Any, ...]]) -> None:
        """Many rows for one statement."""
        self._writes[name] += rows

    def event(self, kind: EventKind, job: str | None, **detail: str) -> None:
        """Something happened to a job or, with None, to the queue."""
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
        """Put a job into the line, and count it."""
        row = self.row
        row.moves += 1
        row.count(place, 1)
        self._writes["enter"].append((row.key, place, rank, key, row.moves))

    def leave(self, key: int, place: int, rank: int) -> None:
        """Take a job out of the line."""
        self.row.count(place, -1)
        if self.row.grouped:
            self.left.append(key)
        if self.row.resting and place == Place.DELAYED:
            self._writes["wake"].append((key,))
        elif self.row.resting_for_children and place == Place.WAITING_CHILDREN:
            self._writes["wake_parent"].append((key,))
        self._writes["leave"].append((self.row.key, place, rank, key))

    def leave_active(self, keys: Sequence[int]) -> None:
        """Remove jobs from `active`."""
        self.row.active -= len(keys)
        if self.row.grouped:
            self.left += keys
        if keys and self.row.concurrency is not None:
            self.arrived()  # slots of the fleet are free again
        self._writes["leave_active"] += [(key,) for key in keys]

    def arrived(self) -> None:
        """A claim may now find something that it did not find before."""
        self.row.arrivals += 1
        self.tx.notify(self.row.name)

    def touch(self, group: str) -> None:
        """A group may be able to admit more once this step's writes are made."""
        self.touched[group] = None

    def stand_at(self, key: int, spot: tuple[int, int]) -> None:
        """Move a job that is in the line to this position."""
        self.enter(key, *spot)
        self._writes["place"].append((key, *spot))
        self.arrived()

    def due_rank(self, due: int) -> int:
        """The rank behind all jobs that are due at that time."""
        if due not in self._last_due:
            bounds = (self.row.key, Place.DELAYED, due_bound(due - 1), due_bound(due))
            self._last_due[due] = self.tx.value(_SQL["last_due"], bounds)
        rank = self._last_due[due] = delayed_rank(due, self._last_due[due])
        return rank

    def delay(self, key: int, due: int) -> None:
        """Make a job wait until `due`. Notify waiting workers, because this may be the next due time."""
        rank = self.due_rank(due)
        self.enter(key, Place.DELAYED, rank)
        self._writes["place"].append((key, Place.DELAYED, rank))
        self.arrived()

    def wait_for_children(self, key: int) -> None:
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
        """Write what its run has changed about a job that will run again."""
        self._writes["stand"].append(
            (
                job.key,
                made,
                job.stalls,
                job.starts,
                job.fence,
                job.started_at,
                job.worker,
                delay,
                dump_failure(failure) if failure else None,
                cause,
            )
        )

    def note_error(self, job: JobFacts, failure: Failure, *, made: int) -> None:
        """Keep the error of an attempt that is followed by another."""
        line = error_line(made, self.tx.now, failure)
        self._writes["error"].append((job.key, line, ATTEMPT_ERRORS - 1))

    def delete(self, key: int, chosen: str | None, logs: int) -> None:
        """Delete a job's record and everything that belongs to it. Its place in the line is left to the caller."""
        self.tx.notify(f"={self.row.name}")  # wakes those who wait for its result
        self._writes["delete_job"].append((key,))
        if chosen is not None:
            self._writes["delete_id"].append((chosen,))
        if logs:
            self._writes["delete_logs"].append((key,))

    def discard(self, key: int, chosen: str | None, logs: int) -> None:
        """Remove a job that someone deletes; it no longer owns its key."""
        self.delete(key, chosen, logs)
        self.removed_early.append(key)
        self._writes["disown"].append((key,))

    def count(self, field: str, more: int = 1) -> None:
        """Count one more, or some, for the metrics."""
        if more:
            self.counted[field] = self.counted.get(field, 0) + more

    def completed(self, count: int) -> int:
        """Count jobs that completed. Returns the key of the last run record before them."""
        key = run_key(self.row.key, RunStatus.COMPLETED, self.row.completed_total)
        self.row.completed_total += count
        self._ended[RunStatus.COMPLETED] += count
        return key

    def fail(self, job: JobFacts, cause: Cause, failure: Failure, *, made: int) -> None:
        """End a job without a result: it failed, or was cancelled."""
        row, stored, options = self.row, job.stored, job.stored.options
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
            (
                run_key(row.key, ending, row.total(ending)),
                job.id,
                job.name,
                cause.value,
                job.added_at,
                job.started_at,
                self.tx.now,
                made,
                job.stalls,
                job.worker,
                reason,
                whole,
                stored.options.subject,
                stored.flow,
            )
        )
        if stored.dedup is not None and stored.dedup.key is not None:
            self.ended_keys.append((job.key, stored.dedup.key))
        if options.result_ttl is not None:
            values = (row.key, job.id, self.tx.now + options.result_ttl, cause.value, failure.reason)
            self._writes["result"].append(values)
        kept = options.keep_failed.count != 0
        if stored.parent is not None:
            stays = kept or cause in DEAD_LETTER_CAUSES
            self.ended_children.append(ChildEnded(job.id, stored.parent, "failed", failure.reason, stays))
        if not kept:
            if stored.parked is not None and cause not in DEAD_LETTER_CAUSES:
                self._writes["orphan"].append((job.key,))
            if cause in DEAD_LETTER_CAUSES:
                self._dead_letter(job, cause, failure, made)
            self.delete(job.key, job.chosen, 0 if cause in DEAD_LETTER_CAUSES else job.logs)
        else:
            self.keep(job, made, Place.FAILED, options.keep_failed, None, failure)

    def end_early(self, job: JobFacts, cause: Cause, failure: Failure, *, made: int) -> None:
        """Record a job that ended instead of being claimed; the claim's answer names it."""
        self.fail(job, cause, failure, made=made)
        self.unstarted.append(Unstarted(job.id, job.name, failure))

    def _dead_letter(self, job: JobFacts, cause: Cause, failure: Failure, made: int) -> None:
        """Move a job that is about to be deleted to the dead letters, replacing an earlier one with its id."""
        identity = letter_id(self.row.name, job.id)
        self._writes["forget_dead_letter_logs"].append((identity,))
        self._writes["forget_dead_letter_children"].append((identity,))
        self._writes["forget_dead_letter"].append((identity,))
        self._writes["dead_letter"].append(
            (
                job.key,
                identity,
                self.row.name,
                job.id,
                cause.value,
                dump_failure(failure),
                self.tx.now,
                made,
                job.stalls,
                job.started_at,
                job.worker,
            )
        )
        if job.logs:
            self._writes["move_logs"].append((job.key,))
        if job.stored.parked is not None:
            self._writes["move_children"].append((job.key,))
        if self.row.stepping:
            for name in ("move_recorded", "move_steps", "move_signals"):
                self._writes[name].append((job.key,))

    def keep(
        self, job: JobFacts, made: int, place: int, keep: Keep, result: str | None, failure: Failure | None
    ) -> None:
        """Leave a finished job in the store, for as long as `keep` says."""
        now = self.tx.now
        if self.row.stepping & AWAITED:
            self._writes["stop_awaiting"].append((job.key,))
        if self.row.stepping & SIGNALS and place == Place.COMPLETED:
            self._writes["drop_unread"].append((job.key,))
        rank = finished_rank(now, self.row.moves + 1)
        self.enter(job.key, place, rank)
        self._writes["keep"].append(
            (
                job.key,
                place,
                rank,
                made,
                job.stalls,
                job.starts,
                job.fence,
                job.started_at,
                now,
                job.worker,
                result,
                dump_failure(failure) if failure else None,
            )
        )
        self._trims.setdefault(place, []).append(keep)
        if (age := age_ms(keep)) is not None:
            self._writes["age"].append((self.row.key, now + age + 1, job.key))

    def flush(self) -> None:
        """Write the collected changes, and all their effects."""
        self.tx.commit(self)

    def write_events(self) -> None:
        """Write the step's events."""
        row, tx, rows = self.row, self.tx, []
        base, before = first_key(row.key), row.events
        for kind, jobs, details in self._events:
            row.events += len(jobs)
            detail = json.dumps(details) if details else None
            rows.append((base + row.events, tx.now, kind.value, len(jobs), json.dumps(jobs), detail))
        self._events = []
        tx.run_all(_SQL["event"], rows)
        trim_events(tx, row.key, before, row.events)

    def make_writes(self) -> None:
        for name, rows in self._writes.items():
            if rows:
                changed = self.tx.run_all(_SQL[name], rows, *((self.row.key,) if name == "delete_id" else ()))
                if name == "delete_job" and self.row.stepping:
                    self._delete_steps(rows)
                elif name == "wake":
                    self.row.resting -= changed
                elif name == "wake_parent":
                    self.row.resting_for_children -= changed
                self._writes[name] = []

    def _delete_steps(self, jobs: list[tuple[Any, ...]]) -> None:
        for bit, name in _STEP_TABLES:
            if self.row.stepping & bit:
                self.tx.run_all(_SQL[name], jobs)

    def trim(self) -> None:
        """Remove jobs that exceed the retention of those that just ended."""
        for place, keeps in self._trims.items():
            self._trim_place(place, keeps)
        self._trims = {}

    def _trim_place(self, place: int, keeps: list[Keep]) -> None:
        """Remove the oldest, a bounded number. Each job trims to its own count before the next one ends, so later ones
        may exceed it."""
        total = self.row.completed if place == Place.COMPLETED else self.row.failed
        overs = [total - after - keep.count for after, keep in enumerate(reversed(keeps)) if keep.count is not None]
        over = min(max(overs, default=0), _TRIMMED_A_STEP)
        self._remove_oldest(place, 2**62, over)
        ages = [age for keep in keeps if (age := age_ms(keep)) is not None]
        if ages and over < _TRIMMED_A_STEP:
            self._remove_oldest(place, finished_rank(self.tx.now - min(ages), 0), _TRIMMED_A_STEP)

    def _remove_oldest(self, place: int, up_to: int, limit: int) -> None:
        if limit > 0:
            oldest = self.tx.all(_SQL["oldest_kept"], (self.row.key, place, up_to, limit))
            for key, chosen, logs, rank, finished_at, text in oldest:
                self.leave(key, place, rank)
                self.delete(key, chosen, logs)
                stored = load_options(text)
                if stored.parked is not None:
                    self._writes["orphan"].append((key,))
                options = stored.options
                keep = options.keep_completed if place == Place.COMPLETED else options.keep_failed
                if (age := age_ms(keep)) is not None:
                    self._writes["forget_age"].append((self.row.key, finished_at + age + 1, key))
            self.make_writes()

    def count_ended(self) -> None:
        """Count the jobs that ended, and trim their run records."""
        if not any(self._ended.values()):
            return
        row, tx = self.row, self.tx
        completed, failed = self._ended[RunStatus.COMPLETED], self._ended[RunStatus.FAILED]
        if completed or failed:
            tx.run(_SQL["minute"], (row.key, tx.now // 60_000, completed, failed))
        for ending, count in self._ended.items():
            if count and row.total(ending) > RUNS:
                trimmed = row.total(ending) - RUNS
                tx.run(_SQL["trim_runs"], (run_key(row.key, ending, 0), run_key(row.key, ending, trimmed)))
        tx.notify(f"={row.name}")
        self._ended = _NONE_ENDED.copy()


def trim_events(tx: Transaction, queue: int, before: int, now: int) -> None:
    """Delete the oldest events of a queue when it has many more than it keeps. The numbers are those of its last event
    before this step and now."""
    if before // _TRIM_SLACK != now // _TRIM_SLACK and now > EVENTS:
        base = first_key(queue)
        tx.run(_SQL["trim_events"], (base, base + now - EVENTS))
