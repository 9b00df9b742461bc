"""The tour for contributors names files, functions, tests and commands that are there."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = {name: (ROOT / name).read_text("utf-8") for name in ("CONTRIBUTING.md", "AGENTS.md")}
TOUR = PAGES["CONTRIBUTING.md"]


def test_the_files_of_the_tour_define_what_one_is_to_look_for() -> None:
    steps = re.findall(r"^\| \d \| `(src/[^`]+)` \| ([^|]+) \|", TOUR, re.MULTILINE)

    assert len(steps) == 9
    for path, names in steps:
        source = (ROOT / path).read_text("utf-8")
        for name in re.findall(r"`(?:\w+\.)?(\w+)`", names):
            assert re.search(rf"(?:def|class) {name}\b", source), f"{path} has no {name}"


def test_the_check_that_the_tour_removes_is_there_once() -> None:
    (removed,) = re.findall(r"^-( +.*)$", TOUR.partition("```diff\n")[2].partition("```")[0], re.MULTILINE)
    source = (ROOT / "src/toril/engines/sql/settle.py").read_text("utf-8")

    assert source.splitlines().count(removed) == 1
    assert "async def test_only_the_holder_settles" in (ROOT / "tests/conformance/test_exchange.py").read_text("utf-8")


@pytest.mark.parametrize("page", sorted(PAGES))
def test_paths_and_targets_that_a_contributor_reads_of_exist(page: str) -> None:
    text = PAGES[page]
    named = {path.rstrip("/") for path in re.findall(r"\b(?:src|tests|docs|tools)/[\w./-]*\w", text)}
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
    asked = {
        target for line in re.findall(r"(?:^|`)make ([a-z][a-z -]*)", text, re.MULTILINE) for target in line.split()
    }

    assert len(named) > 10
    assert {path for path in named if not (ROOT / path).exists()} == set()
    assert len(asked) > 5
    assert asked - targets == set()
