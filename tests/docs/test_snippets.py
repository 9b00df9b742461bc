"""Every Python snippet of the documentation runs, and a newcomer's first minute goes as the README says."""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def snippets(language: str) -> Iterator[tuple[str, str]]:
    for page in PAGES:
        for number, (kind, text) in enumerate(FENCE.findall(page.read_text("utf-8")), 1):
            if kind == language:
                yield f"{page.relative_to(ROOT)}:{number}", text


def ran(command: list[str], folder: Path) -> str:
    """What a command prints; it must end well, with nothing to complain about."""
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120, check=False)

    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    return done.stdout


@pytest.mark.parametrize(("name", "text"), [pytest.param(*each, id=each[0]) for each in snippets("python")])
def test_a_snippet_runs(name: str, text: str, tmp_path: Path) -> None:
    (tmp_path / "snippet.py").write_text(text, "utf-8")

    ran([sys.executable, "snippet.py"], tmp_path)


@pytest.mark.parametrize("path", sorted((ROOT / "examples").glob("*.py")), ids=lambda path: path.stem)
def test_an_example_runs(path: Path, tmp_path: Path) -> None:
    assert ran([sys.executable, str(path)], tmp_path)


@pytest.mark.covers("R001")
def test_a_first_job_written_from_the_readme_runs_at_once(tmp_path: Path) -> None:
    """The two commands of the README, in an empty folder; the worker is told to end when it is done."""
    (_, text), *_ = snippets("python")
    (tmp_path / "jobs.py").write_text(text, "utf-8")
    toril = str(Path(sys.executable).with_name("toril"))

    added = ran([sys.executable, "jobs.py"], tmp_path)
    worked = subprocess.run(
        [toril, "run", "jobs:app", "--burst"], cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False
    )

    assert added == "<Job 1 'greet' in 'greetings'>\n"
    assert worked.returncode == 0, worked.stderr
    assert "job completed" in worked.stderr
    assert ran([toril, "jobs", "greetings", "--runs", "--json"], tmp_path).count("hello world") == 1
