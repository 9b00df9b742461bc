"""`App`: declares queues and hooks, opens the store, and runs workers."""

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
from toril.signals import SignalKind
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
    """The declared queues by name. Asking for another raises `UnknownQueue`, which lists them."""

    def __init__(self) -> None:
        self._queues: dict[str, Queue] = {}

    def __getitem__(self, name: str) -> Queue:
        if name not in self._queues:
            known = ", ".join(map(repr, self._queues)) or "none"
            raise UnknownQueue(f"there is no queue {preview(name)} in this app; its queues are {known}")
        return self._queues[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._queues)

    def __len__(self) -> int:
        return len(self._queues)

    def __contains__(self, name: object) -> bool:
        return name in self._queues

    def declare(self, queue: Queue) -> Queue:
        """Add a queue."""
        self._queues[queue.name] = queue
        return queue

    def spelling_of(self, name: str) -> Callable[[], None]:
        """Return a function that warns once if this queue has no handlers and a similarly named one has. Names that
        differ only in numbers are assumed to be intended."""
        return cache(partial(self._check_spelling, name))

    def _check_spelling(self, name: str) -> None:
        if self._queues[name].handlers.names:
            return
        others = [each for each, queue in self._queues.items() if queue.handlers.names]
        if (near := near_name(name, others)) is not None:
            warnings.warn(
                f"added a job to queue {name!r}, which has no handlers in this app; did you mean {near!r}? "
                f"If other programs handle its jobs, declare it with app.queue({name!r}, [])",
                stacklevel=_level_of_the_caller(),
            )


def _level_of_the_caller() -> int:
    """How far up the stack the calling program is, as the `stacklevel` of a warning. The blocking API makes calls in a
    thread of its own, whose stack does not contain the program; then it is the level of the code that warns."""
    level, frame = 1, sys._getframe(1)  # noqa: SLF001 - meant for this
    while frame.f_globals.get("__name__", "").startswith("toril."):
        level += 1
        if frame.f_back is None:
            return 1
        frame = frame.f_back
    return 1 if frame.f_globals.get("__name__", "").partition(".")[0] == "asyncio" else level


_PATIENCE: Final = 2.0  # seconds that one call of `doctor_page` looks for
_SOONER: Final = 0.1  # seconds between two looks, when someone is waiting
_BESIDE = 15.0  # seconds between rounds of a worker's reaper: the process itself recovers its own queues
_SHORTEST_LEAD = 5.0  # seconds; the lead of a worker's reaper is as short as the shortest lease, but not shorter
_LEAST_INTERVAL = 100  # ms between two looks for what has stalled


Lifespan = Callable[["App"], AbstractAsyncContextManager[Any]]
DEFAULT_URL = "sqlite:///toril.db"


