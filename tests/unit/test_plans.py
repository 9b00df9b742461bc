"""How SQLite goes about our statements: by index, never through a whole table."""

import re
import sqlite3
from collections.abc import Callable, Iterator
from importlib.resources import files
from pathlib import Path
from typing import NamedTuple

import pytest

from toril.engines.sql.schema import Held, JobFacts
from toril.engines.sql.statements import check_columns, for_rows, query, statement
from toril.engines.sqlite.database import migrations

PACKAGES = ("toril.engines.sql", "toril.engines.sqlite")
NAMES = [
    (path.name.removesuffix(".sql"), name, package)
    for package in PACKAGES
    for path in sorted((files(package) / "queries").iterdir(), key=lambda path: path.name)
    for name in re.findall(r"^-- name: (\w+)$", path.read_text("utf-8"), re.MULTILINE)
]
# Small tables, which are read whole on purpose: one row a queue, a worker, a key.
WHOLE = {
    ("inspector", "queues"), ("inspector", "workers"), ("inspector", "unfinished"), ("maintenance", "dead_workers"),
    ("faults", "workers"),
}  # fmt: skip


@pytest.fixture(scope="module")
def plan() -> Iterator[Callable[[str], list[str]]]:
    """The steps that SQLite takes for a statement."""
    connection = sqlite3.connect(":memory:")
    for script in migrations():
        connection.executescript(script)

    def steps(sql: str) -> list[str]:
        return [step[3] for step in connection.execute(f"EXPLAIN QUERY PLAN {sql}", [1] * sql.count("?"))]

    yield steps
    connection.close()


TABLES = {
    "file", "queues", "jobs", "ids", "line", "active", "events", "runs", "minutes", "logs", "results", "calls",
    "ageing", "starts", "pokes", "onces", "workers", "schedules", "dedups", "groups", "ring", "group_starts",
    "steps", "recorded", "signals", "awaited", "kept_signals", "sent_ids", "rests",
    "j",  # jobs, as statements about groups call them
}  # fmt: skip


@pytest.mark.covers("F76")
def test_a_statement_goes_by_an_index(plan: Callable[[str], list[str]]) -> None:
    scans = {}
    for file, name, package in NAMES:
        sql = statement(file, name, package)
        steps = plan(for_rows(sql, 3) if re.search(r"VALUES \((\?, )*\?\)", sql) else sql)
        if {step.split()[1] for step in steps if step.startswith("SCAN")} & TABLES:
            scans[file, name] = steps

    assert {which: steps for which, steps in scans.items() if which not in WHOLE} == {}


@pytest.mark.parametrize(
    ("file", "name", "wanted"),
    [
        ("changes", "leave", "line USING PRIMARY KEY (queue=? AND place=? AND rank=? AND key=?)"),
        ("changes", "delete_id", "ids USING PRIMARY KEY (queue=? AND id=?)"),
        ("changes", "forget_age", "ageing USING PRIMARY KEY (queue=? AND till=? AND key=?)"),
        ("add", "forget_results", "results USING PRIMARY KEY (queue=? AND id=?)"),
        ("add", "owners", "i USING PRIMARY KEY (queue=? AND id=?)"),
        ("settle", "keys", "i USING PRIMARY KEY (queue=? AND id=?)"),
        ("maintenance", "overdue_results", "results USING PRIMARY KEY (queue=? AND id=?)"),
    ],
)
def test_what_is_named_whole_is_found_whole(
    plan: Callable[[str], list[str]], file: str, name: str, wanted: str
) -> None:
    sql = statement(file, name)
    sql = for_rows(sql, 3) if "VALUES (" in sql else sql

    assert f"SEARCH {wanted}" in plan(sql)


MODULES = [path for package in PACKAGES for path in sorted(Path(str(files(package))).glob("*.py"))]
NAMED = re.compile(r'\b(\w+) *(?:: Final)? = statements\("(\w+)"')
USED = re.compile(r'(_[A-Z]+)\["(\w+)"\]')


def test_every_statement_that_a_module_names_is_there() -> None:
    known = {(file, name) for file, name, _ in NAMES}
    named, missing = 0, []
    for path in MODULES:
        text = path.read_text("utf-8")
        file_of = dict(NAMED.findall(text))
        for variable, name in USED.findall(text):
            if variable in file_of:
                named += 1
                missing += [] if (file_of[variable], name) in known else [f"{path.name}: {name}"]

    assert named > 150
    assert missing == []


def test_every_statement_is_used() -> None:
    text = "".join(path.read_text("utf-8") for path in MODULES)

    assert [f"{file}.{name}" for file, name, _ in NAMES if not re.search(rf'"{name}"', text)] == []


def test_a_row_whose_fields_are_not_the_columns_is_refused() -> None:
    class Swapped(NamedTuple):
        place: int
        key: int

    check_columns("SELECT j.key, (SELECT max(a, b) FROM x) AS place FROM jobs j", ("key", "place"))
    with pytest.raises(TypeError, match=r"the columns are \['key', 'place'\], and the fields of the row"):
        check_columns("SELECT j.key, j.place FROM jobs j", Swapped._fields)
    with pytest.raises(TypeError, match="the columns are"):
        query("faults", "job", Swapped)


def test_a_row_may_begin_with_the_columns_of_another() -> None:
    found = query("settle", "held", Held)

    assert found.columns[:2] == ("key", "chosen")
    assert found.columns[len(JobFacts._fields) :] == Held._fields[1:]
    held = found.make(list(range(len(found.columns))))
    assert (held.job.key, held.job.logs, held.delay) == (0, 12, 14)


def test_migrations_are_numbered_without_a_gap_or_a_double() -> None:
    """A store knows only how many it has seen: one that came in between would never be carried out."""
    folder = Path(__file__).parents[2] / "src" / "toril" / "engines" / "sqlite" / "migrations"
    numbers = sorted(int(path.name.partition("_")[0]) for path in folder.glob("*.sql"))

    assert numbers == list(range(1, len(numbers) + 1))
