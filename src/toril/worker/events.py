"""Emits the events of attempts, and calls the hooks for lost leases."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, Protocol

from toril.codec.encoding import decode
from toril.errors import EngineUnavailable
from toril.events import EventName, Events, JobEvent, WorkerEvent, trouble
from toril.job import Job
from toril.model import (
    CANCELLED_KIND,
    EXPIRED_KIND,
    Cancelled,
    Claimed,
    Completed,
    Exchange,
    Failed,
    Failure,
    Gate,
    Released,
    Rested,
    Retried,
    Settlement,
    Snoozed,
    Verdict,
)
from toril.queue import Queue
from toril.runtime.logs import log

__all__ = ["AttemptEvents", "LeaseLostHooks"]

_LAST: Final = 0.25  # seconds for hooks called when the worker ends


class LeaseLostHooks:
    """Calls the hooks of a queue for each job whose lease was lost here."""

    def __init__(self, queue: Queue, job: Callable[[Claimed], Job[Any]]) -> None:
        self._queue = queue
        self._job = job
        self._tasks: set[asyncio.Task[None]] = set()

    def lost(self, claimed: Claimed) -> None:
        if self._queue.handlers.lease_lost_hooks:
            task = asyncio.get_running_loop().create_task(self._call(claimed))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """Let running hooks finish, but not for long, because the process is ending."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=_LAST)
        for task in self._tasks:
            task.cancel()

    async def _call(self, claimed: Claimed) -> None:
        for hook, when in self._queue.handlers.lease_lost_hooks:
            try:
                job = self._job(claimed)
                if when is None or when(job):
                    answer = hook(job)
                    if isinstance(answer, Awaitable):
                        await answer
            except BaseException:
                task = asyncio.current_task()
                if task is not None and task.cancelling():  # by us
                    raise
                log.exception("on_lease_lost failed for job %s of queue %s", claimed.lease.id, self._queue.name)


_UNSTARTED: Final[Mapping[str, EventName]] = {EXPIRED_KIND: "expired", CANCELLED_KIND: "cancelled"}


class _EventServices(Protocol):
    @property
    def events(self) -> Events: ...

    @property
    def name(self) -> str: ...


class AttemptEvents:
    """One worker's events. An ending is emitted once the store has accepted it."""

    def __init__(self, queue: str, services: _EventServices, lease_lost: Callable[[Claimed], None]) -> None:
        self._lease_lost = lease_lost
        self._queue = queue
        self._services = services
        self._events = services.events
        self._ended: dict[str, tuple[Claimed, int]] = {}

    def started(self, job: Claimed) -> None:
        self._tell("active", job)

    def progress(self, job: Claimed, value: str) -> None:
        if self._events.wanted("progress"):
            self._tell("progress", job, detail=decode(value, what="progress"))

    def looked(self, answer: Exchange) -> None:
        """A claim has read the queue: it may be paused, and some jobs may have ended there."""
        self._events.paused(self._queue, now=answer.blocked_by is Gate.PAUSED, worker=self._services.name)
        for each in answer.unstarted:
            event = JobEvent(
                queue=self._queue,
                job_id=each.id,
                job_name=each.name,
                worker=self._services.name,
                error=each.failure.reason,
                kind=each.failure.kind,
            )
            self._events.emit(_UNSTARTED.get(each.failure.kind, "failed"), event)

    def unavailable(self, error: EngineUnavailable) -> None:
        self._events.emit("error", trouble(error, self._services.name, self._queue))

    def drained(self) -> None:
        self._events.emit("drained", WorkerEvent(worker=self._services.name, queue=self._queue))

    def signal_unfit(self, job: Claimed, why: str) -> None:
        """A signal to a job was not of the type that it waits for."""
        self._tell("signal_unfit", job, error=why)

    def signals_unread(self, job: Claimed, names: Sequence[str]) -> None:
        """A handler has returned, and these signals to its job are dropped."""
        self._tell("signals_unread", job, detail=list(names))

    def stuck(self, job: Claimed, stack: str) -> None:
        """The attempt was told to stop, and does not."""
        log.warning("job %s of queue %s was asked to stop but is still running:\n%s", job.lease.id, self._queue, stack)
        self._tell("stuck", job, detail=stack)

    def lost(self, job: Claimed, duration: int | None = None) -> None:
        self._tell("lease_lost", job, duration)
        self._lease_lost(job)

    def ended(self, job: Claimed, duration: int) -> None:
        """Remember it until the store has answered."""
        self._ended[job.lease.token + job.lease.id] = (job, duration)

    def settled(self, settlement: Settlement, verdict: Verdict) -> None:
        lease = settlement.lease
        job, duration = self._ended.pop(lease.token + lease.id)
        if verdict is not Verdict.OK:
            self.lost(job, duration)
            return
        if not self._events.any:
            return
        match settlement.outcome:
            case Completed(_, summary, skipped):
                self._tell("completed", job, duration, detail=summary, skipped=skipped)
            case Failed(failure):
                self._tell_failed("failed", job, duration, failure)
            case Retried(failure, delay):
                self._tell_failed("retrying", job, duration, failure, delay)
            case Snoozed(delay):
                self._tell("snoozed", job, duration, delay=delay)
            case Released():
                self._tell("released", job, duration)
            case Rested():
                self._tell("parked", job, duration)
            case Cancelled(reason):
                self._tell("cancelled", job, duration, reason)

    def _tell_failed(
        self, name: EventName, job: Claimed, duration: int, failure: Failure, delay: int | None = None
    ) -> None:
        self._tell(
            name,
            job,
            duration,
            failure.reason,
            failure.kind,
            delay,
            failure.traceback or None,
            max_attempts=job.max_attempts,
        )

    def _tell(
        self,
        name: EventName,
        job: Claimed,
        duration: int | None = None,
        error: str | None = None,
        kind: str | None = None,
        delay: int | None = None,
        detail: object = None,
        max_attempts: int | None = None,
        skipped: str | None = None,
    ) -> None:
        if self._events.wanted(name):
            event = JobEvent(
                queue=self._queue,
                job_id=job.lease.id,
                job_name=job.name,
                attempt=job.attempts_made + 1,
                worker=self._services.name,
                duration=None if duration is None else duration / 1000,
                error=error,
                kind=kind,
                delay=None if delay is None else delay / 1000,
                detail=detail,
                subject=job.options.subject,
                max_attempts=max_attempts,
                skipped=skipped,
            )
            self._events.emit(name, event)
