"""`Queue` and `Job` for code without an event loop: the same methods, which block.

Written by `python -m tools.blocking --write` from `queue.py`, `task.py`, `schedule.py`,
`operate/groups.py` and `job.py`: change those.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Generic, Literal, TypeVar, Unpack, overload

from toril.client.options import AddOptions, WaitOptions
from toril.context import HandlerOf, RawHandler
from toril.job import Cancelling, Job
from toril.model import AddOutcome, Counts, GroupLimits, Page, RateLimit, SearchPage, Usage
from toril.model.durations import Duration
from toril.model.states import State
from toril.operate.groups import GroupOptions, QueueGroups
from toril.operate.metrics import QueueMetrics
from toril.operate.search import PATIENCE, Failures, MatchCount, StateName
from toril.operate.why import Explanation
from toril.policy.metrics import Range
from toril.policy.search import EndingName, JobFilter
from toril.queue import Item, PreparedJob, Queue
from toril.records import (
    AttemptError,
    CancelCounts,
    EventRecord,
    GroupRecord,
    JobRecord,
    JobStack,
    QueueDeclaration,
    QueueSettings,
    RunRecord,
    ScheduleRecord,
    WorkerRecord,
)
from toril.runtime.calls import RunBlocking
from toril.schedule import QueueSchedules, Timing
from toril.task import Task

__all__ = ["SyncGroups", "SyncJob", "SyncQueue", "SyncSchedules", "SyncTask"]

T = TypeVar("T")
D = TypeVar("D", contravariant=True)
R = TypeVar("R", covariant=True)
S = TypeVar("S")


class SyncJob(Generic[R]):
    """One job, for code that blocks; see `Job`."""

    def __init__(self, job: Job[R], run: RunBlocking) -> None:
        self._job = job
        self._run = run

    def __repr__(self) -> str:
        return repr(self._job)

    @property
    def id(self) -> str:
        return self._job.id

    @property
    def name(self) -> str:
        return self._job.name

    @property
    def data(self) -> Any:
        return self._job.data

    @property
    def added(self) -> bool:
        return self._job.added

    @property
    def outcome(self) -> AddOutcome:
        return self._job.outcome

    @property
    def progress(self) -> Any:
        return self._job.progress

    @property
    def attempts_made(self) -> int:
        """How many attempts have ended, well or badly."""
        return self._job.attempts_made

    @property
    def stalls(self) -> int:
        """How often its worker was lost while running it."""
        return self._job.stalls

    @property
    def fence(self) -> int:
        """That of the start which `on_lease_lost` tells of, or which a context is of; else of the last one known."""
        return self._job.fence

    @property
    def error(self) -> str | None:
        """The reason of the last failure."""
        return self._job.error

    @property
    def dead_letter(self) -> str | None:
        """The id of the dead letter that it is, if it has failed for good and its queue does not keep it."""
        return self._job.dead_letter

    @property
    def metadata(self) -> Mapping[str, Any]:
        return self._job.metadata

    @property
    def worker(self) -> str | None:
        return self._job.worker

    @property
    def added_at(self) -> datetime | None:
        """By the store's clock, as all times here."""
        return self._job.added_at

    @property
    def started_at(self) -> datetime | None:
        return self._job.started_at

    @property
    def finished_at(self) -> datetime | None:
        return self._job.finished_at

    @property
    def record(self) -> JobRecord | None:
        """Everything that is stored of it, as of the last `refresh()`."""
        return self._job.record

    def refresh(self) -> "SyncJob[R]":
        """Read it anew, from its queue or from the dead letters. `NotFound` if it is gone: by default a completed job
        leaves only its run record."""
        self._run(self._job.refresh())
        return self

    def state(self) -> State | None:
        """Where it is now, a dead letter being `failed`; None if it is gone."""
        return self._run(self._job.state())

    def result(self, timeout: Duration | None = None) -> R:
        """What the handler returned, once it has. Raises `JobFailed`, `JobCancelled`, `TimeoutError`, or, where the job
        has ended and its result was not kept, `ResultGone` at once."""
        return self._run(self._job.result(timeout))

    def logs(self) -> list[str]:
        """Its log lines, oldest first."""
        return self._run(self._job.logs())

    def errors(self) -> list[AttemptError]:
        """Why each of its attempts failed, the oldest first. The last error is whole; of the attempts before it the
        newest 50 are kept, with the beginning of their reason and the end of their traceback."""
        return self._run(self._job.errors())

    def history(self) -> list[EventRecord]:
        """What is still known to have happened to it, the oldest first: each start, failure, delay and stall, and when.
        A queue keeps the last 10,000 events or so of all its jobs."""
        return self._run(self._job.history())

    def cancel(self, reason: str = "No reason provided") -> Cancelling:
        """Stop it. `"cancelled"`: it had not started and never will; `"requested"`: it runs, and its handler is told to
        stop. A job that has ended is refused: with `WrongState` if it is kept, else with `NotFound`."""
        return self._run(self._job.cancel(reason))

    def remove(self) -> None:
        """Delete it, with all that belongs to it; a dead letter is discarded. A running job cannot be removed: cancel
        it."""
        self._run(self._job.remove())

    def retry(self) -> None:
        """Run it again after it has ended, with all its attempts: from its queue, if that keeps it, or from the dead
        letters. Its log goes on; progress and errors begin anew. A parent that failed waits for its children that have
        not succeeded, which run again with it."""
        self._run(self._job.retry())

    def promote(self) -> None:
        """Do not wait for its delay any longer."""
        self._run(self._job.promote())

    def update_data(self, data: Any) -> None:
        """Replace its payload, checked as in `add`."""
        self._run(self._job.update_data(data))

    def set_priority(self, priority: int, *, lifo: bool = False) -> None:
        """Move it within the line; only before it starts. Lower numbers run first, and jobs without a priority (0) run
        before all of them, unless the queue is declared with `priority_first=True`."""
        self._run(self._job.set_priority(priority, lifo=lifo))

    def set_delay(self, delay: Duration) -> None:
        """Let a delayed job wait for this long from now."""
        self._run(self._job.set_delay(delay))


