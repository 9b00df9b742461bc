"""What a response's status means for the job that asked. The one place that knows what services write into headers."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final

from toril.errors import PermanentError, TransientError

__all__ = ["LONGEST_WAIT", "TOO_MANY", "judge_status", "retry_after"]

TOO_MANY: Final = 60.0  # seconds to wait after a 429 that does not say
LONGEST_WAIT: Final = 86_400.0  # a header cannot put a job off for longer
_IN_SECONDS: Final = ("retry-after", "x-retry-after")
_IN_MILLISECONDS: Final = ("retry-after-ms", "x-retry-after-ms")


def judge_status(
    status: int, headers: Mapping[str, str], *, now: int, what: str = "the request"
) -> PermanentError | TransientError | None:
    """The error that a handler should raise for this status, or None for success: 429 and 5xx are worth another
    attempt, everything else that is not 2xx is not."""
    if 200 <= status < 300:
        return None
    if status == 429:
        wait = retry_after(headers, now=now)
        return TransientError(f"{what} was refused with status 429", retry_after=TOO_MANY if wait is None else wait)
    if status >= 500:
        return TransientError(f"{what} failed with status {status}", retry_after=retry_after(headers, now=now))
    return PermanentError(f"{what} was refused with status {status}")


def retry_after(headers: Mapping[str, str], *, now: int) -> float | None:
    """The seconds for which a service asks to be left alone, whether it says so in seconds, in milliseconds or by a
    date; None where it does not, or cannot be understood."""
    known = {name.lower(): value for name, value in headers.items()}
    for name in _IN_MILLISECONDS:
        wait = _number(known.get(name), 0.001)
        if wait is not None:
            return wait
    for name in _IN_SECONDS:
        wait = _number(known.get(name), 1.0)
        wait = _until(known.get(name), now) if wait is None else wait
        if wait is not None:
            return wait
    return None


def _number(text: str | None, unit: float) -> float | None:
    try:
        value = float(text) * unit if text else -1.0
    except ValueError:
        return None
    return min(value, LONGEST_WAIT) if value >= 0 else None  # NaN is not


def _until(text: str | None, now: int) -> float | None:
    """An HTTP date, in any of its three forms, as seconds from `now`; none that are over."""
    from email.utils import parsedate_to_datetime  # noqa: PLC0415 - a large module for a rare header

    try:
        when = parsedate_to_datetime(text or "")
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
    if when.tzinfo is None:
        when = when.replace(tzinfo=UTC)
    left = (when - datetime.fromtimestamp(now / 1000, UTC)).total_seconds()
    return min(max(left, 0.0), LONGEST_WAIT)
