"""`Queue`, `Task` and `Job` with blocking methods, for code without an event loop.

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
    StepRecord,
    WorkerRecord,
)
from toril.runtime.calls import RunBlocking
from toril.schedule import QueueSchedules, Timing
from toril.signals import SignalKind, Signalled
from toril.task import Task

__all__ = ["SyncGroups", "SyncJob", "SyncQueue", "SyncSchedules", "SyncTask"]

T = TypeVar("T")
D = TypeVar("D", contravariant=True)
R = TypeVar("R", covariant=True)
S = TypeVar("S")


class SyncJob(Generic[R]):
    """`Job` with blocking methods."""

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
        """What the handler last reported with `ctx.update_progress`, or None."""
        return self._job.progress

    @property
    def attempts_made(self) -> int:
        """How many attempts have ended, whether they succeeded or failed."""
        return self._job.attempts_made

    @property
    def stalls(self) -> int:
        """How often the job's worker died while running it."""
        return self._job.stalls

    @property
    def fence(self) -> int:
        """The fence of the current or last attempt. It increases with each attempt, so that you can reject writes of an
        earlier one."""
        return self._job.fence

    @property
    def error(self) -> str | None:
        """The reason of the last failure, or None."""
        return self._job.error

    @property
    def dead_letter(self) -> str | None:
        """The id of the dead letter, if the job failed for good and its queue does not keep it."""
        return self._job.dead_letter

    @property
    def metadata(self) -> Mapping[str, Any]:
        """The fields that were added with the payload."""
        return self._job.metadata

    @property
    def worker(self) -> str | None:
        """The worker that runs the job or last ran it."""
        return self._job.worker

    @property
    def added_at(self) -> datetime | None:
        """When the job was added. Like all times here, it is the store's."""
        return self._job.added_at

    @property
    def started_at(self) -> datetime | None:
        """When the last attempt started, or None."""
        return self._job.started_at

    @property
    def finished_at(self) -> datetime | None:
        """When the job ended, or None."""
        return self._job.finished_at

    @property
    def record(self) -> JobRecord | None:
        """Everything that the store knows about the job, as of the last `refresh()`."""
        return self._job.record

    def refresh(self) -> "SyncJob[R]":
        """Read the job again, from its queue or from the dead letters.

        Raises `NotFound` if it is gone. By default, a completed job is removed and leaves only its run record."""
        self._run(self._job.refresh())
        return self

    def state(self) -> State | None:
        """Read the job's state; None if it is gone. A dead letter is `failed`."""
        return self._run(self._job.state())

    def result(self, timeout: Duration | None = None) -> R:
        """Wait for the job to end and return its result.

        Raises `JobFailed`, `JobCancelled`, `TimeoutError` after `timeout`, or at once `ResultGone` if the job has ended
        and its result was not kept."""
        return self._run(self._job.result(timeout))

    def logs(self) -> list[str]:
        """Read the job's log lines, oldest first."""
        return self._run(self._job.logs())

    def errors(self) -> list[AttemptError]:
        """Read why each attempt failed, oldest first.

        The last error is complete. Of earlier attempts, the newest 50 are kept, with the start of their reason and the
        end of their traceback."""
        return self._run(self._job.errors())

    def history(self) -> list[EventRecord]:
        """Read what has happened to the job, oldest first: each start, failure, delay and stall, with its time.

        A queue keeps about the last 10,000 events of all its jobs."""
        return self._run(self._job.history())

    def cancel(self, reason: str = "No reason provided") -> Cancelling:
        """Cancel the job. Returns `"cancelled"` if it had not started and never will, or `"requested"` if it is running
        and its handler is told to stop.

        If it has ended, raises `WrongState`, or `NotFound` if it is gone."""
        return self._run(self._job.cancel(reason))

    def remove(self) -> None:
        """Delete the job and everything that belongs to it; a dead letter is discarded. Raises `WrongState` while it
        runs: cancel it first."""
        self._run(self._job.remove())

    def retry(self) -> None:
        """Run the job again after it has ended, with its full number of attempts, whether its queue keeps it or it is a
        dead letter.

        Its log is kept; progress and errors start afresh. If it is a parent, its children that have not succeeded run
        again first."""
        self._run(self._job.retry())

    def promote(self) -> None:
        """Run a delayed job now."""
        self._run(self._job.promote())

    def signal(
        self,
        signal: str | SignalKind[Any],
        payload: Any = True,
        *,
        id: str | None = None,
        unless_waiting: Literal["keep", "refuse"] = "keep",
    ) -> Signalled:
        """Send a signal to the job, which `ctx.wait_for` reads. If the job is not waiting for it, the signal is kept
        until the job waits for it.

        Args:
            signal: Its name, or a `SignalKind`, by which the payload is checked.
            payload: What `wait_for` returns.
            id: A second signal to the job with this id has no effect.
            unless_waiting: `"refuse"` stores nothing unless the job rests for this signal now.

        Raises:
            InboxFull: The job has 100 signals, or 1 MB of them, that it has not read.
            NotFound: The job is gone."""
        return self._run(self._job.signal(signal, payload, id=id, unless_waiting=unless_waiting))

    def steps(self) -> list[StepRecord]:
        """Read the durable steps that the job has recorded, in the order in which they were recorded."""
        return self._run(self._job.steps())

    def rewind(self, to: str | None = None) -> None:
        """Forget the durable step with the key `to` and everything recorded after it, and run the job again with its
        full number of attempts; None goes back to the beginning.

        Signals that it read after that step are discarded, and jobs that it called are called again. Raises
        `WrongState` while the job runs or if it is a dead letter, and `NotFound` if it is gone or has no such step."""
        self._run(self._job.rewind(to))

    def update_data(self, data: Any) -> None:
        """Replace the payload, which is checked as in `add`."""
        self._run(self._job.update_data(data))

    def set_priority(self, priority: int, *, lifo: bool = False) -> None:
        """Change the priority of a job that has not started.

        Lower numbers run first. Jobs without a priority (0) run before all of them, unless the queue is declared with
        `priority_first=True`."""
        self._run(self._job.set_priority(priority, lifo=lifo))

    def set_delay(self, delay: Duration) -> None:
        """Make a delayed job wait for this long, counted from now."""
        self._run(self._job.set_delay(delay))