class SyncQueue:
    """A queue, for code that blocks; see `Queue`."""

    def __init__(self, queue: Queue, run: RunBlocking) -> None:
        self._queue = queue
        self._run = run

    def __repr__(self) -> str:
        return repr(self._queue)

    @property
    def name(self) -> str:
        return self._queue.name

    @overload
    def add(self, job: HandlerOf[None, R] | RawHandler[R], **options: Unpack[AddOptions]) -> "SyncJob[R]": ...

    @overload
    def add(self, job: HandlerOf[T, R] | RawHandler[R], data: T, **options: Unpack[AddOptions]) -> "SyncJob[R]": ...

    @overload
    def add(self, job: str, data: Any = None, **options: Unpack[AddOptions]) -> "SyncJob[Any]": ...

    def add(self, job: Any, data: Any = None, **options: Unpack[AddOptions]) -> "SyncJob[Any]":
        """Store one job, by its handler or by its name. Returns once it is kept.

        Durations are seconds, a `timedelta`, or a text such as `"10m"`.

        Args:
            job: A handler of this queue, or the name of one.
            data: The payload, as the handler declares it.
            delay: Start it this long from now, not sooner.
            at: Start it at this time, not sooner: a `datetime` with a time zone.
            priority: From 1, the most urgent, to 2,097,151; 0 is none. Jobs without a priority run before those that
                have one, unless the queue is declared with `priority_first=True`.
            lifo: Put it in front of the jobs that wait.
            job_id: An id of your own. While a job of that id exists, adding it again changes nothing; once it has ended
                and is removed, which is at once by default, the id is free. For longer than that use `once`.
            attempts: How often it is tried in all, in place of what the queue says.
            backoff: How long it waits between attempts: `Fixed`, `Exponential`, or the name of a strategy.
            retry: Both at once, and for which errors: a `Retry`.
            timeout: How long an attempt may take; then it is stopped, and tried again.
            expires: Do not start it later than this long from now.
            keep_completed: Keep the job after it has completed: how many of them, or a `Keep`.
            keep_failed: The same after it has failed for good. A failed job that is not kept becomes a dead letter.
            result_ttl: For how long `job.result()` finds what it returned.
            metadata: Fields that travel beside the payload, as `ctx.metadata`.
            breaker: The circuit that it hangs on, by its key.
            subject: Whom it is about, such as a tenant: run records, search and alerts go by it.
            group: The group that it belongs to, which takes turns with the others of the queue.
            dedup: At most one job per key: a `Dedup`.
            once: A key: nothing is added if a job was added under it within `for_`, whatever became of that job since.
            for_: For how long the key of `once` is taken, such as `"1d"`."""
        return self._sync(self._run(self._queue.add(job, data, **options)))

    @overload
    def add_many(self, jobs: Iterable[PreparedJob[R]]) -> "list[SyncJob[R]]": ...

    @overload
    def add_many(self, jobs: Iterable[Item]) -> "list[SyncJob[Any]]": ...

    def add_many(self, jobs: Iterable[Item]) -> "list[SyncJob[Any]]":
        """Store many, as `(job, data)`, `(job, data, options)` or `queue.new(…)`. Up to 1,000 all or none; beyond
        that in chunks, and `PartialAdd` names what is stored if one fails."""
        return [self._sync(job) for job in self._run(self._queue.add_many(jobs))]

    @overload
    def new(self, job: HandlerOf[None, R] | RawHandler[R], **options: Unpack[AddOptions]) -> PreparedJob[R]: ...

    @overload
    def new(self, job: HandlerOf[T, R] | RawHandler[R], data: T, **options: Unpack[AddOptions]) -> PreparedJob[R]: ...

    @overload
    def new(self, job: str, data: Any = None, **options: Unpack[AddOptions]) -> PreparedJob[Any]: ...

    def new(self, job: Any, data: Any = None, **options: Unpack[AddOptions]) -> PreparedJob[Any]:
        """A job made ready and checked, to be added later or with others. Its options are those of `add`."""
        return self._queue.new(job, data, **options)

    @overload
    def add_and_wait(
        self, job: HandlerOf[None, R] | RawHandler[R], *, timeout: Duration = 30, **options: Unpack[WaitOptions]
    ) -> R: ...

    @overload
    def add_and_wait(
        self, job: HandlerOf[T, R] | RawHandler[R], data: T, *, timeout: Duration = 30, **options: Unpack[WaitOptions]
    ) -> R: ...

    @overload
    def add_and_wait(
        self, job: str, data: Any = None, *, timeout: Duration = 30, **options: Unpack[WaitOptions]
    ) -> Any: ...

    def add_and_wait(
        self, job: Any, data: Any = None, *, timeout: Duration = 30, **options: Unpack[WaitOptions]
    ) -> Any:
        """Add a job and wait up to `timeout` for what its handler returns. Its options are those of `add`; the result
        is kept for an hour."""
        return self._run(self._queue.add_and_wait(job, data, timeout=timeout, **options))

    def counts(self) -> Counts:
        """How many jobs are in each state, and whether the queue is paused."""
        return self._run(self._queue.counts())

    def usage(self) -> Usage:
        """About how many bytes the queue takes in its store."""
        return self._run(self._queue.usage())

    def job(self, job_id: str) -> "SyncJob[Any] | None":
        """A job by its id, or None. One that failed for good and is not kept is a dead letter: its state is `failed`,
        and `dead_letter` names it."""
        job = self._run(self._queue.job(job_id))
        return None if job is None else self._sync(job)

    def jobs(self, state: StateName | State, cursor: str | None = None, limit: int = 50) -> "Page[SyncJob[Any]]":
        """A page of the jobs in a state: the next to run first, the last to end first."""
        page = self._run(self._queue.jobs(state, cursor, limit))
        return Page(tuple(self._sync(job) for job in page.items), page.cursor)

    def search(
        self,
        state: StateName | State,
        where: JobFilter = JobFilter(),
        *,
        cursor: str | None = None,
        limit: int = 50,
        patience: Duration = PATIENCE,
    ) -> "SearchPage[SyncJob[Any]]":
        """A page of the jobs in a state that the filter means, in the order of `jobs`. One call looks through 5,000 at
        most, and for so many seconds: a page may be short, or empty, and still have a cursor to go on with. A walk over
        all pages meets no job twice, and skips none that stays in the state."""
        page = self._run(self._queue.search(state, where, cursor=cursor, limit=limit, patience=patience))
        return SearchPage(tuple(self._sync(job) for job in page.items), page.cursor, page.looked)

    def count(
        self,
        state: StateName | State,
        where: JobFilter = JobFilter(),
        *,
        cursor: str | None = None,
        patience: Duration = PATIENCE,
    ) -> MatchCount:
        """How many jobs of a state the filter means: all at once where it asks for nothing, else of the next 5,000, or
        of as many as can be looked at in so many seconds."""
        return self._run(self._queue.count(state, where, cursor=cursor, patience=patience))

    def failures(self, *, patience: Duration = PATIENCE) -> Failures:
        """The failed jobs that are kept, put together by their error; of more than 2,000 the last, or as many as can be
        looked at in so many seconds. Cancelled ones are looked at too, and left out."""
        return self._run(self._queue.failures(patience=patience))

    def runs(
        self,
        status: EndingName = "completed",
        cursor: str | None = None,
        limit: int = 20,
        subject: str | None = None,
        *,
        where: JobFilter = JobFilter(),
    ) -> SearchPage[RunRecord]:
        """A page of run records, newest first: what is known of jobs that have ended, kept or not; of all, of those
        about one subject, or of those that a filter means. A record has no payload: a key is looked for where the job
        or its dead letter is kept, and `subject` is for the rest."""
        return self._run(self._queue.runs(status, cursor, limit, subject, where=where))

    def failures_in_a_row(self, subject: str) -> int:
        """How many jobs about a subject have failed for good since the last that went well, as far as run records go
        back: of a queue the last 1,000 that went well are known, and failures before all of these do not count."""
        return self._run(self._queue.failures_in_a_row(subject))

    def metrics(self, over: Range = "1h") -> QueueMetrics:
        """Counts of now, and what happened in the last `1h`, `4h`, `12h`, `1d` or `7d`: what completed and failed, how
        long jobs waited and ran, which names failed, in all and in at most 240 points. It is recorded whether jobs are
        kept or not."""
        return self._run(self._queue.metrics(over))

    def workers(self) -> list[WorkerRecord]:
        """The workers that serve this queue now."""
        return self._run(self._queue.workers())

    def settings(self) -> QueueSettings:
        """What is set for the queue in the store, for every process."""
        return self._run(self._queue.settings())

    def declaration(self) -> QueueDeclaration | None:
        """What the living workers of the queue declare in their code, the newest of them where they differ; None if
        there are none. What is set in the store holds over it: see `settings`."""
        return self._run(self._queue.declaration())

    def why(self, job_id: str) -> Explanation:
        """Why a job does not run, or what became of it: a sentence and the facts. `NotFound` if nothing is known."""
        return self._run(self._queue.why(job_id))

    def stack(self, job_id: str, *, patience: Duration = 8) -> JobStack:
        """Where a running job is now: its worker is asked, and answers within moments. `WrongState` if the job does not
        run, or if its worker does not answer in time."""
        return self._run(self._queue.stack(job_id, patience=patience))

    def pause(self) -> None:
        """Start nothing new, anywhere, until `resume()`. Running jobs go on, adds succeed."""
        self._run(self._queue.pause())

    def resume(self) -> None:
        self._run(self._queue.resume())

    def set_concurrency(self, limit: int | None) -> None:
        """How many jobs may run at once over the whole fleet; None for no bound."""
        self._run(self._queue.set_concurrency(limit))

    def set_rate_limit(self, limit: RateLimit | None) -> None:
        """How many may start in a time over the whole fleet, instead of what the code says; None to take it back."""
        self._run(self._queue.set_rate_limit(limit))

    def drain(self, *, delayed: Literal["keep", "remove"] = "keep") -> int:
        """Remove what has not started. How many that were."""
        return self._run(self._queue.drain(delayed=delayed))

    def clean(
        self, state: StateName | State = "completed", *, older_than: Duration = 0, limit: int | None = None
    ) -> int:
        """Remove jobs of a state that are older than this, oldest first. How many that were."""
        return self._run(self._queue.clean(state, older_than=older_than, limit=limit))

    def obliterate(self, *, force: bool = False) -> int:
        """Remove the queue with everything in it; while jobs run only by force. How many jobs that were."""
        return self._run(self._queue.obliterate(force=force))

    def retry(self, job_id: str) -> None:
        """Run a job again that has ended, with all its attempts: one that the queue keeps, or a dead letter. Its log
        goes on; progress and errors begin anew."""
        self._run(self._queue.retry(job_id))

    def retry_failed(self) -> int:
        """Run all failed jobs again: those that the queue keeps, and its dead letters. How many that were. Cancelled
        jobs are left, and so is a dead letter whose payload is not what its handler takes."""
        return self._run(self._queue.retry_failed())

    def cancel_all(
        self, state: StateName | State, where: JobFilter = JobFilter(), *, reason: str = "No reason provided"
    ) -> CancelCounts:
        """Cancel the jobs of a state that the filter means: those that have not started never will, running ones are
        asked to stop. What comes to the state meanwhile is left alone, as by `JobFilter(until=…)`."""
        return self._run(self._queue.cancel_all(state, where, reason=reason))

    def scoped(self, **metadata: Any) -> "SyncQueue":
        """The same queue for one actor, request or tenant: these fields travel beside every payload added here."""
        return SyncQueue(self._queue.scoped(**metadata), self._run)

    @property
    def schedules(self) -> "SyncSchedules":
        """The schedules in the store: to look at, and to make and change at run time."""
        return SyncSchedules(self._queue.schedules, self._run)

    @property
    def groups(self) -> "SyncGroups":
        """The groups of this queue: to look at, to pause, and to give limits at run time."""
        return SyncGroups(self._queue.groups, self._run)

    @overload
    def task(self, handler: HandlerOf[T, R]) -> "SyncTask[T, R]": ...

    @overload
    def task(self, handler: RawHandler[R]) -> "SyncTask[Any, R]": ...

    def task(self, handler: Any) -> "SyncTask[Any, Any]":
        """One of this queue's handlers, bound to it; see `Queue.task`."""
        return SyncTask(self._queue.task(handler), self._run)

    def _sync(self, job: Job[S]) -> SyncJob[S]:
        return SyncJob(job, self._run)


