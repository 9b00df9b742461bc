"""The words for what happens, and the job's own facts on every log record that is written while it runs."""

import logging
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from types import MappingProxyType
from typing import Any, Final, TypeAlias

from toril.events import AWAY, STALLED_OUT, EventName, Events, JobEvent, WorkerEvent
from toril.runtime.clock import SYSTEM

__all__ = ["Contact", "JobFields", "Outages", "current", "outages", "watch"]

log: Final = logging.getLogger("toril")
log.addHandler(logging.NullHandler())  # else Python prints warnings itself where nobody has configured logging

_TELL: Final = 10.0  # seconds between two lines about a store that is away
_UNSHOWN: Final = ("detail", "skipped")  # in a line: they are too long, or its first words
_TIMES: Final = ("duration", "delay")  # a record has them as whole milliseconds
_GIVEN: Final = ("job_id", "job_name")  # which another program may have made as long as it likes
_LONGEST: Final = 500  # characters of these in a line; a record has all of them

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


def _completed(event: JobEvent) -> str:
    return "job completed" if event.skipped is None else event.skipped


def _failed(event: JobEvent) -> str:
    if event.max_attempts is None:  # it was never started
        return "job failed"
    exhausted = event.attempt >= event.max_attempts
    return f"{_failure(event)}, {'exhausted retries' if exhausted else 'will not be tried again'}"


def _retrying(event: JobEvent) -> str:
    return f"{_failure(event)}, will be tried again"


def _failure(event: JobEvent) -> str:
    return "job first failure" if event.attempt == 1 else "job failed"


def _stalled(event: JobEvent) -> str | None:
    return None if event.error == STALLED_OUT else "job stalled"


def _stalled_out(event: JobEvent) -> str | None:
    return "job failed: its worker was lost once too often" if event.error == STALLED_OUT else None


# The level, and the words: a text, or what makes one of the event, and None where there is nothing to say.
_Line: TypeAlias = tuple[int, str | Callable[[Any], str | None]]
_LINES: Final[dict[EventName, _Line]] = {
    "added": (logging.DEBUG, "job added"),
    "active": (logging.DEBUG, "job started"),
    "completed": (logging.INFO, _completed),
    "failed": (logging.ERROR, _failed),
    "retrying": (logging.WARNING, _retrying),
    "snoozed": (logging.INFO, "job snoozed"),
    "released": (logging.INFO, "job given back"),
    "parked": (logging.INFO, "job waits for its children"),
    "cancelled": (logging.INFO, "job cancelled gracefully"),
    "expired": (logging.WARNING, "job expired before it was started"),
    "progress": (logging.DEBUG, "job progress"),
    "lease_lost": (logging.WARNING, "job lost: its lease ran out"),
    "stalled": (logging.WARNING, _stalled),
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
    "repaired": (logging.WARNING, "store repaired"),
    "error": (logging.ERROR, "worker error"),
}
_STALLED_OUT: Final[_Line] = (logging.ERROR, _stalled_out)


class Outages:
    """A store that is away is reported once in ten seconds, however many notice it, and however often; and once when it
    answers again."""

    def __init__(self) -> None:
        self.pass_on: Callable[[str | None], None] | None = None  # to the supervisor, which hears from all its children
        self._reported_at: float | None = None
        self._since: float | None = None  # when the outage that is not over was first reported

    def tell(self, text: str) -> None:
        now = SYSTEM.monotonic()
        if self._reported_at is not None and now - self._reported_at < _TELL:
            return
        self._reported_at = now
        self._since = now if self._since is None else self._since
        if self.pass_on is not None:
            self.pass_on(text)
        else:
            log.error("the store does not answer: %s", text)

    def over(self) -> None:
        """The store has answered one of those who missed it."""
        if self._since is None:
            return
        seconds, self._since = SYSTEM.monotonic() - self._since, None
        if self.pass_on is not None:
            self.pass_on(None)
        else:
            log.warning("the store answers again, after %.1f s", seconds)


outages: Final = Outages()


class Contact:
    """Whether the store answers one of those who ask it things. Each has its own: a process can have several stores,
    and what one of them answers does not end the outage of another."""

    __slots__ = ("_lost",)

    def __init__(self) -> None:
        self._lost = False

    def lost(self) -> None:
        """The store did not answer."""
        self._lost = True

    def made(self) -> None:
        """It has answered."""
        if self._lost:
            self._lost = False
            outages.over()


def watch(events: Events, levels: Mapping[str, int] = MappingProxyType({})) -> None:
    """Have the log written from the events. Queues that have a level of their own go by it, whatever the logger's is.
    Lines that no level lets through are not even listened for."""
    for name, (level, message) in (*_LINES.items(), ("stalled", _STALLED_OUT)):
        if log.isEnabledFor(level) or any(level >= own for own in levels.values()):
            events.on(name, _line(level, message, levels))


def _line(level: int, message: str | Callable[[Any], str | None], levels: Mapping[str, int]) -> Any:
    def write(event: JobEvent | WorkerEvent) -> None:
        if isinstance(event, WorkerEvent) and event.kind == AWAY:
            outages.tell(event.error or "")
            return
        words = message if isinstance(message, str) else message(event)
        if words is None or not _is_wanted(level, levels.get(event.queue or "")):
            return
        known = {name: value for name in event.__slots__ if (value := getattr(event, name)) is not None}
        facts = {name: round(value * 1000) if name in _TIMES else value for name, value in known.items()}
        shown = {name: value for name, value in facts.items() if name not in _UNSHOWN and value != ""}
        text = " ".join(f"{name}={_word(name, value)}" for name, value in shown.items())
        log.handle(log.makeRecord(log.name, level, __file__, 0, "%s %s", (words, text), None, extra=facts))

    return write


def _is_wanted(level: int, own: int | None) -> bool:
    """Whether a line of this level is written, for a queue with this level of its own."""
    return log.isEnabledFor(level) if own is None else level >= own and log.manager.disable < level


def _word(name: str, value: object) -> str:
    """A value on one line: an error's text cannot forge a second one."""
    text = f"{value}ms" if name in _TIMES else str(value)
    if name in _GIVEN and len(text) > _LONGEST:
        text = f"{text[:_LONGEST]}…"
    return text if text.isprintable() and " " not in text else ascii(text)
