"""`WorkerProcess`: starts, runs, drains and stops, in this order."""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, contextmanager
from typing import Any, Final

from toril.client.options import DeclaredLimits, declaration_of
from toril.errors import TorilError, UnknownQueue
from toril.events import Events, WorkerEvent, tell_recovered, trouble
from toril.model import Declaration, JobRef, Recovered, WorkerCommand, check_int
from toril.queue import Queue
from toril.runtime.calls import Caller
from toril.runtime.clock import Clock
from toril.runtime.hooks import GRACE, Hook, Hooks
from toril.runtime.logs import log
from toril.runtime.signals import StopSignals
from toril.runtime.stop_requests import Urgency
from toril.schedule import boot
from toril.store.capabilities import ScheduleStore
from toril.store.connect import open_with_patience
from toril.store.engine import Store
from toril.worker.isolation import Isolation, SuspectPolicy
from toril.worker.leases import LeaseKeeper
from toril.worker.maintenance import Maintenance
from toril.worker.pollers import Elect, Pollers
from toril.worker.schedules import ScheduleRuns
from toril.worker.supervised import SupervisorLink
from toril.worker.worker import Worker, WorkerServices

__all__ = ["WorkerProcess", "chosen", "logged"]


@contextmanager
def logged() -> Iterator[None]:
    """While workers run, log threads that die from an error, as asyncio does for tasks, instead of just printing the
    error. A hook that was set before is still called."""
    before = threading.excepthook

    def write(args: threading.ExceptHookArgs) -> None:
        error = args.exc_value
        if error is not None and not isinstance(error, SystemExit):
            name = "?" if args.thread is None else args.thread.name
            log.error("thread %s ended with an error", name, exc_info=error)
        if before is not threading.__excepthook__:
            before(args)

    threading.excepthook = write
    try:
        yield
    finally:
        threading.excepthook = before


_LAST_EXCHANGE: Final = 0.5  # seconds to settle released jobs
_LAST_POLL: Final = 1.0  # seconds for a poller to end
_SPARE: Final = 60.0  # seconds without work after which a spare process ends


