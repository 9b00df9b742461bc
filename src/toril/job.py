"""`Job`: a handle on one job, to follow it and to control it."""

from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeAlias, TypeVar

from toril.codec.encoding import metadata_of, readable
from toril.errors import JobCancelled, JobFailed, NotFound, ResultGone, WrongState
from toril.events import JobEvent
from toril.model import (
    AddOutcome,
    Call,
    Cancelled,
    Completed,
    ControlResult,
    Failed,
    Gone,
    JobRow,
    Kept,
    Pending,
    SetData,
    SetDelay,
    SetPriority,
    Update,
    letter_id,
    moment,
)
from toril.model.durations import Duration, milliseconds
from toril.model.states import State
from toril.operate.history import history
from toril.operate.lookup import find_job
from toril.operate.steps import step_record, step_rows
from toril.records import AttemptError, EventRecord, JobRecord, StepRecord, as_record
from toril.signals import SignalKind, Signalled, new_signal, send_signal

if TYPE_CHECKING:
    from toril.queue import Queue

__all__ = ["Cancelling", "Job"]

T = TypeVar("T")
R = TypeVar("R", covariant=True)

Cancelling: TypeAlias = Literal["cancelled", "requested"]

_LONGEST_WAIT = 60_000  # a wait without a timeout consists of these