class SyncQueue:
    """`Queue` with blocking methods."""

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
        """Add one job, by its handler or by its name. Returns once the store has it.

        Durations are seconds, a `timedelta` or a string such as `"10m"`.

        Args:
            job: A handler of this queue, or the name of one.
            data: The payload, of the type that the handler declares.
            delay: Wait this long before starting the job.
            at: Do not start the job before this time, a `datetime` with a time zone.
            priority: A number from 1 (most urgent) to 2,097,151; 0 means none. Jobs without a priority run before jobs
                with one, unless the queue is declared with `priority_first=True`.
            lifo: Put the job in front of the jobs that are waiting.
            job_id: An id of your own. While a job of that id exists, adding it again changes nothing. Once the job has
                ended and is removed, which by default happens at once, the id is free again. For longer protection use
                `once`.
            attempts: How many attempts the job gets in all, overriding the queue's `retry`.
            backoff: How long to wait between attempts: `Fixed`, `Exponential` or the name of a strategy.
            retry: A `Retry`: attempts, backoff and which errors to retry, in one value.
            timeout: Stop an attempt that takes longer than this. It counts as a failed attempt.
            expires: Do not start the job later than this long from now.
            keep_completed: Keep the job once it has completed: how many such jobs to keep, or a `Keep`.
            keep_failed: The same for a job that has failed for good. If it is not kept, it becomes a dead letter.
            result_ttl: How long `job.result()` can read the result.
            metadata: Fields that travel with the payload; handlers read them as `ctx.metadata`.
            breaker: The key of the circuit that the job depends on.
            subject: What the job is about, such as a tenant. Run records, search and alerts can select by it.
            group: The job's group, which takes turns with the other groups of the queue.
            dedup: A `Dedup`: at most one job per key.
            once: A key. Nothing is added if a job was added under it within `for_`, whatever has become of that job.
            for_: How long the key of `once` stays taken, such as `"1d"`."""
        return self._sync(self._run(self._queue.add(job, data, **options)))

    @overload
    def add_many(self, jobs: Iterable[PreparedJob[R]]) -> "list[SyncJob[R]]": ...

    @overload
    def add_many(self, jobs: Iterable[Item]) -> "list[SyncJob[Any]]": ...

    def add_many(self, jobs: Iterable[Item]) -> "list[SyncJob[Any]]":
        """Add many jobs, given as `(job, data)`, `(job, data, options)` or `queue.new(…)`.

        Up to 1,000 jobs are stored completely or not at all. More are stored in chunks; if one fails, `PartialAdd`
        lists what was stored."""
        return [self._sync(job) for job in self._run(self._queue.add_many(jobs))]

    @overload
    def new(self, job: HandlerOf[None, R] | RawHandler[R], **options: Unpack[AddOptions]) -> PreparedJob[R]: ...

    @overload
    def new(self, job: HandlerOf[T, R] | RawHandler[R], data: T, **options: Unpack[AddOptions]) -> PreparedJob[R]: ...

    @overload
    def new(self, job: str, data: Any = None, **options: Unpack[AddOptions]) -> PreparedJob[Any]: ...

    def new(self, job: Any, data: Any = None, **options: Unpack[AddOptions]) -> PreparedJob[Any]:
        """Prepare and check a job without adding it, for a flow or for `add_many`. Takes the options of `add`."""
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
        """Add a job, wait up to `timeout` for it to end, and return its result.

        Takes the options of `add` and raises what `Job.result` raises. The result is kept for an hour unless you pass
        `result_ttl`."""
        return self._run(self._queue.add_and_wait(job, data, timeout=timeout, **options))

    def counts(self) -> Counts:
        """Count the jobs in each state, and tell whether the queue is paused."""
        return self._run(self._queue.counts())

    def usage(self) -> Usage:
        """Estimate how many bytes the queue takes in its store."""
        return self._run(self._queue.usage())

    def job(self, job_id: str) -> "SyncJob[Any] | None":
        """Find a job by its id; None if there is none.

        A job that failed for good and is not kept is found as a dead letter: its state is `failed`, and `dead_letter`
        is the letter's id."""
        job = self._run(self._queue.job(job_id))
        return None if job is None else self._sync(job)

    def jobs(self, state: StateName | State, cursor: str | None = None, limit: int = 50) -> "Page[SyncJob[Any]]":
        """Read a page of the jobs in a state: waiting jobs in the order in which they run, finished jobs newest
        first."""
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
        """Read a page of the jobs in a state that match a filter, in the order of `jobs`.

        One call looks through at most 5,000 jobs and for at most `patience`, so a page may be short or even empty and
        still have a cursor. Over all pages, no job appears twice, and no job that stays in the state is skipped."""
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
        """Count the jobs in a state that match a filter.

        An empty filter counts all of them. Otherwise one call looks through at most 5,000 jobs and for at most
        `patience`; continue with the cursor."""
        return self._run(self._queue.count(state, where, cursor=cursor, patience=patience))

    def failures(self, *, patience: Duration = PATIENCE) -> Failures:
        """Group the kept failed jobs by their error.

        Looks at the latest 2,000, or at as many as it can within `patience`. Cancelled jobs are left out."""
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
        """Read a page of run records, newest first: what is known about jobs that have ended, whether or not they are
        kept.

        A record has no payload. If the filter asks for a payload key, only jobs are found that are kept or are dead
        letters; prefer `subject`."""
        return self._run(self._queue.runs(status, cursor, limit, subject, where=where))

    def failures_in_a_row(self, subject: str) -> int:
        """Count how many jobs with this subject have failed for good since the last one that completed.

        Only the latest 1,000 completed jobs of the queue are known; failures before these do not count."""
        return self._run(self._queue.failures_in_a_row(subject))

    def metrics(self, over: Range = "1h") -> QueueMetrics:
        """Read the current counts, and what happened in the last `1h`, `4h`, `12h`, `1d` or `7d`.

        This covers how many jobs completed and failed, how long they waited and ran, and which names failed, in total
        and as up to 240 points. It does not depend on whether jobs are kept."""
        return self._run(self._queue.metrics(over))

    def workers(self) -> list[WorkerRecord]:
        """List the workers that serve this queue now."""
        return self._run(self._queue.workers())

    def settings(self) -> QueueSettings:
        """Read the queue's settings in the store, which hold for every process."""
        return self._run(self._queue.settings())

    def declaration(self) -> QueueDeclaration | None:
        """Read what the living workers of the queue declare in their code; None if there are none.

        If they differ, this is what the newest declare. Settings in the store take precedence: see `settings`."""
        return self._run(self._queue.declaration())

    def why(self, job_id: str) -> Explanation:
        """Explain why a job does not run, or how it ended. Raises `NotFound` if nothing is known about it."""
        return self._run(self._queue.why(job_id))

    def stack(self, job_id: str, *, patience: Duration = 8) -> JobStack:
        """Ask the worker where a running job is now.

        Raises `NotFound` if there is no such job, and `WrongState` if it is not running or its worker does not answer
        within `patience`."""
        return self._run(self._queue.stack(job_id, patience=patience))

    def pause(self) -> None:
        """Stop starting jobs, in every process, until `resume()`. Running jobs continue, and you can still add jobs."""
        self._run(self._queue.pause())

    def resume(self) -> None:
        """Start jobs again after `pause()`."""
        self._run(self._queue.resume())

    def set_concurrency(self, limit: int | None) -> None:
        """Limit how many jobs run at once in all processes together; None removes the limit."""
        self._run(self._queue.set_concurrency(limit))

    def set_rate_limit(self, limit: RateLimit | None) -> None:
        """Limit how many jobs start within a time in all processes together, overriding the code; None restores what
        the code declares."""
        self._run(self._queue.set_rate_limit(limit))

    def drain(self, *, delayed: Literal["keep", "remove"] = "keep") -> int:
        """Remove the jobs that have not started; delayed jobs only with `delayed="remove"`. Returns how many."""
        return self._run(self._queue.drain(delayed=delayed))

    def clean(
        self, state: StateName | State = "completed", *, older_than: Duration = 0, limit: int | None = None
    ) -> int:
        """Remove jobs that have been in a state for longer than `older_than`, oldest first. Returns how many."""
        return self._run(self._queue.clean(state, older_than=older_than, limit=limit))

    def obliterate(self, *, force: bool = False) -> int:
        """Remove the queue and everything in it. Returns how many jobs were removed.

        Raises `WrongState` while jobs are running, unless you pass `force=True`."""
        return self._run(self._queue.obliterate(force=force))

    def signal(
        self,
        signal: str | SignalKind[Any],
        payload: Any = True,
        *,
        key: str,
        id: str | None = None,
        ttl: Duration = 86400,
    ) -> Signalled:
        """Send a signal to the job of this queue that waits for it by this key: `ctx.wait_for(signal, key=…)`. If none
        does, the signal is kept for `ttl`, for the first job that will.

        Args:
            signal: Its name, or a `SignalKind`, by which the payload is checked.
            payload: What `wait_for` returns.
            key: Whom it is for, such as `"invoice:7"`.
            id: A second signal with this id has no effect.
            ttl: How long it is kept if no job waits for it: up to 31 days.

        Raises:
            InboxFull: The job has too many signals that it has not read, or the queue keeps too many."""
        return self._run(self._queue.signal(signal, payload, key=key, id=id, ttl=ttl))

    def retry(self, job_id: str) -> None:
        """Run a job that has ended again, with its full number of attempts, whether the queue keeps it or it is a dead
        letter.

        Its log is kept; progress and errors start afresh. Raises `WrongState` if it has not ended, and `NotFound` if it
        is gone."""
        self._run(self._queue.retry(job_id))

    def retry_failed(self) -> int:
        """Run all failed jobs again, those that the queue keeps and its dead letters. Returns how many.

        Leaves out cancelled jobs, and dead letters whose payload no longer fits their handler."""
        return self._run(self._queue.retry_failed())

    def cancel_all(
        self, state: StateName | State, where: JobFilter = JobFilter(), *, reason: str = "No reason provided"
    ) -> CancelCounts:
        """Cancel the jobs in a state that match a filter.

        Jobs that have not started never will; running jobs are asked to stop. Jobs that enter the state during the call
        are left alone."""
        return self._run(self._queue.cancel_all(state, where, reason=reason))

    def scoped(self, **metadata: Any) -> "SyncQueue":
        """The same queue, but every job added through it gets these metadata fields, such as the user."""
        return SyncQueue(self._queue.scoped(**metadata), self._run)

    @property
    def schedules(self) -> "SyncSchedules":
        """The schedules in the store: list them, and create, change or remove them at run time."""
        return SyncSchedules(self._queue.schedules, self._run)

    @property
    def groups(self) -> "SyncGroups":
        """The groups of this queue: look at them, pause them, and limit them at run time."""
        return SyncGroups(self._queue.groups, self._run)

    @overload
    def task(self, handler: HandlerOf[T, R]) -> "SyncTask[T, R]": ...

    @overload
    def task(self, handler: RawHandler[R]) -> "SyncTask[Any, R]": ...

    def task(self, handler: Any) -> "SyncTask[Any, Any]":
        """Bind a handler to this queue; see `Queue.task`."""
        return SyncTask(self._queue.task(handler), self._run)

    def _sync(self, job: Job[S]) -> SyncJob[S]:
        return SyncJob(job, self._run)


