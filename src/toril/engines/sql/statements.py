"""Reads the SQL of the engines from `queries/*.sql`, with names for statements and rows."""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from importlib.resources import files
from typing import Any, Final, Generic, NamedTuple, TypeVar

__all__ = ["Query", "check_columns", "for_rows", "query", "statement", "statements"]

R = TypeVar("R", bound=NamedTuple)

_NAME: Final = re.compile(r"^-- name: (\w+)\n", re.MULTILINE)
_GROUP: Final = re.compile(r"VALUES (\((?:[?0], )*\?\))")
_WORDS: Final = re.compile(r"\(|\)|,|\bFROM\b")


@dataclass(frozen=True, slots=True)
class Query(Generic[R]):
    """A statement that finds rows, and how its columns become rows."""

    sql: str
    columns: tuple[str, ...]
    make: Callable[[Iterable[Any]], R]


@cache
def _file(package: str, name: str) -> dict[str, str]:
    parts = _NAME.split((files(package) / "queries" / f"{name}.sql").read_text("utf-8"))
    return dict(zip(parts[1::2], (text.strip().rstrip(";") for text in parts[2::2]), strict=True))


def statements(file: str, package: str = __package__) -> dict[str, str]:
    """All statements of a file by name; a driver has some of its own."""
    return dict(_file(package, file))


def statement(file: str, name: str, package: str = __package__) -> str:
    """One named statement. A wrong name fails at import, not at 3 AM."""
    return _file(package, file)[name]


def query(file: str, name: str, row: type[R]) -> Query[R]:
    """A statement whose columns are the fields of `row`, in their order. If they are not, that fails at import too. A
    row that begins with another row has the columns of that one first."""
    sql, columns = statement(file, name), row._fields
    first = row.__annotations__[columns[0]]
    if not hasattr(first, "_fields"):
        check_columns(sql, columns)
        # `row._make` without its check of the length, which was made just now: that is a third of its cost, per job.
        return Query(sql, columns, partial(tuple.__new__, row))
    columns = (*first._fields, *columns[1:])
    check_columns(sql, columns)
    return Query(sql, columns, partial(_joined, row, first, len(first._fields)))


def _joined(row: type[R], first: type[NamedTuple], size: int, values: Sequence[Any]) -> R:
    return tuple.__new__(row, (tuple.__new__(first, values[:size]), *values[size:]))


def check_columns(sql: str, names: Sequence[str]) -> None:
    """Raise if the columns of a SELECT have other names."""
    found = _columns(sql)
    if found != [*names]:
        raise TypeError(f"the columns are {found}, and the fields of the row {[*names]}: {sql}")


def _columns(sql: str) -> list[str]:
    """The names of a SELECT's columns: the last word of each."""
    found, depth, start = [], 0, len("SELECT")
    for word in _WORDS.finditer(sql):
        depth += {"(": 1, ")": -1}.get(word[0], 0)
        if depth == 0 and word[0] in {",", "FROM"}:
            found.append(re.split(r"[\s.]+", sql[start : word.start()].strip())[-1])
            start = word.end()
            if word[0] == "FROM":
                break
    return found


@cache
def for_rows(sql: str, rows: int) -> str:
    """A statement for many rows at once: its one group of VALUES, repeated."""
    (group,) = _GROUP.findall(sql)
    return sql.replace(group, ", ".join([group] * rows), 1)
