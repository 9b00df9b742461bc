"""The options of jobs and queues, with their checks and defaults."""

import difflib
import hashlib
import json
import warnings
from collections.abc import Callable, Container, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypedDict, get_args
from weakref import WeakSet

from toril.codec.encoding import Serializer, encode
from toril.codec.schemas import schema_of
from toril.errors import InvalidName, InvalidOption, preview
from toril.model import (
    KEEP_ALL,
    MAX_DELAY,
    MAX_TIMEOUT,
    REMOVE,
    Backoff,
    Declaration,
    DeclareGroups,
    Dedup,
    GroupLimits,
    HandlerDeclaration,
    JobOptions,
    Keep,
    NewJob,
    RateLimit,
    SetMaxWaiting,
    Setting,
    check_int,
    ms_of,
)
from toril.model.durations import Duration, milliseconds
from toril.policy.breaker import Breaker
from toril.policy.retry import BackoffStrategy, Exponential, Fixed, Retry, Strategy, Waiting, check_known
from toril.runtime.services import Services
from toril.signals import SignalKind
from toril.store.engine import Store

if TYPE_CHECKING:
    from toril.queue import Queue

__all__ = [
    "PLAIN",
    "UNSAID",
    "AddOptions",
    "DeclaredLimits",
    "Defaults",
    "Keeping",
    "LogLevel",
    "QueueOptions",
    "Subject",
    "Unknown",
    "WaitOptions",
    "as_keep",
    "as_metadata",
    "as_workers_declare",
    "check_not_dead_letters",
    "checked",
    "declaration_of",
    "new_job",
    "renewal",
    "subject_of",
]

Keeping: TypeAlias = "int | bool | Keep"
Subject: TypeAlias = str | Callable[[Any], str]
Unknown: TypeAlias = Literal["fail", "release"]
LogLevel: TypeAlias = Literal["debug", "info", "warning", "error"]


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueOptions:
    """The options of a queue and defaults of its jobs, checked, in the units of the store."""

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
    signals: tuple[SignalKind[Any], ...] = ()
    strategies: Mapping[str, BackoffStrategy] = field(default_factory=dict)

    def signal_kind(self, signal: str | SignalKind[Any]) -> str | SignalKind[Any]:
        """The signal with its type, if the queue declares one of this name."""
        return next((kind for kind in self.signals if kind.name == signal), signal)


class WaitOptions(TypedDict, total=False):
    """The options of one job whose result is awaited at once."""

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
    """The options of one job, for your own annotations; `Queue.add` explains each."""

    timeout: Duration
    dedup: Dedup
    once: str
    for_: Duration


_KNOWN = tuple(AddOptions.__annotations__)


@dataclass(frozen=True, slots=True)
class Defaults:
    """What jobs get from their queue or handler unless they set it themselves, in the units of the store."""

    attempts: int
    options: JobOptions
    strategies: Container[str] = ()


def new_job(name: str, data: str, options: AddOptions, defaults: Defaults) -> NewJob:
    """The job to store. Every option is checked; errors name the option and its range."""
    if defaults.options.backoff is not None:
        check_known(defaults.options.backoff, defaults.strategies)
    if not options:
        return NewJob(name=name, data=data, attempts=defaults.attempts, options=defaults.options)
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
        expires=_time(options, "expires", 1, MAX_DELAY),
        metadata=_metadata(options),
        dedup=_dedup(options, name, data),
        group=options.get("group"),
        options=_job_options(options, backoff, defaults.options),
    )


def _job_options(options: AddOptions, backoff: Backoff | None, defaults: JobOptions) -> JobOptions:
    """The defaults, with the job's own options; jobs without any share one value."""
    changed: dict[str, Any] = {} if backoff is defaults.backoff else {"backoff": backoff}
    for name, read in _READ.items():
        value = options.get(name)
        if value is not None:
            changed[name] = read(name, value)
    return replace(defaults, **changed) if changed else defaults


def _same(_: str, value: Any) -> Any:
    return value


def subject_of(given: Subject, data: Any) -> str:
    """The subject of a payload: the value of one of its fields, or what a function returns for it."""
    if not isinstance(given, str):
        return str(given(data))
    found = data.get(given) if isinstance(data, Mapping) else getattr(data, given, None)
    if found is None:
        raise InvalidOption(
            f"payload {preview(data)} has no field {given!r}, which holds the job's subject; add it, or pass subject=…"
        )
    return str(found)


