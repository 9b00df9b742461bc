"""The worker of one queue: its slots and the attempts in them."""

import asyncio
from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from toril.context import JobContext, Signal, StopReason, SyncJobContext, running_context
from toril.errors import EngineUnavailable, RateLimited, Snooze
from toril.events import Events, WorkerEvent
from toril.handlers import RegisteredHandler
from toril.job import Job
from toril.model import (
    Claimed,
    Exchange,
    Hold,
    Limits,
    Outcome,
    Precedence,
    Released,
    Renewed,
    Retried,
    Settlement,
    Verdict,
)
from toril.model.durations import milliseconds
from toril.queue import Queue
from toril.runtime.calls import Caller
from toril.runtime.clock import Clock
from toril.runtime.hooks import Middleware, StepChecks, compose
from toril.runtime.logs import current
from toril.store.capabilities import StepStore
from toril.store.engine import Store
from toril.sync import SyncJob
from toril.worker.attempt import AttemptRules, LeaseDropped, judged, outcome_of, outcome_of_stop
from toril.worker.breakers import BreakerGate
from toril.worker.events import AttemptEvents, LeaseLostHooks
from toril.worker.isolation import Isolation
from toril.worker.leases import LeaseKeeper
from toril.worker.loop import ClaimTerms, Loop
from toril.worker.process_pool import ProcessPool
from toril.worker.reports import AttemptReports, ReportServices
from toril.worker.running import RunningAttempt, with_job
from toril.worker.schedules import ScheduleRuns
from toril.worker.steps import StepServices, StepWriter
from toril.worker.threads import ThreadCall, Threads, blocking

__all__ = ["Worker", "WorkerServices"]

CANCEL_GRACE: Final = 1.0  # seconds between the request to stop and asyncio's cancellation
STUCK_GRACE: Final = 5.0  # seconds between that and giving up the slot
_SHOWN: Final = 5  # jobs to name in a log line
_NAMED: Final = 100  # characters of an id in that line


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerServices:
    """What the workers of a process share."""

    engine: Store
    clock: Clock
    caller: Caller
    keeper: LeaseKeeper
    events: Events
    name: str
    idled: Callable[[], None]
    isolation: Isolation
    runs: ScheduleRuns | None = None
    state: Any = None
    middleware: Sequence[Middleware] = field(default_factory=tuple)
    retried: Callable[[int], None] | None = None  # called with the ms until a retry
    step_checks: StepChecks | None = None


