"""`App`: every public method in one class; its parts are attributes."""

import asyncio
import logging
import os
import sys
import warnings
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, contextmanager, nullcontext
from datetime import datetime
from functools import cache, partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar, Unpack, overload

from toril.alerts import AlertRules, Alerts, Sink
from toril.client.options import (
    PLAIN,
    UNSAID,
    Keeping,
    LogLevel,
    Subject,
    Unknown,
    check_not_dead_letters,
    checked,
    renewal,
)
from toril.codec.encoding import Serializer
from toril.context import AnyHandler, HandlerOf, RawHandler
from toril.errors import InvalidOption, NotFound, UnknownQueue, UsageError, preview
from toril.events import EventName, Events, Listener
from toril.flow import SHOWN, Flow, Flows, FlowTree, Node, Policy
from toril.job import Job
from toril.model import Finding, GroupLimits, JobRow, Page, RateLimit, Repaired, WorkerCommand
from toril.model.attempts import Result
from toril.model.durations import Duration, milliseconds
from toril.model.names import (
    check_app_name,
    check_chosen_worker_name,
    check_label,
    check_prefix,
    check_queue_name,
    near_name,
)
from toril.model.states import State
from toril.operate.breakers import Breakers
from toril.operate.dead_letters import DeadLetters
from toril.operate.doctor import Doctor
from toril.operate.lookup import find_queues
from toril.operate.metrics import Overview, overview
from toril.operate.scanners import Scanner, Scanners
from toril.outbox.service import OutboxService, Round
from toril.policy.breaker import Breaker
from toril.policy.retry import BUILT_IN, BackoffStrategy, Retry, check_strategy
from toril.queue import PreparedJob, Queue, job_of_row
from toril.records import WorkerRecord, as_record
from toril.runtime.clock import SYSTEM, Clock
from toril.runtime.hooks import GRACE, HANG_TIMEOUT, Hooks, Middleware, Poller, app_name, function, last, worker_name
from toril.runtime.logs import watch
from toril.runtime.portal import Portal
from toril.runtime.redaction import Redact, Redaction
from toril.runtime.services import AppServices
from toril.schedule import Timing, boot
from toril.store.connect import connected, open_with_patience
from toril.store.engine import Durability, Store

if TYPE_CHECKING:
    from toril.operate.reaper import Reaper
    from toril.outbox.database import OutboxStatus
    from toril.outbox.outbox import Outbox
    from toril.worker.leases import LeaseKeeper
    from toril.worker.pollers import Elect
    from toril.worker.process import WorkerProcess
    from toril.worker.supervised import SupervisorLink

__all__ = ["App", "Queues"]

_PAGE: Final = 1000


T = TypeVar("T")
R = TypeVar("R")
F = TypeVar("F", bound=Callable[..., Any])


class Queues(Mapping[str, Queue]):
    """The declared queues by name; asking for another is an error that names them."""

    def __init__(self) -> None:
        self._queues: dict[str, Queue] = {}

    def __getitem__(self, name: str) -> Queue:
        if name not in self._queues:
            known = ", ".join(map(repr, self._queues)) or "none"
            raise UnknownQueue(f"there is no queue {preview(name)} in this app; it has {known}")
        return self._queues[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._queues)

    def __len__(self) -> int:
        return len(self._queues)

    def __contains__(self, name: object) -> bool:
        return name in self._queues

    def declare(self, queue: Queue) -> Queue:
        self._queues[queue.name] = queue
        return queue

    def spelling_of(self, name: str) -> Callable[[], None]:
        """Warns once, when it is called, if a queue with handlers is called almost so and this one has none. Names that
        differ in their numbers are meant to."""
        return cache(partial(self._check_spelling, name))

    def _check_spelling(self, name: str) -> None:
        if self._queues[name].handlers.names:
            return
        others = [each for each, queue in self._queues.items() if queue.handlers.names]
        if (near := near_name(name, others)) is not None:
            warnings.warn(
                f"a job for queue {name!r}, which has no handlers here; did you mean {near!r}? "
                f"If not, say that others work it: app.queue({name!r}, [])",
                stacklevel=_level_of_the_caller(),
            )


