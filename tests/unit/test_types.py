"""Type checkers know the API: what is right passes, and what is wrong is reported where it stands."""

import re
from pathlib import Path

import mypy.api
import pytest

ROOT = Path(__file__).parents[2]
CASES = ROOT / "tests" / "typed" / "cases.py"


@pytest.mark.covers("R037")
def test_a_wrong_payload_or_option_is_reported_and_nothing_else(tmp_path: Path) -> None:
    wanted = {
        (number, found[1])
        for number, line in enumerate(CASES.read_text("utf-8").splitlines(), 1)
        if (found := re.search(r"# E: ([\w-]+)$", line))
    }
    out, err, _ = mypy.api.run(
        ["--config-file", str(ROOT / "pyproject.toml"), "--cache-dir", str(ROOT / ".mypy_cache"), str(CASES)]
    )
    reported = {(int(line), code) for line, code in re.findall(r"cases\.py:(\d+): error: .*\[([\w-]+)\]", out)}

    assert (reported, err) == (wanted, "")
