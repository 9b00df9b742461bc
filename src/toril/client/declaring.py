"""From what an app asks for a queue to the options that it has."""

import warnings
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, get_args

from toril.client.adding import Keeping, LogLevel, QueueOptions, Unknown, as_keep
from toril.errors import InvalidOption, shown
from toril.model import (
    MAX_DELAY,
    MAX_TIMEOUT,
    Declaration,
    GroupLimits,
    HandlerDeclaration,
    RateLimit,
    whole,
)
from toril.model.durations import Duration, milliseconds
from toril.policy.breaker import Breaker
from toril.policy.retry import Retry
from toril.queue import Queue

__all__ = ["PLAIN", "UNSAID", "as_workers_declare", "check_not_dead_letters", "checked", "declaration_of", "renewal"]

# What `app.queue(name)` is called with when nothing but the name is said.
UNSAID: dict[str, Any] = {
    "handlers": None, "concurrency": 1, "lease": 30.0, "renew": None, "retry": Retry(), "timeout": None,
    "rate_limit": None, "max_stalls": 1, "max_waiting": None, "groups": None, "priority_first": None,
    "keep_completed": 0, "keep_failed": 0, "unknown": "fail", "serializer": None, "cancellation": True, "breaker": None,
    "subject": None, "target_wait": 120.0, "log_level": None,
}  # fmt: skip


def checked(
    *, concurrency: int, lease: Duration, renew: Duration | None, retry: Retry, timeout: Duration | None,
    max_stalls: int, max_waiting: int | None, keep_completed: Keeping, keep_failed: Keeping, unknown: Unknown,
    target_wait: Duration, log_level: LogLevel | None, **rest: Any,
) -> QueueOptions:  # fmt: skip
    """The options in the units of the store; `InvalidOption` names the one that is out of its range."""
    lease_ms, renew_ms = renewal(lease, renew, least=1000)
    _check_kinds(rest)
    if not isinstance(retry, Retry):
        raise InvalidOption(f"retry must be a Retry(attempts, backoff), not {shown(retry)}")
    if unknown not in ("fail", "release"):
        raise InvalidOption(f"unknown must be 'fail' or 'release', not {shown(unknown)}")
    if log_level is not None and log_level not in get_args(LogLevel):
        raise InvalidOption(f"log_level must be one of {', '.join(get_args(LogLevel))}, not {shown(log_level)}")
    return QueueOptions(
        concurrency=whole("concurrency", concurrency, 1, 10_000),
        lease=lease_ms,
        renew=renew_ms,
        retry=retry,
        timeout=None if timeout is None else milliseconds("timeout", timeout, 1, MAX_TIMEOUT),
        max_stalls=whole("max_stalls", max_stalls, 0, 1_000),
        max_waiting=None if max_waiting is None else whole("max_waiting", max_waiting, 1, 2**53),
        keep_completed=as_keep("keep_completed", keep_completed),
        keep_failed=as_keep("keep_failed", keep_failed),
        unknown=unknown,
        target_wait=milliseconds("target_wait", target_wait, 1, MAX_DELAY),
        log_level=log_level,
        **rest,
    )


def renewal(lease: Duration, renew: Duration | None, *, least: int) -> tuple[int, int]:
    """A lease and how often it is renewed, in ms: by default at a third of it."""
    lease_ms = milliseconds("lease", lease, least, MAX_DELAY)
    renew_ms = lease_ms // 3 if renew is None else milliseconds("renew", renew, least // 10, MAX_DELAY)
    if renew_ms >= lease_ms:
        raise InvalidOption(f"renew must be shorter than the lease of {lease_ms / 1000:g} s, not {renew_ms / 1000:g} s")
    if renew_ms > lease_ms / 2:
        warnings.warn(
            f"a lease of {lease_ms / 1000:g} s, renewed every {renew_ms / 1000:g} s, is lost by one missed renewal",
            stacklevel=4,  # where the queue is declared
        )
    return lease_ms, renew_ms


def check_not_dead_letters(name: str, letters: str) -> None:
    """Refuse the queue to which nothing is added, and in which nothing ever runs."""
    if name == letters:
        raise InvalidOption(
            f"{name!r} is where failed jobs are kept, and no queue of yours: see app.dead_letters; to have the name, "
            "give the dead letters another, as in App(dead_letter_queue='failed-jobs')"
        )


def declaration_of(queue: Queue, concurrency: int | None = None) -> Declaration:
    """What a worker tells the store of a queue, as far as it can be told: of functions nothing."""
    options, retry = queue.options, queue.options.retry
    own = {name: None if each is None else HandlerDeclaration(max_attempts=each.attempts, backoff=each.backoff.wire())
           for name, each in queue.handlers.retries.items()}  # fmt: skip
    return Declaration(
        concurrency=options.concurrency if concurrency is None else concurrency, lease=options.lease,
        max_stalls=options.max_stalls, max_attempts=retry.attempts, backoff=retry.backoff.wire(),
        timeout=options.timeout, target_wait=options.target_wait,
        keep_completed=options.keep_completed, keep_failed=options.keep_failed,
        rate=options.rate_limit, max_waiting=options.max_waiting, groups=options.groups,
        priority_first=bool(options.priority_first),
        subject=options.subject if isinstance(options.subject, str) else None,
        serializer=options.serializer is not None, any_name=queue.handlers.any_name, handlers=own,
    )  # fmt: skip


async def as_workers_declare(queue: Queue) -> Queue | None:
    """The queue as its application has it: by its code, where that is here, else by what its living workers declare.
    None if neither is known."""
    if queue.handlers.names or queue.options != replace(PLAIN, strategies=queue.options.strategies):
        return queue
    declared = (await queue.store.declarations(queue.name)).newest
    return None if declared is None else queue.as_declared(declared)


def _check_kinds(options: Mapping[str, Any]) -> None:
    rate, serializer, breaker = options["rate_limit"], options["serializer"], options["breaker"]
    if breaker is not None and not isinstance(breaker, Breaker):
        raise InvalidOption(f"breaker must be a Breaker(…), not {shown(breaker)}")
    if rate is not None and not isinstance(rate, RateLimit):
        raise InvalidOption(f"rate_limit must be a RateLimit(max, per), not {shown(rate)}")
    if options["groups"] is not None and not isinstance(options["groups"], GroupLimits):
        raise InvalidOption(f"groups must be a GroupLimits(…), not {shown(options['groups'])}")
    if serializer is not None and not (hasattr(serializer, "dumps") and hasattr(serializer, "loads")):
        raise InvalidOption(f"serializer must have dumps and loads, and {shown(serializer)} has not")
    subject = options["subject"]
    if subject is not None and not isinstance(subject, str) and not callable(subject):
        raise InvalidOption(f"subject must be a field of the payload, or a function of it, not {shown(subject)}")
    if type(options["cancellation"]) is not bool:
        raise InvalidOption(f"cancellation must be True or False, not {shown(options['cancellation'])}")
    first = options["priority_first"]
    if first is not None and type(first) is not bool:
        raise InvalidOption(f"priority_first must be True, False or None, not {shown(first)}")


# The options of a queue of which nothing is said.
PLAIN = checked(**{name: value for name, value in UNSAID.items() if name != "handlers"})
