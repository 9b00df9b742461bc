"""The SQL of the engine, read from `queries/*.sql`: one file an operation, one name a statement."""

import re
from functools import cache
from importlib.resources import files

__all__ = ["for_rows", "statement"]

_NAME = re.compile(r"^-- name: (\w+)\n", re.MULTILINE)
_GROUP = re.compile(r"VALUES (\((?:\?, )*\?\))")


@cache
def _file(package: str, name: str) -> dict[str, str]:
    parts = _NAME.split((files(package) / "queries" / f"{name}.sql").read_text("utf-8"))
    return dict(zip(parts[1::2], (text.strip().rstrip(";") for text in parts[2::2]), strict=True))


def statement(file: str, name: str, package: str = __package__) -> str:
    """One named statement; a driver has some of its own. A wrong name fails at import, not at 3 AM."""
    return _file(package, file)[name]


@cache
def for_rows(sql: str, rows: int) -> str:
    """A statement for many rows at once: its one group of VALUES, repeated."""
    (group,) = _GROUP.findall(sql)
    return sql.replace(group, ", ".join([group] * rows), 1)
