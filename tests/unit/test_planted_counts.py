"""The page on reliability tells how many bugs are planted outside of the simulator: as many as there are."""

import re
from importlib import import_module
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "reliability.md"


def test_the_page_counts_the_planted_bugs_of_each_test() -> None:
    told = re.findall(r"\| (\d+) \| `(tests/[a-z_/]+)\.py` \|", PAGE.read_text("utf-8"))

    assert len(told) >= 8
    for count, path in told:
        assert len(import_module(path.replace("/", ".")).BUGS) == int(count), path
