"""The second look at tests that failed beside others."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tools.suite import LOOKS, MOST

ROOT = Path(__file__).parents[2]

UNSTEADY = """
from pathlib import Path

def test_steady() -> None:
    pass

def test_unsteady() -> None:
    runs = Path("runs")
    before = runs.read_text() if runs.exists() else ""
    runs.write_text(before + "x")
    assert len(before) not in {wrong}, "it was disturbed"
"""
MANY = """
import pytest
from pathlib import Path

@pytest.mark.parametrize("number", range({many}))
def test_once(number: int) -> None:
    mark = Path(f"ran-{{number}}")
    if not mark.exists():
        mark.touch()
        raise AssertionError("it was disturbed")
"""


def suite(folder: Path, text: str) -> subprocess.CompletedProcess[str]:
    (folder / "test_given.py").write_text(text)
    (folder / "pytest.ini").write_text("[pytest]\n")
    return subprocess.run(
        [sys.executable, "-m", "tools.suite"], cwd=folder, env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True, text=True, check=False,
    )  # fmt: skip


def test_what_passes_by_itself_is_named_and_lets_the_suite_pass(tmp_path: Path) -> None:
    done = suite(tmp_path, UNSTEADY.replace("{wrong}", "{0}"))

    assert done.returncode == 0
    assert "it was disturbed" in done.stdout
    assert "UNSTEADY" in done.stdout
    assert done.stdout.rstrip().endswith("test_given.py::test_unsteady")
    assert len((tmp_path / "runs").read_text()) == 1 + LOOKS


@pytest.mark.parametrize("again", range(1, 1 + LOOKS))
def test_what_fails_once_more_fails_the_suite(tmp_path: Path, again: int) -> None:
    done = suite(tmp_path, UNSTEADY.replace("{wrong}", f"{{0, {again}}}"))

    assert done.returncode == 1
    assert "failed by itself too, 1 of 3 times" in done.stdout


def test_many_failures_are_no_coincidence(tmp_path: Path) -> None:
    done = suite(tmp_path, MANY.format(many=MOST + 1))

    assert done.returncode == 1
    assert "again" not in done.stdout


def test_a_run_that_goes_wrong_itself_is_not_looked_at_again(tmp_path: Path) -> None:
    done = suite(tmp_path, "import nothing_of_that_name\n")

    assert done.returncode not in {0, 1}
    assert "again" not in done.stdout