class App:
    """The application: declare queues, handlers and hooks on it. `async with app:` opens the store; `await app.run()`
    runs a worker.

    Args:
        url: The store: `sqlite:///jobs.db`, `postgresql://…`, `redis://…` or `memory://`. By default `$TORIL_URL`, or
            else `sqlite:///toril.db`.
        prefix: The prefix of all keys on Redis. Apps with different prefixes do not see each other's jobs.
        durability: With `"replicated"`, an add returns only once replicas have confirmed it. Redis only.
        lifespan: An async context manager, called with the app, that opens what a worker process needs. Handlers find
            what it yields as `ctx.state`.
        clock: A clock other than the system's, for tests.
        redact: A function that removes secrets from payloads, results and errors before they are shown.
        outbox: The URL of your application's database, `postgresql://…` or `sqlite:///app.db`. Workers move jobs from
            its outbox into the store.
        name: The name under which the app owns the schedules that it declares; by default, the module that creates the
            app.
        dead_letter_queue: The queue in which BullMQ's libraries see the dead letters, on Redis; `dead-letter` by
            default.
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
        self._reaping: set[asyncio.Event] = set()  # set to stop a `reap`

    def __repr__(self) -> str:
        return f"<App on {self.services.engine!r}>"

    @property
    def store_options(self) -> dict[str, str | None]:
        """The options of the store that were given in code: `durability` and `dead_letter_queue`."""
        durability, dead_letter_queue = self._terms
        return {"durability": durability, "dead_letter_queue": dead_letter_queue}

    @property
    def store(self) -> Store:
        """The open store."""
        return self.services.store

    @property
    def events(self) -> Events:
        """The listeners of this process."""
        return self.services.events

    @property
    def redaction(self) -> Redaction:
        """What people may see of payloads, results and errors."""
        return self.services.redaction

    @property
    def outbox_url(self) -> str | None:
        """The URL of the app's outbox, if it has one."""
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
        signals: Sequence[SignalKind[Any]] = (),
    ) -> Queue:
        """Declare a queue; with nothing but a name, get the queue of that name, declared if necessary. To get a queue
        without declaring it, use `app.queues[name]`.

        Args:
            name: The queue's name in the store.
            handlers: A mapping of job names to functions, or a list of functions, whose own names are used.
            concurrency: How many jobs run at once in each process.
            lease: How soon another worker can take over the jobs of a worker that has died. It does not limit how long
                jobs run.
            renew: The time between two renewals of a lease; by default, a third of it.
            retry: How many attempts a job gets, how long it waits between them, and which errors are retried.
            timeout: Stop an attempt that takes longer than this. It counts as a failed attempt. No limit by
                default.
            rate_limit: How many jobs may start within a time, in all processes together.
            max_stalls: How often a job may lose its worker and run again. With 0 and `attempts=1`, a job runs at most
                once.
            max_waiting: Refuse adds with `QueueFull` while this many jobs wait.
            groups: Limits of each group of jobs: concurrency, rate, and how many may wait.
            priority_first: True runs jobs with a priority before those without; False after them, as BullMQ does. None
                acts like False, and logs a warning if the queue has both.
            keep_completed: How many completed jobs to keep in the store, or a `Keep`. By default none are kept; their
                run records are.
            keep_failed: The same for jobs that have failed for good. Those that are not kept become dead letters.
            unknown: What to do with a job whose name has no handler: `"fail"` it, or `"release"` it to another worker.
            serializer: An object with the methods `dumps` and `loads`, in place of JSON. Other libraries cannot read
                the queue's jobs then.
            cancellation: With False, handlers get no signal and cannot be told to stop.
            breaker: A circuit breaker, which pauses jobs that would only fail.
            subject: What a job is about: the name of a payload field, or a function of the payload.
            target_wait: How long a job should wait at most; scaling and warnings go by it.
            log_level: The lowest level at which this queue's jobs are logged, in place of the process's.
            signals: The signals that its jobs wait for. The dashboard makes forms from their types, and signals that
                are sent by name are checked against them.
        """
        name = check_queue_name(name)
        given = {key: value for key, value in locals().items() if key not in {"self", "name"}}
        if name in self.queues:
            if given != UNSAID:
                raise UsageError(f"queue {name!r} is already declared; declare it once, with all its options")
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
        """Wrap every handler in a function `(ctx, call_next)`. The first one declared is the outermost."""
        self._hooks.middleware.append(function("middleware", fn))
        return fn

    def on_start(self, fn: F) -> F:
        """Call a function before the workers start."""
        self._hooks.on_start.append(function("on_start", fn))
        return fn

    def on_flush(self, fn: F) -> F:
        """Call a function after the workers have ended, while the store is still open."""
        self._hooks.on_flush.append(function("on_flush", fn))
        return fn

    def on_stop(self, fn: F) -> F:
        """Call a function after the store is closed."""
        self._hooks.on_stop.append(function("on_stop", fn))
        return fn

    @overload
    def poller(self, fn: F) -> F: ...

    @overload
    def poller(self, *, name: str | None = None, elected: bool = False, lease: Duration = 30.0) -> Callable[[F], F]: ...

    def poller(
        self, fn: F | None = None, *, name: str | None = None, elected: bool = False, lease: Duration = 30.0
    ) -> F | Callable[[F], F]:
        """Run a coroutine function alongside the workers, in every worker process. If it raises an exception, it is
        restarted, at first at once and then after growing delays. If it returns, it is not restarted.

        Args:
            fn: The function, if you declare it without options.
            name: Its name in logs and in `/health`; by default, the function's own.
            elected: Run it in only one process of the fleet.
            lease: How soon another process takes over if that process dies.
        """
        term = milliseconds("lease", lease, 1000) / 1000

        def declare(function_: F) -> F:
            called = name if name is not None else str(getattr(function("a poller", function_), "__name__", "poller"))
            if elected and check_label("a poller's name", called) in {each.name for each in self._hooks.pollers}:
                raise UsageError(f"poller {called!r} is already declared; each elected poller needs a name of its own")
            self._hooks.pollers.append(Poller(called, function_, term if elected else None))
            return function_

        return declare if fn is None else declare(fn)

    def on(self, event: EventName, listener: Listener) -> None:
        """Call `listener` with each event of this kind that happens in this process."""
        self.events.on(event, listener)

    def backoff(self, name: str) -> Callable[[F], F]:
        """Declare a backoff strategy with `@app.backoff("name")`: a function `(attempts, error, job) -> seconds`.

        Jobs use it with `add(…, backoff="name")` or `Strategy("name")`.
        """

        def declare(fn: F) -> F:
            check_strategy(name, fn)
            self._strategies[name] = fn
            return fn

        return declare

    def alert(self, sink: Sink, rules: AlertRules = AlertRules()) -> Alerts:
        """Call `sink` with each `Alert` that the rules ask for. A sink is a function, a coroutine function or a
        `Webhook`.

        If a sink fails, no job is affected.
        """
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
        """Regularly look for stuck rows in your own tables, and reset them.

        Each run is a job with one attempt, which runs after the other jobs in its queue. If it fails, the next run
        tries again. The job's result contains the counts.

        Args:
            name: The name of the scanner, its job and its schedule.
            every: How often it runs.
            find: A function that takes a time and returns what has been stuck since before then.
            reset: A function that is called with each item found, and resets it.
            threshold: How long something must have been stuck to be found.
            limit: How many items it resets in one run.
            queue: The queue in which it runs.
        """
        home = self.queue(queue) if isinstance(queue, str) else queue
        return self._scanners.declare(name, home, every=every, find=find, reset=reset, threshold=threshold, limit=limit)

    # producing

    @contextmanager
    def using(self, store: Store, clock: Clock) -> Iterator[Hooks]:
        """Use another store and clock for a while, as tests do. Yields the app's hooks, which may be changed."""
        with self.services.using(store, clock):
            yield self._hooks

    async def open(self) -> "App":
        """Open the store. `async with app:` does the same, and closes it afterwards."""
        await self.services.open()
        return self

    async def close(self) -> None:
        """Close the store once for each `open`; further calls are harmless. While `run` still needs the store, it is
        told to stop instead."""
        if self._working and self.services.users <= 1:
            self._wind_down()
        else:
            await self.services.close()

    def portal(self) -> Portal:
        """The way into an event loop for blocking code, created on first use, and again in a forked child."""
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
        """Add a job that runs once its children have ended. Up to 1,000 jobs are stored completely or not at all.
        Returns the parent.

        Args:
            job: The parent, made by `task.new(…)` or `queue.new(…)`, or a `Flow` that has its children.
            children: The jobs that it waits for, each of which may be a `Flow`.
            on_failure: What happens to the parent if a child fails, unless the child itself says so: see `Flow`.
            parent: A job that has not ended and is to wait for this one too.
        """
        return await self._flows.add(job, children, on_failure=on_failure, parent=parent)

    async def flows(self, flows: Sequence[PreparedJob[R] | Flow[R]]) -> list[Job[R]]:
        """Add many flows, and return their topmost jobs. Up to 1,000 jobs, of all flows together, are stored completely
        or not at all."""
        return await self._flows.add_many(flows)

    def outbox(self, connection: Any) -> "Outbox":
        """The outbox in the database of this connection, of sqlite3, psycopg, SQLAlchemy or Django. Jobs added to it
        are part of the connection's transaction."""
        return self._outbox.of(connection)

    # looking after it

    async def tree(self, job: Job[Any], *, whole: bool = True, depth: int = 10, width: int = SHOWN) -> FlowTree:
        """Read the flow that a job belongs to, from its topmost job down; with `whole=False`, from the job itself
        down."""
        return await self._flows.tree(job, whole=whole, depth=depth, width=width)

    async def overview(self) -> Overview:
        """Read all queues, whether declared here, in the store or served by a living worker, each with its counts and
        its last hour."""
        names = sorted({*await find_queues(self.store), *self.queues})
        options = {name: self.queues[name].options if name in self.queues else PLAIN for name in names}
        targets = {name: each.target_wait / 1000 for name, each in options.items()}
        return await overview(self.store, names, targets)

    async def workers(self) -> list[WorkerRecord]:
        """List the worker processes that are alive."""
        return [as_record(WorkerRecord, worker) for worker in await self.store.workers()]

    async def running_jobs(self, worker: str | None = None) -> list[Job[Any]]:
        """List the jobs that are running in all queues, or on one worker, those that have run longest first.

        Jobs of a dead worker count as running until they are recovered.
        """
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
        """Tell a worker process to take no new jobs; running jobs finish. Raises `NotFound` if it is not alive."""
        await self._command(worker, WorkerCommand.QUIET)

    async def stop_worker(self, worker: str) -> None:
        """Tell a worker process to drain and exit; its supervisor does not replace it. Raises `NotFound` if it is not
        alive."""
        await self._command(worker, WorkerCommand.STOP)

    async def _command(self, worker: str, command: WorkerCommand) -> None:
        if not await self.store.signal(worker, command):
            raise NotFound(f"there is no live worker {preview(worker)}")

    async def doctor(self, queues: Sequence[str] | None = None) -> list[Finding]:
        """Check the store and all its queues, or only these. Returns the findings, most serious first, each with its
        fix.

        Nothing is changed. It checks twice, a second apart, and reports only what it finds both times.
        """
        return await Doctor(self.store, self.services.clock).findings(queues)

    async def doctor_page(
        self,
        queues: Sequence[str] | None = None,
        *,
        cursor: str | None = None,
        patience: Duration = _PATIENCE,
        quick: bool = True,
    ) -> Page[Finding]:
        """Make part of the checks of `doctor`: as many as fit into `patience`, however large the store is. To continue,
        pass the page's cursor, until it is None. Checks that take longer the more jobs there are are left out, which a
        notice mentions: a SQLite file is not read for damage, and its jobs are counted only with `quick=False`.
        Findings are checked twice, a tenth of a second apart.
        """
        return await Doctor(self.store, self.services.clock, between=_SOONER).part(
            queues, cursor=cursor, patience=milliseconds("patience", patience) / 1000, quick=quick
        )

    async def repair(self, findings: Sequence[Finding]) -> list[Repaired]:
        """Repair those findings of `doctor` that can be repaired. This is safe while workers run: each repair checks
        again in the same atomic operation."""
        return await Doctor(self.store, self.services.clock).repair(findings)

    async def scan(self, name: str, *, dry_run: bool = False) -> Result:
        """Run a scanner now. With `dry_run=True` it finds, but resets nothing."""
        return await self._scanners.scan(name, dry=dry_run)

    @asynccontextmanager
    async def opened_with_lifespan(self) -> AsyncIterator["App"]:
        """Open the app together with its lifespan, as a worker process does; for scripts that need what it opens."""
        await self.open()
        try:
            async with self._lifespan(self) if self._lifespan else nullcontext():
                yield self
        finally:
            await self.close()

    async def outbox_status(self) -> "OutboxStatus | None":
        """Count what waits in the app's outbox. None if the app has no outbox or its database does not answer."""
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
        """Run workers until a signal or `stop()`. Returns 0 if all running jobs ended, 1 if some had to be released.

        Args:
            queues: The queues to serve, with their concurrency; by default, all that have handlers.
            grace: How long running jobs may continue once the worker is told to stop.
            burst: Return when there is nothing left to do. This waits for retries that are due within `grace`, and for
                jobs that a rate limit delays by no more than that.
            signals: With `"leave"`, SIGTERM and SIGINT are left to your program.
            name: The worker's name, in place of a generated one. It must be unique among running workers.
            stall_interval: How often to look for stalled jobs.
            hang_timeout: If a handler blocks the event loop for longer than this, other workers take over its jobs.
                None lets it block forever.
            under: The supervisor's connection; set by `toril run`.
        """
        from toril.worker.leftover import log_leftover  # noqa: PLC0415 - who only adds jobs does without a worker's code
        from toril.worker.process import WorkerProcess, chosen  # noqa: PLC0415 - as above

        if self._working:
            raise UsageError(
                "this app is already running; start another process, or raise the concurrency of its queues"
            )
        # All are checked before anything is opened.
        worked, seconds = chosen(list(self.queues.values()), queues), milliseconds("grace", grace) / 1000
        name = worker_name(self.services.clock) if name is None else check_chosen_worker_name(name)
        interval = None if stall_interval is None else milliseconds("stall_interval", stall_interval, _LEAST_INTERVAL)
        hang = None if hang_timeout is None else milliseconds("hang_timeout", hang_timeout, 100) / 1000
        if not worked:
            raise UsageError("there is nothing to run: no queue of this app has a handler")
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
        """Recover the jobs of dead workers, in all queues, until a signal, `stop()` or cancellation.

        Args:
            queues: The queues to check; by default, all in the store.
            elected: With True, only one of several reapers, the leader, is active. With False, this one always is.
            lease: How long a dead leader still counts as the leader.
            renew: The time between two renewals by the leader; by default, a third of the lease.
            election_interval: The time between two attempts of the others to become the leader; by default, a sixth of
                the lease.
            stall_interval: How often to look for stalled jobs.
            name: The reaper's name, in place of a generated one.
            signals: With `"leave"`, SIGTERM and SIGINT are left to your program.
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
        """Move jobs from the outbox at this URL, by default the app's own, into the store, until a signal or
        cancellation. Workers of an app with an outbox do this by themselves."""
        await self._outbox.run(url)

    async def relay_once(self, url: str | None = None) -> int:
        """Move the rows that are in the outbox now into the store. Returns how many there were."""
        return await self._outbox.relay_once(url)

    async def _beside(
        self, process: "WorkerProcess", worked: Sequence[Queue], stall_interval: int | None, *, burst: bool
    ) -> list[Round]:
        """What a worker process does besides running jobs: look after other queues, and relay the outbox."""
        rounds = await self._outbox.rounds(process.name, burst=burst)
        if not self.services.exclusive:
            from toril.operate.reaper import LEASE  # noqa: PLC0415 - as above

            # When this process dies, another leads by the time its jobs can be recovered.
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
        """How this process takes part in elections; None if it has the store to itself."""
        from toril.operate.reaper import Election  # noqa: PLC0415 - as above

        if self.services.exclusive:
            return None
        unique = f"{owner}/{self.services.clock.unique()[:8]}"  # processes in containers may have the same name
        return lambda role, lease, on_change: Election(
            self.services.engine, self.services.clock, unique, on_change, role=role, lease=lease
        )

    def _keeper(self, under: "SupervisorLink | None", hang_timeout: float | None) -> "LeaseKeeper":
        """What renews leases: the supervisor, a thread or, in tests with their own clock, the event loop. No other
        worker could run the jobs of a store in memory, so there a handler that hangs keeps its job."""
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
        """Tell `run` and `reap` to shut down. Called a second time, it no longer waits for running jobs."""
        for stopping in self._reaping:
            stopping.set()
        if self._process is not None:
            self._process.stop()

    def _wind_down(self) -> None:
        """Stop gracefully, however often this is called."""
        if self._process is None or not self._process.stopping:
            self.stop()

    def _log_levels(self) -> dict[str, int]:
        """The queues with a log level of their own."""
        own = {name: queue.options.log_level for name, queue in self.queues.items()}
        return {name: getattr(logging, level.upper()) for name, level in own.items() if level is not None}

    def _over(self) -> None:
        self._working, self._process = False, None


def _version() -> str:
    from toril import __version__  # noqa: PLC0415 - the package imports this module

    return __version__
