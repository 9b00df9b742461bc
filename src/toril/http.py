"""`raise_for_status`: turns an HTTP response into the right error for a job."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final
from urllib.parse import urlsplit

from toril.errors import PermanentError, TransientError
from toril.runtime.clock import SYSTEM

__all__ = ["LONGEST_WAIT", "TOO_MANY", "judge_status", "raise_for_status", "retry_after"]

TOO_MANY: Final = 60.0  # seconds to wait after a 429 without a header
LONGEST_WAIT: Final = 86_400.0  # the longest delay that a header can ask for
_IN_SECONDS: Final = ("retry-after", "x-retry-after")
_IN_MILLISECONDS: Final = ("retry-after-ms", "x-retry-after-ms")


def judge_status(
    status: int, headers: Mapping[str, str], *, now: int, what: str = "the request"
) -> PermanentError | TransientError | None:
    """The error that a handler should raise for this status; None for 2xx. 429 and 5xx are retried, anything else is
    not."""
    if 200 <= status < 300:
        return None
    if status == 429:
        wait = retry_after(headers, now=now)
        return TransientError(f"{what} was refused with status 429", retry_after=TOO_MANY if wait is None else wait)
    if status >= 500:
        return TransientError(f"{what} failed with status {status}", retry_after=retry_after(headers, now=now))
    return PermanentError(f"{what} was refused with status {status}")


def retry_after(headers: Mapping[str, str], *, now: int) -> float | None:
    """How many seconds the service asks to wait, given in seconds, milliseconds or as a date; None if it does not say,
    or the header is invalid."""
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
    return min(value, LONGEST_WAIT) if value >= 0 else None  # NaN is not >= 0


def _until(text: str | None, now: int) -> float | None:
    """An HTTP date, in any of its three forms, as seconds from `now`; 0 for one in the past."""
    from email.utils import parsedate_to_datetime  # noqa: PLC0415 - a large module for a rare header

    try:
        when = parsedate_to_datetime(text or "")
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
    if when.tzinfo is None:
        when = when.replace(tzinfo=UTC)
    left = (when - datetime.fromtimestamp(now / 1000, UTC)).total_seconds()
    return min(max(left, 0.0), LONGEST_WAIT)


def raise_for_status(response: Any) -> None:
    """Raise `TransientError` for a 429 or 5xx response, respecting its `Retry-After`, and `PermanentError` for any
    other that is not 2xx.

    Works with responses of httpx, requests, aiohttp, urllib and anything else with a status and headers.
    """
    status = getattr(response, "status_code", None)
    status = getattr(response, "status", None) if status is None else status
    if not isinstance(status, int) or isinstance(status, bool):
        raise TypeError(f"expected a response with a numeric status, not {type(response).__name__}")
    headers = dict(getattr(response, "headers", None) or {})
    error = judge_status(status, headers, now=SYSTEM.now(), what=_shown(str(getattr(response, "url", ""))))
    if error is not None:
        raise error


def _shown(url: str) -> str:
    """The URL without user, password and query, any of which may be secret."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return "the request"
    return f"{parts.scheme}://{parts.hostname}{parts.path}" if parts.hostname else "the request"
