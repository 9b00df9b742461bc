"""Retries: backoffs, error classes, and what becomes of a failed attempt."""

from asyncio import CancelledError
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Final, Literal, TypeAlias

from toril.errors import (
    EngineUnavailable,
    InvalidOption,
    InvalidPayload,
    JobCancelled,
    PermanentError,
    RateLimited,
    Resting,
    Snooze,
    StepFailed,
    TransientError,
    Undecodable,
    preview,
)
from toril.model import (
    MAX_ATTEMPTS,
    Backoff,
    Cancelled,
    Claimed,
    Failed,
    Failure,
    Outcome,
    Released,
    Rested,
    Retried,
    Snoozed,
    check_int,
)
from toril.model.durations import MAX_DELAY, Duration, milliseconds

__all__ = [
    "BUILT_IN",
    "DECORRELATED",
    "DEFAULTS",
    "BackoffStrategy",
    "ErrorKinds",
    "ErrorTable",
    "Exponential",
    "Fixed",
    "Nature",
    "Retry",
    "Strategy",
    "Waiting",
    "cause_of",
    "check_known",
    "check_strategy",
    "delay_before_retry",
    "judge",
    "lineage",
    "names_of",
    "nature_of",
    "own_table",
    "respect_retry_after",
    "seconds_asked",
    "unwrapped",
]

ErrorKinds: TypeAlias = "type[BaseException] | str | Iterable[type[BaseException] | str]"


class Nature(StrEnum):
    """Whether trying again may help. Only what is known to be transient counts against a circuit breaker."""

    TRANSIENT = "transient"
    PERMANENT = "permanent"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class ErrorTable:
    """Which errors are retried and which are not, by the full names of their classes. If `on` has any, all others are
    not."""

    on: tuple[str, ...] = ()
    give_up_on: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.on or self.give_up_on)


# Names of libraries' errors, so that nothing has to be imported.
_TRANSIENT: Final = frozenset({
    "builtins.ConnectionError", "builtins.TimeoutError", "builtins.BlockingIOError", "socket.gaierror",
    "http.client.RemoteDisconnected", "http.client.IncompleteRead",
    "requests.exceptions.ConnectionError", "requests.exceptions.Timeout", "requests.exceptions.ChunkedEncodingError",
    "httpx.TransportError", "httpcore.NetworkError", "httpcore.TimeoutException",
    "aiohttp.client_exceptions.ClientConnectionError", "aiohttp.client_exceptions.ServerTimeoutError",
    "urllib3.exceptions.ProtocolError", "urllib3.exceptions.TimeoutError",
    "redis.exceptions.ConnectionError", "redis.exceptions.TimeoutError", "redis.exceptions.BusyLoadingError",
    "sqlalchemy.exc.OperationalError", "sqlalchemy.exc.TimeoutError", "psycopg.OperationalError",
    "psycopg2.OperationalError", "sqlite3.OperationalError", "pymysql.err.OperationalError",
    "django.db.utils.OperationalError", "asyncpg.exceptions.PostgresConnectionError",
    "asyncpg.exceptions.TooManyConnectionsError", "pymongo.errors.AutoReconnect",
    "botocore.exceptions.EndpointConnectionError", "botocore.exceptions.ConnectionClosedError",
})  # fmt: skip
_PERMANENT: Final = frozenset({
    "pydantic_core._pydantic_core.ValidationError", "pydantic.v1.error_wrappers.ValidationError",
    "jsonschema.exceptions.ValidationError", "marshmallow.exceptions.ValidationError",
    "django.core.exceptions.ValidationError", "msgspec.ValidationError", "cattrs.errors.BaseValidationError",
})  # fmt: skip
DEFAULTS: Final = ErrorTable()

_SAYS_SO: Final[tuple[tuple[type[BaseException], Nature], ...]] = (
    (PermanentError, Nature.PERMANENT),
    (InvalidPayload, Nature.PERMANENT),
    (Undecodable, Nature.PERMANENT),
    (TransientError, Nature.TRANSIENT),
    (EngineUnavailable, Nature.TRANSIENT),
)
# The same by name, for errors of which nothing but their names is left.
_NAMED: Final = {f"{kind.__module__}.{kind.__qualname__}": nature for kind, nature in _SAYS_SO}


