"""`make gate`, `make soak` and `make planted` publish what they found, broken or not, and fail if it was broken."""

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

# Stands in for each program that is run: it writes down its words, and ends with the code that is set for it.
PROGRAM = """#!/bin/sh
printf '%s' "$(basename "$0")" >> "$TOLD"
printf ' [%s]' "$@" >> "$TOLD"
echo >> "$TOLD"
case "$*" in
    *tools.soak*) exit "$SOAK" ;;
    "-m tools.gate") exit "$BROKEN" ;;
    *tools.proofs*) exit "$UNKEPT" ;;
    *tests.sim.planted*) exit "$MISSED" ;;
    *--dist*) exit "$TESTS" ;;
esac
"""
FINE = {"SOAK": "0", "BROKEN": "0", "UNKEPT": "0", "TESTS": "0", "MISSED": "0"}


def made(folder: Path, *words: str, **codes: str) -> tuple[int, list[str]]:
    """What make ends with, and the programs that it has run."""
    told = folder / "told"
    for name in ("python", "pytest"):
        (folder / name).write_text(PROGRAM)
        (folder / name).chmod(0o755)
    inherited = {name: value for name, value in os.environ.items() if name not in {"MAKEFLAGS", "MAKELEVEL", "MFLAGS"}}
    done = subprocess.run(
        ["make", "-o", "setup", "-o", "servers", "-o", "node", f"BIN={folder}", *words],
        cwd=ROOT, env={**inherited, **FINE, **codes, "TOLD": str(told)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    return done.returncode, told.read_text().splitlines()


@pytest.mark.parametrize("code", ["0", "1"])
def test_a_soak_is_published_whatever_it_found(code: str, tmp_path: Path) -> None:
    ended, told = made(tmp_path, "soak", "NOTE=quiet", 'REMARK=a `b` "c"', SOAK=code)

    assert told[0] == "python [-m] [tools.soak]"
    assert told[1] == f'python [-m] [tools.proofs] [soak] [--code] [{code}] [--note] [quiet] [--remark] [a `b` "c"]'
    assert (ended == 0) == (code == "0")
    assert len(told) == (3 if code == "0" else 2)


@pytest.mark.parametrize("kind", ["gate", "planted"])
@pytest.mark.parametrize(
    ("tests", "missed", "broken", "code"),
    [("0", "0", "0", 0), ("1", "0", "0", 1), ("0", "1", "0", 1), ("0", "0", "1", 1), ("2", "0", "0", 2)],
)
def test_a_gate_is_published_whatever_it_found(
    kind: str, tests: str, missed: str, broken: str, code: int, tmp_path: Path
) -> None:
    ended, told = made(tmp_path, kind, TESTS=tests, MISSED=missed, BROKEN=broken)

    assert told[0] == "python [-m] [tools.gate] [--new]"
    assert told[1].startswith("pytest ")
    assert told[2:] == [
        "python [-m] [tests.sim.planted]", "python [-m] [tools.gate]",
        f"python [-m] [tools.proofs] [{kind}] [--code] [{code}]",
    ]  # fmt: skip
    assert (ended == 0) == (code == 0)


def test_what_could_not_be_published_fails(tmp_path: Path) -> None:
    assert made(tmp_path, "soak", UNKEPT="1")[0] != 0
