"""The walks on the page about the architecture: they name functions that exist, and as many as the page says."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "architecture.md").read_text("utf-8")
SOURCES = {path: path.read_text("utf-8") for path in (ROOT / "src").rglob("*.py")}
WALKS = {  # the row of the table, and how its paragraph begins
    "add, to the seam": "Add.",
    "exchange on SQLite": "Exchange on SQLite.",
    "exchange on Redis": "Exchange on Redis.",
    "failure to dead letter": "Failure to dead letter.",
}


def walk(opening: str) -> list[str]:
    """The functions of a walk. One before `, or` is a branch that the walk does not take."""
    found = re.search(rf"^\*\*{re.escape(opening)}\*\* (.+?`)\.(?:\s|$)", PAGE, re.MULTILINE | re.DOTALL)
    assert found is not None, opening
    return re.findall(r"`([\w.]+)`(?!, or)", found[1])


def exists(name: str) -> bool:
    """Whether a function is where the page says: in a class, in a module, or anywhere."""
    *where, function = name.split(".")
    return any(
        re.search(rf"\bdef {function}\(", text)
        and (not where or path.stem == where[-1] or re.search(rf"^class {where[-1]}\b", text, re.MULTILINE))
        for path, text in SOURCES.items()
    )


@pytest.mark.parametrize("opening", WALKS.values())
def test_a_walk_names_functions_that_exist(opening: str) -> None:
    assert [name for name in walk(opening) if not exists(name)] == []


@pytest.mark.parametrize("row", WALKS)
def test_a_walk_has_as_many_functions_as_the_table_says(row: str) -> None:
    said = re.search(rf"^\| {re.escape(row)} \| (\d+) / \d+", PAGE, re.MULTILINE)

    assert said is not None
    assert len(walk(WALKS[row])) == int(said[1])
