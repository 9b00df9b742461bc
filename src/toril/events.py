"""Events of this process, and their listeners."""

import asyncio
import inspect
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias, get_args

from toril.errors import EngineUnavailable, InvalidOption, TorilError, preview
from toril.model import Recovered
from toril.model.values import fast_frozen_kw

__all__ = [
    "AWAY",
    "STALLED_OUT",
    "EventName",
    "Events",
    "JobEvent",
    "Listener",
    "WorkerEvent",
    "tell_recovered",
    "trouble",
]

AWAY: Final = EngineUnavailable.__name__  # the kind of all errors of a store that does not answer

EventName: TypeAlias = Literal[
    "added",
    "active",
    "progress",
    "completed",
    "failed",
    "retrying",
    "snoozed",
    "released",
    "parked",
    "cancelled",
    "expired",
    "stalled",
    "lease_lost",
    "stuck",
    "signal_unfit",
    "signals_unread",
    "drained",
    "paused",
    "resumed",
    "booted",
    "worker_started",
    "worker_stopped",
    "breaker",
    "leadership_acquired",
    "leadership_lost",
    "repaired",
    "error",
]

# The error of a last `stalled`: the job has failed, or was being cancelled.
STALLED_OUT: Final = "stalled too often, so it failed"
_CANCELLED: Final = "was cancelled: its worker died after it was asked to stop"

_NAMES: Final = get_args(EventName)
_log = logging.getLogger("toril")


@fast_frozen_kw
class JobEvent:
    """Something that happened to a job in this process.

    `duration` and `delay` are seconds. `attempt` counts from 1, and is 0 before the first. `detail` is the progress, a
    summary of the result, or the traceback. `max_attempts` comes with failed attempts; `skipped` says why a completed
    job was skipped.
    """

    queue: str
    job_id: str
    job_name: str
    attempt: int = 0
    worker: str | None = None
    duration: float | None = None
    error: str | None = None
    kind: str | None = None
    delay: float | None = None
    subject: str | None = None
    max_attempts: int | None = None
    skipped: str | None = None
    detail: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerEvent:
    """Something that happened to a worker, a queue or the store."""

    worker: str | None = None
    queue: str | None = None
    error: str | None = None
    faults: str | None = None
    kind: str | None = None
    detail: Any = None


def trouble(error: TorilError, worker: str, queue: str | None = None) -> WorkerEvent:
    """An error of the store as an event. All errors of a store that does not answer have one kind."""
    kind = AWAY if isinstance(error, EngineUnavailable) else type(error).__name__
    return WorkerEvent(worker=worker, queue=queue, error=str(error), kind=kind)


def tell_recovered(events: "Events", queue: str, found: Recovered, worker: str | None) -> None:
    """Emit `stalled` for jobs that were recovered, and `cancelled` for those that ended that way. Only their ids are
    known."""
    ends = dict.fromkeys(found.returned) | dict.fromkeys(found.failed, STALLED_OUT)
    ends |= dict.fromkeys(found.cancelled, _CANCELLED)
    for job, error in ends.items():
        events.emit("stalled", JobEvent(queue=queue, job_id=job, job_name="", worker=worker, error=error))
    for job in found.cancelled:
        events.emit("cancelled", JobEvent(queue=queue, job_id=job, job_name="", worker=worker, error=_CANCELLED))


Listener: TypeAlias = Callable[[Any], Any]


class Events:
    """Listeners by event name."""

    def __init__(self) -> None:
        self._listeners: dict[str, list[Listener]] = {}
        self._tasks: set[asyncio.Task[Any]] = set()
        self._paused: dict[str, bool] = {}
        self.failures = 0

    def on(self, name: EventName, listener: Listener) -> None:
        """Call `listener` with each event of this name. Raises `InvalidOption` if there is no such event."""
        if name not in _NAMES:
            raise InvalidOption(f"unknown event {preview(name)}; the events are {', '.join(_NAMES)}")
        if not callable(listener):
            raise TypeError(f"a listener must be callable, not {preview(listener)}")
        self._listeners.setdefault(name, []).append(listener)

    @property
    def any(self) -> bool:
        """Whether there are any listeners."""
        return bool(self._listeners)

    def wanted(self, name: EventName) -> bool:
        """Whether anyone listens to this event; if not, it need not be created."""
        return name in self._listeners

    def emit(self, name: EventName, event: JobEvent | WorkerEvent) -> None:
        """Call all listeners, in the order in which they were added. Coroutines run as tasks."""
        for listener in self._listeners.get(name, ()):
            try:
                answer = listener(event)
                if answer is not None and inspect.isawaitable(answer):
                    self._follow(answer)
            except Exception:  # logged; it must not affect whoever emitted the event
                self._failed(name)

    def paused(self, queue: str, *, now: bool, worker: str | None = None) -> None:
        """Emit `paused` or `resumed` if this is news in this process."""
        if self._paused.get(queue, False) is not now:
            self._paused[queue] = now
            self.emit("paused" if now else "resumed", WorkerEvent(worker=worker, queue=queue))

    def _follow(self, answer: Any) -> None:
        task = asyncio.ensure_future(answer)
        self._tasks.add(task)
        task.add_done_callback(self._over)

    def _over(self, task: "asyncio.Task[Any]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            self.failures += 1
            _log.error("a listener failed", exc_info=task.exception())

    def _failed(self, name: str) -> None:
        self.failures += 1
        _log.exception("a listener failed", extra={"event": name})

    async def settle(self, seconds: float) -> None:
        """Give listeners that are still running on this loop this long to finish."""
        here = [task for task in tuple(self._tasks) if task.get_loop() is asyncio.get_running_loop()]
        if here:
            await asyncio.wait(here, timeout=seconds)
