"""The SQL of the engine, read from `sql/*.sql`: one file an operation, one name a statement."""

import re
from functools import cache
from importlib.resources import files

__all__ = ["for_rows", "migrations", "statement"]

_NAME = re.compile(r"^-- name: (\w+)\n", re.MULTILINE)
_GROUP = re.compile(r"VALUES (\((?:\?, )*\?\))")


@cache
def _file(name: str) -> dict[str, str]:
    parts = _NAME.split((files(__package__) / "sql" / f"{name}.sql").read_text("utf-8"))
    return dict(zip(parts[1::2], (text.strip().rstrip(";") for text in parts[2::2]), strict=True))


def statement(file: str, name: str) -> str:
    """One named statement. A wrong name fails at import, not at 3 AM."""
    return _file(file)[name]


@cache
def for_rows(sql: str, rows: int) -> str:
    """A statement for many rows at once: its one group of VALUES, repeated."""
    (group,) = _GROUP.findall(sql)
    return sql.replace(group, ", ".join([group] * rows), 1)


def migrations() -> list[str]:
    """All migrations, in order; the store's `user_version` says how many it has seen."""
    found = sorted((files(__package__) / "migrations").iterdir(), key=lambda path: path.name)
    return [path.read_text("utf-8") for path in found if path.name.endswith(".sql")]
