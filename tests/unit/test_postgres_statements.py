"""What the shared statements are in PostgreSQL: all of them, as the server takes them."""

import gc
import re
from collections.abc import Iterator
from importlib.resources import files

import pytest

import toril.engines.sql.engine  # noqa: F401 - so that all of its statements are read
from tests.postgres import emptied
from toril.engines.postgres.connection import PostgresConnection
from toril.engines.postgres.database import PostgresDatabase
from toril.engines.postgres.dialect import in_schema, own_queries, statement_of
from toril.engines.postgres.errors import PostgresError
from toril.engines.postgres.url import parse
from toril.engines.sql.statements import Query, statement, statements
from toril.runtime.clock import SYSTEM

SHARED, OWN = "toril.engines.sql", "toril.engines.postgres"


@pytest.fixture
def connection() -> Iterator[PostgresConnection]:
    opened = PostgresDatabase(parse(emptied()), SYSTEM).open()
    yield opened
    opened.close()


def all_statements() -> list[tuple[str, str, str]]:
    return [
        (path.name, name, text)
        for package in (SHARED, OWN)
        for path in (files(package) / "queries").iterdir()
        for name, text in statements(path.name.removesuffix(".sql"), package).items()
    ]


def test_the_server_takes_every_statement(connection: PostgresConnection) -> None:
    refused, many = [], 0
    for number, (file, name, text) in enumerate(all_statements()):
        many += 1
        sql = statement_of(text, "toril").sql.decode()
        try:
            connection.tell(f"PREPARE s{number} AS {sql}".encode())
        except PostgresError as error:
            refused.append(f"{file}: {name}: {error}")

    assert refused == []
    assert many > 300


def test_what_is_said_otherwise_here_is_said_somewhere_else() -> None:
    for file in own_queries():
        for name in statements(file, OWN):
            assert statement(file, name, SHARED)


def test_rows_have_the_columns_that_their_fields_are_called() -> None:
    queries = [each for each in gc.get_objects() if type(each) is Query]

    assert len(queries) > 20
    for query in queries:
        own = statement_of(query.sql, "toril").sql.decode()
        assert [*columns_of(own)] == [*query.columns], own


def columns_of(sql: str) -> Iterator[str]:
    """What the columns of a SELECT are called."""
    depth, part = 0, ""
    for word in re.findall(r"\bFROM\b|[(),]|[^(),]+?(?=\bFROM\b|[(),]|$)", sql.removeprefix("SELECT"), re.DOTALL):
        depth += {"(": 1, ")": -1}.get(word, 0)
        if depth == 0 and word in {",", "FROM"}:
            yield re.split(r"[\s.]+", part.strip())[-1]
            part = ""
            if word == "FROM":
                return
        else:
            part += word


def test_the_schema_of_the_url_is_everywhere() -> None:
    for _, _, text in all_statements():
        assert not re.search(rb"\btoril\.", statement_of(text, "elsewhere").sql)
    assert in_schema("SELECT toril.texts($1) FROM toril.jobs", "jobs") == "SELECT jobs.texts($1) FROM jobs.jobs"
