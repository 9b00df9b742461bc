"""A handler bound to its queue, so that type checkers know what it takes and what it returns wherever it is used."""

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
    """One of a queue's handlers: `send = emails.task(send_email)`, and then `await send.add(Email(…))`.

    `D` is the payload that the handler takes, `R` what it returns. A task whose handler takes None is added without a
    payload.
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
        return self._queue

    @property
    def name(self) -> str:
        """What its jobs are called in the store."""
        return self._name

    @overload
    async def add(self: "Task[None, R]", **options: Unpack[AddOptions]) -> Job[R]: ...

    @overload
    async def add(self, data: D, **options: Unpack[AddOptions]) -> Job[R]: ...

    async def add(self, data: Any = None, **options: Unpack[AddOptions]) -> Job[Any]:
        """Store one job. Returns once it is kept.

        Durations are seconds, a `timedelta`, or a text such as `"10m"`.

        Args:
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
        return await self._queue.add(self._name, data, **options)

    async def add_many(self, payloads: Iterable[D], **options: Unpack[AddOptions]) -> list[Job[R]]:
        """Store a job for each payload, all with the same options, which are those of `add`. Up to 1,000 all or none;
        beyond that in chunks, and `PartialAdd` names what is stored if one fails."""
        return await self._queue.add_many((self._name, data, options) for data in payloads)

    @overload
    def new(self: "Task[None, R]", **options: Unpack[AddOptions]) -> PreparedJob[R]: ...

    @overload
    def new(self, data: D, **options: Unpack[AddOptions]) -> PreparedJob[R]: ...

    def new(self, data: Any = None, **options: Unpack[AddOptions]) -> PreparedJob[Any]:
        """A job made ready and checked, for a flow or to be added with others. Its options are those of `add`."""
        return self._queue.new(self._name, data, **options)

    @overload
    async def add_and_wait(self: "Task[None, R]", *, timeout: Duration = 30, **options: Unpack[WaitOptions]) -> R: ...

    @overload
    async def add_and_wait(self, data: D, *, timeout: Duration = 30, **options: Unpack[WaitOptions]) -> R: ...

    async def add_and_wait(self, data: Any = None, *, timeout: Duration = 30, **options: Unpack[WaitOptions]) -> Any:
        """Add a job and wait up to `timeout` for what its handler returns. Its options are those of `add`; the result
        is kept for an hour."""
        return await self._queue.add_and_wait(self._name, data, timeout=timeout, **options)

    @overload
    def schedule(self: "Task[None, R]", schedule_id: str, **options: Unpack[Timing]) -> None: ...

    @overload
    def schedule(self, schedule_id: str, data: D, **options: Unpack[Timing]) -> None: ...

    def schedule(self, schedule_id: str, data: Any = None, **options: Unpack[Timing]) -> None:
        """Declare a recurring job. The workers keep it in the store from their next boot on, and remove it once it is
        declared no more.

        Args:
            schedule_id: Its id, unique in the queue.
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
        self._queue.schedule(schedule_id, self._name, data, **options)

    def runs_as(self) -> RunsAs:
        """Which jobs are this task's, and how their results are read: for Toril's own contexts."""
        names = self._queue.handlers.names_of(self._handler)
        return RunsAs(self._queue.name, names, partial(self._queue.handlers.decode_result, self._name))

    @property
    def sync(self) -> "SyncTask[D, R]":
        """This task for code that blocks: in Django, Flask, scripts. It opens the store by itself."""
        return self._queue.sync.task(self._handler)
