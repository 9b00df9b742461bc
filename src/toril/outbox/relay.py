"""The relay: moves each row of the outbox into the store exactly once."""

import asyncio
import queue
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Final, TypeVar

from toril.codec.new_jobs import after_waiting, load_new_job
from toril.errors import (
    CallTooLate,
    InvalidName,
    InvalidOption,
    InvalidPayload,
    NotSerializable,
    PayloadTooLarge,
    QueueFull,
    TorilError,
    Undecodable,
    UsageError,
    error_text,
)
from toril.events import Events, JobEvent, WorkerEvent, trouble
from toril.model import LASTING, Added, AddOutcome, Call, NewJob
from toril.outbox.database import MOST, Batch, Database, OutboxAway
from toril.runtime.clock import Clock
from toril.runtime.logs import log
from toril.store.engine import Engine

__all__ = ["OwnThread", "Relay"]

T = TypeVar("T")


class OwnThread:
    """Runs calls one after the other in a thread. Unlike an executor's threads it is not waited for when the process
    ends, so a database that does not answer cannot keep the process alive."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._orders: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._begun = False

    async def do(self, work: Callable[..., T], *arguments: Any) -> T:
        """What `work` returns or raises. If this is cancelled, work that has begun continues to its end."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()

        def order() -> None:
            if future.cancelled():
                return
            answer: Any = None
            error: BaseException | None = None
            try:
                answer = work(*arguments)
            except BaseException as raised:  # the caller handles it; it must not end the thread
                error = raised
            with suppress(RuntimeError):  # the loop is closed, so nobody is waiting
                loop.call_soon_threadsafe(_deliver, future, answer, error)

        if not self._begun:
            self._begun = True
            threading.Thread(target=_main, args=(self._orders,), name=self._name, daemon=True).start()
        self._orders.put(order)
        return await future

    def close(self) -> None:
        """End after the calls that are queued already."""
        if self._begun:
            self._begun = False
            self._orders.put(None)
            self._orders = queue.SimpleQueue()


def _main(orders: "queue.SimpleQueue[Callable[[], None] | None]") -> None:
    while (order := orders.get()) is not None:
        order()
        del order  # and the objects that it holds, while the thread is idle