class SyncTask(Generic[D, R]):
    """A task, for code that blocks; see `Task`."""

    def __init__(self, task: Task[D, R], run: RunBlocking) -> None:
        self._task = task
        self._run = run

    def __repr__(self) -> str:
        return repr(self._task)

    @property
    def name(self) -> str:
        return self._task.name

    @overload
    def add(self: "SyncTask[None, R]", **options: Unpack[AddOptions]) -> "SyncJob[R]": ...

    @overload
    def add(self, data: D, **options: Unpack[AddOptions]) -> "SyncJob[R]": ...

    def add(self, data: Any = None, **options: Unpack[AddOptions]) -> "SyncJob[Any]":
        """Store one job. Returns once it is kept.

        Durations are seconds, a `timedelta`, or a text such as `"10m"`.

        Args:
            data: The payload, as the handler declares it.
            delay: Start it this long from now, not sooner.
            at: Start it at this time, not sooner: a `datetime` with a time zone.
            priority: From 1, the most urgent, to 2,097,151; 0 is none. Jobs without a priority run before those that
                have one, unless the queue is declared with `priority_first=True`.
            lifo: Put it in front of the jobs that wait.
            job_id: An id of your own. While a job of that id exists, adding it again changes nothing; once it has ended
                and is removed, which is at once by default, the id is free. For longer than that use `once`.
            attempts: How often it is tried in all, in place of what the queue says.
            backoff: How long it waits between attempts: `Fixed`, `Exponential`, or the name of a strategy.
            retry: Both at once, and for which errors: a `Retry`.
            timeout: How long an attempt may take; then it is stopped, and tried again.
            expires: Do not start it later than this long from now.
            keep_completed: Keep the job after it has completed: how many of them, or a `Keep`.
            keep_failed: The same after it has failed for good. A failed job that is not kept becomes a dead letter.
            result_ttl: For how long `job.result()` finds what it returned.
            metadata: Fields that travel beside the payload, as `ctx.metadata`.
            breaker: The circuit that it hangs on, by its key.
            subject: Whom it is about, such as a tenant: run records, search and alerts go by it.
            group: The group that it belongs to, which takes turns with the others of the queue.
            dedup: At most one job per key: a `Dedup`.
            once: A key: nothing is added if a job was added under it within `for_`, whatever became of that job since.
            for_: For how long the key of `once` is taken, such as `"1d"`."""
        return self._sync(self._run(self._task.add(data, **options)))

    def add_many(self, payloads: Iterable[D], **options: Unpack[AddOptions]) -> "list[SyncJob[R]]":
        """Store a job for each payload, all with the same options, which are those of `add`. Up to 1,000 all or none;
        beyond that in chunks, and `PartialAdd` names what is stored if one fails."""
        return [self._sync(job) for job in self._run(self._task.add_many(payloads, **options))]

    @overload
    def new(self: "SyncTask[None, R]", **options: Unpack[AddOptions]) -> PreparedJob[R]: ...

    @overload
    def new(self, data: D, **options: Unpack[AddOptions]) -> PreparedJob[R]: ...

    def new(self, data: Any = None, **options: Unpack[AddOptions]) -> PreparedJob[Any]:
        """A job made ready and checked, for a flow or to be added with others. Its options are those of `add`."""
        return self._task.new(data, **options)

    @overload
    def add_and_wait(self: "SyncTask[None, R]", *, timeout: Duration = 30, **options: Unpack[WaitOptions]) -> R: ...

    @overload
    def add_and_wait(self, data: D, *, timeout: Duration = 30, **options: Unpack[WaitOptions]) -> R: ...

    def add_and_wait(self, data: Any = None, *, timeout: Duration = 30, **options: Unpack[WaitOptions]) -> Any:
        """Add a job and wait up to `timeout` for what its handler returns. Its options are those of `add`; the result
        is kept for an hour."""
        return self._run(self._task.add_and_wait(data, timeout=timeout, **options))

    def _sync(self, job: Job[S]) -> SyncJob[S]:
        return SyncJob(job, self._run)