def content_key(name: str, data: str) -> str:
    """128 bits that two jobs share if they have the same name and the same data, however it is written."""
    with suppress(ValueError):  # the user's own serializer: use its text as it is
        data = json.dumps(json.loads(data), sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(f"{name}\n{data}".encode()).hexdigest()[:32]


def _dedup(options: AddOptions, name: str, data: str) -> Dedup | None:
    dedup = options.get("dedup")
    if options.get("once") is not None or options.get("for_") is not None:
        return _once(options)
    if dedup is None:
        return None
    if not isinstance(dedup, Dedup):
        raise InvalidOption(f"dedup must be a Dedup(key, ttl, mode), not {preview(dedup)}")
    return dedup if dedup.key is not None else Dedup(content_key(name, data), dedup.ttl, dedup.mode)


def _once(options: AddOptions) -> Dedup:
    """A Dedup for a job that must not be added again for a time, whatever becomes of it."""
    key, how_long = options.get("once"), options.get("for_")
    if options.get("dedup") is not None:
        raise InvalidOption("give once or dedup, not both; dedup=Dedup(key, ttl) does the same as once=key, for_=ttl")
    if key is None or how_long is None:
        raise InvalidOption("once and for_ must be given together, as in once='order-7', for_='1d'")
    return Dedup(key, milliseconds("for_", how_long, 1) / 1000)


def as_keep(what: str, keep: object) -> Keep:
    """A number is a count; True keeps all, False none."""
    if isinstance(keep, Keep):
        return keep
    if isinstance(keep, bool):
        return KEEP_ALL if keep else REMOVE
    if isinstance(keep, int) and keep >= 0:
        return Keep(count=keep) if keep else REMOVE
    raise InvalidOption(f"{what} must be a count, a Keep(count, age) or a boolean, not {preview(keep)}")


def as_metadata(metadata: object) -> Mapping[str, Any]:
    """Metadata fields; None means none."""
    if metadata is None:
        return {}
    if isinstance(metadata, Mapping):
        return metadata
    raise InvalidOption(f"metadata must be a mapping of names to values, not {preview(metadata)}")


def _metadata(options: AddOptions) -> str | None:
    metadata = as_metadata(options.get("metadata"))
    return encode(dict(metadata), what="metadata") if metadata else None


def _flag(options: AddOptions, name: str) -> bool:
    value: Any = options.get(name, False)
    if isinstance(value, bool):
        return value
    raise InvalidOption(f"{name} must be True or False, not {preview(value)}")


def _check_names(options: AddOptions) -> None:
    for name in options:
        if name not in _KNOWN:
            near = difflib.get_close_matches(name, _KNOWN, n=1)
            hint = f"; did you mean {near[0]}?" if near else f"; the options are {', '.join(_KNOWN)}"
            raise TypeError(f"{name!r} is not a job option{hint}")


def _retry(options: AddOptions, defaults: Defaults) -> tuple[int, Backoff | None]:
    if "retry" in options:
        if "attempts" in options or "backoff" in options:
            raise InvalidOption(
                "give retry, or attempts and backoff, not both; as in retry=Retry(attempts=5, backoff=Fixed(10))"
            )
        retry = options["retry"]
        if not isinstance(retry, Retry):
            raise InvalidOption(f"retry must be a Retry(attempts, backoff), not {preview(retry)}")
        return retry.attempts, check_known(retry.wire(), defaults.strategies)
    backoff = options.get("backoff")
    attempts = options.get("attempts", defaults.attempts)
    if backoff is None:
        return attempts, defaults.options.backoff
    if isinstance(backoff, str):
        backoff = Strategy(backoff)
    if not isinstance(backoff, Fixed | Exponential | Strategy):
        raise InvalidOption(
            f"backoff must be Fixed(…), Exponential(…), Strategy(…) or a strategy's name, not {preview(backoff)}"
        )
    return attempts, check_known(backoff.wire(), defaults.strategies)


def _time(options: AddOptions, name: str, low: int, high: int) -> int | None:
    value: Any = options.get(name)
    return None if value is None else milliseconds(name, value, low, high)


def _own_id(job_id: Any) -> Any:
    """An id that a user chose. Schedules' ids are refused: such a job would make the schedule skip that run."""
    if isinstance(job_id, str) and job_id.startswith("repeat:"):
        raise InvalidName(
            f"a job id must not begin with 'repeat:', which is reserved for schedules; got {preview(job_id)}"
        )
    return job_id


def _due(options: AddOptions) -> int | None:
    at = options.get("at")
    if at is None:
        return None
    if options.get("delay") is not None:
        raise InvalidOption("give delay or at, not both")
    if not isinstance(at, datetime) or at.utcoffset() is None:
        raise InvalidOption(f"at must be a datetime with a time zone, not {preview(at)}")
    due = ms_of(at)
    if not 0 <= due <= _LAST:
        raise InvalidOption(f"at must be between 1970 and 2109, not {preview(at)}")
    return due


_LAST = 2**42

# Readers of options that job and queue share.
_READ: dict[str, Callable[[str, Any], Any]] = {
    "timeout": partial(milliseconds, low=1, high=MAX_TIMEOUT),
    "keep_completed": as_keep,
    "keep_failed": as_keep,
    "result_ttl": partial(milliseconds, low=1, high=MAX_DELAY),
    "breaker": _same,
    "subject": _same,
}


class DeclaredLimits:
    """The limits of a queue. A process tells the store once, before its first add; the latest declaration wins."""

    def __init__(self, queue: str, limit: int | None, groups: GroupLimits | None = None) -> None:
        self._queue = queue
        self.settings: list[Setting] = []
        if limit is not None:
            self.settings.append(SetMaxWaiting(limit))
        if groups is not None:
            self.settings.append(DeclareGroups(groups))
        self._set_in: WeakSet[Store] = WeakSet()

    async def tell(self, services: Services) -> None:
        if not self.settings or services.store in self._set_in:
            return
        store = services.store
        await services.call(lambda call: store.configure(self._queue, self.settings, call=call))
        self._set_in.add(store)


# The arguments of `app.queue(name)` when only the name is given.
UNSAID: dict[str, Any] = {
    "handlers": None, "concurrency": 1, "lease": 30.0, "renew": None, "retry": Retry(), "timeout": None,
    "rate_limit": None, "max_stalls": 1, "max_waiting": None, "groups": None, "priority_first": None,
    "keep_completed": 0, "keep_failed": 0, "unknown": "fail", "serializer": None, "cancellation": True, "breaker": None,
    "subject": None, "target_wait": 120.0, "log_level": None, "signals": (),
}  # fmt: skip


def checked(
    *,
    concurrency: int,
    lease: Duration,
    renew: Duration | None,
    retry: Retry,
    timeout: Duration | None,
    max_stalls: int,
    max_waiting: int | None,
    keep_completed: Keeping,
    keep_failed: Keeping,
    unknown: Unknown,
    target_wait: Duration,
    log_level: LogLevel | None,
    signals: Sequence[SignalKind[Any]],
    **rest: Any,
) -> QueueOptions:
    """The options in the units of the store. Raises `InvalidOption`, which names the option that is out of range."""
    lease_ms, renew_ms = renewal(lease, renew, least=1000)
    _check_kinds(rest)
    if not isinstance(retry, Retry):
        raise InvalidOption(f"retry must be a Retry(attempts, backoff), not {preview(retry)}")
    if unknown not in ("fail", "release"):
        raise InvalidOption(f"unknown must be 'fail' or 'release', not {preview(unknown)}")
    if log_level is not None and log_level not in get_args(LogLevel):
        raise InvalidOption(f"log_level must be one of {', '.join(get_args(LogLevel))}, not {preview(log_level)}")
    return QueueOptions(
        concurrency=check_int("concurrency", concurrency, 1, 10_000),
        lease=lease_ms,
        renew=renew_ms,
        retry=retry,
        timeout=None if timeout is None else milliseconds("timeout", timeout, 1, MAX_TIMEOUT),
        max_stalls=check_int("max_stalls", max_stalls, 0, 1_000),
        max_waiting=None if max_waiting is None else check_int("max_waiting", max_waiting, 1, 2**53),
        keep_completed=as_keep("keep_completed", keep_completed),
        keep_failed=as_keep("keep_failed", keep_failed),
        unknown=unknown,
        target_wait=milliseconds("target_wait", target_wait, 1, MAX_DELAY),
        log_level=log_level,
        signals=_signal_kinds(signals),
        **rest,
    )


def renewal(lease: Duration, renew: Duration | None, *, least: int) -> tuple[int, int]:
    """A lease and the time between its renewals, in ms; by default a third of it."""
    lease_ms = milliseconds("lease", lease, least, MAX_DELAY)
    renew_ms = lease_ms // 3 if renew is None else milliseconds("renew", renew, least // 10, MAX_DELAY)
    if renew_ms >= lease_ms:
        raise InvalidOption(f"renew must be shorter than the lease of {lease_ms / 1000:g} s, not {renew_ms / 1000:g} s")
    if renew_ms > lease_ms / 2:
        warnings.warn(
            f"a lease of {lease_ms / 1000:g} s that is renewed every {renew_ms / 1000:g} s is lost if one renewal is "
            "missed; renew at least twice per lease",
            stacklevel=4,  # where the queue is declared
        )
    return lease_ms, renew_ms


def check_not_dead_letters(name: str, letters: str) -> None:
    """Refuse the name of the queue that holds the dead letters."""
    if name == letters:
        raise InvalidOption(
            f"{name!r} holds the dead letters and cannot be used as a queue; see app.dead_letters. To use this name, "
            "move the dead letters, as in App(dead_letter_queue='failed-jobs')"
        )


def declaration_of(queue: "Queue", concurrency: int | None = None) -> Declaration:
    """What a worker publishes about a queue in the store; functions are left out."""
    options, retry = queue.options, queue.options.retry
    own = {
        name: None if each is None else HandlerDeclaration(max_attempts=each.attempts, backoff=each.backoff.wire())
        for name, each in queue.handlers.retries.items()
    }
    return Declaration(
        concurrency=options.concurrency if concurrency is None else concurrency,
        lease=options.lease,
        max_stalls=options.max_stalls,
        max_attempts=retry.attempts,
        backoff=retry.backoff.wire(),
        timeout=options.timeout,
        target_wait=options.target_wait,
        keep_completed=options.keep_completed,
        keep_failed=options.keep_failed,
        rate=options.rate_limit,
        max_waiting=options.max_waiting,
        groups=options.groups,
        priority_first=bool(options.priority_first),
        subject=options.subject if isinstance(options.subject, str) else None,
        serializer=options.serializer is not None,
        any_name=queue.handlers.any_name,
        handlers=own,
        signals={kind.name: schema_of(kind.type) for kind in options.signals} or None,
    )


async def as_workers_declare(queue: "Queue") -> "Queue | None":
    """The queue as its application declares it: from the code, if it is loaded here, or from its live workers. None if
    neither is known."""
    if queue.handlers.names or queue.options != replace(PLAIN, strategies=queue.options.strategies):
        return queue
    declared = (await queue.store.declarations(queue.name)).newest
    return None if declared is None else queue.as_declared(declared)


def _signal_kinds(signals: Sequence[SignalKind[Any]]) -> tuple[SignalKind[Any], ...]:
    if isinstance(signals, str | bytes) or not isinstance(signals, Sequence):
        raise InvalidOption(f"signals must be a list of SignalKind(name, type), not {preview(signals)}")
    for kind in signals:
        if not isinstance(kind, SignalKind):
            raise InvalidOption(f"signals must be a list of SignalKind(name, type); {preview(kind)} is not one")
    names = [kind.name for kind in signals]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise InvalidOption(f"signals has two of the name {preview(twice)}")
    return tuple(signals)


def _check_kinds(options: Mapping[str, Any]) -> None:
    rate, serializer, breaker = options["rate_limit"], options["serializer"], options["breaker"]
    if breaker is not None and not isinstance(breaker, Breaker):
        raise InvalidOption(f"breaker must be a Breaker(…), not {preview(breaker)}")
    if rate is not None and not isinstance(rate, RateLimit):
        raise InvalidOption(f"rate_limit must be a RateLimit(max, per), not {preview(rate)}")
    if options["groups"] is not None and not isinstance(options["groups"], GroupLimits):
        raise InvalidOption(f"groups must be a GroupLimits(…), not {preview(options['groups'])}")
    if serializer is not None and not (hasattr(serializer, "dumps") and hasattr(serializer, "loads")):
        raise InvalidOption(f"serializer must have the methods dumps and loads; {preview(serializer)} does not")
    subject = options["subject"]
    if subject is not None and not isinstance(subject, str) and not callable(subject):
        raise InvalidOption(
            f"subject must be the name of a payload field or a function of the payload, not {preview(subject)}"
        )
    if type(options["cancellation"]) is not bool:
        raise InvalidOption(f"cancellation must be True or False, not {preview(options['cancellation'])}")
    first = options["priority_first"]
    if first is not None and type(first) is not bool:
        raise InvalidOption(f"priority_first must be True, False or None, not {preview(first)}")


# The options of a queue without a declaration.
PLAIN = checked(**{name: value for name, value in UNSAID.items() if name != "handlers"})
