"""The words for what happens, and the job's own facts on every log record that is written while it runs."""

import logging
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, Final

from toril.clock import SYSTEM
from toril.events import AWAY, EventName, Events, JobEvent, WorkerEvent

__all__ = ["JobFields", "Outages", "current", "outages", "watch"]

log: Final = logging.getLogger("toril")
log.addHandler(logging.NullHandler())  # else Python prints warnings itself where nobody has configured logging

_TELL: Final = 10.0  # seconds between two lines about a store that is away

# (queue, job id, job name, attempt) of the attempt that runs in this context.
current: Final[ContextVar[tuple[str, str, str, int] | None]] = ContextVar("toril_job", default=None)


class JobFields(logging.Filter):
    """Gives every record the fields `queue`, `job_id`, `job_name` and `attempt` of the job that it was written in."""

    def filter(self, record: logging.LogRecord) -> bool:
        running = current.get()
        if running is not None:
            for name, value in zip(("queue", "job_id", "job_name", "attempt"), running, strict=True):
                if not hasattr(record, name):
                    setattr(record, name, value)
        return True


_LINES: Final[dict[EventName, tuple[int, str]]] = {
    "added": (logging.DEBUG, "job added"),
    "active": (logging.DEBUG, "job started"),
    "completed": (logging.INFO, "job completed"),
    "failed": (logging.ERROR, "job failed"),
    "retrying": (logging.WARNING, "job failed, will be tried again"),
    "snoozed": (logging.INFO, "job snoozed"),
    "released": (logging.INFO, "job given back"),
    "parked": (logging.INFO, "job waits for its children"),
    "cancelled": (logging.INFO, "job cancelled gracefully"),
    "expired": (logging.WARNING, "job expired before it was started"),
    "progress": (logging.DEBUG, "job progress"),
    "lease_lost": (logging.WARNING, "job lost: its lease ran out"),
    "stalled": (logging.WARNING, "job stalled"),
    "stuck": (logging.WARNING, "job does not stop; its slot is given up"),
    "drained": (logging.DEBUG, "queue drained"),
    "paused": (logging.INFO, "queue paused"),
    "resumed": (logging.INFO, "queue resumed"),
    "booted": (logging.DEBUG, "booted"),
    "worker_started": (logging.INFO, "worker started"),
    "worker_stopped": (logging.INFO, "worker stopped"),
    "breaker": (logging.WARNING, "circuit breaker changed"),
    "leadership_acquired": (logging.INFO, "leads the recovery"),
    "leadership_lost": (logging.INFO, "leads the recovery no more"),
    "mended": (logging.WARNING, "store mended"),
    "error": (logging.ERROR, "worker error"),
}


class Outages:
    """A store that is away is told of once in ten seconds, however many notice it, and however often."""

    def __init__(self) -> None:
        self.pass_on: Callable[[str], None] | None = None  # to the supervisor, which hears from all its children
        self._told: float | None = None

    def tell(self, text: str) -> None:
        now = SYSTEM.monotonic()
        if self._told is not None and now - self._told < _TELL:
            return
        self._told = now
        if self.pass_on is not None:
            self.pass_on(text)
        else:
            log.error("the store does not answer: %s", text)


outages: Final = Outages()


def watch(events: Events) -> None:
    """Have the log written from the events. Lines that the level would drop are not even listened for."""
    for name, (level, message) in _LINES.items():
        if log.isEnabledFor(level):
            events.on(name, _line(level, message))


def _line(level: int, message: str) -> Any:
    def write(event: JobEvent | WorkerEvent) -> None:
        if isinstance(event, WorkerEvent) and event.kind == AWAY:
            outages.tell(event.error or "")
            return
        facts = {name: getattr(event, name) for name in event.__slots__ if getattr(event, name) is not None}
        shown = " ".join(f"{name}={_word(value)}" for name, value in facts.items() if name != "detail")
        log.log(level, "%s %s", message, shown, extra=facts)

    return write


def _word(value: object) -> str:
    """A value on one line: an error's text cannot forge a second one."""
    text = str(value)
    return text if text.isprintable() and " " not in text else ascii(text)
