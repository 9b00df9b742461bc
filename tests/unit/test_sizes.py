"""Sizes keep the code readable. An exception is listed here, by name, in plain sight."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FILE, FUNCTION, LUA = 350, 40, 80
MEDIAN = 8

LONG_FILES: set[str] = {"sync"}  # written by a tool, one short method after the other
LONG_FUNCTIONS: set[str] = set()


def python_files() -> list[Path]:
    return sorted((ROOT / "src").rglob("*.py"))


def functions(path: Path) -> list[tuple[str, int]]:
    found = []
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert node.end_lineno is not None
            found.append((f"{path.stem}.{node.name}", node.end_lineno - node.lineno + 1))
    return found


@pytest.mark.parametrize("path", python_files(), ids=lambda path: str(path.relative_to(ROOT / "src")))
def test_a_file_fits_in_the_head(path: Path) -> None:
    lines = len(path.read_text("utf-8").splitlines())
    long = [name for name, size in functions(path) if size > FUNCTION and name not in LONG_FUNCTIONS]

    assert lines <= FILE or path.stem in LONG_FILES, f"{path} has {lines} lines"
    assert long == []


def test_scripts_fit_on_two_screens() -> None:
    long = [path for path in (ROOT / "src").rglob("*.lua") if len(path.read_text("utf-8").splitlines()) > LUA]

    assert long == []


def test_the_usual_function_is_short() -> None:
    sizes = sorted(size for path in python_files() for _, size in functions(path))

    assert sizes[len(sizes) // 2] <= MEDIAN


def test_exceptions_are_still_needed() -> None:
    sizes = {name: size for path in python_files() for name, size in functions(path)}
    lines = {path.stem: len(path.read_text("utf-8").splitlines()) for path in python_files()}

    assert [name for name in LONG_FUNCTIONS if sizes.get(name, 0) <= FUNCTION] == []
    assert [name for name in LONG_FILES if lines.get(name, 0) <= FILE] == []
