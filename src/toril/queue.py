"""`Queue`: handlers, add, reads, control; delegates to `client` and `operate`."""

import asyncio
import copy
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar, Unpack, overload

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
from toril.client.priorities import MixedPriorities
from toril.client.producer import AddBatcher, AddChunk, Item, JobTemplate, JobTemplates, PreparedJob, chunks, handles
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
from toril.runtime.services import Services, SyncServices, add_jobs
from toril.schedule import Declared, QueueSchedules, Timing, declare
from toril.store.engine import Store
from toril.task import Task

if TYPE_CHECKING:
    from toril.sync import SyncQueue

__all__ = [
    "Item",
    "PreparedJob",
    "Queue",
    "QueueOptions",
    "is_unhandled",
    "job_of_row",
    "meant_name",
    "queue_named",
]

T = TypeVar("T")

_A_CALL: Final = 100  # jobs that are cancelled in one step


async def meant_name(store: Store, queue: str, name: str) -> str | None:
    """The job name that was probably meant, where no living worker has a handler for this one: None if there is no
    such, or if nobody can tell."""
    known = await _handled(store, queue)
    return None if known is None or name in known else near_name(name, known)


async def is_unhandled(store: Store, queue: str, name: str) -> bool:
    """Whether it is known that no living worker of the queue has a handler for the name."""
    known = await _handled(store, queue)
    return known is not None and name not in known


async def _handled(store: Store, queue: str) -> frozenset[str] | None:
    return (await store.declarations(queue)).handled(len(await store.workers(queue)))


async def _stored_by(sending: Awaitable[list[Job[Any]]]) -> list[Job[Any]]:
    """What an add that is on its way has stored."""
    try:
        return await sending
    except Exception:  # whoever sent it gets the error
        return []


async def _read(happenings: AsyncIterator[Happening]) -> AsyncIterator[EventRecord | Gap]:
    async for each in happenings:
        yield each if isinstance(each, Gap) else as_record(EventRecord, each)


R = TypeVar("R")
F = TypeVar("F", bound=Callable[..., Any])
H = TypeVar("H", bound=AnyHandler)


