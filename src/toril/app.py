"""The app: what one declares, and the two ways to use it, as a producer and as a worker process."""

import asyncio
import logging
import os
import threading
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, contextmanager, nullcontext
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, TypeVar, Unpack, overload

from toril.adding import Keeping, LogLevel, Subject, Unknown
from toril.alerts import Alerts
from toril.calls import Caller
from toril.clock import SYSTEM, Clock
from toril.codec import Serializer
from toril.crew import Crew
from toril.declaring import UNSAID, check_not_dead_letters, checked, renewal
from toril.engine import Durability, Store
from toril.errors import Closed, InvalidOption, UsageError, shown
from toril.events import Events
from toril.failing import Failing
from toril.flow import Flowing
from toril.logs import watch
from toril.middleware import Middleware
from toril.model import Call, GroupLimits, RateLimit
from toril.names import check_chosen_worker_name, check_label, check_prefix, check_queue_name
from toril.opening import connected, opened_or_stopped
from toril.plan import GRACE, HANG_TIMEOUT, Plan, Poller, function, last, worker_name
from toril.policy.breaker import Breaker
from toril.policy.retry import Retry, Seconds, milliseconds
from toril.policy.strategies import BUILT_IN, BackoffStrategy
from toril.portal import Portal
from toril.queue import Queue
from toril.queues import Queues
from toril.relaying import Relaying, Round, checked_outbox
from toril.scanning import Scanning
from toril.schedule import Timing, boot
from toril.showing import Redact, Redaction
from toril.tended import Tended

if TYPE_CHECKING:
    from toril.reaper import Reaper
    from toril.worker.leases import Keeper
    from toril.worker.pollers import Elect
    from toril.worker.process import Process
    from toril.worker.under import Under

__all__ = ["App", "Queues"]

_BESIDE = 15.0  # seconds that a worker's reaper rests: its own queues are looked after by the process itself
_SHORTEST_LEAD = 5.0  # seconds; the lead of a worker's reaper is as short as the shortest lease, but not shorter
_LEAST_INTERVAL = 100  # ms between two looks for what has stalled

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])

Lifespan = Callable[["App"], AbstractAsyncContextManager[Any]]
DEFAULT_URL = "sqlite:///toril.db"


