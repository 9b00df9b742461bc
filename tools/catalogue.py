"""Writes the catalogue in docs/reliability.md: each fault and each bad input, and the tests that show what happens.

    python -m tools.catalogue            say whether the page is up to date
    python -m tools.catalogue --write    write it

Sentences are those of docs/capabilities.toml; docs/uncovered.toml says why a row has no test here.
"""

import re
import sys
from pathlib import Path
from typing import Final

from tools.capabilities import ROOT, links, marks, reasons, sentences

PAGE: Final = ROOT / "docs" / "reliability.md"
BEGIN, END = "<!-- catalogue: written by tools/catalogue.py -->", "<!-- end of the catalogue -->"

# What each letter stands for, and its rows.
ROWS: Final[dict[str, tuple[str, list[str]]]] = {
    "F": ("Faults", [f"F{number:02}" for number in range(1, 131)]),
    "B": ("Bad input", [f"B{number:02}" for number in range(1, 125)]),
    "P": ("Faults known from other queues", [f"P{n}" for n in range(1, 27) if n not in (18, 19, 23)]),
    "Q": ("Where BullMQ may surprise you", [f"Q{number}" for number in range(1, 8)]),
}


def catalogue() -> str:
    """The tables, and how much of each is covered."""
    covered, why = marks(), reasons()
    said = {row: text for rows in sentences().values() for row, text in rows.items()}
    parts = ["| | rows | covered by a test |", "|---|---|---|"]
    parts += [f"| {title} | {len(rows)} | {sum(row in covered for row in rows)} |" for title, rows in ROWS.values()]
    for title, rows in ROWS.values():
        parts += ["", f"### {title}", "", "| row | what happens | tests |", "|---|---|---|"]
        for row in rows:
            shown = links(covered[row]) if row in covered else f"no test: {why.get(row, '?')}"
            parts.append(f"| {row} | {said.get(row, 'not yet said')} | {shown} |")
    return "\n".join(parts)


def page(text: str) -> str:
    """The page with its catalogue as it should be."""
    between = re.compile(re.escape(BEGIN) + ".*" + re.escape(END), re.DOTALL)
    return between.sub(lambda _: f"{BEGIN}\n\n{catalogue()}\n\n{END}", text)


def main(path: Path = PAGE) -> int:
    text = path.read_text("utf-8")
    wanted = page(text)
    if "--write" in sys.argv:
        path.write_text(wanted, "utf-8")
        return 0
    if text != wanted:
        print("docs/reliability.md is out of date: run  make capabilities")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
