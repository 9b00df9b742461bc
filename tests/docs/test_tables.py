"""Tables and lists of the docs are written so that they are drawn as such."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted([*(ROOT / "docs").rglob("*.md"), *ROOT.glob("*.md")])


def prose(page: Path) -> list[tuple[int, str]]:
    """The lines of a page that are not code, with their numbers."""
    lines, code = list[tuple[int, str]](), False
    for number, line in enumerate(page.read_text("utf-8").splitlines(), 1):
        fence = line.lstrip().startswith("```")
        code ^= fence
        if not code and not fence:
            lines.append((number, line))
    return lines


def cells(row: str) -> int:
    return len(re.findall(r"(?<!\\)\|", re.sub(r"`[^`]*`", "", row)))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_row_of_a_table_is_one_line_with_as_many_cells_as_its_header(page: Path) -> None:
    wrong, header = list[str](), None
    for number, line in prose(page):
        if not line.startswith("|"):
            if header is not None and line.strip() and not line.startswith("<!--"):
                wrong.append(f"line {number} follows a table without an empty line: {line[:60]}")
            header = None
            continue
        header = header or cells(line)
        if not line.rstrip().endswith("|") or cells(line) != header:
            wrong.append(f"line {number}: {line[:60]}")
    assert wrong == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_each_item_of_a_list_begins_a_line(page: Path) -> None:
    joined = re.compile(r"[.;:)] - [A-Z`*\[]")
    assert [line for _, line in prose(page) if joined.search(line) and not line.startswith("|")] == []
