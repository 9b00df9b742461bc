"""The gate adds up what tests have noted, and says what is broken."""

import json
import os
import subprocess
import sys
from pathlib import Path

from tools.gate import rows, totals

ROOT = Path(__file__).parents[2]
NOTED = [
    {"figure": "T1", "jobs": 40}, {"figure": "T1", "jobs": 2}, {"figure": "T7", "lost": 0, "stuck": 0},
    {"figure": "planted bugs", "deaf": 0}, {"figure": "planted bugs", "deaf": 1}, {"figure": "T9", "longest": 3.0},
    {"figure": "planted bugs", "late": 0}, {"figure": "planted bugs", "late": 1}, {"figure": "T9", "longest": 2.0},
    {"figure": "T11", "jobs": 2, "executions": 2},
]  # fmt: skip


def told(*more: dict[str, object]) -> dict[str, tuple[str, bool]]:
    found = totals([json.dumps(line) for line in (*NOTED, *more)])
    return {row.id: (row.found, row.broken) for row in rows(found)}


def test_counts_are_added_and_the_longest_time_stays() -> None:
    assert told()["T1"] == ("42", False)
    assert told()["T9"] == ("2 of 2, 3 s; not run", False)
    assert not any(broken for _, broken in told().values())


def test_what_was_not_run_is_not_told_as_nothing() -> None:
    assert told()["T15"] == ("not run", False)


def test_what_is_lost_or_not_caught_is_broken() -> None:
    assert told({"figure": "T7", "lost": 1})["T7"] == ("lost: 1", True)
    assert told({"figure": "planted bugs", "blind": 0})["T9"] == ("2 of 3, 3 s; not run", True)
    assert told({"figure": "T9", "blind": 1, "found_blind": 1})["T9"] == ("2 of 2, 3 s; 1 of 1", False)
    assert told({"figure": "T9", "blind": 1, "found_blind": 0})["T9"] == ("2 of 2, 3 s; 0 of 1", True)
    assert told({"figure": "T11", "jobs": 1, "executions": 4})["T11"] == ("2.00", True)
    assert told({"figure": "T5", "cuts": 1, "lost": 2})["T5"][1]


def test_the_table_is_printed_and_written(tmp_path: Path) -> None:
    (tmp_path / "figures.jsonl").write_text("".join(json.dumps(line) + "\n" for line in NOTED))

    done = subprocess.run(
        [sys.executable, "-m", "tools.gate"], cwd=ROOT, env={**os.environ, "TORIL_PROOF": str(tmp_path)},
        capture_output=True, text=True, check=False,
    )  # fmt: skip

    assert done.returncode == 0, done.stderr
    assert "simulated jobs" in done.stdout
    assert json.loads((tmp_path / "gate.json").read_text())["figures"]["T1"] == {"jobs": 42}


def test_a_new_run_forgets_what_was_found_before(tmp_path: Path) -> None:
    for name in ("figures.jsonl", "gate.json"):
        (tmp_path / name).write_text("{}")

    subprocess.run(
        [sys.executable, "-m", "tools.gate", "--new"], cwd=ROOT, env={**os.environ, "TORIL_PROOF": str(tmp_path)},
        check=True,
    )  # fmt: skip

    assert (tmp_path / "figures.jsonl").read_text() == ""
    assert not (tmp_path / "gate.json").exists()