def nature_of(error: BaseException, table: ErrorTable = DEFAULTS) -> Nature:
    """Decide by what the error itself says, then by the table, then by what is known of libraries. If several classes
    of a table apply, the most specific one decides. A failed step counts as its cause."""
    error = cause_of(error)
    for kind, nature in _SAYS_SO:
        if isinstance(error, kind):
            return nature
    names = lineage(error)
    if isinstance(error, StepFailed):
        for name in names:
            if name in _NAMED:
                return _NAMED[name]
    return _nearest(names, table.on, table.give_up_on) or (
        Nature.PERMANENT if table.on else _nearest(names, _TRANSIENT, _PERMANENT) or Nature.UNKNOWN
    )


def _nearest(names: Sequence[str], transient: Container[str], permanent: Container[str]) -> Nature | None:
    for name in names:
        if name in permanent:
            return Nature.PERMANENT
        if name in transient:
            return Nature.TRANSIENT
    return None


def cause_of(error: BaseException) -> BaseException:
    """The error by which a step has failed, in the run in which it happened; any other error is its own."""
    return error.__cause__ if isinstance(error, StepFailed) and error.__cause__ is not None else error


def unwrapped(error: BaseException) -> BaseException:
    """What a handler has raised, out of the group in which a `TaskGroup` raises it if tasks of the handler rest. A real
    error beside them counts, and the job does not rest."""
    if not isinstance(error, BaseExceptionGroup) or error.subgroup(Resting) is None:
        return error
    _, others = error.split((Resting, CancelledError))
    if others is not None:
        leaves = list(_leaves(others))
        return leaves[0] if len(leaves) == 1 else others
    rested = [each.rested for each in _leaves(error) if isinstance(each, Resting) and isinstance(each.rested, Rested)]
    return Resting(
        Rested(
            tuple({node.ref: node for each in rested for node in each.children}.values()),
            max((each.children_round for each in rested), default=0),
            tuple({rest.key: rest for each in rested for rest in each.rests}.values()),
        )
    )


