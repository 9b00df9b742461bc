"""From what a producer asks for to the job that is stored."""

import difflib
import hashlib
import json
from collections.abc import Callable, Container, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal, TypeAlias, TypedDict

from toril.codec.encoding import Serializer, encode
from toril.errors import InvalidName, InvalidOption, shown
from toril.model import (
    KEEP_ALL,
    MAX_DELAY,
    MAX_TIMEOUT,
    REMOVE,
    Backoff,
    Dedup,
    GroupLimits,
    Keep,
    NewJob,
    RateLimit,
    ms_of,
)
from toril.model.durations import Duration, milliseconds
from toril.policy.breaker import Breaker
from toril.policy.retry import Exponential, Fixed, Retry, Strategy, Waiting
from toril.policy.strategies import BackoffStrategy, check_known

__all__ = [
    "AddOptions",
    "Defaults",
    "Keeping",
    "LogLevel",
    "QueueOptions",
    "Subject",
    "Unknown",
    "WaitOptions",
    "as_keep",
    "as_metadata",
    "new_job",
    "subject_of",
]

Keeping: TypeAlias = "int | bool | Keep"
Subject: TypeAlias = str | Callable[[Any], str]
Unknown: TypeAlias = Literal["fail", "release"]
LogLevel: TypeAlias = Literal["debug", "info", "warning", "error"]


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueOptions:
    """How a queue is worked, and what its jobs get by default; checked, in the units of the store."""

    concurrency: int = 1
    lease: int = 30_000
    renew: int = 10_000
    retry: Retry = Retry()
    timeout: int | None = None
    rate_limit: RateLimit | None = None
    max_stalls: int = 1
    max_waiting: int | None = None
    groups: GroupLimits | None = None
    priority_first: bool | None = None
    keep_completed: Keep
    keep_failed: Keep
    unknown: Unknown = "fail"
    serializer: Serializer | None = None
    cancellation: bool = True
    breaker: Breaker | None = None
    subject: Subject | None = None
    target_wait: int = 120_000
    log_level: LogLevel | None = None
    strategies: Mapping[str, BackoffStrategy] = field(default_factory=dict)


class WaitOptions(TypedDict, total=False):
    """What can be asked for one job whose result is awaited at once."""

    delay: Duration
    at: datetime
    priority: int
    lifo: bool
    job_id: str
    attempts: int
    backoff: Waiting | str
    retry: Retry
    expires: Duration
    keep_completed: Keeping
    keep_failed: Keeping
    result_ttl: Duration
    metadata: Mapping[str, Any]
    breaker: str
    subject: str
    group: str


class AddOptions(WaitOptions, total=False):
    """The options of one job, for annotations of your own; `Queue.add` explains each."""

    timeout: Duration
    dedup: Dedup
    once: str
    for_: Duration


_KNOWN = tuple(AddOptions.__annotations__)


@dataclass(frozen=True, slots=True)
class Defaults:
    """What a queue, or a handler, gives to jobs that do not say otherwise; in the units of the store."""

    attempts: int
    backoff: Backoff
    keep_completed: Keep
    keep_failed: Keep
    strategies: Container[str] = ()


def new_job(name: str, data: str, options: AddOptions, defaults: Defaults) -> NewJob:
    """The job to store. Every option is checked; the error names it, with its range."""
    if defaults.backoff.strategy is not None:
        check_known(defaults.backoff, defaults.strategies)
    if not options:
        return NewJob(
            name=name, data=data, attempts=defaults.attempts, backoff=defaults.backoff,
            keep_completed=defaults.keep_completed, keep_failed=defaults.keep_failed,
        )  # fmt: skip
    _check_names(options)
    attempts, backoff = _retry(options, defaults)
    return NewJob(
        name=name,
        data=data,
        id=_own_id(options.get("job_id")),
        delay=_time(options, "delay", 0, MAX_DELAY) or 0,
        due=_due(options),
        priority=options.get("priority", 0),
        lifo=_flag(options, "lifo"),
        attempts=attempts,
        backoff=backoff,
        timeout=_time(options, "timeout", 1, MAX_TIMEOUT),
        expires=_time(options, "expires", 1, MAX_DELAY),
        keep_completed=_keep(options, "keep_completed", defaults.keep_completed),
        keep_failed=_keep(options, "keep_failed", defaults.keep_failed),
        result_ttl=_time(options, "result_ttl", 1, MAX_DELAY),
        metadata=_metadata(options),
        dedup=_dedup(options, name, data),
        group=options.get("group"),
        breaker=options.get("breaker"),
        subject=options.get("subject"),
    )


def subject_of(given: Subject, data: Any) -> str:
    """Whom a payload is about: what one of its fields says, or what a function makes of it."""
    if not isinstance(given, str):
        return str(given(data))
    found = data.get(given) if isinstance(data, Mapping) else getattr(data, given, None)
    if found is None:
        raise InvalidOption(f"a job's subject is its payload's {given!r}, and {shown(data)} has none")
    return str(found)