class App(Failing, Tended, Flowing, Scanning, Crew, Relaying):
    """Declares queues, handlers and hooks. `async with app:` opens it for producing; `await app.run()` is a worker."""

    def __init__(
        self, url: str | None = None, *, prefix: str = "bull", durability: Durability | None = None,
        lifespan: Lifespan | None = None, clock: Clock = SYSTEM, redact: Redact | None = None,
        outbox: str | None = None,
    ) -> None:  # fmt: skip
        self.url = (os.environ.get("TORIL_URL") or DEFAULT_URL) if url is None else url
        self.prefix = check_prefix(prefix)
        self.outbox_url = checked_outbox(outbox)
        self.queues: Queues = Queues()
        self.redaction = Redaction(redact)
        self._events = Events()
        self._lifespan = lifespan
        self._clock = clock
        self._plan, self._alerts = Plan(), list[Alerts]()
        self._strategies: dict[str, BackoffStrategy] = dict(BUILT_IN)
        self._caller = Caller(f"{worker_name(clock)}/app", clock)
        self._durability = durability
        self._store: Store = connected(self.url, clock, self.prefix, durability, given=url is not None)
        self._given, self._users = False, 0
        self._process: Process | None = None
        self._portal: Portal | None = None
        self._opening = threading.Lock()
        self._working = self._stop_early = self._watched = False
        self._reaping: set[asyncio.Event] = set()  # each is set to have a `reap` stop

    def __repr__(self) -> str:
        return f"<App on {self._store!r}>"

    @property
    def events(self) -> Events:
        """Who listens to what happens in this process."""
        return self._events

    # declaring

    def queue(
        self,
        name: str,
        handlers: "Mapping[str, Callable[..., Any]] | Sequence[Callable[..., Any]] | None" = None,
        *,
        concurrency: int = 1,
        lease: Seconds = 30.0,
        renew: Seconds | None = None,
        retry: Retry = Retry(),
        timeout: Seconds | None = None,
        rate_limit: RateLimit | None = None,
        max_stalls: int = 1,
        max_waiting: int | None = None,
        groups: GroupLimits | None = None,
        priority_first: bool = False,
        keep_completed: Keeping = 0,
        keep_failed: Keeping = 0,
        unknown: Unknown = "fail",
        serializer: Serializer | None = None,
        cancellation: bool = True,
        breaker: Breaker | None = None,
        subject: Subject | None = None,
        target_wait: Seconds = 120.0,
        log_level: LogLevel | None = None,
    ) -> Queue:
        """Declare a queue, or, with nothing but its name, get the one declared before; `app.queues[name]` only gets."""
        name = check_queue_name(name)
        given = {key: value for key, value in locals().items() if key not in {"self", "name"}}
        if name in self.queues:
            if given != UNSAID:
                raise UsageError(f"queue {name!r} is declared already; declare it once, with all its options")
            return self.queues[name]
        check_not_dead_letters(name)
        spelling = self.queues.spelling_of(name) if given == UNSAID else None
        del given["handlers"]
        queue = Queue(self, name, checked(strategies=self._strategies, **given), spelling)
        queue.handlers.register_all({} if handlers is None else handlers)
        return self.queues.declare(queue)

    def schedule(
        self, schedule_id: str, *, queue: Queue | str, job: Any, data: Any = None, **options: Unpack[Timing]
    ) -> None:
        """Declare a recurring job of a queue; see `Queue.schedule`."""
        self.queues[queue if isinstance(queue, str) else queue.name].schedule(schedule_id, job, data, **options)

    def middleware(self, fn: Middleware) -> Middleware:
        """Put a function `(ctx, call_next)` around every handler; the first declared is the outermost."""
        self._plan.middleware.append(function("middleware", fn))
        return fn

    def on_start(self, fn: F) -> F:
        """Before the workers start."""
        self._plan.on_start.append(function("on_start", fn))
        return fn

    def on_flush(self, fn: F) -> F:
        """After the workers have ended, while queues are still open."""
        self._plan.on_flush.append(function("on_flush", fn))
        return fn

    def on_stop(self, fn: F) -> F:
        """After the queues are closed."""
        self._plan.on_stop.append(function("on_stop", fn))
        return fn

    @overload
    def poller(self, fn: F) -> F: ...

    @overload
    def poller(self, *, name: str | None = None, elected: bool = False, lease: Seconds = 30.0) -> Callable[[F], F]: ...

    def poller(
        self, fn: F | None = None, *, name: str | None = None, elected: bool = False, lease: Seconds = 30.0
    ) -> F | Callable[[F], F]:
        """A coroutine function that runs beside the workers for as long as they do, in every worker process. One that
        raises is started again, at once and then a little later each time; one that returns has finished. An `elected`
        one runs in one process of the fleet, and `lease` is how soon another takes over when that process is gone."""
        term = milliseconds("lease", lease, 1000) / 1000

        def declare(function_: F) -> F:
            called = name if name is not None else str(getattr(function("a poller", function_), "__name__", "poller"))
            if elected and check_label("a poller's name", called) in {each.name for each in self._plan.pollers}:
                raise UsageError(f"poller {called!r} is declared already; give one that is elected a name of its own")
            self._plan.pollers.append(Poller(called, function_, term if elected else None))
            return function_

        return declare if fn is None else declare(fn)

    # producing

    @property
    def store(self) -> Store:
        """The open store."""
        if not self._users:
            raise Closed("the app is not open: use `async with app:`, or `await app.run()` for a worker")
        return self._store

    async def call(self, make: Callable[[Call], Awaitable[T]]) -> T:
        return await self._caller.send(make)

    @contextmanager
    def using(self, store: Store, clock: Clock) -> Iterator[Plan]:
        """Have the app use another store and clock for a while, as tests do; its plan is theirs to change."""
        if self._users:
            raise UsageError("the app is open: it can be given another store only before it is opened")
        before = {name: getattr(self, name) for name in ("_store", "_clock", "_caller", "_given")}
        self._store, self._clock, self._given = store, clock, True
        self._caller = Caller(f"{worker_name(clock)}/app", clock)
        try:
            yield self._plan
        finally:
            vars(self).update(before)

    async def open(self) -> "App":
        if not self._users:
            await self._store.open()
        self._users += 1
        return self

    async def close(self) -> None:
        """Close what was opened, as often as it was opened. Closing more often is fine; while `run` works, which needs
        the store itself, it is told to stop."""
        if self._working and self._users <= 1:
            self._wind_down()
        else:
            await self._release()

    async def _release(self) -> None:
        if self._users:
            self._users -= 1
            if not self._users:
                if self._portal is not None:
                    await asyncio.get_running_loop().run_in_executor(None, self._portal.close)
                await self._store.close()

    def portal(self) -> Portal:
        """The way in for code that blocks, made at its first use, and anew in a forked child."""
        with self._opening:
            if self._portal is None or not self._portal.open:
                # A store in memory is shared with the rest of the app: there is no other way to it.
                shared = self._given or self.url.startswith("memory:")
                store = self._store
                if not shared:
                    store = connected(self.url, self._clock, self.prefix, self._durability, given=True)
                caller = Caller(f"{worker_name(self._clock)}/sync", self._clock)
                self._portal = Portal(store, self._leave if shared else store.close, caller, self._events)
            return self._portal

    async def _leave(self) -> None:
        if not self._users:
            await self._store.close()

    async def __aenter__(self) -> "App":
        return await self.open()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    # working

    async def run(
        self, *, queues: Mapping[str, int] | None = None, grace: Seconds = GRACE, burst: bool = False,
        signals: Literal["handle", "leave"] = "handle", name: str | None = None,
        stall_interval: Seconds | None = None, hang_timeout: Seconds | None = HANG_TIMEOUT,
        under: "Under | None" = None,
    ) -> int:  # fmt: skip
        """Work the queues until stopped by a signal or `stop()`; in a burst, until there is nothing left to do.
        Returns 0 if all running jobs ended, 1 if some had to be given back. `signals="leave"` leaves SIGTERM
        and SIGINT to the program around it. `name` is what this worker is called, in place of a name that is made up;
        no other that runs may have it. `stall_interval` is how often stalled jobs are looked for. A handler
        that blocks the event loop for longer than `hang_timeout` loses its job to another worker; None lets it block
        for ever. `under` is the supervisor, if any, which sees to that by itself."""
        from toril.worker.process import Process, chosen  # noqa: PLC0415 - who only adds jobs does without a worker's code

        if self._working:
            raise UsageError("this app is running already; start another process, or give its queues more concurrency")
        # All are checked before anything is opened.
        worked, seconds = chosen(list(self.queues.values()), queues), milliseconds("grace", grace) / 1000
        name = worker_name(self._clock) if name is None else check_chosen_worker_name(name)
        interval = None if stall_interval is None else milliseconds("stall_interval", stall_interval, _LEAST_INTERVAL)
        hang = None if hang_timeout is None else milliseconds("hang_timeout", hang_timeout, 100) / 1000
        if not worked:
            raise UsageError("no queue of this app has a handler: there is nothing to run")
        self._working, self._stop_early = True, False
        process = self._process = Process(
            worked, self._store, self._clock, self.events, self._plan, name=name, version=_version(),
            schedules=self._store.schedules, concurrency=queues, grace=seconds, under=under, stall_interval=interval,
            elect=self._elections(name),
        )  # fmt: skip
        with process.signals() if signals == "handle" else nullcontext():
            async with AsyncExitStack() as resources:  # of the user: closed after the queues
                resources.callback(self._over)
                for hook in reversed(self._plan.on_stop):
                    resources.push_async_callback(last, hook)
                patiently = partial(opened_or_stopped, clock=self._clock, stopped=process.stopped, patient=not burst)
                if not await patiently(self.open):
                    return 0
                async with AsyncExitStack() as store:
                    store.push_async_callback(self._release)
                    self._log_events()
                    if not await patiently(partial(boot, self._store.schedules, self.queues.values(), worked)):
                        return 0
                    state = await resources.enter_async_context(self._lifespan(self)) if self._lifespan else None
                    process.beside += await self._beside(process, worked, interval, burst=burst)
                    code = await process.run(self._keeper(under, hang), state, burst=burst)
                    await self.events.settle(seconds)
                    return code

    async def reap(
        self, *, queues: Sequence[str] | None = None, elected: bool = True, lease: Seconds = 30.0,
        renew: Seconds | None = None, election_interval: Seconds | None = None, stall_interval: Seconds = 1.0,
        name: str | None = None, signals: Literal["handle", "leave"] = "handle",
    ) -> None:  # fmt: skip
        """Be a reaper, until a signal, `stop()` or cancellation: give back the jobs of workers that are gone, in all
        queues of the store or in those named, which are looked at every `stall_interval`. Of several reapers one leads,
        for as long as its `lease` is renewed, unless `elected` is False; it renews it every `renew` (a third of the
        lease), and others try for it every `election_interval` (a sixth). `signals="leave"` leaves SIGTERM and SIGINT
        to the program around it."""
        from toril.reaper import LEASE, check_electable  # noqa: PLC0415 - as above
        from toril.worker.shutdown import Watchdog, run_until  # noqa: PLC0415 - as above

        if elected:
            check_electable(self.url)
        if isinstance(queues, str):
            raise InvalidOption(f"queues must be a list of names, not {shown(queues)}")
        lease_ms, renew_ms = renewal(lease, renew, least=100)
        tries = lease_ms / 6 if election_interval is None else milliseconds("election_interval", election_interval, 10)
        made_up = worker_name(self._clock).replace("worker-", "reaper-", 1)
        reaper = self._reaper(
            made_up if name is None else check_chosen_worker_name(name),
            queues=None if queues is None else [check_queue_name(each) for each in queues],
            elected=elected, lease=lease_ms / 1000, renew=renew_ms / 1000, election_interval=tries / 1000,
            stall_interval=milliseconds("stall_interval", stall_interval, _LEAST_INTERVAL) / 1000,
            unled=max(lease_ms / 1000, LEASE),
        )  # fmt: skip
        stopping = asyncio.Event()
        self._reaping.add(stopping)
        try:
            with Watchdog(GRACE, lambda _: stopping.set()).watching() if signals == "handle" else nullcontext():
                if await opened_or_stopped(self.open, self._clock, stopping.wait):
                    async with AsyncExitStack() as store:
                        store.push_async_callback(self._release)
                        self._log_events()
                        await run_until(stopping, reaper.run())
                        await self.events.settle(GRACE)
        finally:
            self._reaping.discard(stopping)

    async def _beside(
        self, process: "Process", worked: Sequence[Queue], stall_interval: int | None, *, burst: bool
    ) -> list[Round]:
        """What a worker process does beside its work: it looks after other queues, and relays what is in the outbox."""
        rounds = await self._relays(process.name, burst=burst)
        if not (self._given or self.url.startswith("memory:")):
            from toril.reaper import LEASE  # noqa: PLC0415 - as above

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
        from toril.reaper import Reaper  # noqa: PLC0415 - as above

        return Reaper(self._store, self._clock, self.events, name, **options)

    def _elections(self, owner: str) -> "Elect | None":
        """How this process is elected to something; None where it has the store to itself."""
        from toril.reaper import Election  # noqa: PLC0415 - as above

        if self._given or self.url.startswith("memory:"):
            return None
        unique = f"{owner}/{self._clock.unique()[:8]}"  # processes in containers may have the same name
        return lambda role, lease, told: Election(self._store, self._clock, unique, told, role=role, lease=lease)

    def _keeper(self, under: "Under | None", hang_timeout: float | None) -> "Keeper":
        """Leases are kept by the supervisor or from a thread; in tests, whose clock is not a real one, on the loop.
        What is in memory no other worker could run: there a handler that hangs keeps its job."""
        from toril.worker.leases import Keeper, LoopKeeper  # noqa: PLC0415 - as above

        twin = self._store.twin()
        owned, in_memory = twin is not self._store, self.url.startswith("memory:")
        if under is not None and not in_memory:
            return under.keeper(twin, self._clock, owned=owned)
        if self._given:
            return LoopKeeper(twin, self._clock, owned=owned)
        return Keeper(twin, self._clock, owned=owned, hang_timeout=None if in_memory else hang_timeout)

    def stop(self) -> None:
        """Have `run` and `reap` shut down, however far they have got; a second time, without waiting for running
        jobs."""
        for stopping in self._reaping:
            stopping.set()
        if self._process is None:
            self._stop_early = self._working
        else:
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
