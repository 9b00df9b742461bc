"""Figures of the gate, noted by the tests that obtain them: `python -m tools.gate` adds them up.

A line a fact, each in one append, since tests run in several processes. The folder is `.proof/`, which `make test`
empties first.
"""

import json
import os
from pathlib import Path

__all__ = ["FIGURES", "prove"]

FIGURES = Path(os.environ.get("TORIL_PROOF", Path(__file__).parents[1] / ".proof")) / "figures.jsonl"


def prove(figure: str, **counts: float) -> None:
    """`figure` is one of T1 to T15. Counts of a figure are added up; one named `longest` is not: the largest stays."""
    FIGURES.parent.mkdir(parents=True, exist_ok=True)
    handle = os.open(FIGURES, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
    try:
        os.write(handle, (json.dumps({"figure": figure, **counts}) + "\n").encode())
    finally:
        os.close(handle)