class SyncTask(Generic[D, R]):
    """`Task` with blocking methods."""

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
        """Add one job. Returns once the store has it.

        Durations are seconds, a `timedelta` or a string such as `"10m"`.

        Args:
            data: The payload, of the type that the handler declares.
            delay: Wait this long before starting the job.
            at: Do not start the job before this time, a `datetime` with a time zone.
            priority: A number from 1 (most urgent) to 2,097,151; 0 means none. Jobs without a priority run before jobs
                with one, unless the queue is declared with `priority_first=True`.
            lifo: Put the job in front of the jobs that are waiting.
            job_id: An id of your own. While a job of that id exists, adding it again changes nothing. Once the job has
                ended and is removed, which by default happens at once, the id is free again. For longer protection use
                `once`.
            attempts: How many attempts the job gets in all, overriding the queue's `retry`.
            backoff: How long to wait between attempts: `Fixed`, `Exponential` or the name of a strategy.
            retry: A `Retry`: attempts, backoff and which errors to retry, in one value.
            timeout: Stop an attempt that takes longer than this. It counts as a failed attempt.
            expires: Do not start the job later than this long from now.
            keep_completed: Keep the job once it has completed: how many such jobs to keep, or a `Keep`.
            keep_failed: The same for a job that has failed for good. If it is not kept, it becomes a dead letter.
            result_ttl: How long `job.result()` can read the result.
            metadata: Fields that travel with the payload; handlers read them as `ctx.metadata`.
            breaker: The key of the circuit that the job depends on.
            subject: What the job is about, such as a tenant. Run records, search and alerts can select by it.
            group: The job's group, which takes turns with the other groups of the queue.
            dedup: A `Dedup`: at most one job per key.
            once: A key. Nothing is added if a job was added under it within `for_`, whatever has become of that job.
            for_: How long the key of `once` stays taken, such as `"1d"`."""
        return self._sync(self._run(self._task.add(data, **options)))

    def add_many(self, payloads: Iterable[D], **options: Unpack[AddOptions]) -> "list[SyncJob[R]]":
        """Add one job per payload, all with the same options, which are those of `add`.

        Up to 1,000 jobs are stored completely or not at all. More are stored in chunks; if one fails, `PartialAdd`
        lists what was stored."""
        return [self._sync(job) for job in self._run(self._task.add_many(payloads, **options))]

    @overload
    def new(self: "SyncTask[None, R]", **options: Unpack[AddOptions]) -> PreparedJob[R]: ...

    @overload
    def new(self, data: D, **options: Unpack[AddOptions]) -> PreparedJob[R]: ...

    def new(self, data: Any = None, **options: Unpack[AddOptions]) -> PreparedJob[Any]:
        """Prepare and check a job without adding it, for a flow or for `add_many`. Takes the options of `add`."""
        return self._task.new(data, **options)

    @overload
    def add_and_wait(self: "SyncTask[None, R]", *, timeout: Duration = 30, **options: Unpack[WaitOptions]) -> R: ...

    @overload
    def add_and_wait(self, data: D, *, timeout: Duration = 30, **options: Unpack[WaitOptions]) -> R: ...

    def add_and_wait(self, data: Any = None, *, timeout: Duration = 30, **options: Unpack[WaitOptions]) -> Any:
        """Add a job, wait up to `timeout` for it to end, and return its result.

        Takes the options of `add` and raises what `Job.result` raises. The result is kept for an hour unless you pass
        `result_ttl`."""
        return self._run(self._task.add_and_wait(data, timeout=timeout, **options))

    def _sync(self, job: Job[S]) -> SyncJob[S]:
        return SyncJob(job, self._run)


