"""From what an app asks for a queue to the options that it has."""

import warnings
from collections.abc import Mapping
from typing import Any, get_args

from toril.adding import Keeping, LogLevel, QueueOptions, Unknown, as_keep
from toril.errors import InvalidOption, shown
from toril.model import DEAD_LETTERS, MAX_DELAY, MAX_TIMEOUT, GroupLimits, RateLimit, whole
from toril.policy.breaker import Breaker
from toril.policy.retry import Retry, Seconds, milliseconds

__all__ = ["PLAIN", "UNSAID", "check_not_dead_letters", "checked", "renewal"]

# What `app.queue(name)` is called with when nothing but the name is said.
UNSAID: dict[str, Any] = {
    "handlers": None, "concurrency": 1, "lease": 30.0, "renew": None, "retry": Retry(), "timeout": None,
    "rate_limit": None, "max_stalls": 1, "max_waiting": None, "groups": None, "priority_first": False,
    "keep_completed": 0, "keep_failed": 0, "unknown": "fail", "serializer": None, "cancellation": True, "breaker": None,
    "subject": None, "target_wait": 120.0, "log_level": None,
}  # fmt: skip


def checked(
    *, concurrency: int, lease: Seconds, renew: Seconds | None, retry: Retry, timeout: Seconds | None, max_stalls: int,
    max_waiting: int | None, keep_completed: Keeping, keep_failed: Keeping, unknown: Unknown, target_wait: Seconds,
    log_level: LogLevel | None, **rest: Any,
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


def renewal(lease: Seconds, renew: Seconds | None, *, least: int) -> tuple[int, int]:
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


def check_not_dead_letters(name: str) -> None:
    """Refuse the queue to which nothing is added, and in which nothing ever runs."""
    if name == DEAD_LETTERS:
        raise InvalidOption(f"{name!r} is where failed jobs are kept, and no queue of yours: see app.dead_letters")


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
    for name in ("priority_first", "cancellation"):
        if type(options[name]) is not bool:
            raise InvalidOption(f"{name} must be True or False, not {shown(options[name])}")


# The options of a queue of which nothing is said.
PLAIN = checked(**{name: value for name, value in UNSAID.items() if name != "handlers"})
