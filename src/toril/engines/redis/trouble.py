"""What the server's complaints mean for the caller."""

from typing import Final

from redis.exceptions import (
    AuthenticationError,
    ConnectionError,  # noqa: A004 - the library's own
    NoPermissionError,
    RedisError,
    ResponseError,
    TimeoutError,  # noqa: A004 - the library's own
)

from toril.errors import EngineFull, EngineUnavailable, EngineUnusable, TorilError

__all__ = ["is_refusal", "passes", "translated"]

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
    """Whether the server does not let us in, or we do not trust it: asking again at once will not help."""
    return isinstance(error, AuthenticationError | NoPermissionError) or any(word in _text(error) for word in _NO)


def translated(error: Exception, server: str) -> TorilError:
    """The error of ours for one of the library's."""
    text = _text(error)
    if _UNTRUSTED in text:
        return EngineUnavailable(f"{server} cannot be trusted: {text}")
    if is_refusal(error):
        return EngineUnavailable(f"{server} refuses Toril: {text}")
    if any(text.startswith(word) or f" {word} " in text or f"-{word} " in text for word in _FULL):
        return EngineFull(f"{server} has no room: {text}")
    if passes(error) or isinstance(error, ConnectionError | TimeoutError | OSError):
        return EngineUnavailable(f"{server} does not answer: {text}")
    if isinstance(error, ResponseError):
        return EngineUnusable(f"{server} answers what Toril does not understand: {text}")
    return EngineUnavailable(f"{server} cannot be used: {text}")


def _text(error: Exception) -> str:
    text = str(error) or type(error).__name__
    if isinstance(error, RedisError):
        code = getattr(error, "status_code", None)
        text = text if code is None or text.startswith(str(code)) else f"{code} {text}"
    return text[:300]
