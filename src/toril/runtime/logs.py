"""Words events as log lines, and adds the current job to every log record."""

import logging
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Final, Protocol, TypeAlias

from toril.events import AWAY, STALLED_OUT, EventName, Events, JobEvent, WorkerEvent
from toril.runtime.clock import SYSTEM

__all__ = ["Contact", "JobFields", "LineWriter", "Outages", "current", "outages", "output", "watch"]

log: Final = logging.getLogger("toril")
log.addHandler(logging.NullHandler())  # otherwise Python prints warnings itself if logging is not configured

_TELL: Final = 10.0  # seconds between two lines about an unavailable store
_TIMES: Final = ("duration", "delay")  # whole milliseconds in a record
_LONGEST: Final = 500  # characters of a job's id or name in a line; a record has all

# (queue, job id, job name, attempt) of the attempt that runs in this context.
current: Final[ContextVar[tuple[str, str, str, int] | None]] = ContextVar("toril_job", default=None)


class JobFields(logging.Filter):
    """Gives every record the fields `queue`, `job_id`, `job_name` and `attempt` of the job in which it was logged."""

    def filter(self, record: logging.LogRecord) -> bool:
        running = current.get()
        if running is not None:
            for name, value in zip(("queue", "job_id", "job_name", "attempt"), running, strict=True):
                if not hasattr(record, name):
                    setattr(record, name, value)
        return True


class LineWriter(Protocol):
    """A log handler that can write Toril's lines without a record for each."""

    def take(self, level: int, text: str) -> bool:
        """Take a line, to be written at the end of this turn of the loop. False if a record is needed."""

    def unwritten(self) -> list[str]:
        """The lines that were taken but not yet written."""


@dataclass(slots=True)
class _Output:
    """What writes this process's log, if it is a `LineWriter`."""

    writer: LineWriter | None = None


output: Final = _Output()


def _completed(event: JobEvent) -> str:
    return "job completed" if event.skipped is None else event.skipped


def _failed(event: JobEvent) -> str:
    if event.max_attempts is None:  # it never started
        return "job failed"
    exhausted = event.attempt >= event.max_attempts
    return f"{_failure(event)}, {'exhausted retries' if exhausted else 'will not be retried'}"


def _retrying(event: JobEvent) -> str:
    return f"{_failure(event)}, will be retried"


def _failure(event: JobEvent) -> str:
    return "job first failure" if event.attempt == 1 else "job failed"


def _stalled(event: JobEvent) -> str | None:
    return None if event.error == STALLED_OUT else "job stalled"


def _stalled_out(event: JobEvent) -> str | None:
    return "job failed: its worker was lost too often" if event.error == STALLED_OUT else None


# The level and the text, or a function that makes the text from the event; None for no line.
_Line: TypeAlias = tuple[int, str | Callable[[Any], str | None]]
_LINES: Final[dict[EventName, _Line]] = {
    "added": (logging.DEBUG, "job added"),
    "active": (logging.DEBUG, "job started"),
    "completed": (logging.INFO, _completed),
    "failed": (logging.ERROR, _failed),
    "retrying": (logging.WARNING, _retrying),
    "snoozed": (logging.INFO, "job snoozed"),
    "released": (logging.INFO, "job released"),
    "parked": (logging.INFO, "job resting"),
    "cancelled": (logging.INFO, "job cancelled"),
    "expired": (logging.WARNING, "job expired before it started"),
    "progress": (logging.DEBUG, "job progress"),
    "lease_lost": (logging.WARNING, "job lost: its lease ran out"),
    "stalled": (logging.WARNING, _stalled),
    "stuck": (logging.WARNING, "job does not stop; giving up its slot"),
    "signal_unfit": (logging.WARNING, "signal set aside: it is not of the type that the job waits for"),
    "signals_unread": (logging.WARNING, "job completed without reading all of its signals"),
    "drained": (logging.DEBUG, "queue drained"),
    "paused": (logging.INFO, "queue paused"),
    "resumed": (logging.INFO, "queue resumed"),
    "booted": (logging.DEBUG, "booted"),
    "worker_started": (logging.INFO, "worker started"),
    "worker_stopped": (logging.INFO, "worker stopped"),
    "breaker": (logging.WARNING, "circuit breaker changed"),
    "leadership_acquired": (logging.INFO, "became recovery leader"),
    "leadership_lost": (logging.INFO, "stepped down as recovery leader"),
    "repaired": (logging.WARNING, "store repaired"),
    "error": (logging.ERROR, "worker error"),
}
_STALLED_OUT: Final[_Line] = (logging.ERROR, _stalled_out)