def _deliver(future: "asyncio.Future[T]", answer: T, error: BaseException | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(answer)
    else:
        future.set_exception(error)


_FIRST_REST: Final = 0.02  # seconds after a write in this process, which is about to be committed
_LONGEST_REST: Final = 1.0
_AFTER_TROUBLE: Final = (0.5, 15.0)  # seconds, at first and at most
_FULL: Final = 1.0  # seconds during which a full queue is left alone
_OF_THE_ROW: Final = (InvalidName, InvalidOption, InvalidPayload, NotSerializable, PayloadTooLarge)  # what stays wrong
_LAST_ROUND: Final = 5.0  # seconds that a round may take when the worker stops


class Relay:
    """Takes a batch from the database, adds its jobs, deletes its rows. Whichever of these steps was the last, the next
    round continues from there, in this process or another."""

    def __init__(self, database: Database, store: Engine, clock: Clock, events: Events, name: str) -> None:
        self._database = database
        self._store = store
        self._clock = clock
        self._events = events
        self._name = name
        self._thread = OwnThread("toril-outbox")
        self._batch: Batch | None = None  # perhaps sent, and not known to be done
        self._taken_at = 0.0  # monotonic time to which the ages of its rows refer
        self._most: dict[str, int] = {}  # rows per batch, for queues that refused more
        self._full: dict[str, float] = {}  # full queues, and until when to leave them alone
        self.handed = 0  # jobs since the start
        self._away = False
        self._home: asyncio.AbstractEventLoop | None = None
        self._nudged = asyncio.Event()

    async def run(self) -> None:
        """Run until cancelled. Errors of the database or the store are reported once, then waited out."""
        self._home = asyncio.get_running_loop()
        rest = _FIRST_REST
        try:
            while True:
                try:
                    busy = await self._whole(self.round())
                except TorilError as error:
                    rest = _AFTER_TROUBLE[0] if not self._away else min(rest * 2, _AFTER_TROUBLE[1])
                    self.tell(error)
                else:
                    rest = 0 if busy else max(_FIRST_REST, min(rest * 2, _LONGEST_REST))
                    self._back()
                if rest and await self._rested(rest):
                    rest = _FIRST_REST
        finally:
            self._home = None
            await self.close()

    async def drain(self) -> int:
        """Move everything that is there now. Returns how many jobs that were."""
        before = self.handed
        while await self.round():
            pass
        return self.handed - before

    async def round(self) -> bool:
        """Move one batch, or finish one. Returns False if there was none."""
        if self._batch is None:
            if not await self._do(self._database.anything):
                return False
            now = self._clock.monotonic()
            self._full = {queue: until for queue, until in self._full.items() if until > now}
            fresh = LASTING + self._clock.unique()[:20]
            self._batch = await self._do(self._database.take, fresh, dict(self._most), list(self._full), _wrong_with)
            self._taken_at = self._clock.monotonic()
            if self._batch is None:
                return False
        try:
            await self._hand_over(self._batch)
        except Undecodable:  # a newer version began this batch and has to finish it
            self._batch = None
            raise
        self._batch = None
        return True

    def nudge(self) -> None:
        """Look soon, and more often for a while, because this process has written to the outbox. Callable from any
        thread."""
        home = self._home
        if home is not None and not home.is_closed():
            home.call_soon_threadsafe(self._nudged.set)

    async def close(self) -> None:
        """Close the connection, without waiting for a database that does not answer."""
        closing = asyncio.ensure_future(self._do(self._database.close))
        await asyncio.wait([closing], timeout=_LAST_ROUND)
        self._thread.close()

    # one batch

    async def _hand_over(self, batch: Batch) -> None:
        waited = int(1000 * (self._clock.monotonic() - self._taken_at))  # the store may have been away meanwhile
        jobs = [after_waiting(load_new_job(row.request), row.age + waited) for row in batch.rows]
        try:
            answers, error = await self._sent(batch, jobs)
        except CallTooLate:  # another relay has gone on from here; or the database was set back to an older state
            await self._do(self._database.retire, batch)
            return
        if not answers:
            await self._refuse(batch, error)
        elif _is_of_others(jobs, answers):
            log.error("two databases use lane %s of the outbox; one of them is a copy of the other", batch.lane)
            await self._do(self._database.retire, batch)
        else:
            await self._do(self._database.done, batch)
            self.handed += len(jobs)
            if batch.queue in self._most:
                self._most[batch.queue] = min(MOST, 2 * self._most[batch.queue])
            self._added(batch.queue, jobs, answers)

    async def _sent(self, batch: Batch, jobs: Sequence[NewJob]) -> tuple[list[Added], TorilError | None]:
        """What the store answers to this number, the same to every relay that asks; nothing if the number has no jobs
        and never will. A refusal alone does not last: the same call of a relay that was taken for dead may come when
        there is room. So the number is given to no jobs, unless it belongs to these by now."""
        call = Call(batch.lane, batch.seq)
        try:
            return await self._store.add(batch.queue, jobs, call=call), None
        except (QueueFull, *_OF_THE_ROW) as error:
            with suppress(InvalidName):  # of a queue that cannot be: nobody has sent this
                return await self._store.add(batch.queue, [], call=call), error
            return [], error

    async def _refuse(self, batch: Batch, error: TorilError | None) -> None:
        """Free the rows of a batch of which the store has taken nothing and will not. Without an error, another relay
        was told why, and did not get to record it."""
        alone = len(batch.rows) == 1 and isinstance(error, UsageError)
        await self._do(self._database.release, batch, {batch.rows[0].id: error_text(error)} if error and alone else {})
        if error is not None and not alone:
            self._make_smaller(batch)

    def _make_smaller(self, batch: Batch) -> None:
        """Try fewer jobs, because all of them did not fit. A queue that does not take a single one is full, and left
        alone for a while."""
        self._most[batch.queue] = max(1, len(batch.rows) // 2)
        if len(batch.rows) == 1:
            self._full[batch.queue] = self._clock.monotonic() + _FULL * (0.5 + self._clock.random())

    def _added(self, queue: str, jobs: Sequence[NewJob], answers: Sequence[Added]) -> None:
        if self._events.wanted("added"):
            for job, answer in zip(jobs, answers, strict=False):
                if answer.outcome in {AddOutcome.ADDED, AddOutcome.REPLACED}:
                    self._events.emit("added", JobEvent(queue=queue, job_id=answer.id, job_name=job.name))

    # waiting

    async def _do(self, work: Callable[..., T], *arguments: Any) -> T:
        """Run in the thread that owns the connection."""
        return await self._thread.do(work, *arguments)

    async def _whole(self, work: Any) -> Any:
        """Finish a round when the worker stops, unless it takes too long."""
        task = asyncio.ensure_future(work)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            await asyncio.wait([task], timeout=_LAST_ROUND)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            raise

    async def _rested(self, seconds: float) -> bool:
        """Wait, and tell whether a nudge came before the time was over."""
        waits = [
            asyncio.ensure_future(self._nudged.wait()),
            asyncio.ensure_future(self._clock.sleep(seconds * (0.75 + self._clock.random() / 2))),
        ]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
        nudged = self._nudged.is_set()
        self._nudged.clear()
        return nudged

    def tell(self, error: TorilError) -> None:
        if not self._away:
            self._away = True
            event = trouble(error, self._name)
            if isinstance(error, OutboxAway):
                event = WorkerEvent(worker=self._name, error=str(error), kind=OutboxAway.__name__)
            self._events.emit("error", event)

    def _back(self) -> None:
        if self._away:
            self._away = False
            log.info("the outbox is being relayed again")


def _wrong_with(request: str) -> str | None:
    """Why a row can never be added, or None."""
    try:
        job = load_new_job(request)
    except Undecodable as error:
        return str(error)
    return "the job has no id, which the relay needs to recognize it" if job.id is None else None


def _is_of_others(jobs: Sequence[NewJob], answers: Sequence[Added]) -> bool:
    """Whether this is the answer to a call of the same number with other jobs in it. Ids of jobs that may yield to
    another tell nothing."""
    answered = {answer.id for answer in answers}
    return any(job.dedup is None and job.id not in answered for job in jobs)
