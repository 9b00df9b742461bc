"""Runs the unit, conformance and worker tests on other Pythons: `python -m tools.pythons [VERSION ...]`.

Without versions it takes those of `VERSIONS` that are installed, and none is needed. Versions that are named have to be
there. A Python is looked for on the PATH, among pyenv's versions, and by `uv python find`. Each gets an environment of
its own in `.pythons/`, with the pins of `requirements-dev.txt`.
"""

import argparse
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

__all__ = ["VERSIONS", "find", "main"]

VERSIONS: Final = ("3.12", "3.13", "3.14")
ROOT: Final = Path(__file__).parents[1]
FOLDER: Final = ROOT / ".pythons"
TESTS: Final = ("tests/unit", "tests/conformance", "tests/worker")
_PATIENCE: Final = 60.0  # seconds that an interpreter may take to say its version
_VERSION: Final = "import sys; print('%d.%d' % sys.version_info[:2], sys.executable)"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the tests on each Python, and end with what came of it: 0 unless one failed or a named one is missing."""
    parser = argparse.ArgumentParser(prog="python -m tools.pythons", description="Run the tests on other Pythons.")
    parser.add_argument("versions", nargs="*", metavar="VERSION", help=f"such as {', '.join(VERSIONS)}")
    named: list[str] = parser.parse_args(arguments).versions
    found = {version: find(version) for version in named or VERSIONS}
    for version, python in found.items():
        print(f"Python {version}: {'not found' if python is None else f'found, {python}'}", flush=True)
    if not any(found.values()) and not named:
        print("None of them is installed: nothing to test. `pyenv install` or `uv python install` gets one.")
        return 0
    results = {
        version: "not found" if python is None else _outcome(version, python) for version, python in found.items()
    }
    print()
    for version, result in results.items():
        print(f"Python {version}: {result}")
    bad = {"failed", "could not be set up"} | ({"not found"} if named else set())
    return int(any(result.partition(" after ")[0] in bad for result in results.values()))


def find(version: str) -> str | None:
    """An interpreter of this version; None if none is installed."""
    return next((python for python in (_checked(each, version) for each in _candidates(version)) if python), None)


def _candidates(version: str) -> Iterator[str]:
    if on_path := shutil.which(f"python{version}"):
        yield on_path
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
    yield from sorted(map(str, pyenv.glob(f"{version}*/bin/python{version}")), reverse=True)
    if uv := shutil.which("uv"):
        yield _said([uv, "python", "find", "--system", "--no-python-downloads", version])


def _checked(python: str, version: str) -> str | None:
    """The interpreter itself if it has this version; pyenv puts commands on the PATH that only say what is missing."""
    known, _, executable = _said([python, "-c", _VERSION]).partition(" ") if python else ("", "", "")
    return executable if known == version else None


def _said(command: list[str]) -> str:
    """What a command prints, if all is well; else nothing."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_PATIENCE, check=False)  # noqa: S603
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def _outcome(version: str, python: str) -> str:
    print(f"\nPython {version}: setting up {FOLDER.name}/{version}", flush=True)
    began, environment = time.monotonic(), FOLDER / version
    if not _set_up(environment, python):
        return "could not be set up"
    passed = _tested(environment / "bin" / "python")
    return f"{'passed' if passed else 'failed'} after {(time.monotonic() - began) / 60:.1f} min"


def _set_up(environment: Path, python: str) -> bool:
    """An environment with what the tests need, made anew when the interpreter or a pin has changed."""
    wants = [python, *((ROOT / name).read_text("utf-8") for name in ("requirements-dev.txt", "pyproject.toml"))]
    mark, wanted = environment / "installed", "\n".join(wants)
    if mark.exists() and mark.read_text("utf-8") == wanted:
        return True
    pip = [sys.executable, "-m", "pip", "--python", str(environment / "bin" / "python"), "install", "--quiet"]
    done = all(
        subprocess.run(command, cwd=ROOT, check=False).returncode == 0  # noqa: S603 - commands of this file
        for command in (
            [python, "-m", "venv", "--clear", "--without-pip", str(environment)],
            [*pip, "--requirement", "requirements-dev.txt"],
            [*pip, "--no-deps", "--no-build-isolation", "--editable", "."],
        )
    )
    if done:
        mark.write_text(wanted, "utf-8")
    return done


def _tested(python: Path) -> bool:
    workers = os.environ.get("PYTEST_WORKERS", "3")
    together = ["--numprocesses", workers, "--dist", "worksteal"]
    command = [str(python), "-m", "pytest", "--quiet", "-m", "not thorough", *together, *TESTS]
    environment = {**os.environ, "TORIL_QUICK": "1"}
    return subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode == 0  # noqa: S603


if __name__ == "__main__":
    sys.exit(main())