class Outages:
    """Reports a store that is away once in ten seconds, however many callers notice it, and once when it answers
    again."""

    def __init__(self) -> None:
        self.pass_on: Callable[[str | None], None] | None = None  # to the supervisor of all children
        self._reported_at: float | None = None
        self._since: float | None = None  # when the current outage was first reported

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
        """The store has answered a caller again."""
        if self._since is None:
            return
        seconds, self._since = SYSTEM.monotonic() - self._since, None
        if self.pass_on is not None:
            self.pass_on(None)
        else:
            log.warning("the store answers again after %.1f s", seconds)


outages: Final = Outages()


class Contact:
    """Whether the store answers one caller. Each caller has its own: a process can have several stores, and an answer
    from one of them does not end the outage of another."""

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
    """Write the log from the events. Queues with a level of their own use that, whatever the logger's is. Events that
    no level would log are not listened to."""
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
        text = _job_line(words, event) if isinstance(event, JobEvent) else _worker_line(words, event)
        if event.kind is None and output.writer is not None and output.writer.take(level, text):
            return
        facts = {
            name: round(value * 1000) if name in _TIMES else value
            for name in type(event).__slots__  # type: ignore[union-attr] # mypy does not see those of `fast_frozen`
            if (value := getattr(event, name)) is not None
        }
        log.handle(log.makeRecord(log.name, level, __file__, 0, "%s", (text,), None, extra=facts))

    return write


def _job_line(words: str, event: JobEvent) -> str:
    """Written out by hand, because it runs for every job."""
    before, after, worker = _around_the_id(event.queue, event.job_name, event.worker)
    line = f"{words}{before}{_given(event.job_id)}{after}{event.attempt}{worker}"
    if event.duration is not None:
        line += f" duration={round(event.duration * 1000)}ms"
    if event.error:
        line += f" error={_word(event.error)}"
    if event.kind:
        line += f" kind={_word(event.kind)}"
    if event.delay is not None:
        line += f" delay={round(event.delay * 1000)}ms"
    if event.subject:
        line += f" subject={_word(event.subject)}"
    if event.max_attempts is not None:
        line += f" max_attempts={event.max_attempts}"
    return line


def _worker_line(words: str, event: WorkerEvent) -> str:
    known = {name: getattr(event, name) for name in event.__slots__ if name != "detail"}
    return " ".join([words, *(f"{name}={_word(value)}" for name, value in known.items() if value)])


def _is_wanted(level: int, own: int | None) -> bool:
    """Whether a line of this level is written for a queue with this level of its own."""
    return log.isEnabledFor(level) if own is None else level >= own and log.manager.disable < level


def _word(text: str) -> str:
    """A value on one line, so that the text of an error cannot forge another line."""
    return text if text.isprintable() and " " not in text else ascii(text)


def _given(text: str) -> str:
    """The same for values of unlimited length from other programs."""
    return _word(text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…")


@lru_cache(1000)
def _around_the_id(queue: str, name: str, worker: str | None) -> tuple[str, str, str]:
    """What stands around the id of a job and its attempt. There are few of these, and they recur."""
    return (
        f" queue={_word(queue)} job_id=",
        f"{f' job_name={_given(name)}' if name else ''} attempt=",
        f" worker={_word(worker)}" if worker else "",
    )