class SyncSchedules:
    """`QueueSchedules` with blocking methods."""

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
        """Create or change a schedule. Calling it again with the same options changes nothing. Takes the options of
        `Queue.schedule`."""
        return self._run(self._schedules.put(schedule_id, job, data, **options))

    def get(self, schedule_id: str) -> ScheduleRecord:
        """Read a schedule. Raises `NotFound` if there is none."""
        return self._run(self._schedules.get(schedule_id))

    def list(self, cursor: str | None = None, limit: int = 100) -> Page[ScheduleRecord]:
        """Read a page of schedules, in the order of their ids."""
        return self._run(self._schedules.list(cursor, limit))

    def upcoming(self, schedule_id: str, count: int = 10) -> Sequence[datetime]:
        """List the times of the next runs."""
        return self._run(self._schedules.upcoming(schedule_id, count))

    def run_now(self, schedule_id: str) -> "SyncJob[Any]":
        """Add one job as the schedule would, in addition to its own runs."""
        return self._sync(self._run(self._schedules.run_now(schedule_id)))

    def pause(self, schedule_id: str) -> None:
        """Stop making runs until `resume`. A job that is already running continues."""
        self._run(self._schedules.pause(schedule_id))

    def resume(self, schedule_id: str) -> None:
        """Make runs again, starting with the next one that is still to come."""
        self._run(self._schedules.resume(schedule_id))

    def remove(self, schedule_id: str) -> bool:
        """Remove a schedule and its run that has not started. Returns False if there was none. A job may remove its own
        schedule."""
        return self._run(self._schedules.remove(schedule_id))

    def _sync(self, job: Job[S]) -> SyncJob[S]:
        return SyncJob(job, self._run)


