"""The page of capabilities is made from the tests, and stays true to them."""

import re

from tools import capabilities, catalogue

from toril.engines.sqlite.database import migrations


def test_every_row_that_a_test_names_has_its_sentence() -> None:
    known = {row for rows in capabilities.sentences().values() for row in rows}

    assert set(capabilities.marks()) <= known


def test_the_page_is_up_to_date() -> None:
    assert capabilities.PAGE.read_text("utf-8") == capabilities.page(), "run  make capabilities"


def test_every_table_of_a_file_stands_on_the_page_of_the_layout() -> None:
    page = (capabilities.ROOT / "docs" / "layout.md").read_text("utf-8")
    tables = [name for step in migrations() for name in re.findall(r"^CREATE TABLE (\w+)", step, re.MULTILINE)]

    missing = [name for name in tables if f"`{name}`" not in page]

    assert missing == [], "a table that is not in docs/layout.md: say there what it holds"


def test_the_catalogue_is_up_to_date() -> None:
    text = catalogue.PAGE.read_text("utf-8")

    assert text == catalogue.page(text), "run  make capabilities"


def test_every_row_is_shown_or_says_why_not() -> None:
    covered, why = set(capabilities.marks()), capabilities.reasons()
    rows = [*capabilities.OWED, *(row for _, rows in catalogue.ROWS.values() for row in rows)]

    assert [row for row in rows if row not in covered and row not in why] == []
    assert [row for row in why if row in covered or row not in rows] == [], "shown by now, or no such row"


def test_every_row_has_one_sentence() -> None:
    said = [row for rows in capabilities.sentences().values() for row in rows]

    assert [row for row in capabilities.OWED if said.count(row) != 1] == []
