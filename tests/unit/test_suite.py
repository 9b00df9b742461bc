"""The stages of the test suite: what fails twice fails the suite, what passes at last is noted as unsteady."""

import os
from datetime import date, timedelta
from pathlib import Path

import pytest
from tools import suite
from tools.suite import MOST_UNSTEADY, QUICK, STAGES, Stage, run_stage, unsteady_problems

ROOT = Path(__file__).parents[2]
TODAY = date(2026, 11, 16)
STAGE = Stage("given", ("test_given.py",), 1)

# Fails in the runs whose numbers are given.
FAILING = """
import pytest
from pathlib import Path

@pytest.mark.thorough
def test_steady() -> None:
    pass

@pytest.mark.thorough
def test_given() -> None:
    runs = Path("runs")
    before = runs.read_text() if runs.exists() else ""
    runs.write_text(before + "x")
    assert len(before) not in {runs_that_fail}, "it was disturbed"
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # half of a second instead of several
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = thorough\naddopts = -ra\n")
    return tmp_path


def stage_with(folder: Path, text: str, stage: Stage = STAGE) -> suite.Outcome:
    (folder / "test_given.py").write_text(text)
    return run_stage(stage, root=folder, logs=folder / "logs")


def failing_in(*runs: int) -> str:
    return FAILING.replace("{runs_that_fail}", repr(runs))


def test_a_test_that_passes_the_second_time_is_unsteady(folder: Path) -> None:
    found = stage_with(folder, failing_in(0))

    assert found.failed == ()
    assert found.unsteady == ("test_given.py::test_given",)
    assert (folder / "runs").read_text() == "xx"
    assert "it was disturbed" in found.log.read_text()
    assert "UNSTEADY test_given.py::test_given" in (folder / "logs" / "given.failed").read_text()


def test_a_test_that_fails_twice_fails_the_stage(folder: Path) -> None:
    found = stage_with(folder, failing_in(0, 1))

    assert found.failed == ("test_given.py::test_given",)
    assert found.unsteady == ()
    assert found.passed == 1


def test_nothing_is_run_twice_in_make_test(folder: Path) -> None:
    quick = Stage("given", ("test_given.py",), 1, marks="thorough", is_quick=True)

    found = stage_with(folder, failing_in(0), quick)

    assert found.failed == ("test_given.py::test_given",)
    assert (folder / "runs").read_text() == "x"


def test_a_run_that_breaks_off_fails_the_stage(folder: Path) -> None:
    found = stage_with(folder, "import nothing_of_that_name\n")

    assert len(found.failed) == 1
    assert "nothing_of_that_name" in found.log.read_text()


def test_a_few_recent_unsteady_tests_are_tolerated_and_no_more() -> None:
    recent = {f"test_{number}": TODAY for number in range(MOST_UNSTEADY)}

    assert unsteady_problems(recent, TODAY) == []
    assert unsteady_problems(recent | {"test_more": TODAY}, TODAY) != []
    assert unsteady_problems({"test_old": TODAY - timedelta(days=7)}, TODAY) == []
    assert "test_old" in unsteady_problems({"test_old": TODAY - timedelta(days=8)}, TODAY)[0]


def test_an_unsteady_test_keeps_its_first_date_and_the_file_its_heading(tmp_path: Path) -> None:
    path = tmp_path / "unsteady.toml"
    path.write_text("# what this is\n")

    suite._noted(path, ['tests/a.py::test["b"]'], TODAY)
    known = suite._noted(path, ['tests/a.py::test["b"]', "tests/c.py::test"], TODAY + timedelta(days=1))

    assert known == {'tests/a.py::test["b"]': TODAY, "tests/c.py::test": TODAY + timedelta(days=1)}
    assert path.read_text().startswith("# what this is\n")
    assert suite._noted(path, [], TODAY) == known


def test_every_thorough_test_belongs_to_one_stage() -> None:
    """Stages share no file, and together they are the whole folder."""
    for path in (ROOT / "tests").rglob("test_*.py"):
        name = str(path.relative_to(ROOT))
        owners = [stage.name for stage in STAGES if _within(name, stage.paths) and not _within(name, stage.leaving_out)]
        assert len(owners) == 1, f"{name} is run by {owners}"
    assert QUICK.marks == f"not {STAGES[0].marks}"


def _within(name: str, paths: tuple[str, ...]) -> bool:
    return any(name == path or name.startswith(path + os.sep) for path in paths)