class SyncGroups:
    """`QueueGroups` with blocking methods."""

    def __init__(self, groups: QueueGroups, run: RunBlocking) -> None:
        self._groups = groups
        self._run = run

    def list(self, cursor: str | None = None, limit: int = 100) -> Page[GroupRecord]:
        """Read a page of groups that have unfinished jobs or limits of their own, in the order of their names."""
        return self._run(self._groups.list(cursor, limit))

    def get(self, group: str) -> GroupRecord:
        """Read one group. An unknown one has no jobs, and the limits of the queue."""
        return self._run(self._groups.get(group))

    def pause(self, group: str) -> GroupRecord:
        """Stop starting jobs of this group, in every process, until `resume(group)`. Running jobs continue, and you can
        still add jobs."""
        return self._run(self._groups.pause(group))

    def resume(self, group: str) -> GroupRecord:
        """Start jobs of this group again after `pause(group)`."""
        return self._run(self._groups.resume(group))

    def set(self, group: str, **limits: Unpack[GroupOptions]) -> GroupRecord:
        """Give one group limits of its own. Limits that you do not name stay as they are."""
        return self._run(self._groups.set(group, **limits))

    def set_all(self, limits: GroupLimits | None) -> GroupLimits:
        """Set the limits of each group, overriding the code; None restores what the code declares. Returns the limits
        that now hold."""
        return self._run(self._groups.set_all(limits))
