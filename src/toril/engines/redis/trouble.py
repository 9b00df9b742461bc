"""What the server's complaints mean for the caller."""

import re
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

__all__ = ["Misled", "is_answer", "is_refusal", "passes", "translated"]


class Misled(RedisError):
    """There is something else than the URL says."""


# Words with which a server that is not ready begins its answer; nothing has happened then.
_LATER: Final = frozenset({
    "LOADING", "READONLY", "MASTERDOWN", "TRYAGAIN", "CLUSTERDOWN", "BUSY", "UNBLOCKED", "NOREPLICAS", "MOVED", "ASK",
})  # fmt: skip
_CROWDED: Final = "ERR max number of clients reached"
_FULL: Final = frozenset({"OOM", "MISCONF"})
_UNTRUSTED: Final = "CERTIFICATE_VERIFY_FAILED"
_NO: Final = frozenset({"NOAUTH", "WRONGPASS", "NOPERM"})
# What a command in a script meets, as Redis 6 tells it.
_IN_SCRIPT: Final = re.compile(r"ERR Error running script \(call to \w+\): (?:@user_script: ?\d+: )+-?([A-Z]+)\b")


def passes(error: Exception) -> bool:
    """Whether the server will do it later, and has not done it now."""
    return _word(error) in _LATER or (is_answer(error) and _text(error) == _CROWDED)


def is_answer(error: Exception) -> bool:
    """Whether the server has said it, and not the way to it."""
    return isinstance(error, ResponseError) or getattr(error, "status_code", None) is not None


def is_refusal(error: Exception) -> bool:
    """Whether the server does not let us in, we do not trust it, or it is none: asking again will not help."""
    kinds = AuthenticationError | NoPermissionError | InvalidResponse | Misled
    return isinstance(error, kinds) or _word(error) in _NO or _is_untrusted(error)


def _is_untrusted(error: Exception) -> bool:
    return not is_answer(error) and _UNTRUSTED in _text(error)


def _word(error: Exception) -> str:
    """The word with which the server's complaint begins; names of queues are further on, and may be any word."""
    if not is_answer(error):
        return ""
    text = _text(error)
    in_script = _IN_SCRIPT.match(text)
    return in_script[1] if in_script is not None else text.partition(" ")[0]


def translated(error: Exception, server: str) -> TorilError:
    """The error of ours for one of the library's."""
    text = _text(error)
    if is_refusal(error):
        return EngineRefused(_refused(error, server, text))
    if _word(error) in _FULL:
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
    return f"{server} cannot be trusted: {text}" if _is_untrusted(error) else f"{server} refuses Toril: {text}"


def _text(error: Exception) -> str:
    text = str(error) or type(error).__name__
    if isinstance(error, RedisError):
        code = getattr(error, "status_code", None)
        text = text if code is None or text.startswith(str(code)) else f"{code} {text}"
    return text[:300]
