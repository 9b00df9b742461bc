"""How SQLite takes and returns many rows at once."""

import json
from collections.abc import Iterable, Sequence
from functools import cache
from itertools import chain
from typing import Any, Final

from toril.engines.sql.driver import SqlConnection
from toril.engines.sql.statements import for_rows

__all__ = ["SqliteDialect"]

_ROWS: Final = 128  # in one statement; some 1,700 values, of the 32,766 that SQLite allows


class SqliteDialect:
    """Implements `SqlDialect` for SQLite."""

    def gather(
        self, connection: SqlConnection, sql: str, columns: tuple[str, ...], parameters: Sequence[Any]
    ) -> Iterable[Sequence[Any]]:
        """All rows as one JSON text, because sqlite3 releases the interpreter lock for every row that it fetches."""
        (text,) = connection.execute(_gathering(sql, columns), parameters).fetchone()
        rows: list[list[Any]] = json.loads(text)
        return rows

    def run_all(self, connection: SqlConnection, sql: str, rows: Sequence[Sequence[Any]], before: Sequence[Any]) -> int:
        """In as few statements as there are powers of two in their number. Each statement releases the interpreter lock
        once. `executemany` would do so for every row, and wait up to 5 ms to get it back while a handler computes."""
        if len(rows) == 1:
            return connection.execute(sql, (*before, *rows[0])).rowcount
        start = changed = 0
        while start < len(rows):
            size = min(_ROWS, 1 << ((len(rows) - start).bit_length() - 1))
            part = rows[start : start + size]
            changed += connection.execute(for_rows(sql, size), [*before, *chain.from_iterable(part)]).rowcount
            start += size
        return changed


@cache
def _gathering(sql: str, columns: tuple[str, ...]) -> str:
    return f"SELECT json_group_array(json_array({', '.join(columns)})) FROM ({sql})"