class WorkerProcess:
    """The workers of one process, and everything that keeps them going."""

    def __init__(
        self,
        queues: Sequence[Queue],
        engine: Store,
        clock: Clock,
        events: Events,
        hooks: Hooks,
        *,
        name: str,
        version: str,
        schedules: ScheduleStore | None = None,
        concurrency: Mapping[str, int] | None = None,
        grace: float = GRACE,
        under: SupervisorLink | None = None,
        stall_interval: int | None = None,
        elect: Elect | None = None,
        owner: str,
    ) -> None:
        self._queues = chosen(queues, concurrency)
        self._concurrency = dict(concurrency or {})
        self._engine = engine
        self._clock = clock
        self._events = events
        self._hooks = hooks
        self._grace = grace
        self._version = version
        self.name = name
        self._schedules = schedules
        self._owner = owner  # the owner of the schedules that its code declares
        self._runs = None if schedules is None else ScheduleRuns(schedules, clock, self._round_failed)
        self._workers: list[Worker] = []
        declared = [] if under is not None and under.suspects is SuspectPolicy.ONLY else hooks.pollers
        self._pollers = Pollers(declared, clock, events, name, elect=elect, tell=self._tell_pollers)
        self.beside: list[Callable[[], Coroutine[Any, Any, None]]] = []  # other rounds, beside the workers
        self._under = under
        self._stall_interval = stall_interval
        self._watchdog = StopSignals(grace, self._stop, supervisor=None if under is None else under.requested)
        self._stopping = asyncio.Event()
        self._idled = asyncio.Event()
        self._forced = False
        self._released = False
        self._quiet = False
        self._isolation = Isolation(clock) if under is None else Isolation(clock, under.suspects, self._call_spares)
        self._retries_due: list[float] = []  # monotonic times

    @property
    def stopping(self) -> bool:
        return self._stopping.is_set()

    async def stopped(self) -> None:
        """Return once it is told to stop."""
        await self._stopping.wait()

    def stop(self) -> None:
        """Begin to shut down; when called again, do not wait for running jobs."""
        self._stop(Urgency.HURRY if self._stopping.is_set() else Urgency.DRAIN)

    def _stop(self, urgency: Urgency) -> None:
        self._forced = self._forced or urgency >= Urgency.HURRY
        if self._under is not None and not self._stopping.is_set():
            self._under.say(draining=True)
        self._stopping.set()
        for worker in self._workers:
            (worker.quiet if self._pollers else worker.stop)()  # pollers end first
        if self._forced:
            self._release()

    async def run(self, keeper: LeaseKeeper, state: Any, *, burst: bool = False) -> int:
        """Run until stopped; in a burst, until nothing is left to do. Returns 0 if drained, 1 if jobs had to be
        released."""
        # Another process may have had this name; its calls must not be mistaken for ours.
        caller = Caller(f"{self.name}/reports-{self._clock.unique()[:8]}", self._clock)
        services = WorkerServices(
            engine=self._engine,
            clock=self._clock,
            caller=caller,
            keeper=keeper,
            events=self._events,
            name=self.name,
            idled=self._idled.set,
            isolation=self._isolation,
            runs=self._runs,
            state=state,
            middleware=tuple(self._hooks.middleware),
            retried=self._retried if burst else None,
            step_checks=self._hooks.step_checks,
        )
        self._workers = [Worker(queue, services, self._concurrency.get(queue.name)) for queue in self._queues]
        if self._stopping.is_set():  # a signal came before there was something to stop
            for worker in self._workers:
                worker.stop()
        async with AsyncExitStack() as shutdown:
            shutdown.push_async_callback(self._each, self._hooks.on_flush, "on_flush")
            if not await open_with_patience(self._set_bounds, self._clock, self.stopped, patient=not burst):
                return 0
            self._booted("configuration")
            for hook in self._hooks.on_start:
                await _called(hook)
            self._booted("hooks")
            keeper.start()
            shutdown.push_async_callback(keeper.stop)
            return await self._work(keeper, burst=burst)

    def _claims(self) -> tuple[tuple[WorkerCommand, ...], bool]:
        """The commands that the process follows, and whether it claims nothing because a suspect runs alone."""
        order = WorkerCommand.STOP if self._stopping.is_set() else WorkerCommand.QUIET if self._quiet else None
        return (() if order is None else (order,)), self._isolation.engaged

    def recovered(self, queue: str, found: Recovered, asked_at: float) -> None:
        """This process has recovered jobs, so it need not wait for a notification. If one of its own attempts is among
        them, that attempt learns at once that it has lost its lease; an attempt that began since then has another
        lease."""
        taken = {*found.taken_back}
        for worker in self._workers if taken else ():
            if worker.queue.name == queue:
                worker.taken_back(taken, asked_at)
        if found.returned:
            self.look_again()
            self._call_spares(len(found.returned))

    def _call_spares(self, count: int) -> None:
        if self._under is not None:
            self._under.say(suspects=count)

    @property
    def _is_spare(self) -> bool:
        return self._under is not None and self._under.suspects is SuspectPolicy.ONLY

    async def _work(self, keeper: LeaseKeeper, *, burst: bool) -> int:
        maintenance = Maintenance(
            [(each.queue.name, self._stall_interval or each.queue.options.lease) for each in self._workers],
            self._engine,
            self._clock,
            self._events,
            self.name,
            keeper,
            slots=lambda: {each.queue.name: (each.concurrency, each.busy) for each in self._workers},
            claims=self._claims,
            version=self._version,
            order=self._ordered,
            declare=self._declare_again,
            recovered=self.recovered,
            declared=self._declared,
            stack=self._stack_of,
        )
        with logged():
            return await self._until_stopped(maintenance, burst=burst)

    async def _stack_of(self, job: JobRef) -> str:
        """The stack of a job; empty if it is not running here."""
        found = [await worker.stack_of(job.id) for worker in self._workers if worker.queue.name == job.queue]
        return next(filter(None, found), "")

    def _declared(self) -> dict[str, Declaration]:
        """What this process's code declares about its queues."""
        return {each.queue.name: declaration_of(each.queue, each.concurrency) for each in self._workers}

    async def _until_stopped(self, maintenance: Maintenance, *, burst: bool) -> int:
        async with AsyncExitStack() as last, asyncio.TaskGroup() as group:
            last.push_async_callback(maintenance.stopped)
            tasks = [group.create_task(worker.run()) for worker in self._workers]
            rounds = [group.create_task(each()) for each in (maintenance.run, *self.beside)]
            if self._runs is not None:
                rounds.append(group.create_task(self._runs.round(*self._by_schedules())))
            if burst:
                rounds.append(group.create_task(self._until_empty()))
            if self._is_spare:
                rounds.append(group.create_task(self._until_unneeded()))
            drained = await self._drained_once_stopped(group, tasks)
            for task in rounds:
                task.cancel()
        return 0 if drained else 1

    def _by_schedules(self) -> tuple[list[str], list[str]]:
        """The queues for which schedules are declared here, and the others."""
        scheduled = [worker.queue.name for worker in self._workers if worker.queue.declared]
        return scheduled, [worker.queue.name for worker in self._workers if not worker.queue.declared]

    async def _boot_pollers(self, group: asyncio.TaskGroup) -> None:
        await self._all_ready()
        self._booted("workers")
        self._pollers.start(group)
        self._booted("pollers")
        if self._under is not None:
            self._under.say(ready=True)

    def _tell_pollers(self, statuses: list[dict[str, Any]]) -> None:
        if self._under is not None:
            self._under.say(pollers=statuses)

    async def _all_ready(self) -> None:
        """Wait until every worker has had an answer from the store, or the process must stop."""
        waits = [asyncio.ensure_future(each.wait()) for each in (self._stopping, *(w.ready for w in self._workers))]
        try:
            while not (waits[0].done() or all(wait.done() for wait in waits[1:])):
                await asyncio.wait([wait for wait in waits if not wait.done()], return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()

    def _booted(self, step: str) -> None:
        """A step of the boot is done; the steps are in order."""
        self._events.emit("booted", WorkerEvent(worker=self.name, detail=step))

    async def _drained_once_stopped(self, group: asyncio.TaskGroup, tasks: "Sequence[asyncio.Task[None]]") -> bool:
        try:
            await self._boot_pollers(group)
            await self._stopping.wait()
            return await self._drain(tasks)
        except asyncio.CancelledError:  # the caller has cancelled us: leave its jobs to others
            self._stopping.set()
            for worker in self._workers:
                worker.stop()
            self._release()
            await asyncio.wait(tasks, timeout=_LAST_EXCHANGE)
            raise

    async def _drain(self, tasks: "Sequence[asyncio.Task[None]]") -> bool:
        """Wait, then release running jobs. Nothing has been claimed since `stop`."""
        await self._pollers.stop(_LAST_POLL)
        for worker in self._workers:
            worker.stop()
        if self._forced:
            self._release()
        _, left = await asyncio.wait(tasks, timeout=0 if self._forced else self._grace)
        if not left:
            return not self._released
        if not self._forced:
            unfinished = [worker.left() for worker, task in zip(self._workers, tasks, strict=True) if task in left]
            log.warning("the grace period of %g s is over: %s", self._grace, "; ".join(unfinished))
        self._release()
        _, left = await asyncio.wait(left, timeout=_LAST_EXCHANGE)
        for task in left:
            task.cancel()
        return False

    def _release(self) -> None:
        self._released = self._released or any(worker.busy for worker in self._workers)
        for worker in self._workers:
            worker.release()

    async def _until_empty(self) -> None:
        """Wait until a look into every queue, with nothing running anywhere, has found nothing: the last job of one
        queue may have added to another."""
        started = -1
        while True:
            while started != (started := sum(worker.started for worker in self._workers)):
                await self._all_empty()
                self.look_again()
                await self._all_empty()
            if not await (self._until_due() if self._hooks.spent is None else self._hooks.spent(self._wake_at())):
                break
            self.look_again()
            await self._all_empty()
        if not self._stopping.is_set():
            self.stop()

    def _retried(self, delay: int) -> None:
        self._retries_due.append(self._clock.monotonic() + delay / 1000)

    async def _until_due(self) -> bool:
        """Wait until there is something to do again: a retry, or a job that a rate holds up. False: not within the
        grace period. Delayed jobs and next runs of schedules are left for later, because they may never end."""
        limited = [worker.limited_until for worker in self._workers]
        due = min((*self._retries_due, *(time for time in limited if time is not None)), default=None)
        rest = None if due is None else due - self._clock.monotonic()
        if rest is None or rest > self._grace:
            return False
        await self._clock.sleep(max(0.0, rest))
        now = self._clock.monotonic()
        self._retries_due = [each for each in self._retries_due if each > now]  # the others are due now
        return True

    def _wake_at(self) -> float | None:
        """When the next known job is due, by the monotonic clock."""
        times = [worker.wake_at for worker in self._workers]
        return min((time for time in times if time is not None), default=None)

    async def _until_unneeded(self) -> None:
        """A spare process ends after a while without work."""
        started = -1
        while started != (started := sum(worker.started for worker in self._workers)):
            await self._clock.sleep(_SPARE)
            while any(worker.busy for worker in self._workers):
                await self._clock.sleep(_LAST_POLL)
        self._ordered(WorkerCommand.STOP)

    def look_again(self) -> None:
        """Something may have arrived in any queue."""
        for worker in self._workers:
            worker.look_again()

    async def _all_empty(self) -> None:
        while not all(worker.empty for worker in self._workers):
            await self._idled.wait()
            self._idled.clear()

    def _round_failed(self, queue: str, error: TorilError) -> None:
        self._events.emit("error", trouble(error, self.name, queue))

    async def _set_bounds(self) -> None:
        for queue in self._queues:
            bounds = DeclaredLimits(queue.name, queue.options.max_waiting, queue.options.groups).settings
            if bounds:
                await self._engine.configure(queue.name, bounds)

    async def _declare_again(self) -> None:
        """The store was emptied, or has not heard from this process for long: declare everything again."""
        log.warning("the store no longer knows this worker; declaring its limits and schedules again")
        await self._set_bounds()
        if self._schedules is not None:
            await boot(self._schedules, self._queues, self._queues, owner=self._owner)

    async def _each(self, hooks: Sequence[Hook], what: str) -> None:
        for hook in hooks:
            try:
                await _called(hook)
            except (Exception, SystemExit):
                log.exception("%s failed", what)

    def _ordered(self, order: WorkerCommand) -> None:
        match order:
            case WorkerCommand.QUIET:
                log.info("worker %s was told to claim no more jobs", self.name)
                self._quiet = True
                for worker in self._workers:
                    worker.quiet()
                if self._under is not None:
                    self._under.say(quiet=True)  # it has nothing to do, and claims nothing more
            case WorkerCommand.DECLARE:
                pass  # the rounds have done it
            case WorkerCommand.STOP:
                if not self._stopping.is_set():
                    log.info("worker %s was told to drain and stop", self.name)
                    if self._under is not None:
                        self._under.say(leaves=True)  # do not restart it
                    self._watchdog.request(Urgency.DRAIN)

    def stalled(self, queue: str, returned: Sequence[str], failed: Sequence[str], cancelled: Sequence[str]) -> None:
        """The supervisor has recovered jobs of a process that died."""
        tell_recovered(self._events, queue, Recovered(tuple(returned), tuple(failed), tuple(cancelled)), self.name)

    @contextmanager
    def signals(self) -> Iterator[None]:
        """Stop on SIGTERM and SIGINT, if this is the main thread, and when the supervisor requests it or has died;
        afterwards restore all handlers."""
        with self._watchdog.watching():
            if self._under is not None:
                self._under.start(orphaned=self._watchdog.orphaned, stalled=self.stalled, look=self.look_again)
            yield


def chosen(queues: Sequence[Queue], concurrency: Mapping[str, int] | None) -> list[Queue]:
    """The queues to serve: those named, else all that have handlers."""
    known = {queue.name: queue for queue in queues}
    if concurrency is not None:
        for name, slots in concurrency.items():
            if name not in known:
                raise UnknownQueue(f"there is no queue {name!r} in this app; it has {', '.join(known) or 'none'}")
            check_int(f"concurrency of {name!r}", slots, 0, 10_000)  # 0: as declared
        return [known[name] for name in concurrency]
    return [queue for queue in queues if queue.handlers.names]


async def _called(hook: Hook) -> None:
    answer = hook()
    if asyncio.iscoroutine(answer) or isinstance(answer, Awaitable):
        await answer
