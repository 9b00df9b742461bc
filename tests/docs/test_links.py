"""Links in the repository lead somewhere: mkdocs checks only those from one page of the documentation to another."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", FENCE.sub("", page.read_text("utf-8")), re.MULTILINE)
    plain = [re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).strip().lower() for heading in headings]
    return {re.sub(r"[^\w\- ]", "", heading).replace(" ", "-") for heading in plain}


def broken(page: Path, text: str) -> Iterator[str]:
    for link in re.findall(r"\]\((?!https?:|mailto:)([^)\s]+)\)", FENCE.sub("", text)):
        path, _, anchor = link.partition("#")
        target = page.parent / path if path else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            yield link


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_the_links_of_a_page_lead_somewhere(page: Path) -> None:
    assert list(broken(page, page.read_text("utf-8"))) == []


@pytest.mark.parametrize(
    "link", ["docs/nowhere.md", "docs/limits.md#no-such-heading", "#nor-here", "docs/pictures/none.png"]
)
def test_a_broken_link_is_found(link: str) -> None:
    assert list(broken(ROOT / "README.md", f"see [this]({link})")) == [link]