def _level_of_the_caller() -> int:
    """How far up the stack the program is that called Toril, for a warning that whoever asks gives. The blocking API
    has the call made in a thread of its own, on whose stack the program is not: then it is the place that warns."""
    level, frame = 1, sys._getframe(1)  # noqa: SLF001 - meant for this
    while frame.f_globals.get("__name__", "").startswith("toril."):
        level += 1
        if frame.f_back is None:
            return 1
        frame = frame.f_back
    return 1 if frame.f_globals.get("__name__", "").partition(".")[0] == "asyncio" else level


_PATIENCE: Final = 2.0  # seconds that one call of `doctor_page` looks for
_SOONER: Final = 0.1  # seconds between two looks, where someone waits for the answer
_BESIDE = 15.0  # seconds that a worker's reaper rests: its own queues are looked after by the process itself
_SHORTEST_LEAD = 5.0  # seconds; the lead of a worker's reaper is as short as the shortest lease, but not shorter
_LEAST_INTERVAL = 100  # ms between two looks for what has stalled


Lifespan = Callable[["App"], AbstractAsyncContextManager[Any]]
DEFAULT_URL = "sqlite:///toril.db"


class App:
    """Declares queues, handlers and hooks. `async with app:` opens it for producing; `await app.run()` is a worker.

    Args:
        url: Where the store is: `redis://…`, `sqlite:///jobs.db` or `memory://`. Without one, what `$TORIL_URL` says,
            else `sqlite:///toril.db`.
        prefix: What all keys begin with, on Redis. Apps with different prefixes do not see each other.
        durability: `"replicated"`: an add returns once replicas have confirmed it, on Redis.
        lifespan: A context manager, called with the app, that opens what a worker process needs. What it yields is
            `ctx.state`.
        clock: Another clock than the system's, for tests.
        redact: A function that takes secrets out of payloads, results and errors before they are shown.
        outbox: The database of your application, `postgresql://…` or `sqlite:///app.db`, from whose outbox the workers
            bring jobs into the store.
        name: Whose schedules those are that its code declares; the module that makes the app if none is given.
        dead_letter_queue: The queue in which BullMQ's libraries see the dead letters, on Redis; `dead-letter` if none
            is given.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        prefix: str = "bull",
        durability: Durability | None = None,
        lifespan: Lifespan | None = None,
        clock: Clock = SYSTEM,
        redact: Redact | None = None,
        outbox: str | None = None,
        name: str | None = None,
        dead_letter_queue: str | None = None,
    ) -> None:
        made_in = sys._getframe(1).f_globals.get("__name__", "__main__")  # noqa: SLF001 - as namedtuple and logging do
        self.name = app_name(made_in) if name is None else check_app_name(name)
        self.url = (os.environ.get("TORIL_URL") or DEFAULT_URL) if url is None else url
        self.prefix = check_prefix(prefix)
        self.queues: Queues = Queues()
        self._terms = (durability, dead_letter_queue)
        connect = partial(connected, self.url, clock, self.prefix, *self._terms, given=url is not None)
        self.services = AppServices(self.url, connect, clock, Redaction(redact), self.queues)
        self.dead_letter_queue = self.services.engine.dead_letters.queue
        self._strategies: dict[str, BackoffStrategy] = dict(BUILT_IN)
        self.dead_letters = DeadLetters(self.services, self.queues, self._strategies)
        self.breakers = Breakers(self.services)
        self._flows = Flows(self.services)
        self._scanners = Scanners(self.services)
        self._outbox = OutboxService(self.services, outbox)
        self._hooks, self._alerts = Hooks(), list[Alerts]()
        self._lifespan = lifespan
        self._process: WorkerProcess | None = None
        self._working = self._watched = False
        self._reaping: set[asyncio.Event] = set()  # each is set to have a `reap` stop

    def __repr__(self) -> str:
        return f"<App on {self.services.engine!r}>"

    @property
    def store_options(self) -> dict[str, str | None]:
        """What the code says of the store beside its URL and prefix; for the supervisor, who opens the store by
        itself."""
        durability, dead_letter_queue = self._terms
        return {"durability": durability, "dead_letter_queue": dead_letter_queue}

    @property
    def store(self) -> Store:
        """The open store."""
        return self.services.store

    @property
    def events(self) -> Events:
        """Who listens to what happens in this process."""
        return self.services.events

    @property
    def redaction(self) -> Redaction:
        """What may be seen of payloads, results and errors."""
        return self.services.redaction

    @property
    def outbox_url(self) -> str | None:
        """Where the app's outbox is, if it has one."""
        return self._outbox.url

    # declaring

    def queue(
        self,
        name: str,
        handlers: Mapping[str, AnyHandler] | Sequence[AnyHandler] | None = None,
        *,
        concurrency: int = 1,
        lease: Duration = 30.0,
        renew: Duration | None = None,
        retry: Retry = Retry(),
        timeout: Duration | None = None,
        rate_limit: RateLimit | None = None,
        max_stalls: int = 1,
        max_waiting: int | None = None,
        groups: GroupLimits | None = None,
        priority_first: bool | None = None,
        keep_completed: Keeping = 0,
        keep_failed: Keeping = 0,
        unknown: Unknown = "fail",
        serializer: Serializer | None = None,
        cancellation: bool = True,
        breaker: Breaker | None = None,
        subject: Subject | None = None,
        target_wait: Duration = 120.0,
        log_level: LogLevel | None = None,
    ) -> Queue:
        """Declare a queue, or, with nothing but its name, get the one declared before; `app.queues[name]` only gets.

        Args:
            name: Its name in the store.
            handlers: A mapping of job names to functions, or a list of functions, which go by their own names.
            concurrency: How many jobs run at once in each process.
            lease: How soon the job of a worker that is gone can be taken back. It is no limit on how long jobs run.
            renew: How often leases are renewed; a third of the lease if not given.
            retry: How often jobs are tried, how long they wait between attempts, and for which errors.
            timeout: How long an attempt may take; then it is stopped, and tried again. No limit if not given.
            rate_limit: How many jobs may start within a time, over the whole fleet.
            max_stalls: How often a job may lose its worker and run again. With 0, and `attempts=1`, it runs at most
                once.
            max_waiting: Refuse adds with `QueueFull` while this many jobs wait.
            groups: What holds for each group of jobs: concurrency, rate, how many may wait.
            priority_first: True: jobs with a priority run before those without. False: after them, as in BullMQ. None
                is the same as False, with a warning in the log where a queue has both.
            keep_completed: How many completed jobs stay in the store, or a `Keep`. None by default: run records remain.
            keep_failed: The same for jobs that failed for good. Those that are not kept become dead letters.
            unknown: What becomes of a job whose name has no handler: `"fail"` it, or `"release"` it to another worker.
            serializer: An object with `dumps` and `loads`, in place of JSON. Nobody else can read such a queue.
            cancellation: False: handlers get no signal, and cannot be told to stop.
            breaker: Pause jobs that would only fail: a circuit breaker.
            subject: Whom a job is about: a field of its payload, or a function of it.
            target_wait: How long a job should wait at most, by which scaling and warnings go.
            log_level: From which level on this queue's jobs are logged, in place of the process's.
        """
        name = check_queue_name(name)
        given = {key: value for key, value in locals().items() if key not in {"self", "name"}}
        if name in self.queues:
            if given != UNSAID:
                raise UsageError(f"queue {name!r} is declared already; declare it once, with all its options")
            return self.queues[name]
        check_not_dead_letters(name, self.dead_letter_queue)
        spelling = self.queues.spelling_of(name) if given == UNSAID else None
        del given["handlers"]
        queue = Queue(self.services, name, checked(strategies=self._strategies, **given), spelling)
        queue.handlers.register_all({} if handlers is None else handlers)
        return self.queues.declare(queue)

    def schedule(
        self,
        schedule_id: str,
        *,
        queue: Queue | str,
        job: HandlerOf[T, Any] | RawHandler[Any] | str,
        data: T | None = None,
        **options: Unpack[Timing],
    ) -> None:
        """Declare a recurring job of a queue; see `Queue.schedule`."""
        self.queues[queue if isinstance(queue, str) else queue.name].schedule(schedule_id, job, data, **options)

    def middleware(self, fn: Middleware) -> Middleware:
        """Put a function `(ctx, call_next)` around every handler; the first declared is the outermost."""
        self._hooks.middleware.append(function("middleware", fn))
        return fn

    def on_start(self, fn: F) -> F:
        """Before the workers start."""
        self._hooks.on_start.append(function("on_start", fn))
        return fn

    def on_flush(self, fn: F) -> F:
        """After the workers have ended, while queues are still open."""
        self._hooks.on_flush.append(function("on_flush", fn))
        return fn

    def on_stop(self, fn: F) -> F:
        """After the queues are closed."""
        self._hooks.on_stop.append(function("on_stop", fn))
        return fn

    @overload
    def poller(self, fn: F) -> F: ...

    @overload
    def poller(self, *, name: str | None = None, elected: bool = False, lease: Duration = 30.0) -> Callable[[F], F]: ...

    def poller(
        self, fn: F | None = None, *, name: str | None = None, elected: bool = False, lease: Duration = 30.0
    ) -> F | Callable[[F], F]:
        """Run a coroutine function beside the workers for as long as they run, in every worker process. One that raises
        is started again, at once and then a little later each time; one that returns has finished.

        Args:
            fn: The function, where it is declared without options.
            name: What it is called in logs and in `/health`; the name of the function if not given.
            elected: Run it in one process of the fleet.
            lease: How soon another process takes over from one that is gone.
        """
        term = milliseconds("lease", lease, 1000) / 1000

        def declare(function_: F) -> F:
            called = name if name is not None else str(getattr(function("a poller", function_), "__name__", "poller"))
            if elected and check_label("a poller's name", called) in {each.name for each in self._hooks.pollers}:
                raise UsageError(f"poller {called!r} is declared already; give one that is elected a name of its own")
            self._hooks.pollers.append(Poller(called, function_, term if elected else None))
            return function_

        return declare if fn is None else declare(fn)

    def on(self, event: EventName, listener: Listener) -> None:
        """Call `listener` with what happens in this process."""
        self.events.on(event, listener)

    def backoff(self, name: str) -> Callable[[F], F]:
        """`@app.backoff("name")`: a function `(attempts, error, job) -> seconds` by which jobs wait for their retry
        that ask for it, as `add(…, backoff="name")` does."""

        def declare(fn: F) -> F:
            check_strategy(name, fn)
            self._strategies[name] = fn
            return fn

        return declare

    def alert(self, sink: Sink, rules: AlertRules = AlertRules()) -> Alerts:
        """Have `sink` called with each `Alert` that the rules ask for: a function, a coroutine function, a `Webhook`.
        A sink that fails touches no job."""
        made = Alerts(self.services, worker_name(self.services.clock), sink, rules, len(self._alerts))
        self._alerts.append(made)
        return made

    def scanner(
        self,
        name: str,
        *,
        every: Duration,
        find: Callable[[datetime], Any],
        reset: Callable[[Any], Any],
        threshold: Duration = 900,
        limit: int = 1000,
        queue: Queue | str = "scanners",
    ) -> Scanner:
        """Look for what is stuck, again and again, and set it right. A run is one attempt, after everything else in its
        queue: what fails is left to the next. Its statistics are the job's result.

        Args:
            name: Its name, and that of its job and schedule.
            every: How often it looks.
            find: Called with a time: gives what has been stuck since before that.
            reset: Called with each of these: sets it right.
            threshold: How long ago that time is.
            limit: How many it sets right in one run.
            queue: The queue in which it runs.
        """
        home = self.queue(queue) if isinstance(queue, str) else queue
        return self._scanners.declare(name, home, every=every, find=find, reset=reset, threshold=threshold, limit=limit)

    # producing

    @contextmanager
    def using(self, store: Store, clock: Clock) -> Iterator[Hooks]:
        """Have the app use another store and clock for a while, as tests do; its hooks are theirs to change."""
        with self.services.using(store, clock):
            yield self._hooks

    async def open(self) -> "App":
        await self.services.open()
        return self

    async def close(self) -> None:
        """Close what was opened, as often as it was opened. Closing more often is fine; while `run` works, which needs
        the store itself, it is told to stop."""
        if self._working and self.services.users <= 1:
            self._wind_down()
        else:
            await self.services.close()

    def portal(self) -> Portal:
        """The way in for code that blocks, made at its first use, and anew in a forked child."""
        return self.services.portal()

    async def __aenter__(self) -> "App":
        return await self.open()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def flow(
        self,
        job: PreparedJob[R] | Flow[R],
        children: Sequence[Node] = (),
        *,
        on_failure: Policy = "fail",
        parent: Job[Any] | None = None,
    ) -> Job[R]:
        """Add a job that runs once its children have ended. Up to 1,000 jobs are stored all or none. Returns the job
        that waits.

        Args:
            job: The job, made by `task.new(…)` or `queue.new(…)`, or a `Flow` that has its children.
            children: The jobs that it waits for, each of which may be a `Flow`.
            on_failure: What the failure of a child does to the job, where the child does not say so itself: see `Flow`.
            parent: A job that has not ended, and shall wait for this one.
        """
        return await self._flows.add(job, children, on_failure=on_failure, parent=parent)

    async def flows(self, flows: Sequence[PreparedJob[R] | Flow[R]]) -> list[Job[R]]:
        """Add many flows; up to 1,000 jobs of all of them together all or none. The jobs at their tops."""
        return await self._flows.add_many(flows)

    def outbox(self, connection: Any) -> "Outbox":
        """The outbox in the database of this connection, of sqlite3, psycopg, SQLAlchemy or Django: what is added there
        is part of the connection's own transaction."""
        return self._outbox.of(connection)

    # looking after it

    async def tree(self, job: Job[Any], *, whole: bool = True, depth: int = 10, width: int = SHOWN) -> FlowTree:
        """The flow that a job belongs to, from its top; or, if not `whole`, from the job itself on."""
        return await self._flows.tree(job, whole=whole, depth=depth, width=width)

    async def overview(self) -> Overview:
        """All queues, declared here, known to the store or served by a living worker, each with its counts and its last
        hour; asked for in few questions to the store."""
        names = sorted({*await find_queues(self.store), *self.queues})
        options = {name: self.queues[name].options if name in self.queues else PLAIN for name in names}
        targets = {name: each.target_wait / 1000 for name, each in options.items()}
        return await overview(self.store, names, targets)

    async def workers(self) -> list[WorkerRecord]:
        """The worker processes that are alive."""
        return [as_record(WorkerRecord, worker) for worker in await self.store.workers()]

    async def running_jobs(self, worker: str | None = None) -> list[Job[Any]]:
        """The jobs that run now, of all queues, the longest first; those of one worker process, if it is named. It may
        be dead: what it ran counts as running until it is taken back."""
        found: list[JobRow] = []
        for name in await self.store.queues():
            cursor: str | None = None
            while True:
                page = await self.store.page(name, State.ACTIVE, cursor=cursor, limit=_PAGE)
                found += [row for row in page.items if worker in {None, row.worker}]
                cursor = page.cursor
                if cursor is None:
                    break
        found.sort(key=lambda row: (row.started_at or row.added_at, row.queue, row.id))
        return [job_of_row(self.services, row) for row in found]

    async def quiet_worker(self, worker: str) -> None:
        """Have one worker process claim nothing more; what it runs goes on. `NotFound` if it is not alive."""
        await self._command(worker, WorkerCommand.QUIET)

    async def stop_worker(self, worker: str) -> None:
        """Have one worker process drain and end; its supervisor does not start it anew. `NotFound` if it is not
        alive."""
        await self._command(worker, WorkerCommand.STOP)

    async def _command(self, worker: str, command: WorkerCommand) -> None:
        if not await self.store.signal(worker, command):
            raise NotFound(f"no worker {preview(worker)} is alive")

    async def doctor(self, queues: Sequence[str] | None = None) -> list[Finding]:
        """Look the store over, and these queues or all: what is wrong, the worst first, each with its fix. Only reads;
        what it finds is there at two looks a second apart."""
        return await Doctor(self.store, self.services.clock).findings(queues)

    async def doctor_page(
        self,
        queues: Sequence[str] | None = None,
        *,
        cursor: str | None = None,
        patience: Duration = _PATIENCE,
        quick: bool = True,
    ) -> Page[Finding]:
        """A part of what `doctor` looks at: as much as can be looked at in so many seconds, however large the store is.
        With the cursor the next part is asked for, until there is none. What takes the longer the more jobs there are
        is left out, and a notice says so: an SQLite file is not read through for damage, and its jobs are only counted
        if it need not be `quick`. The two looks are a tenth of a second apart."""
        return await Doctor(self.store, self.services.clock, between=_SOONER).part(
            queues, cursor=cursor, patience=milliseconds("patience", patience) / 1000, quick=quick
        )

    async def repair(self, findings: Sequence[Finding]) -> list[Repaired]:
        """Repair what `doctor` has found and can be repaired. Safe beside workers: each repair looks again in its own
        step."""
        return await Doctor(self.store, self.services.clock).repair(findings)

    async def scan(self, name: str, *, dry_run: bool = False) -> Result:
        """Run a scanner here and now; dry, it finds and resets nothing."""
        return await self._scanners.scan(name, dry=dry_run)

    @asynccontextmanager
    async def opened_with_lifespan(self) -> AsyncIterator["App"]:
        """The app, opened with its lifespan as in a worker process; for commands that run its code."""
        await self.open()
        try:
            async with self._lifespan(self) if self._lifespan else nullcontext():
                yield self
        finally:
            await self.close()

    async def outbox_status(self) -> "OutboxStatus | None":
        """How much is in the app's outbox, and for how long; None if it has none, or its database is away."""
        return await self._outbox.status()

    # working

    async def run(
        self,
        *,
        queues: Mapping[str, int] | None = None,
        grace: Duration = GRACE,
        burst: bool = False,
        signals: Literal["handle", "leave"] = "handle",
        name: str | None = None,
        stall_interval: Duration | None = None,
        hang_timeout: Duration | None = HANG_TIMEOUT,
        under: "SupervisorLink | None" = None,
    ) -> int:
        """Work the queues until stopped by a signal or `stop()`. Returns 0 if all running jobs ended, 1 if some had to
        be given back.

        Args:
            queues: Which queues, with their concurrency; all that have handlers if not given.
            grace: How long running jobs may go on once the worker is told to stop.
            burst: End when there is nothing left to do. Jobs to be tried again within `grace`, and jobs that a rate
                holds up for no longer, are waited for.
            signals: `"leave"` leaves SIGTERM and SIGINT to the program around it.
            name: What this worker is called, in place of a name that is made up. No other that runs may have it.
            stall_interval: How often stalled jobs are looked for.
            hang_timeout: A handler that blocks the event loop for longer loses its job to another worker. None lets it
                block for ever.
            under: The supervisor, which sees to that by itself; for `toril run`.
        """
        from toril.worker.leftover import log_leftover  # noqa: PLC0415 - who only adds jobs does without a worker's code
        from toril.worker.process import WorkerProcess, chosen  # noqa: PLC0415 - as above

        if self._working:
            raise UsageError("this app is running already; start another process, or give its queues more concurrency")
        # All are checked before anything is opened.
        worked, seconds = chosen(list(self.queues.values()), queues), milliseconds("grace", grace) / 1000
        name = worker_name(self.services.clock) if name is None else check_chosen_worker_name(name)
        interval = None if stall_interval is None else milliseconds("stall_interval", stall_interval, _LEAST_INTERVAL)
        hang = None if hang_timeout is None else milliseconds("hang_timeout", hang_timeout, 100) / 1000
        if not worked:
            raise UsageError("no queue of this app has a handler: there is nothing to run")
        self._working = True
        engine, clock = self.services.engine, self.services.clock
        process = self._process = WorkerProcess(
            worked,
            engine,
            clock,
            self.events,
            self._hooks,
            name=name,
            version=_version(),
            schedules=engine.schedules,
            concurrency=queues,
            grace=seconds,
            under=under,
            stall_interval=interval,
            elect=self._elections(name),
            owner=self.name,
        )
        with process.signals() if signals == "handle" else nullcontext():
            async with AsyncExitStack() as resources:  # of the user: closed after the queues
                resources.callback(self._over)
                for hook in reversed(self._hooks.on_stop):
                    resources.push_async_callback(last, hook)
                patiently = partial(open_with_patience, clock=clock, stopped=process.stopped, patient=not burst)
                if not await patiently(self.open):
                    return 0
                async with AsyncExitStack() as store:
                    store.push_async_callback(self.services.close)
                    self._log_events()
                    declared = partial(boot, engine.schedules, self.queues.values(), worked, owner=self.name)
                    if not await patiently(declared):
                        return 0
                    state = await resources.enter_async_context(self._lifespan(self)) if self._lifespan else None
                    process.beside += await self._beside(process, worked, interval, burst=burst)
                    code = await process.run(self._keeper(under, hang), state, burst=burst)
                    await self.events.settle(seconds)
                    if burst and under is None and self._hooks.spent is None:
                        await log_leftover(self.services.engine, [queue.name for queue in worked], self.services.clock)
                    return code

    async def reap(
        self,
        *,
        queues: Sequence[str] | None = None,
        elected: bool = True,
        lease: Duration = 30.0,
        renew: Duration | None = None,
        election_interval: Duration | None = None,
        stall_interval: Duration = 1.0,
        name: str | None = None,
        signals: Literal["handle", "leave"] = "handle",
    ) -> None:
        """Be a reaper, until a signal, `stop()` or cancellation: give back the jobs of workers that are gone.

        Args:
            queues: Which queues; all of the store if not given.
            elected: Of several reapers one leads. False: this one acts whatever the others do.
            lease: How long a leader that is gone still counts as one.
            renew: How often the leader renews that; a third of the lease if not given.
            election_interval: How often the others try to become the leader; a sixth of the lease if not given.
            stall_interval: How often the queues are looked at.
            name: What this reaper is called, in place of a name that is made up.
            signals: `"leave"` leaves SIGTERM and SIGINT to the program around it.
        """
        from toril.operate.reaper import LEASE, check_electable  # noqa: PLC0415 - as above
        from toril.runtime.signals import StopSignals, run_until  # noqa: PLC0415 - as above

        if elected:
            check_electable(self.url)
        if isinstance(queues, str):
            raise InvalidOption(f"queues must be a list of names, not {preview(queues)}")
        lease_ms, renew_ms = renewal(lease, renew, least=100)
        tries = lease_ms / 6 if election_interval is None else milliseconds("election_interval", election_interval, 10)
        made_up = worker_name(self.services.clock).replace("worker-", "reaper-", 1)
        reaper = self._reaper(
            made_up if name is None else check_chosen_worker_name(name),
            queues=None if queues is None else [check_queue_name(each) for each in queues],
            elected=elected,
            lease=lease_ms / 1000,
            renew=renew_ms / 1000,
            election_interval=tries / 1000,
            stall_interval=milliseconds("stall_interval", stall_interval, _LEAST_INTERVAL) / 1000,
            unled=max(lease_ms / 1000, LEASE),
        )
        stopping = asyncio.Event()
        self._reaping.add(stopping)
        try:
            with StopSignals(GRACE, lambda _: stopping.set()).watching() if signals == "handle" else nullcontext():
                if await open_with_patience(self.open, self.services.clock, stopping.wait):
                    async with AsyncExitStack() as store:
                        store.push_async_callback(self.services.close)
                        self._log_events()
                        await run_until(stopping, reaper.run())
                        await self.events.settle(GRACE)
        finally:
            self._reaping.discard(stopping)

    async def relay(self, url: str | None = None) -> None:
        """Be a relay, until a signal or cancellation: hand over to the store what is in the outbox at this URL, else
        in the app's own. Workers of an app with an outbox do that by themselves."""
        await self._outbox.run(url)

    async def relay_once(self, url: str | None = None) -> int:
        """Hand over what is in the outbox now, once. Returns how many jobs that were."""
        return await self._outbox.relay_once(url)

    async def _beside(
        self, process: "WorkerProcess", worked: Sequence[Queue], stall_interval: int | None, *, burst: bool
    ) -> list[Round]:
        """What a worker process does beside its work: it looks after other queues, and relays what is in the outbox."""
        rounds = await self._outbox.rounds(process.name, burst=burst)
        if not self.services.exclusive:
            from toril.operate.reaper import LEASE  # noqa: PLC0415 - as above

            # When this process dies, others lead by the time at which its jobs can be taken back.
            lease = min(LEASE, max(_SHORTEST_LEAD, min(queue.options.lease for queue in worked) / 1000))
            rest = _BESIDE if stall_interval is None else stall_interval / 1000
            reaper = self._reaper(process.name, lease=lease, stall_interval=rest, recovered=process.recovered)
            rounds.append(reaper.run)
        return rounds

    def _log_events(self) -> None:
        if not self._watched:
            self._watched = True
            watch(self.events, self._log_levels())

    def _reaper(self, name: str, **options: Any) -> "Reaper":
        from toril.operate.reaper import Reaper  # noqa: PLC0415 - as above

        return Reaper(self.services.engine, self.services.clock, self.events, name, **options)

    def _elections(self, owner: str) -> "Elect | None":
        """How this process is elected to something; None where it has the store to itself."""
        from toril.operate.reaper import Election  # noqa: PLC0415 - as above

        if self.services.exclusive:
            return None
        unique = f"{owner}/{self.services.clock.unique()[:8]}"  # processes in containers may have the same name
        return lambda role, lease, on_change: Election(
            self.services.engine, self.services.clock, unique, on_change, role=role, lease=lease
        )

    def _keeper(self, under: "SupervisorLink | None", hang_timeout: float | None) -> "LeaseKeeper":
        """Leases are kept by the supervisor or from a thread; in tests, whose clock is not a real one, on the loop.
        What is in memory no other worker could run: there a handler that hangs keeps its job."""
        from toril.worker.leases import LeaseKeeper, LoopKeeper  # noqa: PLC0415 - as above

        twin = self.services.engine.twin()
        owned = twin is not self.services.engine
        if under is not None and not self.services.in_memory:
            return under.keeper(twin, self.services.clock, owned=owned)
        if self.services.given:
            return LoopKeeper(twin, self.services.clock, owned=owned)
        return LeaseKeeper(
            twin, self.services.clock, owned=owned, hang_timeout=None if self.services.in_memory else hang_timeout
        )

    def stop(self) -> None:
        """Have `run` and `reap` shut down, however far they have got; a second time, without waiting for running
        jobs."""
        for stopping in self._reaping:
            stopping.set()
        if self._process is not None:
            self._process.stop()

    def _wind_down(self) -> None:
        """Stop, but never in a hurry, however often it is asked for."""
        if self._process is None or not self._process.stopping:
            self.stop()

    def _log_levels(self) -> dict[str, int]:
        """The queues that have a log level of their own."""
        own = {name: queue.options.log_level for name, queue in self.queues.items()}
        return {name: getattr(logging, level.upper()) for name, level in own.items() if level is not None}

    def _over(self) -> None:
        self._working, self._process = False, None


def _version() -> str:
    from toril import __version__  # noqa: PLC0415 - the package imports this module

    return __version__