class Worker:
    """Runs up to `concurrency` jobs of one queue at once."""

    def __init__(self, queue: Queue, services: WorkerServices, concurrency: int | None = None) -> None:
        options = queue.options
        self.queue = queue
        self.concurrency = concurrency or options.concurrency
        self._services = services
        self._options = options
        self._running: dict[int, RunningAttempt] = {}
        self._lease_hooks = LeaseLostHooks(queue, self._job)
        self._events = AttemptEvents(queue.name, services, self._lease_hooks.lost)
        self._report_services = ReportServices(
            queue.name,
            services.engine,
            services.clock,
            services.caller,
            self._job,
            self._events.progress,
            self._made_step_services,
        )
        self._step_services: StepServices | None = None
        precedence = Precedence.PRIORITY_FIRST if options.priority_first else Precedence.PLAIN_FIRST
        self._mixed = queue.handlers.priorities if options.priority_first is None else None
        terms = ClaimTerms(
            queue=queue.name,
            worker=services.name,
            concurrency=self.concurrency,
            lease=options.lease,
            max_stalls=options.max_stalls,
            limits=Limits(rate=options.rate_limit, precedence=precedence),
            suspects=services.isolation.suspects,
        )
        self._loop = Loop(terms, services.engine, services.clock, self, self._events.unavailable)
        self.look_again = self._loop.look_again  # makes it claim as if something had arrived
        services.isolation.join(self._loop.slot_freed)
        self._rules = AttemptRules(
            queue.handlers,
            options.unknown == "release",
            services.clock.random,
            options.retry.table,
            options.strategies,
            self._job,
        )
        checks = services.step_checks
        self._call = self._invoke if checks is None or not checks.replay_each else self._invoke_again
        self._gate = BreakerGate(queue, services, self._rules.table_for)
        self._threads = Threads(queue.name, self.concurrency)
        self._children = ProcessPool()
        self._attempts: set[asyncio.Task[None] | None] = set()
        self._home: asyncio.AbstractEventLoop | None = None
        self._leaving = False
        self.started = 0  # jobs since the start
        self.ready = asyncio.Event()  # set once the store has answered a claim

    async def run(self) -> None:
        """Run until stopped. Returns when every attempt has ended and is settled."""
        self._home = asyncio.get_running_loop()
        self.queue.handlers.prepare()
        self._services.events.emit("worker_started", WorkerEvent(worker=self._services.name, queue=self.queue.name))
        try:
            await self._loop.run()
        finally:
            self._leaving = True
            await self._gate.settle()
            for attempt in filter(None, self._attempts):  # attempts that were told to stop, and did not
                attempt.cancel()
            await self._lease_hooks.close()
            self._threads.close()
            self._children.close()
            self._services.events.emit("worker_stopped", WorkerEvent(worker=self._services.name, queue=self.queue.name))

    def quiet(self) -> None:
        """Claim nothing more; running jobs continue."""
        self._loop.quiet()

    def stop(self) -> None:
        """Claim nothing more, and end when running jobs have ended."""
        self._loop.stop()

    def release(self) -> None:
        """The grace period is over: stop running jobs, and return them to the front of their queue."""
        for running in list(self._running.values()):
            running.signal.fire(StopReason.SHUTDOWN, "the worker is shutting down")
            running.cancel()
            self._settle_unless_over(running, running.outcome or Released())

    @property
    def busy(self) -> int:
        return len(self._running)

    async def stack_of(self, job_id: str) -> str | None:
        """The stack of a job; None if it is not running here."""
        running = next((each for each in self._running.values() if each.lease.id == job_id), None)
        return None if running is None else await running.current_stack()

    def left(self) -> str:
        """What keeps it from ending, in words."""
        ids = [running.lease.id[:_NAMED] for running in self._running.values()]
        jobs = ", ".join([*ids[:_SHOWN], *(["…"] if len(ids) > _SHOWN else [])])
        running = f"{len(ids)} running" + (f" ({jobs})" if jobs else "")
        return f"queue {self.queue.name!r}: {running}, {self._loop.unsettled} ended but not settled"

    @property
    def empty(self) -> bool:
        """Whether there was nothing to do at the last check."""
        return self._loop.empty

    @property
    def wake_at(self) -> float | None:
        return self._loop.wake_at

    @property
    def limited_until(self) -> float | None:
        return self._loop.limited_until

    # called by the loop

    def free(self) -> int:
        return 0 if self._services.isolation.excludes(self) else self.concurrency - len(self._running)

    def is_process_idle(self) -> bool:
        return self._services.isolation.is_possible_for(self)

    def claiming(self, *, alone: bool) -> None:
        self._services.isolation.claim(self, alone=alone)

    def claimed(self, *, suspect: bool, hold_others: float | None) -> None:
        self._services.isolation.hold_others(self, hold_others)
        self._services.isolation.answered(suspect=suspect)

    def idle(self) -> bool:
        return not self._running

    def start(self, job: Claimed, asked_at: float) -> None:
        if self._loop.stopping:  # claimed before the stop, but the answer came later
            self._settle(job, Released(), 0)
            return
        if self._mixed is not None:
            self._mixed.see(job)
        running = RunningAttempt(job, Signal(), self._services.clock.monotonic(), self._over)
        self._running[id(running)] = running
        self.started += 1
        self._services.isolation.begin()
        options = self._options
        self._services.keeper.hold(
            job.lease, ttl=options.lease, renew=options.renew, since=asked_at, tell=self._heard_elsewhere
        )
        running.task = task = asyncio.get_running_loop().create_task(self._attempt(running))
        self._attempts.add(task)

    def settled(self, settlement: Settlement, verdict: Verdict) -> None:
        # Only now: until the outcome is settled, its lease must be kept, or the job would run again.
        self._services.keeper.release(settlement.lease)
        self._events.settled(settlement, verdict)
        if self._services.retried is not None and verdict is Verdict.OK and isinstance(settlement.outcome, Retried):
            self._services.retried(settlement.outcome.delay)

    def looked(self, answer: Exchange) -> None:
        self._events.looked(answer)
        self._services.isolation.looked(answer)
        self.ready.set()

    def drained(self) -> None:
        self._events.drained()

    def nothing_to_do(self) -> None:
        self._services.idled()

    # attempts

    async def _attempt(self, running: RunningAttempt) -> None:
        """Run an attempt in a task of its own. It handles its own end: a callback would cost a turn of the loop per
        job."""
        running.begun, job = True, running.job
        try:
            current.set((job.lease.queue, job.lease.id, job.name, job.attempts_made + 1))
            self._events.started(job)
            reports = AttemptReports(self._report_services, job, running.signal)
            self._arm(running)
            runs = self._services.runs if job.lease.id.startswith("repeat:") else None
            outcome = (await runs.begin(job) if runs is not None else None) or await outcome_of(
                job, running.signal, self._rules, partial(self._call, running, reports)
            )
            running.ends_with(outcome)
            if reports.unwritten:
                await reports.flush()
            self._settle_unless_over(running, outcome)
        except LeaseDropped:
            self._drop(running)
        except BaseException as error:
            self._over(running, error)
            if not isinstance(error, Exception):
                raise
        finally:
            self._attempts.discard(running.task)

    def _over(self, running: RunningAttempt, error: BaseException) -> None:
        """The end of the task. An error that gets here is a bug, and its job must not be lost; nor that of a handler
        that has cancelled its own task."""
        if isinstance(error, asyncio.CancelledError):
            if not self._leaving:
                cancelled = asyncio.CancelledError("the handler's task was cancelled")
                self._settle_unless_over(running, judged(cancelled, running.job, self._rules))
        else:
            self._error(f"an attempt of job {running.lease.id} failed unexpectedly: {error!r}")
            self._settle_unless_over(running, judged(error, running.job, self._rules))

    async def _invoke(
        self, running: RunningAttempt, reports: AttemptReports, entry: RegisteredHandler, data: Any
    ) -> Any:
        """Call the handler where it should run, inside the middleware."""
        services, made = self._services, entry.handler
        ctx: Any = JobContext(data, running.job, reports, running.signal, services.state)
        if not self._options.cancellation:
            ctx.signal = None
        running_context.set(ctx)
        if made.runs_in == "loop":
            call: Any = made.fn
        else:
            call = partial(self._apart, running, reports, entry)
        if made.raw:
            call = partial(with_job, call)
        run = partial(compose(services.middleware, call) if services.middleware else call, ctx)
        breaker = self._gate.of(entry, running.job)
        try:
            answer = await (self._gate.call(breaker, running.job, data, running.signal, run) if breaker else run())
        except BaseException as error:
            if reports.steps_used is not None:
                await reports.end_steps(error)
            if isinstance(error, RateLimited):
                await self._hold(milliseconds("a rate limit", error.seconds, 1))
            raise
        if reports.steps_used is not None:
            await reports.end_steps(None)
        return answer

    async def _invoke_again(
        self, running: RunningAttempt, reports: AttemptReports, entry: RegisteredHandler, data: Any
    ) -> Any:
        """In tests: call the handler again from its beginning after each row that it records."""
        while True:
            try:
                answer = await self._invoke(running, reports, entry, data)
            except BaseException as error:
                if not reports.again or isinstance(error, asyncio.CancelledError):
                    raise
            else:
                if not reports.again:
                    return answer
            running.job = await reports.begin_again()

    def _made_step_services(self) -> StepServices:
        """What durable steps need, which most queues do not."""
        if self._step_services is None:
            services, name, store = self._services, self.queue.name, self._services.engine
            steps: StepStore = store.steps
            self._step_services = StepServices(
                writer=StepWriter(name, steps, services.clock, services.name),
                clock=services.clock,
                serializer=self._options.serializer,
                loop=self._home,
                unfit=self._events.signal_unfit,
                unread=self._events.signals_unread,
                checks=services.step_checks,
                tracing=self.queue.services.tracing,
            )
        return self._step_services

    async def _hold(self, ms: int) -> None:
        """Start nothing of this queue for a while, anywhere; if the store cannot be told, at least not this job."""
        services, name = self._services, self.queue.name
        try:
            await services.caller.send(lambda call: services.engine.configure(name, [Hold(ms)], call=call))
        except EngineUnavailable:
            raise Snooze(ms / 1000) from None

    async def _apart(self, running: RunningAttempt, reports: AttemptReports, entry: RegisteredHandler, ctx: Any) -> Any:
        """Run it off the loop: in a child process, or in a thread with a context whose methods block."""
        if entry.handler.runs_in == "process":
            return await self._children.call(entry, running, reports)
        run = blocking(asyncio.get_running_loop())
        if entry.handler.raw:
            ctx = SyncJob(ctx, run)
        else:
            ctx = SyncJobContext(ctx.data, running.job, reports, ctx.signal, ctx.state, run)
            running_context.set(ctx)
        order = self._threads.order(entry.handler.fn, ctx)
        running.apart = order.current_stack
        try:
            return await self._threads.result(order)
        except asyncio.CancelledError:
            self._services.clock.later(STUCK_GRACE, partial(self._look_after, running.job, order))
            raise

    def _look_after(self, job: Claimed, order: ThreadCall) -> None:
        stack = order.stack()
        if stack is not None:
            self._events.stuck(job, stack)

    def _job(self, job: Claimed) -> Job[Any]:
        entry = self.queue.handlers.find(job.name)
        data = entry.payload.decode(job.data) if entry else job.data
        return Job(self.queue, job.lease.id, job.name, data, fence=job.fence)

    # ending attempts from outside

    def _arm(self, running: RunningAttempt) -> None:
        entry = self.queue.handlers.find(running.job.name)
        timeout = running.job.options.timeout or (entry.handler.timeout if entry else None) or self._options.timeout
        if timeout is not None:
            end = partial(
                self._stop, running, StopReason.TIMEOUT, f"ran for longer than its timeout of {timeout / 1000:g} s", 0.0
            )
            running.timers.append(self._services.clock.later(timeout / 1000, end))

    def _stop(self, running: RunningAttempt, why: StopReason, reason: str, grace: float) -> None:
        """Tell the attempt to stop; cancel it after `grace`; give up its slot if even that does not end it. The first
        reason stays; a later one without grace takes away the rest of the grace."""
        if running.over or running.outcome is not None:
            return
        if running.signal.kind is None:
            running.signal.fire(why, reason)
        elif running.cancelled or grace > 0:
            return
        for timer in running.ending:
            timer.cancel()
        later = self._services.clock.later
        running.ending = [later(grace, running.cancel), later(grace + STUCK_GRACE, partial(self._give_up, running))]

    def _give_up(self, running: RunningAttempt) -> None:
        """It does not stop. Settle its job without it, and use its slot for another."""
        if running.over:
            return
        self._events.stuck(running.job, running.stack())
        try:
            outcome = outcome_of_stop(running.signal, running.job, self._rules)
        except LeaseDropped:
            self._drop(running)
        else:
            self._settle_unless_over(running, outcome)

    def taken_back(self, jobs: Set[str], asked_at: float) -> None:
        """A recovery at this time found that the leases of these jobs had expired."""
        for running in list(self._running.values()):
            if running.lease.id in jobs and running.started < asked_at:
                self._stop(running, StopReason.LEASE_LOST, "the lease ran out", 0.0)

    def _heard_elsewhere(self, found: Renewed) -> None:
        """The keeper learned something, perhaps in its own thread."""
        if self._home is not None and not self._home.is_closed():
            self._home.call_soon_threadsafe(self._heard, found)

    def _heard(self, found: Renewed) -> None:
        leases = {running.lease: running for running in self._running.values()}
        for lease in found.lost:
            if lease in leases:
                self._stop(leases[lease], StopReason.LEASE_LOST, "the lease was lost", 0.0)
        for request in found.cancelled:
            if request.lease in leases:
                self._stop(leases[request.lease], StopReason.CANCELLED, request.reason, CANCEL_GRACE)

    def _settle_unless_over(self, running: RunningAttempt, outcome: Outcome) -> None:
        if running.end():
            self._leave(running)
            self._settle(running.job, outcome, self._services.clock.monotonic() - running.started)

    def _settle(self, job: Claimed, outcome: Outcome, duration: float) -> None:
        self._events.ended(job, round(duration * 1000))
        self._loop.settle(Settlement(job.lease, outcome))

    def _drop(self, running: RunningAttempt) -> None:
        if running.end():
            self._leave(running)
            self._services.keeper.release(running.lease)
            self._events.lost(running.job)
            self._loop.slot_freed()

    def _leave(self, running: RunningAttempt) -> None:
        del self._running[id(running)]
        self._services.isolation.end()

    def _error(self, text: str) -> None:
        self._services.events.emit("error", WorkerEvent(worker=self._services.name, queue=self.queue.name, error=text))