class Queue:
    """One object a name; `app.queue(name, …)` makes it."""

    def __init__(
        self, services: Services, name: str, options: QueueOptions, check_spelling: Callable[[], None] | None = None
    ) -> None:
        self.services = services
        self._name = name
        self._check_spelling = check_spelling
        self.options = options
        self.lease_hooks: list[tuple[Callable[..., Any], Callable[[Job[Any]], bool] | None]] = []
        self.handlers = Registry(name, options.serializer)
        self.declared: dict[str, Declared] = {}
        self.priorities = MixedPriorities(name)
        self._metadata: dict[str, Any] = {}
        self._together = AddBatcher()
        self._bound = DeclaredLimits(name, options.max_waiting, options.groups)
        self._defaults = self._defaults_of(options.retry)
        self._published: Declaration | None = None

    def __repr__(self) -> str:
        return f"<Queue {self._name!r}>"

    @property
    def name(self) -> str:
        return self._name

    @property
    def store(self) -> Store:
        return self.services.store

    @property
    def sync(self) -> "SyncQueue":
        """This queue for code that blocks: in Django, Flask, scripts. It opens the store by itself."""
        from toril.sync import SyncQueue  # noqa: PLC0415 - it is made of this class

        services = SyncServices(self.services)
        return SyncQueue(self._with(services=services, _together=AddBatcher()), services.run)

    # declaring handlers

    @overload
    def handler(self, fn: H) -> H: ...

    @overload
    def handler(self, *, name: str | None = None, **options: Any) -> Callable[[H], H]: ...

    def handler(self, fn: H | None = None, *, name: str | None = None, **options: Any) -> H | Callable[[H], H]:
        """`@queue.handler`, or `@queue.handler(name=…, timeout=…)`: sugar for the mapping of names to functions."""

        def register(function: H) -> H:
            made = handler(function, **options) if options else function
            self.handlers.register(own_name(function) if name is None else name, made)
            return function

        return register if fn is None else register(fn)

    def on_lease_lost(self, fn: F, *, when: Callable[[Job[Any]], bool] | None = None) -> F:
        """Call `fn(job)` for each job that this process has lost to another while it ran, or for those for which
        `when(job)` is true: to put right what only half happened. What it raises is logged, and changes nothing."""
        self.lease_hooks.append((function("on_lease_lost", fn), when))
        return fn

    # adding jobs

    @overload
    def task(self, handler: HandlerOf[T, R]) -> Task[T, R]: ...

    @overload
    def task(self, handler: RawHandler[R]) -> Task[Any, R]: ...

    def task(self, handler: Any) -> Task[Any, Any]:
        """One of this queue's handlers, bound to it: what is added with it is checked against its payload by the type
        checker too, and what comes back has the type of its result."""
        if not callable(handler):
            raise InvalidOption(f"a task is made of a handler of its queue, not of {preview(handler)}")
        return Task(self, handler)

    @overload
    async def add(self, job: HandlerOf[None, R] | RawHandler[R], **options: Unpack[AddOptions]) -> Job[R]: ...

    @overload
    async def add(self, job: HandlerOf[T, R] | RawHandler[R], data: T, **options: Unpack[AddOptions]) -> Job[R]: ...

    @overload
    async def add(self, job: str, data: Any = None, **options: Unpack[AddOptions]) -> Job[Any]: ...

    async def add(self, job: Any, data: Any = None, **options: Unpack[AddOptions]) -> Job[Any]:
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
            for_: For how long the key of `once` is taken, such as `"1d"`.
        """
        planned = self.new(job, data, **options)
        answer = await self._together.add(self._store, planned.job, alone=self.services.tracing is not None)
        return (await self._kept([self.made(planned, answer)]))[0]

    @overload
    async def add_many(self, jobs: Iterable[PreparedJob[R]]) -> list[Job[R]]: ...

    @overload
    async def add_many(self, jobs: Iterable[Item]) -> list[Job[Any]]: ...

    async def add_many(self, jobs: Iterable[Item]) -> list[Job[Any]]:
        """Store many, as `(job, data)`, `(job, data, options)` or `queue.new(…)`. Up to 1,000 all or none; beyond
        that in chunks, and `PartialAdd` names what is stored if one fails."""
        made: list[Job[Any]] = []
        sending: asyncio.Task[list[Job[Any]]] | None = None
        try:
            for chunk in chunks(jobs, self._plan, self._templates()):
                if sending is not None:
                    made += await sending
                sending = asyncio.ensure_future(self._add_chunk(chunk))
                await asyncio.wait([sending], timeout=0)  # so that it is on its way while the next one is made ready
            return made if sending is None else made + await sending
        except asyncio.CancelledError:
            if sending is not None:
                sending.cancel()
            raise
        except Exception as error:  # of the store, of an item, or of whatever makes the items
            if sending is not None:
                made += await _stored_by(sending)
            if not made:
                raise
            stored = [job.id for job in made]
            raise PartialAdd(f"{len(stored)} jobs are stored, the rest is not: {error}", stored=stored) from error

    @overload
    def new(self, job: HandlerOf[None, R] | RawHandler[R], **options: Unpack[AddOptions]) -> PreparedJob[R]: ...

    @overload
    def new(self, job: HandlerOf[T, R] | RawHandler[R], data: T, **options: Unpack[AddOptions]) -> PreparedJob[R]: ...

    @overload
    def new(self, job: str, data: Any = None, **options: Unpack[AddOptions]) -> PreparedJob[Any]: ...

    def new(self, job: Any, data: Any = None, **options: Unpack[AddOptions]) -> PreparedJob[Any]:
        """A job made ready and checked, to be added later or with others. Its options are those of `add`."""
        name = self._name_of(job)
        if self.options.subject is not None and "subject" not in options:
            options["subject"] = subject_of(self.options.subject, data)
        if self._metadata:
            options["metadata"] = {**self._metadata, **as_metadata(options.get("metadata"))}
        return PreparedJob(
            self, new_job(name, self.handlers.encode(name, data), options, self._defaults_for(name)), data
        )

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
        """Add a job and wait up to `timeout` for what its handler returns. Its options are those of `add`; the result
        is kept for an hour."""
        milliseconds("timeout", timeout)  # an odd one is refused before anything is stored
        options.setdefault("result_ttl", 3600)
        return await (await self.add(job, data, **options)).result(timeout)

    def scoped(self, **metadata: Any) -> "Queue":
        """The same queue for one actor, request or tenant: these fields travel beside every payload added here."""
        return self._with(_metadata={**self._metadata, **metadata})

    def as_declared(self, declaration: Declaration) -> "Queue":
        """The same queue with what its workers declare, for programs that do not have its code: jobs that say nothing
        else get what they would get from the application."""
        if declaration.serializer:
            raise UsageError(
                f"queue {self._name!r} has a serializer, which is not known here: add its jobs from the application"
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
        """Declare a recurring job. The workers keep it in the store from their next boot on, and remove it once it is
        declared no more.

        Args:
            schedule_id: Its id, unique in the queue.
            job: A handler of this queue, or the name of one.
            data: The payload of its jobs.
            every: The time between two runs, at least 0.1 s. The first comes at once, or at `start`.
            cron: When it runs, in place of `every`: five fields, or six with seconds first.
            tz: The time zone of `cron`; UTC if none is given.
            start: No run before this time.
            end: No run after this time.
            limit: How many runs there are in all.
            offset: Where in the interval of `every` the runs fall, counted from midnight UTC.
            jitter: Move all runs by up to this much, always the same for a schedule.
            min_interval: The shortest time between two runs, whatever `every` or `cron` say.
            overlap: When the run before has not ended: `"allow"` both, `"skip"` the later one, or `"queue_one"` to wait
                for it.
            catch_up: After a time without workers: run `"one"` for all that was missed, `"none"`, or `"all"` within
                `window`.
            window: How far back `catch_up="all"` goes.
            options: Options of the jobs, as in `add`.
        """
        if schedule_id in self.declared:
            raise UsageError(f"schedule {schedule_id!r} of queue {self._name!r} is declared already; ids are unique")
        self.declared[schedule_id] = declare(self, schedule_id, job, data, options)

    @property
    def schedules(self) -> QueueSchedules:
        """The schedules in the store: to look at, and to make and change at run time."""
        return QueueSchedules(self)

    def runs_as(self, handler: Any) -> list[RunsAs]:
        """In which queues of the app a handler runs, and under which names; of a task, its own."""
        if isinstance(handler, Task):
            return [handler.runs_as()]
        if not callable(handler):
            raise InvalidOption(f"children are asked for by their handler, or by its task, not by {preview(handler)}")
        found = []
        for queue in self.services.queues.values():
            with suppress(UsageError):
                found.append(queue.task(handler).runs_as())
        if not found:
            raise UsageError(f"{preview(handler)} is a handler of no queue of this app; give a task of its queue")
        return found

    # looking at it

    async def counts(self) -> Counts:
        """How many jobs are in each state, and whether the queue is paused."""
        return await self.store.counts(self._name)

    async def usage(self) -> Usage:
        """About how many bytes the queue takes in its store."""
        return await self.store.usage(self._name)

    async def job(self, job_id: str) -> "Job[Any] | None":
        """A job by its id, or None. One that failed for good and is not kept is a dead letter: its state is `failed`,
        and `dead_letter` names it."""
        if not isinstance(job_id, str) or not job_id or len(job_id) > 256:
            raise InvalidName(f"a job id has from 1 to 256 characters, and {preview(job_id)} does not")
        row = await find_job(self.store, self._name, job_id)
        return None if row is None else self.job_of(row)

    async def jobs(self, state: StateName | State, cursor: str | None = None, limit: int = 50) -> "Page[Job[Any]]":
        """A page of the jobs in a state: the next to run first, the last to end first."""
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
        """A page of the jobs in a state that the filter means, in the order of `jobs`. One call looks through 5,000 at
        most, and for so many seconds: a page may be short, or empty, and still have a cursor to go on with. A walk over
        all pages meets no job twice, and skips none that stays in the state."""
        return await JobSearch(self).search(state, where, cursor=cursor, limit=limit, patience=patience)

    async def count(
        self,
        state: StateName | State,
        where: JobFilter = JobFilter(),
        *,
        cursor: str | None = None,
        patience: Duration = PATIENCE,
    ) -> MatchCount:
        """How many jobs of a state the filter means: all at once where it asks for nothing, else of the next 5,000, or
        of as many as can be looked at in so many seconds."""
        return await JobSearch(self).count(state, where, cursor=cursor, patience=patience)

    async def failures(self, *, patience: Duration = PATIENCE) -> Failures:
        """The failed jobs that are kept, put together by their error; of more than 2,000 the last, or as many as can be
        looked at in so many seconds. Cancelled ones are looked at too, and left out."""
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
        """A page of run records, newest first: what is known of jobs that have ended, kept or not; of all, of those
        about one subject, or of those that a filter means. A record has no payload: a key is looked for where the job
        or its dead letter is kept, and `subject` is for the rest."""
        found = await JobSearch(self).run_rows(status, cursor, limit, subject, where=where)
        return SearchPage(tuple(as_record(RunRecord, run) for run in found), found.cursor, found.looked)

    async def failures_in_a_row(self, subject: str) -> int:
        """How many jobs about a subject have failed for good since the last that went well, as far as run records go
        back: of a queue the last 1,000 that went well are known, and failures before all of these do not count."""
        return await JobSearch(self).failures_in_a_row(subject)

    async def metrics(self, over: Range = "1h") -> QueueMetrics:
        """Counts of now, and what happened in the last `1h`, `4h`, `12h`, `1d` or `7d`: what completed and failed, how
        long jobs waited and ran, which names failed, in all and in at most 240 points. It is recorded whether jobs are
        kept or not."""
        return await metrics(self.store, self._name, over)

    def events(self, after: str | None = None) -> AsyncIterator[EventRecord | Gap]:
        """All that happens in the queue, wherever: `async for event in queue.events()`, from now on. To read on from
        where one was, give the last event's `at`; a `Gap` comes where some was trimmed away meanwhile."""
        return _read(follow(self.store, self._name, after))

    async def workers(self) -> list[WorkerRecord]:
        """The workers that serve this queue now."""
        return [as_record(WorkerRecord, worker) for worker in await self.store.workers(self._name)]

    async def settings(self) -> QueueSettings:
        """What is set for the queue in the store, for every process."""
        return as_record(QueueSettings, (await self.store.queue(self._name)).settings)

    async def declaration(self) -> QueueDeclaration | None:
        """What the living workers of the queue declare in their code, the newest of them where they differ; None if
        there are none. What is set in the store holds over it: see `settings`."""
        return declaration_record(await self.store.declarations(self._name))

    async def why(self, job_id: str) -> Explanation:
        """Why a job does not run, or what became of it: a sentence and the facts. `NotFound` if nothing is known."""
        return await explain(self, job_id)

    async def stack(self, job_id: str, *, patience: Duration = 8) -> JobStack:
        """Where a running job is now: its worker is asked, and answers within moments. `WrongState` if the job does not
        run, or if its worker does not answer in time."""
        (row,) = await self.store.jobs(self._name, [job_id])
        if row is None:
            raise NotFound(f"there is no job {preview(job_id)} in queue {self._name!r}")
        if row.state is not State.ACTIVE or row.worker is None:
            raise WrongState(f"job {preview(job_id)} does not run, so it has no stack")
        return await asked_stack(self.store, row, milliseconds("patience", patience))

    def job_of(self, row: JobRow) -> Job[Any]:
        """The handle on a job of this queue that was read."""
        return Job(self, row.id, row.name, self.handlers.decode(row.name, row.data), record=row)

    # acting on it

    @property
    def groups(self) -> QueueGroups:
        """The groups of this queue: to look at, to pause, and to give limits at run time."""
        return QueueGroups(self)

    async def pause(self) -> None:
        """Start nothing new, anywhere, until `resume()`. Running jobs go on, adds succeed."""
        await self._configure(Pause())
        self.services.events.paused(self._name, now=True)

    async def resume(self) -> None:
        await self._configure(Resume())
        self.services.events.paused(self._name, now=False)

    async def set_concurrency(self, limit: int | None) -> None:
        """How many jobs may run at once over the whole fleet; None for no bound."""
        await self._configure(SetConcurrency(limit))

    async def set_rate_limit(self, limit: RateLimit | None) -> None:
        """How many may start in a time over the whole fleet, instead of what the code says; None to take it back."""
        await self._configure(SetRateLimit(limit))

    async def drain(self, *, delayed: Literal["keep", "remove"] = "keep") -> int:
        """Remove what has not started. How many that were."""
        if delayed not in ("keep", "remove"):
            raise InvalidOption(f"delayed must be 'keep' or 'remove', not {preview(delayed)}")
        states = frozenset({State.WAITING, State.PRIORITIZED} | ({State.DELAYED} if delayed == "remove" else set()))
        return await self._sweep(lambda call: self.store.drain(self._name, states=states, call=call))

    async def clean(
        self, state: StateName | State = "completed", *, older_than: Duration = 0, limit: int | None = None
    ) -> int:
        """Remove jobs of a state that are older than this, oldest first. How many that were."""
        grace, wanted = milliseconds("older_than", older_than, 0, 2**42), as_state(state)
        if limit is not None and (type(limit) is not int or limit < 1):
            raise InvalidOption(f"limit must be a whole number from 1, not {preview(limit)}")
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
        """Remove the queue with everything in it; while jobs run only by force. How many jobs that were."""
        if type(force) is not bool:
            raise InvalidOption(f"force must be True or False, not {preview(force)}")
        running: Literal["refuse", "remove"] = "remove" if force else "refuse"
        return await self._sweep(lambda call: self.store.obliterate(self._name, running=running, call=call))

    async def retry(self, job_id: str) -> None:
        """Run a job again that has ended, with all its attempts: one that the queue keeps, or a dead letter. Its log
        goes on; progress and errors begin anew."""
        from toril.operate.dead_letters import replay_job  # noqa: PLC0415 - which is made of queues

        changed = await self.services.call(lambda call: self.store.retry(self._name, [job_id], call=call))
        for refused in changed.refused:
            if refused.state is not None:
                raise WrongState(f"job {job_id!r} is {refused.state} and cannot be retried")
            await replay_job(self, job_id)

    async def retry_failed(self) -> int:
        """Run all failed jobs again: those that the queue keeps, and its dead letters. How many that were. Cancelled
        jobs are left, and so is a dead letter whose payload is not what its handler takes."""
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
        """Cancel the jobs of a state that the filter means: those that have not started never will, running ones are
        asked to stop. What comes to the state meanwhile is left alone, as by `JobFilter(until=…)`."""
        wanted, cursor, ended, asked = as_state(state), None, 0, 0
        if wanted in FINISHED:
            raise InvalidOption(f"a job that has {wanted.value} cannot be cancelled")
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
        await self._bound.tell(self.services)
        return await add_jobs(self.services, self._name, jobs)

    async def _add_chunk(self, chunk: AddChunk) -> list[Job[Any]]:
        return await self._kept(handles(self, chunk, await self._store(chunk.jobs)))

    async def _kept(self, made: list[Job[Any]]) -> list[Job[Any]]:
        return made if all(job.added for job in made) else await self._as_they_stand(made)

    async def _as_they_stand(self, jobs: list[Job[Any]]) -> list[Job[Any]]:
        """Those that were there already, with what the store has of them and not what they would have been."""
        there = [job.id for job in jobs if not job.added]
        try:
            records = dict(zip(there, await self.services.store.jobs(self._name, there), strict=True))
        except EngineUnavailable:
            return jobs  # the add has happened: what cannot be read now must not make it look as if it had not
        return [self._as_it_stands(job, records.get(job.id)) for job in jobs]

    def _as_it_stands(self, job: Job[Any], row: JobRow | None) -> Job[Any]:
        if row is None or job.added:
            return job
        data = self.handlers.decode(row.name, row.data)
        return Job(self, row.id, row.name, data, added=False, record=row, outcome=job.outcome)

    def made(self, planned: PreparedJob[Any], answer: Added) -> Job[Any]:
        """The handle on a job that the store has answered for."""
        outcome, name = answer.outcome, planned.job.name
        added = outcome is AddOutcome.ADDED or outcome is AddOutcome.REPLACED
        if added and self.services.events.wanted("added"):
            self.services.events.emit("added", JobEvent(queue=self._name, job_id=answer.id, job_name=name))
        return Job(self, answer.id, name, planned.data, added=added, outcome=outcome)

    def _plan(self, item: Item) -> PreparedJob[Any]:
        if isinstance(item, PreparedJob):
            return self._own(item)
        if not isinstance(item, tuple) or not 2 <= len(item) <= 3:
            raise InvalidOption(
                f"a job to add is (job, data), (job, data, options) or queue.new(…), not {preview(item)}"
            )
        job, data, options = item if len(item) == 3 else (*item, {})
        if type(options) is not dict and not isinstance(options, Mapping):
            raise InvalidOption(f"the options of a job are a mapping, not {preview(options)}")
        return self.new(job, data, **options)

    def _templates(self) -> JobTemplates | None:
        """Jobs of one name are of one kind, unless each has fields of its own beside its payload."""
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
        """The same queue, seen in another way."""
        other = copy.copy(self)
        vars(other).update(changed)
        return other

    def _own(self, planned: PreparedJob[Any]) -> PreparedJob[Any]:
        if planned.queue.name != self._name:
            raise UsageError(f"a job made by queue {planned.queue.name!r} cannot be added to queue {self._name!r}")
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
        """What jobs of this queue get that are retried so."""
        queue = self.options
        return JobOptions(backoff=backoff, keep_completed=queue.keep_completed, keep_failed=queue.keep_failed)


def queue_named(services: Services, name: str) -> Queue:
    """The queue as the app declares it, else one that nothing is known of but its name."""
    known = services.queues
    return known[name] if name in known else Queue(services, name, PLAIN)


def job_of_row(services: Services, row: JobRow) -> Job[Any]:
    """The handle on a job that was read from any queue of the store."""
    return queue_named(services, row.queue).job_of(row)