class Job(Generic[R]):
    """A job in the store: follow it, read its result, or control it.

    `id`, `name` and `data` are its id, name and payload. `added` is False if a job of the same id or deduplication key
    already existed; `outcome` says which. The fields `progress`, `attempts_made`, `stalls`, `fence`, `error`, `worker`,
    `added_at`, `started_at` and `finished_at` are as of the last `refresh()`. Right after an `add` they are not known
    yet.
    """

    def __init__(
        self,
        queue: "Queue",
        job_id: str,
        name: str,
        data: Any = None,
        *,
        added: bool = True,
        record: JobRow | None = None,
        outcome: AddOutcome = AddOutcome.ADDED,
        fence: int = 0,
    ) -> None:
        self._queue = queue
        self._record = record
        self._fence = fence
        self.id = job_id
        self.name = name
        self.data = data
        self.added = added
        self.outcome = outcome

    def __repr__(self) -> str:
        return f"<Job {self.id} {self.name!r} in {self._queue.name!r}>"

    @property
    def queue(self) -> "Queue":
        """The queue that the job is in."""
        return self._queue

    @property
    def progress(self) -> Any:
        """What the handler last reported with `ctx.update_progress`, or None."""
        return None if self._record is None else _value(self._record.progress)

    @property
    def attempts_made(self) -> int:
        """How many attempts have ended, whether they succeeded or failed."""
        return 0 if self._record is None else self._record.attempts_made

    @property
    def stalls(self) -> int:
        """How often the job's worker died while running it."""
        return 0 if self._record is None else self._record.stalls

    @property
    def fence(self) -> int:
        """The fence of the current or last attempt. It increases with each attempt, so that you can reject writes of an
        earlier one."""
        return self._fence or (0 if self._record is None else self._record.fence)

    @property
    def error(self) -> str | None:
        """The reason of the last failure, or None."""
        return None if self._record is None or self._record.failure is None else self._record.failure.reason

    @property
    def dead_letter(self) -> str | None:
        """The id of the dead letter, if the job failed for good and its queue does not keep it."""
        return None if self._record is None else self._record.dead_letter

    @property
    def metadata(self) -> Mapping[str, Any]:
        """The fields that were added with the payload."""
        return metadata_of(None if self._record is None else self._record.metadata)

    @property
    def worker(self) -> str | None:
        """The worker that runs the job or last ran it."""
        return None if self._record is None else self._record.worker

    @property
    def added_at(self) -> datetime | None:
        """When the job was added. Like all times here, it is the store's."""
        return None if self._record is None else moment(self._record.added_at)

    @property
    def started_at(self) -> datetime | None:
        """When the last attempt started, or None."""
        return None if self._record is None else moment(self._record.started_at)

    @property
    def finished_at(self) -> datetime | None:
        """When the job ended, or None."""
        return None if self._record is None else moment(self._record.finished_at)

    @property
    def record(self) -> JobRecord | None:
        """Everything that the store knows about the job, as of the last `refresh()`."""
        row, queue = self._record, self._queue
        if row is None:
            return None
        return as_record(
            JobRecord,
            row,
            row.options,
            data=queue.handlers.decode(row.name, row.data),
            metadata=metadata_of(row.metadata),
            checkpoint=_value(row.checkpoint),
            progress=_value(row.progress),
            result=None if row.result is None else queue.handlers.show_result(row.name, row.result),
        )

    @property
    def row(self) -> JobRow | None:
        """The same as the store returns it, in milliseconds; for Toril's own pages and documents."""
        return self._record

    async def refresh(self) -> "Job[R]":
        """Read the job again, from its queue or from the dead letters.

        Raises `NotFound` if it is gone. By default, a completed job is removed and leaves only its run record.
        """
        row = await find_job(self._queue.store, self._queue.name, self.id)
        if row is None:
            raise NotFound(f"there is no job {self.id!r} in queue {self._queue.name!r}")
        self._record = row
        self.name, self.data = row.name, self._queue.handlers.decode(row.name, row.data)
        return self

    async def state(self) -> State | None:
        """Read the job's state; None if it is gone. A dead letter is `failed`."""
        row = await find_job(self._queue.store, self._queue.name, self.id)
        return None if row is None else row.state

    async def result(self, timeout: Duration | None = None) -> R:
        """Wait for the job to end and return its result.

        Raises `JobFailed`, `JobCancelled`, `TimeoutError` after `timeout`, or at once `ResultGone` if the job has ended
        and its result was not kept.
        """
        most = left = None if timeout is None else milliseconds("timeout", timeout)
        store, name = self._queue.store, self._queue.name
        while True:
            wait = _LONGEST_WAIT if left is None else min(left, _LONGEST_WAIT)
            (finished,) = await self._call(lambda _, wait=wait: store.finished(name, [self.id], timeout=wait))  # type: ignore[misc]
            match finished.ended:
                case Completed(text):
                    return self._queue.handlers.decode_result(self.name, text)  # type: ignore[no-any-return]
                case Failed(failure):
                    reason = failure.reason
                    raise JobFailed(f"job {self.id} failed: {reason}", job_id=self.id, reason=reason)
                case Cancelled(reason):
                    raise JobCancelled(reason, job_id=self.id)
                case Gone():
                    raise ResultGone(
                        f"job {self.id} has ended, but its result was not kept; add the job with result_ttl=… to keep "
                        "it"
                    )
                case Pending():
                    left = None if left is None else left - wait
                    if most is not None and left is not None and left <= 0:
                        raise TimeoutError(f"job {self.id} did not end within {most / 1000:g} s")

    async def logs(self) -> list[str]:
        """Read the job's log lines, oldest first."""
        lines: list[str] = []
        cursor: str | None = None
        where = await self._where()
        while True:
            page = await self._queue.store.logs(self._queue.name, self.id, cursor=cursor, limit=1000, where=where)
            lines += page.items
            cursor = page.cursor
            if cursor is None:
                return lines

    async def errors(self) -> list[AttemptError]:
        """Read why each attempt failed, oldest first.

        The last error is complete. Of earlier attempts, the newest 50 are kept, with the start of their reason and the
        end of their traceback.
        """
        found = await self._queue.store.errors(self._queue.name, self.id, where=await self._where())
        return [
            AttemptError(
                attempt=each.attempt,
                at=moment(each.at),
                error=each.failure.reason,
                kind=each.failure.kind,
                traceback=each.failure.traceback,
            )
            for each in found
        ]

    async def _where(self) -> Kept:
        """Where to look for the job: among the dead letters, if it was read from there."""
        if self.dead_letter is not None:
            return "dead_letters"
        (row,) = await self._queue.store.jobs(self._queue.name, [self.id])
        return "dead_letters" if row is None else "queue"

    async def history(self) -> list[EventRecord]:
        """Read what has happened to the job, oldest first: each start, failure, delay and stall, with its time.

        A queue keeps about the last 10,000 events of all its jobs.
        """
        found = await history(self._queue.store, self._queue.name, self.id)
        return [as_record(EventRecord, event) for event in found]

    async def cancel(self, reason: str = "No reason provided") -> Cancelling:
        """Cancel the job. Returns `"cancelled"` if it had not started and never will, or `"requested"` if it is running
        and its handler is told to stop.

        If it has ended, raises `WrongState`, or `NotFound` if it is gone.
        """
        store, name = self._queue.store, self._queue.name
        changed = await self._call(lambda call: store.cancel(name, [self.id], reason=reason, call=call))
        if changed.done:  # a running job's worker emits the event once it has ended
            event = JobEvent(queue=name, job_id=self.id, job_name=self.name, error=reason)
            self._queue.services.events.emit("cancelled", event)
        if changed.asked:
            return "requested"
        await self._check(changed, "cancelled")
        return "cancelled"

    async def remove(self) -> None:
        """Delete the job and everything that belongs to it; a dead letter is discarded. Raises `WrongState` while it
        runs: cancel it first."""
        store, name = self._queue.store, self._queue.name
        if await self._where() == "queue":
            await self._check(await self._call(lambda call: store.remove(name, [self.id], call=call)), "removed")
            return
        letter = letter_id(name, self.id)
        if not (await self._call(lambda call: store.dead_letters.discard([letter], call=call))).done:
            raise NotFound(f"there is no job {self.id!r} in queue {name!r}")

    async def retry(self) -> None:
        """Run the job again after it has ended, with its full number of attempts, whether its queue keeps it or it is a
        dead letter.

        Its log is kept; progress and errors start afresh. If it is a parent, its children that have not succeeded run
        again first.
        """
        from toril.operate.dead_letters import replay_job  # noqa: PLC0415 - which is made of jobs

        await (self._queue.retry(self.id) if self.dead_letter is None else replay_job(self._queue, self.id))

    async def promote(self) -> None:
        """Run a delayed job now."""
        store, name = self._queue.store, self._queue.name
        await self._check(await self._call(lambda call: store.promote(name, [self.id], call=call)), "promoted")

    async def signal(
        self,
        signal: str | SignalKind[Any],
        payload: Any = True,
        *,
        id: str | None = None,
        unless_waiting: Literal["keep", "refuse"] = "keep",
    ) -> Signalled:
        """Send a signal to the job, which `ctx.wait_for` reads. If the job is not waiting for it, the signal is kept
        until the job waits for it.

        Args:
            signal: Its name, or a `SignalKind`, by which the payload is checked.
            payload: What `wait_for` returns.
            id: A second signal to the job with this id has no effect.
            unless_waiting: `"refuse"` stores nothing unless the job rests for this signal now.

        Raises:
            InboxFull: The job has 100 signals, or 1 MB of them, that it has not read.
            NotFound: The job is gone.
        """
        queue = self._queue
        kind = queue.options.signal_kind(signal)
        new = new_signal(
            kind, payload, queue.options.serializer, job_id=self.id, signal_id=id, unless_waiting=unless_waiting
        )
        return await send_signal(queue.services, queue.name, new)

    async def steps(self) -> list[StepRecord]:
        """Read the durable steps that the job has recorded, in the order in which they were recorded."""
        queue, where = self._queue, await self._where()
        rows = await step_rows(queue.store, queue.name, self.id, where)
        return [step_record(key, text, queue.options.serializer) for key, text in rows]

    async def rewind(self, to: str | None = None) -> None:
        """Forget the durable step with the key `to` and everything recorded after it, and run the job again with its
        full number of attempts; None goes back to the beginning.

        Signals that it read after that step are discarded, and jobs that it called are called again. Raises
        `WrongState` while the job runs or if it is a dead letter, and `NotFound` if it is gone or has no such step.
        """
        store, name = self._queue.store, self._queue.name
        await self._check(await self._call(lambda call: store.steps.rewind(name, self.id, to, call=call)), "rewound")

    async def update_data(self, data: Any) -> None:
        """Replace the payload, which is checked as in `add`."""
        await self._update(SetData(self.id, self._queue.handlers.encode(self.name, data)), "changed")
        self.data = data

    async def set_priority(self, priority: int, *, lifo: bool = False) -> None:
        """Change the priority of a job that has not started.

        Lower numbers run first. Jobs without a priority (0) run before all of them, unless the queue is declared with
        `priority_first=True`.
        """
        await self._update(SetPriority(self.id, priority, lifo), "reprioritized")

    async def set_delay(self, delay: Duration) -> None:
        """Make a delayed job wait for this long, counted from now."""
        await self._update(SetDelay(self.id, milliseconds("delay", delay)), "delayed")

    async def _call(self, make: Callable[[Call], Awaitable[T]]) -> T:
        return await self._queue.services.call(make)

    async def _update(self, update: Update, verb: str) -> None:
        store, name = self._queue.store, self._queue.name
        await self._check(await self._call(lambda call: store.update(name, [update], call=call)), verb)

    async def _check(self, changed: ControlResult, verb: str) -> None:
        for refused in changed.refused:
            if refused.state is not None:
                raise WrongState(f"job {self.id!r} is {refused.state} and cannot be {verb}")
            found = await find_job(self._queue.store, self._queue.name, self.id)
            if found is not None and found.dead_letter is not None:
                raise WrongState(f"job {self.id!r} is a dead letter and cannot be {verb}; retry it first")
            raise NotFound(f"there is no job {self.id!r} in queue {self._queue.name!r}")


def _value(text: str | None) -> Any:
    return None if text is None else readable(text)
