"""How PostgreSQL is told what the shared statements say.

A statement of `engines/sql/queries` that reads otherwise here has one of the same name in `queries`. The others are the
same but for their parameters and the schema of their tables.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from struct import pack
from typing import Any, Final, Protocol, runtime_checkable

from toril.engines.sql import statements as shared
from toril.engines.sql.driver import SqlConnection

__all__ = [
    "PostgresDialect",
    "Statement",
    "array",
    "in_schema",
    "migrations",
    "own_functions",
    "own_queries",
    "statement_of",
    "value",
]

_SHARED: Final = "toril.engines.sql"
_SCHEMA: Final = re.compile(r"\btoril\.")
_CREATED: Final = re.compile(r"CREATE (?:TABLE|VIEW) toril\.(\w+)")
_LISTS: Final = re.compile(r"\$(\d+)::(\w+)\[\]")
_TEXT: Final = 25  # the type `text` by its number
_SIZES: Final = [pack(">i", size) for size in range(4096)]


@dataclass(frozen=True, slots=True)
class Statement:
    """A statement as the server takes it. `lists` says which of its parameters are lists, and of what."""

    sql: bytes
    lists: tuple[str, ...] = ()


def in_schema(text: str, schema: str) -> str:
    """SQL in which `toril.` stands for the schema of the store."""
    return _SCHEMA.sub(f"{schema}.", text)


def _texts(folder: str) -> list[str]:
    found = sorted((files(__package__) / folder).iterdir(), key=lambda path: path.name)
    return [path.read_text("utf-8") for path in found if path.name.endswith(".sql")]


@cache
def migrations() -> list[str]:
    """All migrations, in order."""
    return _texts("migrations")


@cache
def own_functions() -> list[str]:
    """The functions that statements call."""
    return _texts("functions")


def own_queries() -> list[str]:
    """The files of shared statements that are said otherwise here."""
    theirs = {path.name for path in (files(_SHARED) / "queries").iterdir()}
    return [
        path.name.removesuffix(".sql") for path in (files(__package__) / "queries").iterdir() if path.name in theirs
    ]


@cache
def _own() -> dict[tuple[str, bool], str]:
    """The statements that are said otherwise here, by what the shared ones say and whether it is for many rows."""
    return {
        (shared.statement(file, name, _SHARED), _LISTS.search(text) is not None): text
        for file in own_queries()
        for name, text in shared.statements(file, __package__).items()
    }


@cache
def _tables() -> re.Pattern[str]:
    """Where a shared statement names a table of ours."""
    names = "|".join(_CREATED.findall("".join(migrations())))
    return re.compile(rf"\b(FROM|JOIN|INTO|UPDATE) ({names})\b")


@cache
def statement_of(sql: str, schema: str, *, many: bool = False) -> Statement:
    """What a shared statement is here, for one row or for many. What there is for many does for one."""
    own = _own().get((sql, many)) or _own().get((sql, True))
    if own is None:
        own = _tables().sub(r"\1 toril.\2", sql)
        numbers = iter(range(1, sql.count("?") + 1))
        own = re.sub(r"\?", lambda _: f"${next(numbers)}", own)
    lists = {int(number): kind for number, kind in _LISTS.findall(own)}
    return Statement(in_schema(own, schema).encode(), tuple(lists[number] for number in sorted(lists)))


def value(given: Any) -> bytes | None:
    """A parameter as text; the server knows the type that it must have."""
    match given:
        case None:
            return None
        case str():
            # A NUL would end the text: PostgreSQL has none in texts.
            return (given.replace("\0", "\ufffd") if "\0" in given else given).encode()
        case bool():
            return b"1" if given else b"0"
        case _:
            return str(given).encode()


def array(kind: str, values: Sequence[Any]) -> tuple[bytes, int]:
    """A list as a parameter, and its format. Texts go in binary, where nothing has to be quoted."""
    if kind != "text":
        return b"{" + b",".join([value(each) or b"NULL" for each in values]) + b"}", 0
    nulls = None in values
    parts = [pack(">iiIii", 1, nulls, _TEXT, len(values), 1)] if values else [pack(">iiI", 0, 0, _TEXT)]
    for each in values:
        if each is None:
            parts.append(b"\xff\xff\xff\xff")
            continue
        data = value(each) or b""
        size = len(data)
        parts.append(_SIZES[size] if size < 4096 else pack(">i", size))
        parts.append(data)
    return b"".join(parts), 1


@runtime_checkable
class RowWriter(Protocol):
    """A connection that writes many rows at once."""

    def write_rows(self, sql: str, rows: Sequence[Sequence[Any]], before: Sequence[Any]) -> int: ...


class PostgresDialect:
    """What `SqlDialect` promises, for PostgreSQL."""

    def gather(
        self,
        connection: SqlConnection,
        sql: str,
        columns: tuple[str, ...],  # noqa: ARG002 - all answers come at once anyway
        parameters: Sequence[Any],
    ) -> Iterable[Sequence[Any]]:
        return connection.execute(sql, parameters)

    def run_all(self, connection: SqlConnection, sql: str, rows: Sequence[Sequence[Any]], before: Sequence[Any]) -> int:
        """One statement, whose parameters are the columns."""
        assert isinstance(connection, RowWriter)  # noqa: S101 - the dialect and the connection are one driver's
        return connection.write_rows(sql, rows, before)
