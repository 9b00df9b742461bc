"""Writes docs/capabilities.md: what Toril can do, and the tests that show it.

    python -m tools.capabilities            say whether the page is up to date
    python -m tools.capabilities --write    write it

The sentences are in docs/capabilities.toml, one for each row. Tests name the rows that they show with
`@pytest.mark.covers`; docs/uncovered.toml says why a row has no test.
"""

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "capabilities.md"
SENTENCES = ROOT / "docs" / "capabilities.toml"
REASONS: Final = ROOT / "docs" / "uncovered.toml"
ELSEWHERE: Final = ("F", "B", "P", "Q")  # faults and bad input have a page of their own: tools/catalogue.py

# What Toril was asked for (R), and what is worth having beside it (X).
OWED: Final = [*(f"R{number:03}" for number in range(1, 282)), *(f"X{number:02}" for number in range(1, 34))]


@cache
def marks(tests: Path = ROOT / "tests") -> dict[str, list[str]]:
    """For each row, the tests that name it."""
    found: dict[str, list[str]] = {}
    for path in sorted(tests.rglob("test_*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                for row in _rows(node):
                    found.setdefault(row, []).append(f"{path.relative_to(ROOT)}::{node.name}")
    return found


def _rows(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> Iterator[str]:
    for decorator in node.decorator_list:
        if isinstance(decorator, ast.Call) and ast.unparse(decorator.func) == "pytest.mark.covers":
            yield from (str(ast.literal_eval(argument)) for argument in decorator.args)


def sentences() -> dict[str, dict[str, str]]:
    """For each section, the sentence of each row."""
    return tomllib.loads(SENTENCES.read_text("utf-8"))


def reasons() -> dict[str, str]:
    """Why rows without a test have none, those of the catalogue included."""
    return tomllib.loads(REASONS.read_text("utf-8"))


def page() -> str:
    """The page as it should be."""
    covered, why = marks(), reasons()
    shown = [row for row in OWED if row in covered]
    lines = [
        "# What Toril can do",
        "",
        "This page lists what Toril can do, and the files with the tests that show it. In these files, the tests are",
        'marked with the number of the row, as in `@pytest.mark.covers("R016")`.',
        "",
        f"Tests show {len(shown)} of the {len(OWED)} rows R and X; the others are [listed](#not-shown-by-a-test), with",
        "the reason. For faults and bad input, see the [catalogue](reliability.md#catalogue). `make capabilities`",
        "writes this page from the marks and from the sentences in `capabilities.toml`.",
    ]
    for section, rows in sentences().items():
        present = {row: text for row, text in rows.items() if row in covered and row[0] not in ELSEWHERE}
        if present:
            lines += ["", f"## {section}", "", "| row | what | tests |", "|---|---|---|"]
            lines += [
                f"| {row} | {text} | {links(covered[row])} |" for row, text in sorted(present.items(), key=_order)
            ]
    said = {row: text for rows in sentences().values() for row, text in rows.items()}
    lines += ["", "## Not shown by a test", "", "| row | what | why |", "|---|---|---|"]
    lines += [f"| {row} | {said.get(row, 'not yet said')} | {why[row]} |" for row in OWED if row in why]
    return "\n".join([*lines, ""])


def _order(item: tuple[str, str]) -> tuple[str, int]:
    letter, number = re.fullmatch(r"([A-Z]+)(\d+)", item[0]).groups()  # type: ignore[union-attr]
    return letter, int(number)


def links(tests: list[str]) -> str:
    files = dict.fromkeys(test.partition("::")[0] for test in tests)
    return "<br>".join(f"[`{file}`](../{file})" for file in files)


def main() -> int:
    wanted = page()
    if "--write" in sys.argv:
        PAGE.write_text(wanted, "utf-8")
        return 0
    if not PAGE.exists() or PAGE.read_text("utf-8") != wanted:
        print("docs/capabilities.md is out of date: run  make capabilities")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
