"""`Task`: a handler bound to its queue, with typed payload and result."""

from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar, Unpack, overload

from toril.client.options import AddOptions, WaitOptions
from toril.client.producer import PreparedJob
from toril.context import HandlerOf, RawHandler, RunsAs
from toril.job import Job
from toril.model.durations import Duration
from toril.schedule import Timing

if TYPE_CHECKING:
    from toril.queue import Queue
    from toril.sync import SyncTask

__all__ = ["Task"]

D = TypeVar("D", contravariant=True)  # a task that takes `int | None` takes an int
R = TypeVar("R", covariant=True)


class Task(Generic[D, R]):
    """A handler bound to its queue: `send = emails.task(send_email)`, then `await send.add(Email(…))`.

    `D` is the type of the payload, `R` that of the result. If the handler takes None, add its jobs without a payload.
    """

    __slots__ = ("_handler", "_name", "_queue")

    def __init__(self, queue: "Queue", handler: HandlerOf[D, R] | RawHandler[R]) -> None:
        self._queue = queue
        self._handler: Any = handler
        self._name = queue.handlers.name_of(handler)

    def __repr__(self) -> str:
        return f"<Task {self._name!r} of {self._queue.name!r}>"

    @property
    def queue(self) -> "Queue":
        """The queue that the task's jobs run in."""
        return self._queue

    @property
    def name(self) -> str:
        """The name of the task's jobs in the store."""
        return self._name

    @overload
    async def add(self: "Task[None, R]", **options: Unpack[AddOptions]) -> Job[R]: ...

    @overload
    async def add(self, data: D, **options: Unpack[AddOptions]) -> Job[R]: ...

    async def add(self, data: Any = None, **options: Unpack[AddOptions]) -> Job[Any]:
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
            for_: How long the key of `once` stays taken, such as `"1d"`.
        """
        return await self._queue.add(self._name, data, **options)

    async def add_many(self, payloads: Iterable[D], **options: Unpack[AddOptions]) -> list[Job[R]]:
        """Add one job per payload, all with the same options, which are those of `add`.

        Up to 1,000 jobs are stored completely or not at all. More are stored in chunks; if one fails, `PartialAdd`
        lists what was stored.
        """
        return await self._queue.add_many((self._name, data, options) for data in payloads)

    @overload
    def new(self: "Task[None, R]", **options: Unpack[AddOptions]) -> PreparedJob[R]: ...

    @overload
    def new(self, data: D, **options: Unpack[AddOptions]) -> PreparedJob[R]: ...

    def new(self, data: Any = None, **options: Unpack[AddOptions]) -> PreparedJob[Any]:
        """Prepare and check a job without adding it, for a flow or for `add_many`. Takes the options of `add`."""
        return self._queue.new(self._name, data, **options)

    @overload
    async def add_and_wait(self: "Task[None, R]", *, timeout: Duration = 30, **options: Unpack[WaitOptions]) -> R: ...

    @overload
    async def add_and_wait(self, data: D, *, timeout: Duration = 30, **options: Unpack[WaitOptions]) -> R: ...

    async def add_and_wait(self, data: Any = None, *, timeout: Duration = 30, **options: Unpack[WaitOptions]) -> Any:
        """Add a job, wait up to `timeout` for it to end, and return its result.

        Takes the options of `add` and raises what `Job.result` raises. The result is kept for an hour unless you pass
        `result_ttl`.
        """
        return await self._queue.add_and_wait(self._name, data, timeout=timeout, **options)

    @overload
    def schedule(self: "Task[None, R]", schedule_id: str, **options: Unpack[Timing]) -> None: ...

    @overload
    def schedule(self, schedule_id: str, data: D, **options: Unpack[Timing]) -> None: ...

    def schedule(self, schedule_id: str, data: Any = None, **options: Unpack[Timing]) -> None:
        """Declare a recurring job. Workers put it into the store when they start, and remove it once you no longer
        declare it.

        Args:
            schedule_id: An id, unique in the queue.
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
        self._queue.schedule(schedule_id, self._name, data, **options)

    def runs_as(self) -> RunsAs:
        """Which jobs belong to this task, and how to read their results; used by contexts."""
        names = self._queue.handlers.names_of(self._handler)
        return RunsAs(self._queue.name, names, partial(self._queue.handlers.decode_result, self._name))

    @property
    def sync(self) -> "SyncTask[D, R]":
        """This task with blocking methods, for Django, Flask or scripts. It opens the store by itself."""
        return self._queue.sync.task(self._handler)
