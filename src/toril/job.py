"""A job as its producer, or an operator, holds it: what is known of it, and what can be done to it."""

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
from toril.records import AttemptError, EventRecord, JobRecord, as_record

if TYPE_CHECKING:
    from toril.queue import Queue

__all__ = ["Cancelling", "Job"]

T = TypeVar("T")
R = TypeVar("R", covariant=True)

Cancelling: TypeAlias = Literal["cancelled", "requested"]

_A_WHILE = 60_000  # a wait without end is made of these


class Job(Generic[R]):
    """One job. `added` is False if one of the same id, or deduplication key, was there already and nothing was added;
    `outcome` says which.

    The fields `progress`, `attempts_made`, `stalls`, `fence`, `error`, `worker`, `added_at`, `started_at` and
    `finished_at` are as of the last `refresh()`; right after an `add` they are not known yet.
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
        return self._queue

    @property
    def progress(self) -> Any:
        return None if self._record is None else _value(self._record.progress)

    @property
    def attempts_made(self) -> int:
        """How many attempts have ended, well or badly."""
        return 0 if self._record is None else self._record.attempts_made

    @property
    def stalls(self) -> int:
        """How often its worker was lost while running it."""
        return 0 if self._record is None else self._record.stalls

    @property
    def fence(self) -> int:
        """That of the start which `on_lease_lost` tells of, or which a context is of; else of the last one known."""
        return self._fence or (0 if self._record is None else self._record.fence)

    @property
    def error(self) -> str | None:
        """The reason of the last failure."""
        return None if self._record is None or self._record.failure is None else self._record.failure.reason

    @property
    def dead_letter(self) -> str | None:
        """The id of the dead letter that it is, if it has failed for good and its queue does not keep it."""
        return None if self._record is None else self._record.dead_letter

    @property
    def metadata(self) -> Mapping[str, Any]:
        return metadata_of(None if self._record is None else self._record.metadata)

    @property
    def worker(self) -> str | None:
        return None if self._record is None else self._record.worker

    @property
    def added_at(self) -> datetime | None:
        """By the store's clock, as all times here."""
        return None if self._record is None else moment(self._record.added_at)

    @property
    def started_at(self) -> datetime | None:
        return None if self._record is None else moment(self._record.started_at)

    @property
    def finished_at(self) -> datetime | None:
        return None if self._record is None else moment(self._record.finished_at)

    @property
    def record(self) -> JobRecord | None:
        """Everything that is stored of it, as of the last `refresh()`."""
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
        """The same as the store has it, in milliseconds: for Toril's own pages and documents."""
        return self._record

    async def refresh(self) -> "Job[R]":
        """Read it anew, from its queue or from the dead letters. `NotFound` if it is gone: by default a completed job
        leaves only its run record."""
        row = await find_job(self._queue.store, self._queue.name, self.id)
        if row is None:
            raise NotFound(f"there is no job {self.id!r} in queue {self._queue.name!r}")
        self._record = row
        self.name, self.data = row.name, self._queue.handlers.decode(row.name, row.data)
        return self

    async def state(self) -> State | None:
        """Where it is now, a dead letter being `failed`; None if it is gone."""
        row = await find_job(self._queue.store, self._queue.name, self.id)
        return None if row is None else row.state

    async def result(self, timeout: Duration | None = None) -> R:
        """What the handler returned, once it has. Raises `JobFailed`, `JobCancelled`, `TimeoutError`, or, where the job
        has ended and its result was not kept, `ResultGone` at once."""
        most = left = None if timeout is None else milliseconds("timeout", timeout)
        store, name = self._queue.store, self._queue.name
        while True:
            wait = _A_WHILE if left is None else min(left, _A_WHILE)
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
                    raise ResultGone(f"job {self.id} has ended and its result was not kept; add it with result_ttl=…")
                case Pending():
                    left = None if left is None else left - wait
                    if most is not None and left is not None and left <= 0:
                        raise TimeoutError(f"job {self.id} has not ended within {most / 1000:g} s")

    async def logs(self) -> list[str]:
        """Its log lines, oldest first."""
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
        """Why each of its attempts failed, the oldest first. The last error is whole; of the attempts before it the
        newest 50 are kept, with the beginning of their reason and the end of their traceback."""
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
        """Where it is to be looked for: one that was read as a dead letter is meant as that."""
        if self.dead_letter is not None:
            return "dead_letters"
        (row,) = await self._queue.store.jobs(self._queue.name, [self.id])
        return "dead_letters" if row is None else "queue"

    async def history(self) -> list[EventRecord]:
        """What is still known to have happened to it, the oldest first: each start, failure, delay and stall, and when.
        A queue keeps the last 10,000 events or so of all its jobs."""
        found = await history(self._queue.store, self._queue.name, self.id)
        return [as_record(EventRecord, event) for event in found]

    async def cancel(self, reason: str = "No reason provided") -> Cancelling:
        """Stop it. `"cancelled"`: it had not started and never will; `"requested"`: it runs, and its handler is told to
        stop. A job that has ended is refused: with `WrongState` if it is kept, else with `NotFound`."""
        store, name = self._queue.store, self._queue.name
        changed = await self._call(lambda call: store.cancel(name, [self.id], reason=reason, call=call))
        if changed.done:  # of one that runs its worker tells, once it has ended
            event = JobEvent(queue=name, job_id=self.id, job_name=self.name, error=reason)
            self._queue.services.events.emit("cancelled", event)
        if changed.asked:
            return "requested"
        await self._check(changed, "cancelled")
        return "cancelled"

    async def remove(self) -> None:
        """Delete it, with all that belongs to it; a dead letter is discarded. A running job cannot be removed: cancel
        it."""
        store, name = self._queue.store, self._queue.name
        if await self._where() == "queue":
            await self._check(await self._call(lambda call: store.remove(name, [self.id], call=call)), "removed")
            return
        letter = letter_id(name, self.id)
        if not (await self._call(lambda call: store.dead_letters.discard([letter], call=call))).done:
            raise NotFound(f"there is no job {self.id!r} in queue {name!r}")

    async def retry(self) -> None:
        """Run it again after it has ended, with all its attempts: from its queue, if that keeps it, or from the dead
        letters. Its log goes on; progress and errors begin anew. A parent that failed waits for its children that have
        not succeeded, which run again with it."""
        from toril.operate.dead_letters import replay_job  # noqa: PLC0415 - which is made of jobs

        await (self._queue.retry(self.id) if self.dead_letter is None else replay_job(self._queue, self.id))

    async def promote(self) -> None:
        """Do not wait for its delay any longer."""
        store, name = self._queue.store, self._queue.name
        await self._check(await self._call(lambda call: store.promote(name, [self.id], call=call)), "promoted")

    async def update_data(self, data: Any) -> None:
        """Replace its payload, checked as in `add`."""
        await self._update(SetData(self.id, self._queue.handlers.encode(self.name, data)), "changed")
        self.data = data

    async def set_priority(self, priority: int, *, lifo: bool = False) -> None:
        """Move it within the line; only before it starts. Lower numbers run first, and jobs without a priority (0) run
        before all of them, unless the queue is declared with `priority_first=True`."""
        await self._update(SetPriority(self.id, priority, lifo), "reprioritized")

    async def set_delay(self, delay: Duration) -> None:
        """Let a delayed job wait for this long from now."""
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