class SyncSchedules:
    """The schedules of a queue, for code that blocks; see `QueueSchedules`."""

    def __init__(self, schedules: QueueSchedules, run: RunBlocking) -> None:
        self._schedules = schedules
        self._run = run

    def put(
        self,
        schedule_id: str,
        job: HandlerOf[T, Any] | RawHandler[Any] | str,
        data: T | None = None,
        **options: Unpack[Timing],
    ) -> ScheduleRecord:
        """Make a schedule, or change it; the same twice changes nothing. Its options are those of `Queue.schedule`."""
        return self._run(self._schedules.put(schedule_id, job, data, **options))

    def get(self, schedule_id: str) -> ScheduleRecord:
        """One schedule; `NotFound` if there is no such."""
        return self._run(self._schedules.get(schedule_id))

    def list(self, cursor: str | None = None, limit: int = 100) -> Page[ScheduleRecord]:
        """A page of schedules, by their ids."""
        return self._run(self._schedules.list(cursor, limit))

    def upcoming(self, schedule_id: str, count: int = 10) -> Sequence[datetime]:
        """The times of the next runs."""
        return self._run(self._schedules.upcoming(schedule_id, count))

    def run_now(self, schedule_id: str) -> "SyncJob[Any]":
        """Add one job as the schedule would, beside its own runs."""
        return self._sync(self._run(self._schedules.run_now(schedule_id)))

    def pause(self, schedule_id: str) -> None:
        """Make no more runs until `resume`; what runs goes on."""
        self._run(self._schedules.pause(schedule_id))

    def resume(self, schedule_id: str) -> None:
        """Go on with the next run that is still to come."""
        self._run(self._schedules.resume(schedule_id))

    def remove(self, schedule_id: str) -> bool:
        """Remove a schedule, and its run that has not started. False if there was none. A job may remove its own."""
        return self._run(self._schedules.remove(schedule_id))

    def _sync(self, job: Job[S]) -> SyncJob[S]:
        return SyncJob(job, self._run)


