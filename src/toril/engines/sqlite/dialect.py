"""How SQLite takes and returns many rows at once."""

import json
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any

from toril.engines.sql.driver import SqlConnection

__all__ = ["SqliteDialect"]


class SqliteDialect:
    """Implements `SqlDialect` for SQLite."""

    def gather(
        self, connection: SqlConnection, sql: str, columns: tuple[str, ...], parameters: Sequence[Any]
    ) -> Iterable[Sequence[Any]]:
        """All rows as one JSON text, because sqlite3 releases the interpreter lock for every row that it fetches."""
        (text,) = connection.execute(_gathering(sql, columns), parameters).fetchone()
        rows: list[list[Any]] = json.loads(text)
        return rows


@cache
def _gathering(sql: str, columns: tuple[str, ...]) -> str:
    return f"SELECT json_group_array(json_array({', '.join(columns)})) FROM ({sql})"
