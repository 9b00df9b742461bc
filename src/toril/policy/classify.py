"""What kind of trouble an error is. By the names of its classes, so that errors of libraries that are not installed, of
child processes and of jobs' own options are all judged alike."""

from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, TypeAlias

from toril.errors import (
    EngineUnavailable,
    InvalidOption,
    InvalidPayload,
    PermanentError,
    TransientError,
    Undecodable,
    shown,
)

__all__ = ["DEFAULTS", "ErrorKinds", "Nature", "Table", "lineage", "names_of", "nature_of"]

ErrorKinds: TypeAlias = "type[BaseException] | str | Iterable[type[BaseException] | str]"


class Nature(StrEnum):
    """Whether trying again may help. Only what is known to be transient counts against a circuit breaker."""

    TRANSIENT = "transient"
    PERMANENT = "permanent"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Table:
    """Which errors are worth another attempt and which are not, by the full names of their classes. Where `on` names
    some, all others are not."""

    on: tuple[str, ...] = ()
    give_up_on: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.on or self.give_up_on)


# Facts about libraries, none of which is imported for this.
_TRANSIENT: Final = frozenset({
    "builtins.ConnectionError", "builtins.TimeoutError", "builtins.BlockingIOError", "socket.gaierror",
    "http.client.RemoteDisconnected", "http.client.IncompleteRead",
    "requests.exceptions.ConnectionError", "requests.exceptions.Timeout", "requests.exceptions.ChunkedEncodingError",
    "httpx.TransportError", "httpcore.NetworkError", "httpcore.TimeoutException",
    "aiohttp.client_exceptions.ClientConnectionError", "aiohttp.client_exceptions.ServerTimeoutError",
    "urllib3.exceptions.ProtocolError", "urllib3.exceptions.TimeoutError",
    "redis.exceptions.ConnectionError", "redis.exceptions.TimeoutError", "redis.exceptions.BusyLoadingError",
    "sqlalchemy.exc.OperationalError", "sqlalchemy.exc.TimeoutError", "psycopg.OperationalError",
    "psycopg2.OperationalError", "sqlite3.OperationalError", "pymysql.err.OperationalError",
    "django.db.utils.OperationalError", "asyncpg.exceptions.PostgresConnectionError",
    "asyncpg.exceptions.TooManyConnectionsError", "pymongo.errors.AutoReconnect",
    "botocore.exceptions.EndpointConnectionError", "botocore.exceptions.ConnectionClosedError",
})  # fmt: skip
_PERMANENT: Final = frozenset({
    "pydantic_core._pydantic_core.ValidationError", "pydantic.v1.error_wrappers.ValidationError",
    "jsonschema.exceptions.ValidationError", "marshmallow.exceptions.ValidationError",
    "django.core.exceptions.ValidationError", "msgspec.ValidationError", "cattrs.errors.BaseValidationError",
})  # fmt: skip
DEFAULTS: Final = Table()

_SAYS_SO: Final[tuple[tuple[type[BaseException], Nature], ...]] = (
    (PermanentError, Nature.PERMANENT),
    (InvalidPayload, Nature.PERMANENT),
    (Undecodable, Nature.PERMANENT),
    (TransientError, Nature.TRANSIENT),
    (EngineUnavailable, Nature.TRANSIENT),
)


def nature_of(error: BaseException, table: Table = DEFAULTS) -> Nature:
    """What an error says itself comes first, then the table, then what is known of libraries. Of two classes that a
    table names, the one nearer to the error decides."""
    for kind, nature in _SAYS_SO:
        if isinstance(error, kind):
            return nature
    names = lineage(error)
    return _nearest(names, table.on, table.give_up_on) or (
        Nature.PERMANENT if table.on else _nearest(names, _TRANSIENT, _PERMANENT) or Nature.UNKNOWN
    )


def _nearest(names: Sequence[str], transient: Container[str], permanent: Container[str]) -> Nature | None:
    for name in names:
        if name in permanent:
            return Nature.PERMANENT
        if name in transient:
            return Nature.TRANSIENT
    return None


def lineage(error: BaseException) -> tuple[str, ...]:
    """The full names of an error's class and of those it derives from, its own first. An error that only tells of one
    in another process brings that one's."""
    told = getattr(error, "lineage", None)
    if isinstance(told, tuple):
        return told
    return tuple(_name(kind) for kind in type(error).__mro__ if kind is not object)


def names_of(what: str, given: ErrorKinds) -> tuple[str, ...]:
    """Error classes, or their full names, as names."""
    several = [given] if isinstance(given, type | str) or not isinstance(given, Iterable) else list(given)
    names = []
    for each in several:
        if isinstance(each, type) and issubclass(each, BaseException):
            names.append(_name(each))
        elif isinstance(each, str) and "." in each:
            names.append(each)
        else:
            raise InvalidOption(f"{what} takes classes of errors, or their full names, not {shown(each)}")
    return tuple(names)


def _name(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"