def content_key(name: str, data: str) -> str:
    """128 bits that two jobs share if they have the same name and, however it is written, the same data."""
    with suppress(ValueError):  # a serializer of the user's: its text stands for itself
        data = json.dumps(json.loads(data), sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(f"{name}\n{data}".encode()).hexdigest()[:32]


def _dedup(options: AddOptions, name: str, data: str) -> Dedup | None:
    dedup = options.get("dedup")
    if options.get("once") is not None or options.get("for_") is not None:
        return _once(options)
    if dedup is None:
        return None
    if not isinstance(dedup, Dedup):
        raise InvalidOption(f"dedup must be a Dedup(key, ttl, mode), not {shown(dedup)}")
    return dedup if dedup.key is not None else Dedup(content_key(name, data), dedup.ttl, dedup.mode)


def _once(options: AddOptions) -> Dedup:
    """The key of a job that is not to be added again for a time, whatever becomes of it."""
    key, how_long = options.get("once"), options.get("for_")
    if options.get("dedup") is not None:
        raise InvalidOption("once and dedup exclude each other: a Dedup(key, ttl) says the same")
    if key is None or how_long is None:
        raise InvalidOption("once and for_ go together: once='order-7', for_='1d'")
    return Dedup(key, milliseconds("for_", how_long, 1) / 1000)


def as_keep(what: str, keep: object) -> Keep:
    """A plain number is a count; True keeps all, False none."""
    if isinstance(keep, Keep):
        return keep
    if isinstance(keep, bool):
        return KEEP_ALL if keep else REMOVE
    if isinstance(keep, int) and keep >= 0:
        return Keep(count=keep) if keep else REMOVE
    raise InvalidOption(f"{what} must be a number from 0, a Keep(count, age) or a boolean, not {shown(keep)}")


def as_metadata(metadata: object) -> Mapping[str, Any]:
    """Fields that travel beside the payload; None is none."""
    if metadata is None:
        return {}
    if isinstance(metadata, Mapping):
        return metadata
    raise InvalidOption(f"metadata must be a mapping of names to values, not {shown(metadata)}")


def _metadata(options: AddOptions) -> str | None:
    metadata = as_metadata(options.get("metadata"))
    return encode(dict(metadata), what="metadata") if metadata else None


def _flag(options: AddOptions, name: str) -> bool:
    value: Any = options.get(name, False)
    if isinstance(value, bool):
        return value
    raise InvalidOption(f"{name} must be True or False, not {shown(value)}")


def _check_names(options: AddOptions) -> None:
    for name in options:
        if name not in _KNOWN:
            near = difflib.get_close_matches(name, _KNOWN, n=1)
            hint = f"; did you mean {near[0]}?" if near else f"; known are {', '.join(_KNOWN)}"
            raise TypeError(f"{name!r} is not an option of a job{hint}")


def _retry(options: AddOptions, defaults: Defaults) -> tuple[int, Backoff | None]:
    if "retry" in options:
        if "attempts" in options or "backoff" in options:
            raise InvalidOption("retry and attempts or backoff exclude each other: put them into the Retry(…)")
        retry = options["retry"]
        if not isinstance(retry, Retry):
            raise InvalidOption(f"retry must be a Retry(attempts, backoff), not {shown(retry)}")
        return retry.attempts, check_known(retry.wire(), defaults.strategies)
    backoff = options.get("backoff")
    attempts = options.get("attempts", defaults.attempts)
    if backoff is None:
        return attempts, defaults.backoff
    if isinstance(backoff, str):
        backoff = Strategy(backoff)
    if not isinstance(backoff, Fixed | Exponential | Strategy):
        raise InvalidOption(
            f"backoff must be Fixed(…), Exponential(…), Strategy(…) or a strategy's name, not {shown(backoff)}"
        )
    return attempts, check_known(backoff.wire(), defaults.strategies)


def _time(options: AddOptions, name: str, low: int, high: int) -> int | None:
    value: Any = options.get(name)
    return None if value is None else milliseconds(name, value, low, high)


def _own_id(job_id: Any) -> Any:
    """An id that a user chose. Those of runs are the schedules': a job of such an id would have that run left out."""
    if isinstance(job_id, str) and job_id.startswith("repeat:"):
        raise InvalidName(f"a job id must not begin with 'repeat:' as those of schedules do, and {shown(job_id)} does")
    return job_id


def _due(options: AddOptions) -> int | None:
    at = options.get("at")
    if at is None:
        return None
    if options.get("delay") is not None:
        raise InvalidOption("delay and at exclude each other")
    if not isinstance(at, datetime) or at.utcoffset() is None:
        raise InvalidOption(f"at must be a datetime with a time zone, not {shown(at)}")
    due = ms_of(at)
    if not 0 <= due <= _LAST:
        raise InvalidOption(f"at must be from 1970 to 2109, not {shown(at)}")
    return due


_LAST = 2**42


def _keep(options: AddOptions, name: str, default: Keep) -> Keep:
    value: Any = options.get(name)
    return default if value is None else as_keep(name, value)
