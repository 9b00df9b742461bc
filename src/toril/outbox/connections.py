"""Connections that an application already has, and how each of them is told a statement in its own transaction."""

import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from toril.errors import UsageError, shown
from toril.outbox.tables import Dialect

__all__ = ["Writer", "writer_of"]

_VENDORS: dict[str, Dialect] = {"sqlite": "sqlite", "postgresql": "postgresql"}


@dataclass(frozen=True, slots=True)
class Writer:
    """A connection, and what it speaks. Parameters are written `?`. Nothing is ever committed."""

    dialect: Dialect
    execute: Callable[[str, Sequence[str]], object]


def writer_of(connection: Any) -> Writer:
    """For one of sqlite3, psycopg, SQLAlchemy (a session too) or Django. None of them is imported for it."""
    kinds = type(connection).__mro__
    if any(kind.__name__.startswith("Async") for kind in kinds):
        raise UsageError(
            f"an outbox writes to connections that block, and {shown(connection)} is asynchronous; with SQLAlchemy use "
            "`await session.run_sync(lambda s: app.outbox(s).add(…))`"
        )
    if isinstance(connection, sqlite3.Connection):
        return Writer("sqlite", connection.execute)
    match next((root for kind in kinds if (root := kind.__module__.partition(".")[0]) in _KINDS), None):
        case "psycopg":
            return Writer("postgresql", _by_cursor(connection))
        case "sqlalchemy":
            bind = connection if hasattr(connection, "dialect") else connection.get_bind()
            return Writer(_known(bind.dialect.name, connection), _by_text(connection))
        case "django":
            return Writer(_known(connection.vendor, connection), _by_cursor(connection))
        case _:
            raise UsageError(
                "an outbox writes to a connection of sqlite3, psycopg, SQLAlchemy or Django, "
                f"and {shown(connection)} is none"
            )


_KINDS = frozenset({"psycopg", "sqlalchemy", "django"})


def _known(vendor: str, connection: object) -> Dialect:
    if vendor not in _VENDORS:
        raise UsageError(f"an outbox is in SQLite or PostgreSQL, and {shown(connection)} is of {vendor}")
    return _VENDORS[vendor]


def _by_cursor(connection: Any) -> Callable[[str, Sequence[str]], None]:
    def execute(sql: str, parameters: Sequence[str]) -> None:
        with connection.cursor() as cursor:
            cursor.execute(sql.replace("?", "%s"), tuple(parameters) or None)

    return execute


def _by_text(connection: Any) -> Callable[[str, Sequence[str]], None]:
    def execute(sql: str, parameters: Sequence[str]) -> None:
        from sqlalchemy import text  # noqa: PLC0415 - whoever has such a connection has it

        named = {f"p{place}": value for place, value in enumerate(parameters)}
        for name in named:
            sql = sql.replace("?", f":{name}", 1)
        connection.execute(text(sql), named)

    return execute