class SyncGroups:
    """The groups of a queue, for code that blocks; see `QueueGroups`."""

    def __init__(self, groups: QueueGroups, run: RunBlocking) -> None:
        self._groups = groups
        self._run = run

    def list(self, cursor: str | None = None, limit: int = 100) -> Page[GroupRecord]:
        """A page of those that have jobs which have not ended, or limits of their own, by their names."""
        return self._run(self._groups.list(cursor, limit))

    def get(self, group: str) -> GroupRecord:
        """One of them; one that nothing is known of has no jobs, and the queue's limits."""
        return self._run(self._groups.get(group))

    def pause(self, group: str) -> GroupRecord:
        """Start nothing more of this group, anywhere, until `resume(group)`. What runs goes on, adds succeed."""
        return self._run(self._groups.pause(group))

    def resume(self, group: str) -> GroupRecord:
        return self._run(self._groups.resume(group))

    def set(self, group: str, **limits: Unpack[GroupOptions]) -> GroupRecord:
        """Give one group limits of its own. What is not named stays as it is."""
        return self._run(self._groups.set(group, **limits))

    def set_all(self, limits: GroupLimits | None) -> GroupLimits:
        """What holds for each group, instead of what the code says; None takes that back. What then holds."""
        return self._run(self._groups.set_all(limits))
