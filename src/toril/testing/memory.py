"""`memory(app)`: runs an app in memory on a clock that the test moves."""

import asyncio
import math
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any, Final, Literal, NoReturn, TypeAlias, cast, get_args

from pydantic_core import to_jsonable_python

from toril.app import App
from toril.codec.encoding import readable
from toril.engines.sqlite.engine import SqliteEngine
from toril.engines.sqlite.url import FileAddress
from toril.errors import InvalidOption, UsageError, preview
from toril.events import tell_recovered
from toril.job import Job
from toril.model import Failed, JobOptions, JobRef, Lease, NewJob, Retried, moment, ms_of
from toril.model.durations import Duration, milliseconds
from toril.operate.steps import step_record
from toril.records import RetryDelay, StepRecord, as_record
from toril.store.engine import Store
from toril.task import Task
from toril.testing.clock import ManualClock
from toril.testing.faults import Death, FlakyStore, Killed, Place, WatchedStore

__all__ = ["DURATIONS", "OPTIONS", "AddedJob", "Lives", "Memory", "OnFailure", "Wanted", "drain", "found", "memory"]

DURATIONS: Final = ("timeout", "expires", "result_ttl")  # stored as milliseconds
_SHARED: Final = tuple(field.name for field in fields(JobOptions))
_OWN: Final = tuple(field.name for field in fields(NewJob) if field.name not in {"name", "data", "delay", "options"})
OPTIONS: Final = _OWN + _SHARED


@dataclass(frozen=True, slots=True, kw_only=True)
class AddedJob:
    """A job that was added in this test. `data` is its payload as JSON; `options` are its other options, such as
    `attempts`, `priority` and `timeout`, with durations in seconds."""

    queue: str
    name: str
    id: str
    data: Any
    delay: float
    options: Mapping[str, Any]

    @classmethod
    def of(cls, queue: str, job: NewJob, identity: str, now: int) -> "AddedJob":
        due = now + job.delay if job.due is None else job.due
        return cls(
            queue=queue,
            name=job.name,
            id=identity,
            data=readable(job.data),
            delay=max(0, due - now) / 1000,
            options={name: _option(name, getattr(job.options if name in _SHARED else job, name)) for name in OPTIONS},
        )

    def __str__(self) -> str:
        later = f", delayed by {self.delay:g} s" if self.delay else ""
        return f"{self.queue}: {self.name} {preview(self.data)}{later}"


