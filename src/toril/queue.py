"""`Queue`: add, read and control the jobs of one queue."""

import asyncio
import copy
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar, Unpack, overload

from toril.client.connections import is_async
from toril.client.options import (
    PLAIN,
    AddOptions,
    DeclaredLimits,
    Defaults,
    QueueOptions,
    WaitOptions,
    as_metadata,
    new_job,
    subject_of,
)
from toril.client.producer import AddBatcher, AddChunk, Item, JobTemplate, JobTemplates, PreparedJob, chunks, handles
from toril.client.within import AsyncWithin, Within
from toril.context import AnyHandler, HandlerOf, RawHandler, RunsAs
from toril.errors import (
    EngineUnavailable,
    InvalidName,
    InvalidOption,
    NotFound,
    PartialAdd,
    UsageError,
    WrongState,
    preview,
)
from toril.events import JobEvent
from toril.handlers import Registry, handler, own_name
from toril.job import Job
from toril.model import (
    MAX_SIGNAL_TTL,
    Added,
    AddOutcome,
    Backoff,
    Call,
    Counts,
    Declaration,
    JobOptions,
    JobRow,
    NewJob,
    Page,
    Pause,
    RateLimit,
    Resume,
    RunStatus,
    SearchPage,
    SetConcurrency,
    SetRateLimit,
    Setting,
    Swept,
    Usage,
    moment,
)
from toril.model.durations import Duration, milliseconds
from toril.model.names import check_job_name, near_name
from toril.model.states import FINISHED, State
from toril.operate.groups import QueueGroups
from toril.operate.history import Gap, Happening, follow
from toril.operate.lookup import find_job
from toril.operate.metrics import QueueMetrics, metrics
from toril.operate.search import PATIENCE, Failures, JobSearch, MatchCount, StateName, as_state
from toril.operate.stacks import asked_stack
from toril.operate.why import Explanation, explain
from toril.policy.metrics import Range
from toril.policy.retry import Retry
from toril.policy.search import DeadLetterFilter, EndingName, JobFilter
from toril.records import (
    CancelCounts,
    EventRecord,
    JobStack,
    QueueDeclaration,
    QueueSettings,
    RunRecord,
    WorkerRecord,
    as_record,
    declaration_record,
)
from toril.runtime.hooks import function
from toril.runtime.services import Services, SyncServices
from toril.schedule import Declared, QueueSchedules, Timing, declare
from toril.signals import SignalKind, Signalled, new_signal, send_signal
from toril.store.engine import Store
from toril.task import Task

if TYPE_CHECKING:
    from toril.sync import SyncQueue

__all__ = [
    "Item",
    "PreparedJob",
    "Queue",
    "QueueOptions",
    "added_job",
    "is_unhandled",
    "job_of_row",
    "meant_name",
    "queue_named",
]

T = TypeVar("T")

_A_CALL: Final = 100  # jobs cancelled per step


async def meant_name(store: Store, queue: str, name: str) -> str | None:
    """The job name that was probably meant, if no living worker handles this one. None if there is no such name, or if
    nobody can tell."""
    known = await _handled(store, queue)
    return None if known is None or name in known else near_name(name, known)


async def is_unhandled(store: Store, queue: str, name: str) -> bool:
    """Whether it is known that no living worker of the queue has a handler for the name."""
    known = await _handled(store, queue)
    return known is not None and name not in known


async def _handled(store: Store, queue: str) -> frozenset[str] | None:
    return (await store.declarations(queue)).handled(len(await store.workers(queue)))


async def _stored_by(sending: Awaitable[list[Job[Any]]]) -> list[Job[Any]]:
    """The jobs that an add in progress has stored."""
    try:
        return await sending
    except Exception:  # the sender gets the error
        return []


async def _read(happenings: AsyncIterator[Happening]) -> AsyncIterator[EventRecord | Gap]:
    async for each in happenings:
        yield each if isinstance(each, Gap) else as_record(EventRecord, each)