def _leaves(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for each in error.exceptions:
            yield from _leaves(each)
    else:
        yield error


def lineage(error: BaseException) -> tuple[str, ...]:
    """The full names of an error's class and its base classes, its own first. An error that was raised in another
    process has the names of the original."""
    stored = getattr(error, "lineage", None)
    if isinstance(stored, tuple):
        return stored
    return tuple(_name(kind) for kind in type(error).__mro__ if kind is not object)


def names_of(what: str, given: ErrorKinds) -> tuple[str, ...]:
    """The full names of exception classes, which may already be names."""
    several = [given] if isinstance(given, type | str) or not isinstance(given, Iterable) else list(given)
    names = []
    for each in several:
        if isinstance(each, type) and issubclass(each, BaseException):
            names.append(_name(each))
        elif isinstance(each, str) and "." in each:
            names.append(each)
        else:
            raise InvalidOption(f"{what} must list exception classes or their full names, not {preview(each)}")
    return tuple(names)


def _name(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


DECORRELATED: Final = "toril:decorrelated"  # the strategy's name on the wire
JITTER_CAP: Final = 30.0  # seconds, if there is jitter without a cap


@dataclass(frozen=True, slots=True)
class Fixed:
    """The same delay before every retry.

    Args:
        seconds: The delay.
    """

    seconds: Duration

    def __post_init__(self) -> None:
        milliseconds("a backoff", self.seconds)

    def wire(self) -> Backoff:
        """The backoff as jobs carry it."""
        return Backoff(kind="fixed", delay=milliseconds("a backoff", self.seconds))


@dataclass(frozen=True, slots=True)
class Exponential:
    """A delay that doubles with every retry: `Exponential(1)` waits 1, 2, 4, 8 s.

    Args:
        seconds: The first delay.
        cap: The longest delay; 30 s by default if there is jitter.
        jitter: `"full"` draws each delay from zero to that; a number from 0 to 1 randomizes that share of it;
            `"decorrelated"` draws it from `seconds` to three times the last one.
    """

    seconds: Duration
    cap: Duration | None = None
    jitter: Literal["full", "decorrelated"] | float | None = None

    def __post_init__(self) -> None:
        milliseconds("a backoff", self.seconds)
        if self.cap is not None:
            milliseconds("a backoff's cap", self.cap)
        known = self.jitter in {"full", "decorrelated"} if isinstance(self.jitter, str) else _is_share(self.jitter)
        if not known:
            raise InvalidOption(
                f"jitter must be 'full', 'decorrelated' or a number from 0 to 1, not {preview(self.jitter)}"
            )

    def wire(self) -> Backoff:
        """The backoff as jobs carry it."""
        cap = JITTER_CAP if self.cap is None and self.jitter else self.cap
        share = 1.0 if isinstance(self.jitter, str) else self.jitter or 0.0
        return Backoff(
            kind="exponential",
            delay=milliseconds("a backoff", self.seconds),
            cap=None if cap is None else milliseconds("a backoff's cap", cap),
            jitter=share,
            strategy=DECORRELATED if self.jitter == "decorrelated" else None,
        )


def _is_share(jitter: object) -> bool:
    return jitter is None or (isinstance(jitter, int | float) and not isinstance(jitter, bool) and 0 <= jitter <= 1)


@dataclass(frozen=True, slots=True)
class Strategy:
    """A backoff strategy of your app.

    Args:
        name: The name under which `app.backoff(name)` declares it.
        otherwise: The backoff for workers that do not have the strategy, such as those in Node.
    """

    name: str
    otherwise: Fixed | Exponential = Exponential(1)

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not 1 <= len(self.name) <= 64 or not self.name.isprintable():
            raise InvalidOption(f"a strategy's name must have 1 to 64 printable characters; got {preview(self.name)}")
        if not isinstance(self.otherwise, Fixed | Exponential):
            raise InvalidOption(
                f"a Strategy's otherwise must be Fixed(…) or Exponential(…), not {preview(self.otherwise)}"
            )

    def wire(self) -> Backoff:
        """The backoff as jobs carry it."""
        return replace(self.otherwise.wire(), strategy=self.name)


Waiting: TypeAlias = Fixed | Exponential | Strategy


@dataclass(frozen=True, slots=True)
class Retry:
    """How failed jobs are retried.

    Args:
        attempts: How many attempts a job gets in all, including the first: five attempts have four delays.
        backoff: How long to wait between attempts: `Fixed`, `Exponential` or `Strategy`.
        on: Exception classes, or their full names: retry only these, and `TransientError`.
        give_up_on: Exceptions for which the job fails at once. If several of the named classes apply, the most specific
            one decides.
    """

    attempts: int = 5
    backoff: Waiting = Exponential(1)
    on: ErrorKinds = ()
    give_up_on: ErrorKinds = ()

    def __post_init__(self) -> None:
        check_int("attempts", self.attempts, 1, MAX_ATTEMPTS)
        if not isinstance(self.backoff, Fixed | Exponential | Strategy):
            raise InvalidOption(
                f"a backoff must be Fixed(…), Exponential(…) or Strategy(…), not {preview(self.backoff)}"
            )
        object.__setattr__(self, "on", names_of("on", self.on))
        object.__setattr__(self, "give_up_on", names_of("give_up_on", self.give_up_on))

    @property
    def table(self) -> ErrorTable:
        """Which errors are retried."""
        return ErrorTable(names_of("on", self.on), names_of("give_up_on", self.give_up_on))

    def wire(self) -> Backoff:
        """What a job that was added with this `Retry` carries."""
        table = self.table
        return replace(self.backoff.wire(), on=table.on, give_up_on=table.give_up_on)


def delay_before_retry(backoff: Backoff | None, *, failures: int, previous: int, chance: float) -> int:
    """Milliseconds before the next attempt, after `failures` failed ones; `chance` is from [0, 1)."""
    if backoff is None:
        return 0
    if backoff.strategy == DECORRELATED:
        return _decorrelated(backoff, previous if failures > 1 else backoff.delay, chance)
    doublings = 0 if backoff.kind == "fixed" else min(failures - 1, 40)  # 2^40 ms exceeds the longest delay
    delay = backoff.delay << doublings
    delay = min(delay, MAX_DELAY if backoff.cap is None else backoff.cap)
    return round(delay * (1 - backoff.jitter * chance))


def _decorrelated(backoff: Backoff, previous: int, chance: float) -> int:
    low, high = backoff.delay, 3 * max(previous, backoff.delay)
    return min(round(low + (high - low) * chance), MAX_DELAY if backoff.cap is None else backoff.cap)


def judge(
    error: BaseException,
    failure: Failure,
    job: Claimed,
    *,
    chance: float,
    table: ErrorTable = DEFAULTS,
    delay: int | None = None,
) -> Outcome:
    """Retry while attempts are left, unless the error, or the table of errors, says otherwise. `delay` is what the
    app's own strategy has decided."""
    failures = job.attempts_made + 1
    match error:
        case Snooze():
            return Snoozed(milliseconds("a snooze", error.seconds))
        case Resting(rested=Rested() as rested):
            return rested
        case RateLimited():
            return Released()  # the queue is on hold meanwhile
        case JobCancelled(job_id=None):  # otherwise this job waited for another one that was cancelled
            return Cancelled(error.reason)
        case _ if failures >= job.max_attempts or nature_of(error, own_table(job) or table) is Nature.PERMANENT:
            return Failed(failure)
    if delay is None:
        delay = delay_before_retry(job.options.backoff, failures=failures, previous=job.delay, chance=chance)
    error = cause_of(error)
    if isinstance(error, TransientError) and error.retry_after is not None:
        delay = max(delay, milliseconds("retry_after", error.retry_after))
    return Retried(failure, delay)


def own_table(job: Claimed) -> ErrorTable:
    """The table of errors in the job's own options."""
    backoff = job.options.backoff
    return DEFAULTS if backoff is None else ErrorTable(backoff.on, backoff.give_up_on)


# (failed attempts, error, job) -> seconds until the next attempt.
BackoffStrategy: TypeAlias = Callable[[int, BaseException, Any], Duration]

_LONGEST: Final = 30.0
_FIRST: Final = 2.0


def respect_retry_after(attempts: int, error: BaseException, _job: Any) -> Duration:
    """The delay that the error asks for; otherwise 2 s, doubled with each failed attempt, at most 30 s."""
    asked = seconds_asked(error)
    return min(_LONGEST, _FIRST * 2 ** min(attempts, 10)) if asked is None else asked


def seconds_asked(error: BaseException) -> Duration | None:
    """The `retry_after` of an error, if it has one; of other libraries' errors too, if it is a number."""
    error = cause_of(error)
    if isinstance(error, TransientError):
        return error.retry_after
    asked = getattr(error, "retry_after", None)
    return asked if isinstance(asked, int | float) and not isinstance(asked, bool) else None


BUILT_IN: Final[dict[str, BackoffStrategy]] = {"respect-retry-after": respect_retry_after}


def check_strategy(name: object, fn: object) -> None:
    """Raise for a strategy without a usable name or function."""
    if not isinstance(name, str) or not 1 <= len(name) <= 64 or not name.isprintable() or name.startswith("toril:"):
        raise InvalidOption(f"a strategy's name must have 1 to 64 printable characters; got {preview(name)}")
    if not callable(fn):
        raise TypeError(f"a backoff strategy must be a function (attempts, error, job) -> seconds, not {preview(fn)}")


def check_known(backoff: Backoff, strategies: Container[str]) -> Backoff:
    """Raise for a strategy that the app does not declare, while the caller can still correct it."""
    name = backoff.strategy
    if name is not None and name != DECORRELATED and name not in strategies:
        raise InvalidOption(
            f"unknown backoff strategy {preview(name)}; declare it with @app.backoff({preview(name)}) first"
        )
    return backoff
