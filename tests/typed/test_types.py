"""Type checkers know the API: what is right passes, and what is wrong is reported where it stands."""

import json
import re
import shutil
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import mypy.api
import pytest

from tests.interop.node import FOLDER

ROOT = Path(__file__).parents[2]
CASES = Path(__file__).parent / "cases.py"
PYRIGHT = FOLDER / "node_modules" / "pyright" / "index.js"


def wanted() -> dict[int, str]:
    """The lines that are wrong, with the code under which mypy reports each."""
    lines = enumerate(CASES.read_text("utf-8").splitlines(), 1)
    return {number: found[1] for number, line in lines if (found := re.search(r"# E: ([\w-]+)$", line))}


def mypy_says() -> dict[int, list[tuple[str, str]]]:
    """Messages and their codes by line."""
    config = ["--config-file", str(ROOT / "pyproject.toml"), "--cache-dir", str(ROOT / ".mypy_cache")]
    out, err, _ = mypy.api.run([*config, str(CASES)])
    assert err == ""
    said: dict[int, list[tuple[str, str]]] = defaultdict(list)
    for line, message, code in re.findall(r"cases\.py:(\d+): error: (.*)  \[([\w-]+)\]", out):
        said[int(line)].append((message, code))
    return said


@pytest.mark.covers("R037")
def test_mypy_reports_what_is_wrong_and_nothing_else() -> None:
    assert {line: said[-1][1] for line, said in mypy_says().items()} == wanted()


@pytest.mark.covers("R037")
def test_pyright_reports_what_is_wrong_and_nothing_else() -> None:
    node = shutil.which("node")
    assert node is not None, "Node is missing: run  make node"
    assert PYRIGHT.exists(), "pyright is missing: run  make node"
    command = [node, str(PYRIGHT), "--project", str(CASES.parent), "--pythonpath", sys.executable, "--outputjson"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)

    found = json.loads(done.stdout)["generalDiagnostics"]
    assert {each["range"]["start"]["line"] + 1 for each in found} == wanted().keys(), done.stdout


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ('welcome.add("not', 'Argument 1 to "add" of "Task" has incompatible type "str"; expected "Welcome"'),
        ("welcome.add()", 'Missing positional argument "data" in call to "add" of "Task"'),
        ("add(Welcome(1), pr", 'Unexpected keyword argument "prioritty" for "add" of "Task"; did you mean "priority"?'),
        ('welcome.new("not', 'Argument 1 to "new" of "Task" has incompatible type "str"; expected "Welcome"'),
        (
            '"wrong", {"send": no',
            'Dict entry 0 has incompatible type "str": "Callable[[int], Coroutine[Any, Any, int]]"; '
            'expected "str": "Callable[[JobContext[Any]], Awaitable[Any]] | Callable[[SyncJobContext[Any]], Any] | '
            'Callable[[Job[Any]], Awaitable[Any]] | Callable[[SyncJob[Any]], Any]"',
        ),
        ('"daily", "not', 'Argument 2 to "schedule" of "Task" has incompatible type "str"; expected "Welcome"'),
    ],
)
def test_what_mypy_says_of_a_task_is_one_sentence_that_names_the_payload(call: str, message: str) -> None:
    lines = [number for number, line in enumerate(CASES.read_text("utf-8").splitlines(), 1) if call in line]
    said = mypy_says()

    assert [text for number in lines for text, _ in said[number] if number in wanted()][:1] == [message]
