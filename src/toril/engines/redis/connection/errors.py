"""Errors on the way to the server, and what its error replies mean for the caller."""

import re
from typing import Final

from toril.errors import EngineFull, EngineRefused, EngineUnavailable, EngineUnusable, TorilError

__all__ = [
    "ConnectionLost",
    "ErrorReply",
    "NoScript",
    "ProtocolError",
    "RedisFault",
    "WrongServer",
    "is_answer",
    "is_refusal",
    "passes",
    "said",
    "translated",
]  # fmt: skip


class RedisFault(Exception):
    """There is no usable answer."""


class ConnectionLost(RedisFault):
    """The connection broke, or could not be made."""


class ProtocolError(RedisFault):
    """The peer does not speak the Redis protocol."""


class WrongServer(RedisFault):
    """The server is not what the URL says."""


class ErrorReply(RedisFault):
    """An error reply of the server."""

    @property
    def is_last(self) -> bool:
        """Whether the connection is useless after it."""
        text = str(self)
        return text == _CROWDED or text.partition(" ")[0] in _LAST or text.startswith(_NO_PASSWORD)


class NoScript(ErrorReply):
    """The server does not know the script by its hash."""


# First words of the error replies of a server that is not ready; the command had no effect.
_LATER: Final = frozenset({
    "LOADING", "READONLY", "MASTERDOWN", "TRYAGAIN", "CLUSTERDOWN", "BUSY", "UNBLOCKED", "NOREPLICAS", "MOVED", "ASK",
})  # fmt: skip
_LAST: Final = frozenset({"LOADING", "NOAUTH", "WRONGPASS"})
_CROWDED: Final = "ERR max number of clients reached"
_NO_PASSWORD: Final = ("ERR AUTH <password> called without any password", "ERR Client sent AUTH, but no password")
_FULL: Final = frozenset({"OOM", "MISCONF"})
_UNTRUSTED: Final = "CERTIFICATE_VERIFY_FAILED"
_NO: Final = frozenset({"NOAUTH", "WRONGPASS", "NOPERM"})
# The error of a command in a script, as Redis 6 words it.
_IN_SCRIPT: Final = re.compile(r"ERR Error running script \(call to \w+\): (?:@user_script: ?\d+: )+-?([A-Z]+)\b")


def said(text: str) -> ErrorReply:
    """An error reply, from its text."""
    return NoScript(text) if text.startswith("NOSCRIPT ") else ErrorReply(text)


def passes(error: Exception) -> bool:
    """Whether the same command will work later, and had no effect now."""
    return _word(error) in _LATER or (is_answer(error) and str(error) == _CROWDED)


def is_answer(error: Exception) -> bool:
    """Whether the server replied with this error, rather than the connection failing."""
    return isinstance(error, ErrorReply)


def is_refusal(error: Exception) -> bool:
    """Whether the server refuses access, is not trusted, or is not a Redis server: trying again will not help."""
    if isinstance(error, ProtocolError | WrongServer) or _word(error) in _NO or _is_untrusted(error):
        return True
    return is_answer(error) and str(error).startswith(_NO_PASSWORD)


def _is_untrusted(error: Exception) -> bool:
    return not is_answer(error) and _UNTRUSTED in str(error)


def _word(error: Exception) -> str:
    """The first word of the error reply. Names of queues come later, and may be any word."""
    if not is_answer(error):
        return ""
    text = str(error)
    in_script = _IN_SCRIPT.match(text)
    return in_script[1] if in_script is not None else text.partition(" ")[0]


def translated(error: Exception, server: str) -> TorilError:
    """The error that callers get."""
    text = (str(error) or type(error).__name__)[:300]
    if is_refusal(error):
        return EngineRefused(_refused(error, server, text))
    if _word(error) in _FULL:
        return EngineFull(f"{server} is full: {text}")
    if passes(error):
        return EngineUnavailable(f"{server} is not ready: {text}")
    if isinstance(error, ConnectionLost | OSError):  # a TimeoutError is an OSError
        return EngineUnavailable(f"cannot reach {server}: {text}")
    if isinstance(error, ErrorReply):
        return EngineUnusable(f"{server} returned an unexpected error: {text}")
    return EngineUnavailable(f"{server} cannot be used: {text}")


def _refused(error: Exception, server: str, text: str) -> str:
    if isinstance(error, WrongServer):
        return text
    if isinstance(error, ProtocolError):
        return f"{server} is not a Redis server: {text}"
    return (
        f"the TLS certificate of {server} cannot be verified: {text}"
        if _is_untrusted(error)
        else f"{server} denied access: {text}"
    )