def _option(name: str, value: Any) -> Any:
    if value is None:
        return None
    if name == "backoff":
        return as_record(RetryDelay, value)
    if name == "due":
        return moment(value)
    return value / 1000 if name in DURATIONS else value


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Which jobs a test refers to. Fields that are None match everything."""

    name: str | None
    queue: str | None
    data: Any
    any_data: bool
    delay: float | None
    options: Mapping[str, Any]

    def means(self, added: AddedJob) -> bool:
        return (
            self.name in {None, added.name}
            and self.queue in {None, added.queue}
            and (self.any_data or within(self.data, added.data))
            and (self.delay is None or self.delay == added.delay)
            and all(added.options[name] == value for name, value in self.options.items())
        )

    def __str__(self) -> str:
        parts = [f"{self.queue or 'any queue'}: {self.name or 'any job'}"]
        if not self.any_data:
            parts.append(preview(self.data))
        if self.delay is not None:
            parts.append(f"delayed by {self.delay:g} s")
        parts += [f"with {name}={preview(value)}" for name, value in self.options.items()]
        return " ".join(parts)


def within(part: Any, whole: Any) -> bool:
    """Whether `whole` has all fields of `part`, with the same values, at any depth."""
    if isinstance(part, Mapping) and isinstance(whole, Mapping):
        return all(name in whole and within(value, whole[name]) for name, value in part.items())
    if isinstance(part, Sequence) and isinstance(whole, Sequence) and not isinstance(part, str):
        return len(part) == len(whole) and all(map(within, part, whole))
    return bool(part == whole)


def found(
    wanted: Wanted, added: Sequence[AddedJob], times: int | None, why: Callable[[int], str] = "{} times".format
) -> list[AddedJob]:
    """The matching jobs. Raises `AssertionError`, with all jobs added, if there are not as many as wanted."""
    meant = [each for each in added if wanted.means(each)]
    if len(meant) == times or (times is None and meant):
        return meant
    expected = "at least once" if times is None else why(times)
    there = "".join(f"\n  {each}" for each in added[-50:]) or " nothing"
    raise AssertionError(
        f"expected {wanted} to be added {expected}, but it was added {why(len(meant))}; jobs added:{there}"
    )


_PATIENCE: Final = 1000.0  # seconds of the test's clock for a worker to stop, none of which elapse


class Lives:
    """Runs workers until a time, one after another if they are killed."""

    def __init__(self, app: App, clock: ManualClock, store: WatchedStore, over: Callable[[], bool]) -> None:
        self._app = app
        self._clock = clock
        self._store = store
        self._over = over
        self._until = 0  # a test that calls `app.run` itself moves no clock
        self._life: asyncio.Task[int] | None = None
        self._dying: asyncio.Task[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self.deaths = 0
        store.die = self._die

    async def work(self, until: int) -> int:
        """Run what is due by then, everything at its time. Returns what `run` returns."""
        self._until = until
        try:
            return await self._work(asyncio.get_running_loop())
        finally:
            self._until = 0

    async def _work(self, loop: asyncio.AbstractEventLoop) -> int:
        self._loop = loop
        while True:
            self._life = loop.create_task(self._app.run(burst=True, signals="leave", grace=_PATIENCE))
            try:
                code = await self._life
            except asyncio.CancelledError:
                if self._store.dead is None:
                    raise
            else:
                if self._store.dead is None:
                    return code
            self.deaths += 1
            self._store.revive()

    def kill_here(self) -> NoReturn:
        """Kill the worker that calls this, from any thread in which its handler runs."""
        if self._loop is None or self._life is None or self._life.done():
            raise RuntimeError(
                "no worker of this test is running a job; call `kill_here` from code that a handler calls"
            )
        self._store.kill()
        raise Killed

    def stop(self) -> None:
        """End the worker at once, because the test has failed. May be called from any thread."""
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._stop)

    def _stop(self) -> None:
        self._app.stop()
        self._app.stop()  # at once

    def _die(self) -> None:
        """May be called from any thread."""
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._begin_to_die)

    def _begin_to_die(self) -> None:
        if self._loop is not None:
            self._dying = self._loop.create_task(self._end(self._life))

    async def _end(self, life: "asyncio.Task[int] | None") -> None:
        """End a worker. When it is cancelled it releases its jobs, but nothing of that reaches the store, and it need
        not wait for it."""
        while life is not None and not life.done():
            life.cancel()
            for _ in range(20):
                await asyncio.sleep(0)

    async def spent(self, wake_at: float | None) -> bool:
        """Nothing is left to do now: move the clock to the next due time, unless that is later than requested."""
        if self._over():
            return False
        due, returned = [] if wake_at is None else [self._clock.moment(wake_at)], 0
        for queue in self._app.queues if self.deaths else ():
            found = await self._store.recover(queue)
            returned += len(found.returned)
            due += [] if found.next_deadline is None else [found.next_deadline]
            tell_recovered(self._app.events, queue, found, None)
        if returned:
            return True
        now = self._clock.now()
        to = min((moment for moment in due if moment > now), default=math.inf)
        ahead = int(min(to, self._until)) - now
        if ahead > 0:
            self._clock.advance(ahead)
        return ahead > 0


OnFailure: TypeAlias = Literal["record", "raise"]
Replay: TypeAlias = Literal["never", "each"]

_ANY: Any = object()  # any payload at all, including None
_LONGEST = 100 * 366 * 86_400_000  # ms


class Memory:
    """An app in memory, on a clock of its own. `added` has every job that was added, in order."""

    def __init__(
        self,
        app: App,
        clock: ManualClock,
        store: Store,
        *,
        on_failure: OnFailure = "record",
        replay: Replay = "never",
    ) -> None:
        if on_failure not in {"record", "raise"}:
            raise InvalidOption(f"on_failure must be 'record' or 'raise', not {preview(on_failure)}")
        if replay not in {"never", "each"}:
            raise InvalidOption(f"replay must be 'never' or 'each', not {preview(replay)}")
        self.app = app
        self.clock = clock
        self.added: list[AddedJob] = []
        self.store = WatchedStore(store, stored=self._stored, ended=self._ended)
        self.lives = Lives(app, clock, self.store, lambda: self._failure is not None)
        self.replay_each = replay == "each"
        self._raises = on_failure == "raise"
        self._errors: dict[tuple[str, str], BaseException] = {}
        self._failure: BaseException | None = None

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Use this store and clock in the app for a while."""
        with self.app.using(cast("Store", self.store), self.clock) as plan:
            plan.middleware.insert(0, self._around)
            plan.spent = self.lives.spent
            plan.step_checks = self
            try:
                yield
            finally:
                plan.middleware.remove(self._around)
                plan.spent = plan.step_checks = None

    @property
    def now(self) -> datetime:
        """The time in this test."""
        return moment(self.clock.now())

    # time

    async def drain(self) -> int:
        """Run every job that is due, and the jobs that they add, until nothing is left to do now."""
        return await self._work(self.clock.now())

    async def after(self, time: Duration) -> int:
        """Let time pass, as seconds, a timedelta or a string such as "90s", "2h" or "30d", and run everything at its
        time: delays, retries, schedules, recovered jobs and rate limits."""
        return await self._work(self.clock.now() + _length(time))

    def skip(self, time: Duration) -> None:
        """Let time pass while no worker runs, so that what falls due meanwhile is late."""
        self.clock.advance(_length(time))

    async def _work(self, until: int) -> int:
        code = await self.lives.work(until)
        self.raise_failure()
        return code

    # what was added

    def assert_added(
        self,
        job: Callable[..., Any] | Task[Any, Any] | str | None = None,
        data: Any = _ANY,
        *,
        queue: str | None = None,
        delay: Duration | None = None,
        times: int | None = None,
        **options: Any,
    ) -> list[AddedJob]:
        """Return the jobs that were added by this handler, task or name. Raises `AssertionError` if there is none, or
        not as many as `times`.

        Only the fields of `data` that you give are compared. Pass further options of the job to compare them too, such
        as `priority=` or `attempts=`.
        """
        if isinstance(job, Task) and queue is None:
            queue = job.queue.name
        late = None if delay is None else milliseconds("delay", delay) / 1000
        unknown = next((name for name in options if name not in OPTIONS), None)
        if unknown is not None:
            raise TypeError(f"{unknown!r} is not a job option")
        for name in DURATIONS:
            if options.get(name) is not None:
                options[name] = milliseconds(name, options[name]) / 1000
        wanted = Wanted(
            name=self._name(job),
            queue=queue,
            data=None if data is _ANY else to_jsonable_python(data),
            any_data=data is _ANY,
            delay=late,
            options=options,
        )
        return found(wanted, self.added, times)

    def assert_not_added(
        self, job: Callable[..., Any] | Task[Any, Any] | str | None = None, data: Any = _ANY, **options: Any
    ) -> None:
        """Raise `AssertionError` if such a job was added; takes the arguments of `assert_added`."""
        self.assert_added(job, data, times=0, **options)

    # durable steps

    async def steps(self, job: Job[Any]) -> list[StepRecord]:
        """What a job has recorded of its durable steps, in order, also if it has completed and is not kept."""
        queue = job.queue
        rows = self.store.ended_steps.get((queue.name, job.id), [])
        return await job.steps() or [step_record(key, text, queue.options.serializer) for key, text in rows]

    async def assert_steps(self, job: Job[Any], names: Sequence[str]) -> list[StepRecord]:
        """Return what a job has recorded. Raises `AssertionError` unless those are the steps with these keys, in this
        order."""
        found = await self.steps(job)
        keys = [step.key for step in found]
        if keys != list(names):
            raise AssertionError(
                f"expected job {job.id} of queue {job.queue.name!r} to have recorded {list(names)}, not {keys}"
            )
        return found

    def differs(self, job: JobRef, error: Exception) -> None:
        """A handler with durable steps does not do the same each time it is called: the test fails."""
        if self._failure is None:
            error.add_note(f"found in job {job.id} of queue {job.queue!r}")
            self._failure = error
            self.lives.stop()

    # faults

    def kill(self, at: Place, job: "Job[Any] | Callable[..., Any] | Task[Any, Any] | str | None" = None) -> None:
        """Kill the worker that next reaches this point with such a job: `"claimed"`, before the handler starts;
        `"returned"`, after it, with nothing of that stored; `"settled"`, when its end is stored; `"step"` and
        `"stepped"`, before and after what a durable step returned is stored.

        Another worker starts at once, and takes over the job when its lease has run out.
        """
        if at not in get_args(Place):
            places = ", ".join(map(repr, get_args(Place)))
            raise InvalidOption(f"at must be one of {places}, not {preview(at)}")
        if isinstance(job, Job):
            self.store.death = Death(at, queue=job.queue.name, id=job.id)
        else:
            self.store.death = Death(at, name=self._name(job))

    def kill_here(self) -> NoReturn:
        """Kill the worker in the middle of a handler. Call it from something that the handler calls and the test
        replaces."""
        self.lives.kill_here()

    @property
    def deaths(self) -> int:
        """How many workers were killed."""
        return self.lives.deaths

    async def deliver_twice(self, job: Job[Any]) -> None:
        """Run a job to the end of its handler, lose the result, and run it again, as if its worker had died just before
        reporting."""
        queue = job.queue.name
        self.kill("returned", job)
        await self.drain()
        if self.store.death is not None or self.store.victim is None:
            self.store.death = None
            raise AssertionError(f"job {job.id} of queue {queue!r} did not run: {await job.queue.why(job.id)}")
        taken = await self.store.recover(
            queue, dead=[self.store.victim], cause="delivered twice, as the test asked for"
        )
        if job.id not in taken.returned:
            raise AssertionError(
                f"job {job.id} cannot run twice: queue {queue!r} has max_stalls={job.queue.options.max_stalls}"
            )
        await self.drain()

    # failures

    def raise_failure(self) -> None:
        """Raise the error of the first job that failed, if the test asked for that."""
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    async def _around(self, ctx: Any, call_next: Callable[[Any], Any]) -> Any:
        """The outermost middleware: remembers what a handler raises, with its traceback."""
        try:
            return await call_next(ctx)
        except BaseException as error:
            self._errors[ctx.queue_name, ctx.job_id] = error
            raise

    def _ended(self, lease: Lease, outcome: Failed | Retried) -> None:
        error = self._errors.pop((lease.queue, lease.id), None)
        if not self._raises or self._failure is not None:
            return
        called = f"job {lease.id} {self.store.name_of(lease)!r} of queue {lease.queue!r}"
        if not isinstance(error, Exception):  # no error, or one that would end the whole test run
            self._failure = AssertionError(
                f"{called} failed: {outcome.failure.reason}\n{outcome.failure.traceback or ''}"
            )
        else:
            error.add_note(f"raised by {called}")
            self._failure = error
        self.lives.stop()

    def _stored(self, queue: str, job: NewJob, identity: str) -> None:
        self.added.append(AddedJob.of(queue, job, identity, self.clock.now()))

    # names and payloads

    def _name(self, job: Any) -> str | None:
        """The name of a handler, in whichever queue has it."""
        if job is None or isinstance(job, str):
            return job
        if isinstance(job, Task):
            return job.name
        names = set()
        for queue in self.app.queues.values():
            with suppress(UsageError):
                names.add(queue.handlers.name_of(job))
        if len(names) == 1:
            return names.pop()
        raise InvalidOption(f"{preview(job)} is not a handler of this app, or has two names; pass the job's name")


