"""Connections of the user's own, of several libraries, none of which is imported here."""

import sqlite3
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

from toril.errors import UsageError, preview

__all__ = ["AsyncBoundConnection", "BoundConnection", "Dialect", "async_writer_of", "is_async", "writer_of"]

Dialect: TypeAlias = Literal["sqlite", "postgresql"]
_VENDORS: Final[dict[str, Dialect]] = {"sqlite": "sqlite", "postgresql": "postgresql"}
_KINDS: Final = frozenset({"psycopg", "sqlalchemy", "django"})


@dataclass(frozen=True, slots=True)
class BoundConnection:
    """A connection and its dialect. Parameters are written `?`. It never commits."""

    dialect: Dialect
    execute: Callable[[str, Sequence[str]], object]


@dataclass(frozen=True, slots=True)
class AsyncBoundConnection:
    """The same for an asynchronous connection."""

    dialect: Dialect
    execute: Callable[[str, Sequence[str]], Awaitable[object]]


def is_async(connection: Any) -> bool:
    return any(kind.__name__.startswith("Async") for kind in type(connection).__mro__)


def writer_of(connection: Any, what: str) -> BoundConnection:
    """Wrap a connection of sqlite3, psycopg, SQLAlchemy (or a session) or Django. `what` needs it, in messages."""
    if isinstance(connection, sqlite3.Connection):
        return BoundConnection("sqlite", connection.execute)
    match _library_of(connection):
        case "psycopg":
            return BoundConnection("postgresql", _by_cursor(connection))
        case "sqlalchemy":
            return BoundConnection(_dialect_of(connection, what), _by_text(connection))
        case "django":
            return BoundConnection(_known(connection.vendor, connection, what), _by_cursor(connection))
        case _:
            raise UsageError(
                f"{what} needs a connection of sqlite3, psycopg, SQLAlchemy or Django, not {preview(connection)}"
            )


def async_writer_of(connection: Any, what: str) -> AsyncBoundConnection:
    """Wrap an asynchronous connection of psycopg or SQLAlchemy (or a session)."""
    match _library_of(connection):
        case "psycopg":
            return AsyncBoundConnection("postgresql", _by_async_cursor(connection))
        case "sqlalchemy":
            return AsyncBoundConnection(_dialect_of(connection, what), _by_async_text(connection))
        case _:
            raise UsageError(
                f"{what} needs an asynchronous connection of psycopg or SQLAlchemy, not {preview(connection)}"
            )


def _library_of(connection: Any) -> str | None:
    kinds = type(connection).__mro__
    return next((root for kind in kinds if (root := kind.__module__.partition(".")[0]) in _KINDS), None)


def _dialect_of(connection: Any, what: str) -> Dialect:
    bind = connection if hasattr(connection, "dialect") else connection.get_bind()
    return _known(bind.dialect.name, connection, what)


def _known(vendor: str, connection: object, what: str) -> Dialect:
    if vendor not in _VENDORS:
        raise UsageError(f"{what} needs SQLite or PostgreSQL; {preview(connection)} is a connection to {vendor}")
    return _VENDORS[vendor]


def _by_cursor(connection: Any) -> Callable[[str, Sequence[str]], None]:
    def execute(sql: str, parameters: Sequence[str]) -> None:
        with connection.cursor() as cursor:
            cursor.execute(sql.replace("?", "%s"), tuple(parameters) or None)

    return execute


def _by_async_cursor(connection: Any) -> Callable[[str, Sequence[str]], Awaitable[None]]:
    async def execute(sql: str, parameters: Sequence[str]) -> None:
        async with connection.cursor() as cursor:
            await cursor.execute(sql.replace("?", "%s"), tuple(parameters) or None)

    return execute


def _by_text(connection: Any) -> Callable[[str, Sequence[str]], None]:
    def execute(sql: str, parameters: Sequence[str]) -> None:
        connection.execute(*_as_text(sql, parameters))

    return execute


def _by_async_text(connection: Any) -> Callable[[str, Sequence[str]], Awaitable[None]]:
    async def execute(sql: str, parameters: Sequence[str]) -> None:
        await connection.execute(*_as_text(sql, parameters))

    return execute


def _as_text(sql: str, parameters: Sequence[str]) -> tuple[Any, dict[str, str]]:
    from sqlalchemy import text  # noqa: PLC0415 - whoever has such a connection has it

    named = {f"p{place}": value for place, value in enumerate(parameters)}
    for name in named:
        sql = sql.replace("?", f":{name}", 1)
    return text(sql), named
