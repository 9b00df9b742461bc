"""The tests on other Pythons: which are found, what is told, and how it ends."""

from pathlib import Path

import pytest
from tools import pythons

# Stands in for an interpreter: says its version as Python does, from where it is.
INTERPRETER = '#!/bin/sh\necho "{version} $0"\n'


def put(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty machine: its `bin` is the PATH, its `pyenv` that of pyenv."""
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}")
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path / "pyenv"))
    return tmp_path


def test_a_python_is_found_on_the_path(folder: Path) -> None:
    python = put(folder / "bin" / "python3.13", INTERPRETER.format(version="3.13"))

    assert pythons.find("3.13") == str(python)
    assert pythons.find("3.12") is None


def test_a_python_is_found_among_those_of_pyenv_though_its_shim_fails(folder: Path) -> None:
    put(folder / "bin" / "python3.12", "#!/bin/sh\necho 'pyenv: python3.12: command not found' >&2\nexit 127\n")
    python = put(folder / "pyenv" / "versions" / "3.12.1" / "bin" / "python3.12", INTERPRETER.format(version="3.12"))

    assert pythons.find("3.12") == str(python)


def test_a_python_is_found_by_uv(folder: Path) -> None:
    python = put(folder / "elsewhere" / "python3", INTERPRETER.format(version="3.14"))
    put(folder / "bin" / "uv", f'#!/bin/sh\n[ "$1 $2" = "python find" ] && echo {python}\n')

    assert pythons.find("3.14") == str(python)


def test_an_interpreter_of_another_version_is_not_taken(folder: Path) -> None:
    put(folder / "bin" / "python3.13", INTERPRETER.format(version="3.11"))

    assert pythons.find("3.13") is None


@pytest.fixture
def outcomes(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """What the tests come to on each Python that is found."""
    found = dict[str, str]()
    monkeypatch.setattr(pythons, "find", lambda version: f"python{version}" if version in found else None)
    monkeypatch.setattr(pythons, "_outcome", lambda version, _: found[version])
    return found


def test_all_is_well_if_none_is_installed(outcomes: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    assert pythons.main([]) == 0
    said = capsys.readouterr().out
    assert all(f"Python {version}: not found" in said for version in pythons.VERSIONS)
    assert "nothing to test" in said


def test_all_is_well_if_those_that_are_installed_pass(
    outcomes: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    outcomes["3.13"] = "passed after 2.0 min"

    assert pythons.main([]) == 0
    said = capsys.readouterr().out
    assert "Python 3.13: found, python3.13" in said
    assert said.endswith("Python 3.12: not found\nPython 3.13: passed after 2.0 min\nPython 3.14: not found\n")


@pytest.mark.parametrize("outcome", ["failed after 2.0 min", "could not be set up"])
def test_one_that_fails_fails_the_run(outcome: str, outcomes: dict[str, str]) -> None:
    outcomes |= {"3.12": outcome, "3.13": "passed after 2.0 min"}

    assert pythons.main([]) == 1


def test_one_that_is_named_has_to_be_there(outcomes: dict[str, str]) -> None:
    outcomes["3.13"] = "passed after 2.0 min"

    assert pythons.main(["3.13"]) == 0
    assert pythons.main(["3.13", "3.14"]) == 1


def test_a_failing_test_fails_its_python(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pythons, "FOLDER", folder)
    monkeypatch.setattr(pythons, "_set_up", lambda *_: True)
    python = put(folder / "3.13" / "bin" / "python", "#!/bin/sh\nexit 1\n")

    assert pythons._outcome("3.13", str(python)).startswith("failed after")
    put(python, "#!/bin/sh\nexit 0\n")
    assert pythons._outcome("3.13", str(python)).startswith("passed after")