@asynccontextmanager
async def memory(
    app: App,
    *,
    loses: float = 0.0,
    seed: int = 0,
    start: datetime | None = None,
    on_failure: OnFailure = "record",
    replay: Replay = "never",
) -> AsyncIterator[Memory]:
    """Run the app on an empty in-memory store for the length of a test.

    `start` is the time at which the test starts. `loses` is the share of store calls whose request or answer is lost; a
    correct program must produce the same result. With `on_failure="raise"`, the first handler that fails also fails the
    test, with its own error.

    With `replay="each"`, handlers with durable steps are called again from their beginning after each row that they
    record. The test fails if they then do something else: ask for other steps, or give them other arguments. Handlers
    in processes of their own are called as usual.
    """
    clock = ManualClock(seed=seed) if start is None else ManualClock(_ms(start), seed=seed)
    store: Store = SqliteEngine(FileAddress(path=None), clock=clock, inline=True)
    async with AsyncExitStack() as stack:
        if loses:
            store = cast("Store", FlakyStore(store, rate=loses, seed=seed))
            await stack.enter_async_context(clock.running())  # repeated calls wait first
        test = Memory(app, clock, store, on_failure=on_failure, replay=replay)
        stack.enter_context(test.in_place())
        await stack.enter_async_context(app)
        yield test
    test.raise_failure()
    if test.store.death is not None:
        raise AssertionError(f"no worker reached {test.store.death.place!r}, where the test wanted one killed")


def _length(time: Duration) -> int:
    return milliseconds("a time to pass", time, high=_LONGEST)


def _ms(start: datetime) -> int:
    if start.utcoffset() is None:
        raise InvalidOption(f"start must be a datetime with a time zone, not {preview(start)}")
    return ms_of(start)


async def drain(app: App) -> int:
    """Run the app's workers until nothing is left to do now. Returns what `run` returns."""
    return await app.run(burst=True)