R = TypeVar("R")
F = TypeVar("F", bound=Callable[..., Any])
H = TypeVar("H", bound=AnyHandler)


class Queue:
    """A queue, as declared with `app.queue(name, …)`: add jobs, look at them, and control them."""

    def __init__(
        self, services: Services, name: str, options: QueueOptions, check_spelling: Callable[[], None] | None = None
    ) -> None:
        self.services = services
        self._name = name
        self._check_spelling = check_spelling
        self.options = options
        self.handlers = Registry(name, options.serializer)
        self.declared: dict[str, Declared] = {}
        self._metadata: dict[str, Any] = {}
        self._together = AddBatcher()
        self._bound = DeclaredLimits(name, options.max_waiting, options.groups)
        self._defaults = self._defaults_of(options.retry)
        self._published: Declaration | None = None

    def __repr__(self) -> str:
        return f"<Queue {self._name!r}>"

    @property
    def name(self) -> str:
        """The queue's name in the store."""
        return self._name

    @property
    def store(self) -> Store:
        """The open store."""
        return self.services.store

    @property
    def sync(self) -> "SyncQueue":
        """This queue with blocking methods, for Django, Flask or scripts. It opens the store by itself."""
        from toril.sync import SyncQueue  # noqa: PLC0415 - it is made of this class

        services = SyncServices(self.services)
        return SyncQueue(self._with(services=services, _together=AddBatcher()), services.run)

    # declaring handlers

    @overload
    def handler(self, fn: H) -> H: ...

    @overload
    def handler(self, *, name: str | None = None, **options: Any) -> Callable[[H], H]: ...

    def handler(self, fn: H | None = None, *, name: str | None = None, **options: Any) -> H | Callable[[H], H]:
        """Register a handler: `@queue.handler` or `@queue.handler(name=…, timeout=…)`.

        The job's name is that of the function, unless you pass `name`. Takes the options of `toril.handler`.
        """

        def register(function: H) -> H:
            made = handler(function, **options) if options else function
            self.handlers.register(own_name(function) if name is None else name, made)
            return function

        return register if fn is None else register(fn)

    def on_lease_lost(self, fn: F, *, when: Callable[[Job[Any]], bool] | None = None) -> F:
        """Call `fn(job)` when this process has lost the lease of a running job, for example to undo what is half done.
        With `when`, this is limited to jobs for which `when(job)` is true. Errors in `fn` are logged and have no other
        effect.
        """
        self.handlers.lease_lost_hooks.append((function("on_lease_lost", fn), when))
        return fn

    # adding jobs

    @overload
    def task(self, handler: HandlerOf[T, R]) -> Task[T, R]: ...

    @overload
    def task(self, handler: RawHandler[R]) -> Task[Any, R]: ...

    def task(self, handler: Any) -> Task[Any, Any]:
        """Bind a handler to this queue, so that type checkers know its payload and its result."""
        if not callable(handler):
            raise InvalidOption(f"expected a handler of queue {self._name!r}, not {preview(handler)}")
        return Task(self, handler)

    @overload
    async def add(self, job: HandlerOf[None, R] | RawHandler[R], **options: Unpack[AddOptions]) -> Job[R]: ...

    @overload
    async def add(self, job: HandlerOf[T, R] | RawHandler[R], data: T, **options: Unpack[AddOptions]) -> Job[R]: ...

    @overload
    async def add(self, job: str, data: Any = None, **options: Unpack[AddOptions]) -> Job[Any]: ...

    async def add(self, job: Any, data: Any = None, **options: Unpack[AddOptions]) -> Job[Any]:
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
            for_: How long the key of `once` stays taken, such as `"1d"`.
        """
        planned = self.new(job, data, **options)
        answer = await self._together.add(self._store, planned.job, alone=self.services.tracing is not None)
        return (await self._kept([added_job(planned, answer)]))[0]

    @overload
    async def add_many(self, jobs: Iterable[PreparedJob[R]]) -> list[Job[R]]: ...

    @overload
    async def add_many(self, jobs: Iterable[Item]) -> list[Job[Any]]: ...

    async def add_many(self, jobs: Iterable[Item]) -> list[Job[Any]]:
        """Add many jobs, given as `(job, data)`, `(job, data, options)` or `queue.new(…)`.

        Up to 1,000 jobs are stored completely or not at all. More are stored in chunks; if one fails, `PartialAdd`
        lists what was stored.
        """
        made: list[Job[Any]] = []
        sending: asyncio.Task[list[Job[Any]]] | None = None
        try:
            for chunk in chunks(jobs, self._plan, self._templates()):
                if sending is not None:
                    made += await sending
                sending = asyncio.ensure_future(self._add_chunk(chunk))
                await asyncio.wait([sending], timeout=0)  # so that it is sent while the next chunk is prepared
            return made if sending is None else made + await sending
        except asyncio.CancelledError:
            if sending is not None:
                sending.cancel()
            raise
        except Exception as error:  # from the store, from an item, or from the iterable itself
            if sending is not None:
                made += await _stored_by(sending)
            if not made:
                raise
            stored = [job.id for job in made]
            raise PartialAdd(f"{len(stored)} jobs were stored, the others were not: {error}", stored=stored) from error

    @overload
    def new(self, job: HandlerOf[None, R] | RawHandler[R], **options: Unpack[AddOptions]) -> PreparedJob[R]: ...

    @overload
    def new(self, job: HandlerOf[T, R] | RawHandler[R], data: T, **options: Unpack[AddOptions]) -> PreparedJob[R]: ...

    @overload
    def new(self, job: str, data: Any = None, **options: Unpack[AddOptions]) -> PreparedJob[Any]: ...

    def new(self, job: Any, data: Any = None, **options: Unpack[AddOptions]) -> PreparedJob[Any]:
        """Prepare and check a job without adding it, for a flow or for `add_many`. Takes the options of `add`."""
        name = self._name_of(job)
        if self.options.subject is not None and "subject" not in options:
            options["subject"] = subject_of(self.options.subject, data)
        if self._metadata:
            options["metadata"] = {**self._metadata, **as_metadata(options.get("metadata"))}
        return PreparedJob(
            self, new_job(name, self.handlers.encode(name, data), options, self._defaults_for(name)), data
        )

    def within(self, connection: Any) -> Any:
        """Add jobs in a transaction of your own, if the store is in the same PostgreSQL database: `add` of what this
        returns writes the job on your connection, and it exists if you commit.

        Takes a connection of psycopg, SQLAlchemy (or a session) or Django. On an asynchronous one, `add` must be
        awaited.
        """
        return AsyncWithin(self, connection) if is_async(connection) else Within(self, connection)

    @overload
    async def add_and_wait(
        self, job: HandlerOf[None, R] | RawHandler[R], *, timeout: Duration = 30, **options: Unpack[WaitOptions]
    ) -> R: ...

    @overload
    async def add_and_wait(
        self, job: HandlerOf[T, R] | RawHandler[R], data: T, *, timeout: Duration = 30, **options: Unpack[WaitOptions]
    ) -> R: ...

    @overload
    async def add_and_wait(
        self, job: str, data: Any = None, *, timeout: Duration = 30, **options: Unpack[WaitOptions]
    ) -> Any: ...

    async def add_and_wait(
        self, job: Any, data: Any = None, *, timeout: Duration = 30, **options: Unpack[WaitOptions]
    ) -> Any:
        """Add a job, wait up to `timeout` for it to end, and return its result.

        Takes the options of `add` and raises what `Job.result` raises. The result is kept for an hour unless you pass
        `result_ttl`.
        """
        milliseconds("timeout", timeout)  # raises for an invalid one before anything is stored
        options.setdefault("result_ttl", 3600)
        return await (await self.add(job, data, **options)).result(timeout)

    def scoped(self, **metadata: Any) -> "Queue":
        """The same queue, but every job added through it gets these metadata fields, such as the user."""
        return self._with(_metadata={**self._metadata, **metadata})

    def as_declared(self, declaration: Declaration) -> "Queue":
        """The same queue with the defaults that its workers declare, for programs that do not have the application's
        code."""
        if declaration.serializer:
            raise UsageError(
                f"queue {self._name!r} has a serializer, which only the application has; do this from there"
            )
        options = replace(
            self.options,
            keep_completed=declaration.keep_completed,
            keep_failed=declaration.keep_failed,
            subject=declaration.subject,
        )
        return self._with(options=options, _published=declaration)

    # recurring jobs

    def schedule(
        self,
        schedule_id: str,
        job: HandlerOf[T, Any] | RawHandler[Any] | str,
        data: T | None = None,
        **options: Unpack[Timing],
    ) -> None:
        """Declare a recurring job. Workers put it into the store when they start, and remove it once you no longer
        declare it.

        Args:
            schedule_id: An id, unique in the queue.
            job: A handler of this queue, or the name of one.
            data: The payload of its jobs.
            every: The time between two runs, at least 0.1 s. The first run is now, or at `start`.
            cron: A cron expression in place of `every`: five fields, or six with seconds first.
            tz: The time zone of `cron`; UTC by default.
            start: No run before this time.
            end: No run after this time.
            limit: How many runs there are in all.
            offset: Where in the interval of `every` the runs fall, counted from midnight UTC.
            jitter: Shift all runs of the schedule by the same random amount, up to this much.
            min_interval: The shortest time between two runs, whatever `every` or `cron` says.
            overlap: What to do if the previous run has not ended: `"allow"` both, `"skip"` the new one, or
                `"queue_one"` to run it afterwards.
            catch_up: What to run after a time without workers: `"one"` for everything that was missed, `"none"`, or
                `"all"` within `window`.
            window: How far back `catch_up="all"` goes.
            options: Options of the jobs, as in `add`.
        """
        if schedule_id in self.declared:
            raise UsageError(f"schedule {schedule_id!r} of queue {self._name!r} is already declared; choose another id")
        self.declared[schedule_id] = declare(self, schedule_id, job, data, options)

    @property
    def schedules(self) -> QueueSchedules:
        """The schedules in the store: list them, and create, change or remove them at run time."""
        return QueueSchedules(self)

    def runs_as(self, handler: Any) -> list[RunsAs]:
        """The queues of the app in which a handler runs, and under which names; for a task, its own."""
        if isinstance(handler, Task):
            return [handler.runs_as()]
        if not callable(handler):
            raise InvalidOption(f"expected the children's handler or task, not {preview(handler)}")
        found = []
        for queue in self.services.queues.values():
            with suppress(UsageError):
                found.append(queue.task(handler).runs_as())
        if not found:
            raise UsageError(f"no queue of this app has the handler {preview(handler)}; pass a task of its queue")
        return found

    # reading

    async def counts(self) -> Counts:
        """Count the jobs in each state, and tell whether the queue is paused."""
        return await self.store.counts(self._name)

    async def usage(self) -> Usage:
        """Estimate how many bytes the queue takes in its store."""
        return await self.store.usage(self._name)

    async def job(self, job_id: str) -> "Job[Any] | None":
        """Find a job by its id; None if there is none.

        A job that failed for good and is not kept is found as a dead letter: its state is `failed`, and `dead_letter`
        is the letter's id.
        """
        if not isinstance(job_id, str) or not job_id or len(job_id) > 256:
            raise InvalidName(f"a job id must have 1 to 256 characters; got {preview(job_id)}")
        row = await find_job(self.store, self._name, job_id)
        return None if row is None else self.job_of(row)

    async def jobs(self, state: StateName | State, cursor: str | None = None, limit: int = 50) -> "Page[Job[Any]]":
        """Read a page of the jobs in a state: waiting jobs in the order in which they run, finished jobs newest
        first."""
        page = await self.store.page(self._name, as_state(state), cursor=cursor, limit=limit)
        return Page(tuple(map(self.job_of, page.items)), page.cursor)

    async def search(
        self,
        state: StateName | State,
        where: JobFilter = JobFilter(),
        *,
        cursor: str | None = None,
        limit: int = 50,
        patience: Duration = PATIENCE,
    ) -> "SearchPage[Job[Any]]":
        """Read a page of the jobs in a state that match a filter, in the order of `jobs`.

        One call looks through at most 5,000 jobs and for at most `patience`, so a page may be short or even empty and
        still have a cursor. Over all pages, no job appears twice, and no job that stays in the state is skipped.
        """
        return await JobSearch(self).search(state, where, cursor=cursor, limit=limit, patience=patience)

    async def count(
        self,
        state: StateName | State,
        where: JobFilter = JobFilter(),
        *,
        cursor: str | None = None,
        patience: Duration = PATIENCE,
    ) -> MatchCount:
        """Count the jobs in a state that match a filter.

        An empty filter counts all of them. Otherwise one call looks through at most 5,000 jobs and for at most
        `patience`; continue with the cursor.
        """
        return await JobSearch(self).count(state, where, cursor=cursor, patience=patience)

    async def failures(self, *, patience: Duration = PATIENCE) -> Failures:
        """Group the kept failed jobs by their error.

        Looks at the latest 2,000, or at as many as it can within `patience`. Cancelled jobs are left out.
        """
        return await JobSearch(self).failures(patience=patience)

    async def runs(
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
        letters; prefer `subject`.
        """
        found = await JobSearch(self).run_rows(status, cursor, limit, subject, where=where)
        return SearchPage(tuple(as_record(RunRecord, run) for run in found), found.cursor, found.looked)

    async def failures_in_a_row(self, subject: str) -> int:
        """Count how many jobs with this subject have failed for good since the last one that completed.

        Only the latest 1,000 completed jobs of the queue are known; failures before these do not count.
        """
        return await JobSearch(self).failures_in_a_row(subject)

    async def metrics(self, over: Range = "1h") -> QueueMetrics:
        """Read the current counts, and what happened in the last `1h`, `4h`, `12h`, `1d` or `7d`.

        This covers how many jobs completed and failed, how long they waited and ran, and which names failed, in total
        and as up to 240 points. It does not depend on whether jobs are kept.
        """
        return await metrics(self.store, self._name, over)

    def events(self, after: str | None = None) -> AsyncIterator[EventRecord | Gap]:
        """Follow what happens in the queue, in any process: `async for event in queue.events()`.

        Starts now, or after the event whose `at` you pass. Yields a `Gap` if events were trimmed before you read them.
        """
        return _read(follow(self.store, self._name, after))

    async def workers(self) -> list[WorkerRecord]:
        """List the workers that serve this queue now."""
        return [as_record(WorkerRecord, worker) for worker in await self.store.workers(self._name)]

    async def settings(self) -> QueueSettings:
        """Read the queue's settings in the store, which hold for every process."""
        return as_record(QueueSettings, (await self.store.queue(self._name)).settings)

    async def declaration(self) -> QueueDeclaration | None:
        """Read what the living workers of the queue declare in their code; None if there are none.

        If they differ, this is what the newest declare. Settings in the store take precedence: see `settings`.
        """
        return declaration_record(await self.store.declarations(self._name))

    async def why(self, job_id: str) -> Explanation:
        """Explain why a job does not run, or how it ended. Raises `NotFound` if nothing is known about it."""
        return await explain(self, job_id)

    async def stack(self, job_id: str, *, patience: Duration = 8) -> JobStack:
        """Ask the worker where a running job is now.

        Raises `NotFound` if there is no such job, and `WrongState` if it is not running or its worker does not answer
        within `patience`.
        """
        (row,) = await self.store.jobs(self._name, [job_id])
        if row is None:
            raise NotFound(f"there is no job {preview(job_id)} in queue {self._name!r}")
        if row.state is not State.ACTIVE or row.worker is None:
            raise WrongState(f"job {preview(job_id)} is not running, so it has no stack")
        return await asked_stack(self.store, row, milliseconds("patience", patience))

    def job_of(self, row: JobRow) -> Job[Any]:
        """The handle on a job of this queue, from its row."""
        return Job(self, row.id, row.name, self.handlers.decode(row.name, row.data), record=row)

    # controlling

    @property
    def groups(self) -> QueueGroups:
        """The groups of this queue: look at them, pause them, and limit them at run time."""
        return QueueGroups(self)

    async def pause(self) -> None:
        """Stop starting jobs, in every process, until `resume()`. Running jobs continue, and you can still add jobs."""
        await self._configure(Pause())
        self.services.events.paused(self._name, now=True)

    async def resume(self) -> None:
        """Start jobs again after `pause()`."""
        await self._configure(Resume())
        self.services.events.paused(self._name, now=False)

    async def set_concurrency(self, limit: int | None) -> None:
        """Limit how many jobs run at once in all processes together; None removes the limit."""
        await self._configure(SetConcurrency(limit))

    async def set_rate_limit(self, limit: RateLimit | None) -> None:
        """Limit how many jobs start within a time in all processes together, overriding the code; None restores what
        the code declares."""
        await self._configure(SetRateLimit(limit))

    async def drain(self, *, delayed: Literal["keep", "remove"] = "keep") -> int:
        """Remove the jobs that have not started; delayed jobs only with `delayed="remove"`. Returns how many."""
        if delayed not in ("keep", "remove"):
            raise InvalidOption(f"delayed must be 'keep' or 'remove', not {preview(delayed)}")
        states = frozenset({State.WAITING, State.PRIORITIZED} | ({State.DELAYED} if delayed == "remove" else set()))
        return await self._sweep(lambda call: self.store.drain(self._name, states=states, call=call))

    async def clean(
        self, state: StateName | State = "completed", *, older_than: Duration = 0, limit: int | None = None
    ) -> int:
        """Remove jobs that have been in a state for longer than `older_than`, oldest first. Returns how many."""
        grace, wanted = milliseconds("older_than", older_than, 0, 2**42), as_state(state)
        if limit is not None and (type(limit) is not int or limit < 1):
            raise InvalidOption(f"limit must be a whole number of at least 1, not {preview(limit)}")
        removed = 0
        while limit is None or removed < limit:
            size = 1000 if limit is None else min(limit - removed, 1000)
            swept = await self.services.call(
                lambda call, size=size: self.store.clean(self._name, state=wanted, grace=grace, limit=size, call=call)  # type: ignore[misc]
            )
            removed += len(swept.ids)
            if not swept.more:
                break
        return removed

    async def obliterate(self, *, force: bool = False) -> int:
        """Remove the queue and everything in it. Returns how many jobs were removed.

        Raises `WrongState` while jobs are running, unless you pass `force=True`.
        """
        if type(force) is not bool:
            raise InvalidOption(f"force must be True or False, not {preview(force)}")
        running: Literal["refuse", "remove"] = "remove" if force else "refuse"
        return await self._sweep(lambda call: self.store.obliterate(self._name, running=running, call=call))

    async def signal(
        self,
        signal: str | SignalKind[Any],
        payload: Any = True,
        *,
        key: str,
        id: str | None = None,
        ttl: Duration = 86_400,
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
            InboxFull: The job has too many signals that it has not read, or the queue keeps too many.
        """
        kept = milliseconds("ttl", ttl, 1, MAX_SIGNAL_TTL)
        kind = self.options.signal_kind(signal)
        new = new_signal(kind, payload, self.options.serializer, key=key, signal_id=id, ttl=kept)
        return await send_signal(self.services, self._name, new)

    async def retry(self, job_id: str) -> None:
        """Run a job that has ended again, with its full number of attempts, whether the queue keeps it or it is a dead
        letter.

        Its log is kept; progress and errors start afresh. Raises `WrongState` if it has not ended, and `NotFound` if it
        is gone.
        """
        from toril.operate.dead_letters import replay_job  # noqa: PLC0415 - which is made of queues

        changed = await self.services.call(lambda call: self.store.retry(self._name, [job_id], call=call))
        for refused in changed.refused:
            if refused.state is not None:
                raise WrongState(f"job {job_id!r} is {refused.state} and cannot be retried")
            await replay_job(self, job_id)

    async def retry_failed(self) -> int:
        """Run all failed jobs again, those that the queue keeps and its dead letters. Returns how many.

        Leaves out cancelled jobs, and dead letters whose payload no longer fits their handler.
        """
        from toril.operate.dead_letters import of_queue  # noqa: PLC0415 - which is made of queues

        retried, cursor = 0, None
        while True:
            page = await self.store.page(self._name, State.FAILED, cursor=cursor, limit=1000)
            ids = [row.id for row in page.items if row.ending is RunStatus.FAILED]
            if ids:
                changed = await self.services.call(lambda call, ids=ids: self.store.retry(self._name, ids, call=call))  # type: ignore[misc]
                retried += len(changed.done)
            cursor = page.cursor
            if cursor is None:
                break
        return retried + (await of_queue(self).replay(DeadLetterFilter(queue=self._name))).count

    async def cancel_all(
        self, state: StateName | State, where: JobFilter = JobFilter(), *, reason: str = "No reason provided"
    ) -> CancelCounts:
        """Cancel the jobs in a state that match a filter.

        Jobs that have not started never will; running jobs are asked to stop. Jobs that enter the state during the call
        are left alone.
        """
        wanted, cursor, ended, asked = as_state(state), None, 0, 0
        if wanted in FINISHED:
            raise InvalidOption(f"jobs that are {wanted.value} have ended and cannot be cancelled")
        if where.until is None:
            where = replace(where, until=moment((await self.store.health()).now))
        while True:
            page = await self.search(wanted, where, cursor=cursor, limit=_A_CALL)
            ids = [job.id for job in page.items]
            if ids:
                changed = await self.services.call(
                    lambda call, ids=ids: self.store.cancel(self._name, ids, reason=reason, call=call)  # type: ignore[misc]
                )
                ended, asked = ended + len(changed.done), asked + len(changed.asked)
            cursor = page.cursor
            if cursor is None:
                return CancelCounts(cancelled=ended, requested=asked)

    async def _configure(self, setting: Setting) -> None:
        await self.services.call(lambda call: self.store.configure(self._name, [setting], call=call))

    async def _sweep(self, sweep: Callable[[Call], Awaitable[Swept]]) -> int:
        removed = 0
        while True:
            swept = await self.services.call(sweep)
            removed += len(swept.ids)
            if not swept.more:
                return removed

    # how jobs are added

    async def _store(self, jobs: Sequence[NewJob]) -> list[Added]:
        """Add jobs to the store, within a trace if there is one."""
        services = self.services
        await self._bound.tell(services)
        if services.tracing is None:
            return await services.call(lambda call: services.store.add(self._name, jobs, call=call))
        with services.tracing.sending(self._name, jobs) as traced:
            return await services.call(lambda call: services.store.add(self._name, traced, call=call))

    async def _add_chunk(self, chunk: AddChunk) -> list[Job[Any]]:
        return await self._kept(handles(self, chunk, await self._store(chunk.jobs)))

    async def _kept(self, made: list[Job[Any]]) -> list[Job[Any]]:
        return made if all(job.added for job in made) else await self._as_they_stand(made)

    async def _as_they_stand(self, jobs: list[Job[Any]]) -> list[Job[Any]]:
        """The jobs; those that existed already as they are in the store."""
        there = [job.id for job in jobs if not job.added]
        try:
            records = dict(zip(there, await self.services.store.jobs(self._name, there), strict=True))
        except EngineUnavailable:
            return jobs  # the add has taken effect; a failed read must not make it look otherwise
        return [self._as_it_stands(job, records.get(job.id)) for job in jobs]

    def _as_it_stands(self, job: Job[Any], row: JobRow | None) -> Job[Any]:
        if row is None or job.added:
            return job
        data = self.handlers.decode(row.name, row.data)
        return Job(self, row.id, row.name, data, added=False, record=row, outcome=job.outcome)

    def _plan(self, item: Item) -> PreparedJob[Any]:
        if isinstance(item, PreparedJob):
            return self._own(item)
        if not isinstance(item, tuple) or not 2 <= len(item) <= 3:
            raise InvalidOption(
                f"each job must be (job, data), (job, data, options) or queue.new(…), not {preview(item)}"
            )
        job, data, options = item if len(item) == 3 else (*item, {})
        if type(options) is not dict and not isinstance(options, Mapping):
            raise InvalidOption(f"job options must be a mapping, not {preview(options)}")
        return self.new(job, data, **options)

    def _templates(self) -> JobTemplates | None:
        """Templates for jobs of one name, unless each has metadata or a subject of its own."""
        return (
            None
            if self._metadata or self.options.subject is not None
            else JobTemplates(self._name_of, self._template_of)
        )

    def _template_of(self, name: str) -> JobTemplate:
        return JobTemplate(new_job(name, "null", {}, self._defaults_for(name)), self.handlers.payload_of(name).encode)

    def _name_of(self, job: Any) -> str:
        if not isinstance(job, str):
            return self.handlers.name_of(job)
        if self.options.unknown == "fail":
            self.handlers.check_spelling(job)
        return check_job_name(job)

    def _with(self, **changed: Any) -> "Queue":
        """The same queue with some attributes changed."""
        other = copy.copy(self)
        vars(other).update(changed)
        return other

    def _own(self, planned: PreparedJob[Any]) -> PreparedJob[Any]:
        if planned.queue.name != self._name:
            raise UsageError(f"a job prepared by queue {planned.queue.name!r} cannot be added to queue {self._name!r}")
        return planned

    def _defaults_for(self, name: str) -> Defaults:
        entry = self.handlers.find(name)
        if entry is None and self._published is not None:
            attempts, backoff = self._published.retry_of(name)
            known = () if backoff.strategy is None else (backoff.strategy,)
            return Defaults(attempts, self._options_with(backoff), known)
        if entry is None and self._check_spelling is not None:
            self._check_spelling()
        own = entry.handler.retry if entry else None
        return self._defaults if own is None else self._defaults_of(own)

    def _defaults_of(self, retry: Retry) -> Defaults:
        return Defaults(retry.attempts, self._options_with(retry.backoff.wire()), self.options.strategies)

    def _options_with(self, backoff: Backoff) -> JobOptions:
        """The options of this queue's jobs with this retry."""
        queue = self.options
        return JobOptions(backoff=backoff, keep_completed=queue.keep_completed, keep_failed=queue.keep_failed)


def added_job(planned: PreparedJob[Any], answer: Added) -> Job[Any]:
    """The `Job` that the store has accepted."""
    queue, outcome, name = planned.queue, answer.outcome, planned.job.name
    added = outcome is AddOutcome.ADDED or outcome is AddOutcome.REPLACED
    if added and queue.services.events.wanted("added"):
        queue.services.events.emit("added", JobEvent(queue=queue.name, job_id=answer.id, job_name=name))
    return Job(queue, answer.id, name, planned.data, added=added, outcome=outcome)


def queue_named(services: Services, name: str) -> Queue:
    """The queue as the app declares it, or one with default options if the app does not."""
    known = services.queues
    return known[name] if name in known else Queue(services, name, PLAIN)


def job_of_row(services: Services, row: JobRow) -> Job[Any]:
    """The handle on a job of any queue, from its row."""
    return queue_named(services, row.queue).job_of(row)
