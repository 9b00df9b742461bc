"""For handlers that call services over HTTP: from a response to the error that says what becomes of the job."""

from typing import Any
from urllib.parse import urlsplit

from toril.policy.http import judge_status
from toril.runtime.clock import SYSTEM

__all__ = ["raise_for_status"]


def raise_for_status(response: Any) -> None:
    """Raise `PermanentError` or `TransientError` unless the response is a success. It may be of httpx, requests,
    aiohttp, urllib or anything else with a status and headers."""
    status = getattr(response, "status_code", None)
    status = getattr(response, "status", None) if status is None else status
    if not isinstance(status, int) or isinstance(status, bool):
        raise TypeError(f"a response has a status that is a number, and {type(response).__name__} has none")
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
