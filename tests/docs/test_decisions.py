"""The decisions are numbered 0001, 0002, … without a gap, and are found under their numbers."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DECISIONS = ROOT / "docs" / "decisions"
PAGES = sorted(DECISIONS.glob("*.md"))


def test_numbers_are_dense_and_unique() -> None:
    assert [page.name[:5] for page in PAGES] == [f"{number:04}-" for number in range(1, len(PAGES) + 1)]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name[:4])
def test_titles_begin_with_the_number_of_their_file(page: Path) -> None:
    title = page.read_text("utf-8").partition("\n")[0]

    assert re.match(rf"# {page.name[:4]}\. \S", title), title


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name[:4])
def test_the_page_on_the_architecture_lists_every_decision(page: Path) -> None:
    number, _, title = page.read_text("utf-8").partition("\n")[0].removeprefix("# ").partition(". ")

    listed = (DECISIONS.parent / "architecture.md").read_text("utf-8")
    assert f"\n- [{number}](decisions/{page.name}) {title}\n" in listed


def test_every_number_that_pages_and_code_refer_to_is_the_number_of_a_page() -> None:
    there = {page.name[:4] for page in PAGES}
    named = re.compile(r"decisions/(\d{4})|(?:see|decision) (\d{4})\b|\((\d{4})\)|\[(\d{4})\]\(")
    referring = [
        path
        for pattern in ("*.md", "docs/**/*.md", "src/**/*.py", "src/**/*.lua", "tests/**/*.py", "tools/*.py")
        for path in ROOT.glob(pattern)
        if "node_modules" not in path.parts
    ]
    found = {
        (path.name, number)
        for path in referring
        for match in named.finditer(path.read_text("utf-8"))
        for number in match.groups()
        if number is not None and number < "0100"
    }

    assert len(found) > 5
    assert {(name, number) for name, number in found if number not in there} == set()
