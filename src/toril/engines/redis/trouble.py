"""What the server's complaints mean for the caller."""

from typing import Final

from redis.exceptions import (
    AuthenticationError,
    ConnectionError,  # noqa: A004 - the library's own
    InvalidResponse,
    NoPermissionError,
    RedisError,
    ResponseError,
    TimeoutError,  # noqa: A004 - the library's own
)

from toril.errors import EngineFull, EngineRefused, EngineUnavailable, EngineUnusable, TorilError

__all__ = ["Misled", "is_refusal", "passes", "translated"]


class Misled(RedisError):
    """There is something else than the URL says."""


# Words with which a server that is not ready begins its answer; nothing has happened then.
_LATER: Final = (
    "LOADING", "READONLY", "MASTERDOWN", "TRYAGAIN", "CLUSTERDOWN", "BUSY", "UNBLOCKED", "NOREPLICAS", "MOVED", "ASK",
    "max number of clients reached",
)  # fmt: skip
_FULL: Final = ("OOM", "MISCONF")
_UNTRUSTED: Final = "CERTIFICATE_VERIFY_FAILED"
_NO: Final = ("NOAUTH", "WRONGPASS", "NOPERM", "invalid username-password", _UNTRUSTED)


def passes(error: Exception) -> bool:
    """Whether the server will do it later, and has not done it now."""
    text = _text(error)
    return any(word in text for word in _LATER)


def is_refusal(error: Exception) -> bool:
    """Whether the server does not let us in, we do not trust it, or it is none: asking again will not help."""
    kinds = AuthenticationError | NoPermissionError | InvalidResponse | Misled
    return isinstance(error, kinds) or any(word in _text(error) for word in _NO)


def translated(error: Exception, server: str) -> TorilError:
    """The error of ours for one of the library's."""
    text = _text(error)
    if is_refusal(error):
        return EngineRefused(_refused(error, server, text))
    if any(text.startswith(word) or f" {word} " in text or f"-{word} " in text for word in _FULL):
        return EngineFull(f"{server} has no room: {text}")
    if passes(error) or isinstance(error, ConnectionError | TimeoutError | OSError):
        return EngineUnavailable(f"{server} does not answer: {text}")
    if isinstance(error, ResponseError):
        return EngineUnusable(f"{server} answers what Toril does not understand: {text}")
    return EngineUnavailable(f"{server} cannot be used: {text}")


def _refused(error: Exception, server: str, text: str) -> str:
    if isinstance(error, Misled):
        return text
    if isinstance(error, InvalidResponse):
        return f"{server} does not speak as Redis does: {text}"
    return f"{server} cannot be trusted: {text}" if _UNTRUSTED in text else f"{server} refuses Toril: {text}"


def _text(error: Exception) -> str:
    text = str(error) or type(error).__name__
    if isinstance(error, RedisError):
        code = getattr(error, "status_code", None)
        text = text if code is None or text.startswith(str(code)) else f"{code} {text}"
    return text[:300]
