"""How SQLite goes about our statements: by index, never through a whole table."""

import re
import sqlite3
from importlib.resources import files
from pathlib import Path

import pytest

from toril.engines.sqlite.statements import for_rows, migrations, statement

SQL = files("toril.engines.sqlite") / "sql"
NAMES = [
    (path.name.removesuffix(".sql"), name)
    for path in sorted(SQL.iterdir(), key=lambda path: path.name)
    for name in re.findall(r"^-- name: (\w+)$", path.read_text("utf-8"), re.MULTILINE)
]
# Small tables, which are read whole on purpose: one row a queue, a worker, a key.
WHOLE = {
    ("reads", "queues"), ("reads", "workers"), ("reads", "unfinished"), ("upkeep", "dead_workers"),
    ("repairs", "workers"),
}  # fmt: skip


def plan(sql: str) -> list[str]:
    connection = sqlite3.connect(":memory:")
    for script in migrations():
        connection.executescript(script)
    steps = connection.execute(f"EXPLAIN QUERY PLAN {sql}", [1] * sql.count("?")).fetchall()
    connection.close()
    return [step[3] for step in steps]


@pytest.mark.covers("F76")
@pytest.mark.parametrize(("file", "name"), NAMES, ids=[f"{file}.{name}" for file, name in NAMES])
def test_a_statement_goes_by_an_index(file: str, name: str) -> None:
    sql = statement(file, name)
    sql = for_rows(sql, 3) if re.search(r"VALUES \((\?, )*\?\)", sql) else sql

    tables = {
        "queues",
        "jobs",
        "ids",
        "line",
        "active",
        "events",
        "runs",
        "minutes",
        "logs",
        "results",
        "calls",
        "ageing",
        "starts",
        "pokes",
        "onces",
        "workers",
        "schedules",
        "dedups",
        "groups",
        "ring",
        "group_starts",
        "j",  # jobs, as statements about groups call them
    }
    scanned = {step.split()[1] for step in plan(sql) if step.startswith("SCAN")} & tables

    assert not scanned or (file, name) in WHOLE, plan(sql)


@pytest.mark.parametrize(
    ("file", "name", "wanted"),
    [
        ("step", "leave", "line USING PRIMARY KEY (queue=? AND place=? AND rank=? AND key=?)"),
        ("step", "delete_id", "ids USING PRIMARY KEY (queue=? AND id=?)"),
        ("step", "forget_age", "ageing USING PRIMARY KEY (queue=? AND till=? AND key=?)"),
        ("add", "forget_results", "results USING PRIMARY KEY (queue=? AND id=?)"),
        ("add", "owners", "i USING PRIMARY KEY (queue=? AND id=?)"),
        ("settle", "keys", "i USING PRIMARY KEY (queue=? AND id=?)"),
        ("upkeep", "overdue_results", "results USING PRIMARY KEY (queue=? AND id=?)"),
    ],
)
def test_what_is_named_whole_is_found_whole(file: str, name: str, wanted: str) -> None:
    sql = statement(file, name)
    sql = for_rows(sql, 3) if "VALUES (" in sql else sql

    assert f"SEARCH {wanted}" in plan(sql)


def test_migrations_are_numbered_without_a_gap_or_a_double() -> None:
    """A store knows only how many it has seen: one that came in between would never be carried out."""
    folder = Path(__file__).parents[2] / "src" / "toril" / "engines" / "sqlite" / "migrations"
    numbers = sorted(int(path.name.partition("_")[0]) for path in folder.glob("*.sql"))

    assert numbers == list(range(1, len(numbers) + 1))
