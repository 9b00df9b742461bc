"""`toril torture`, in real processes: a short run on each kind of store keeps every promise.

TORIL_TORTURE_MINUTES makes them longer, TORIL_TORTURE_JOBS fuller, TORIL_TORTURE_EVERY is the time between two faults.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.proof import prove
from tests.servers import running
from toril.torture.checker import PROMISES

MINUTES = os.environ.get("TORIL_TORTURE_MINUTES", "0.1")
JOBS = os.environ.get("TORIL_TORTURE_JOBS") or str(int(2500 * float(MINUTES)))
EVERY = os.environ.get("TORIL_TORTURE_EVERY", "0.25")


def tortured(*words: str, folder: Path, code: int = 0) -> dict[str, Any]:
    """The report of a run."""
    path = folder / "report.json"
    ended = subprocess.run(
        [sys.executable, "-m", "toril", "torture", "--report", str(path), *words],
        cwd=folder, capture_output=True, text=True, timeout=float(MINUTES) * 60 + 900, check=False,
    )  # fmt: skip
    assert ended.returncode == code, ended.stdout + ended.stderr
    document: dict[str, Any] = json.loads(path.read_text())
    return document


@pytest.mark.parametrize("store", ["sqlite", "redis"])
@pytest.mark.covers("T4", "F04", "F27", "F43", "G1", "G2", "G3", "G5", "G7")
def test_a_torture_breaks_no_promise(store: str, tmp_path: Path) -> None:
    report = tortured(
        "--seed", "5", "--url", store, "--jobs", JOBS, "--minutes", MINUTES, "--lease", "1", "--every", EVERY,
        folder=tmp_path,
    )  # fmt: skip

    figures = report["figures"]
    print(store, figures, report["faults"], report["recovery_seconds"])
    prove("T4", jobs=figures["acknowledged"], faults=figures["faults"])
    prove("T7", **{promise: figures[promise] for promise in PROMISES})
    assert report["broken"] == []
    assert figures["acknowledged"] >= 0.9 * int(JOBS)
    assert figures["faults"] >= 3
    assert report["plan"]


def test_a_store_that_others_use_is_left_as_it_was(tmp_path: Path) -> None:
    server = running()
    server.tell("FLUSHALL")
    server.tell("SET", "theirs", "1")

    report = tortured(
        "--seed", "6", "--url", server.url, "--jobs", "60", "--minutes", "0.05", "--lease", "1", "--every", "0.3",
        "--workers", "2", folder=tmp_path,
    )  # fmt: skip

    assert report["broken"] == []
    assert server.tell("DBSIZE") == b":1"
    assert not any("server" in fault for fault in report["faults"])


@pytest.mark.parametrize(
    ("words", "complaint"),
    [(("--url", "memory://"), "does not outlive it"), (("--url", "redis", "--own-disk"), "needs --url sqlite")],
)
def test_what_cannot_be_tortured_is_said(words: tuple[str, ...], complaint: str, tmp_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "toril", "torture", *words], cwd=tmp_path, capture_output=True, text=True, check=False
    )

    assert ended.returncode == 2
    assert complaint in ended.stderr


def test_a_dry_run_prints_the_plan_of_a_seed(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "toril", "torture", "--seed", "1", "--url", "redis", "--dry-run"]

    first, second = (subprocess.check_output(command, cwd=tmp_path, text=True) for _ in range(2))

    assert first == second
    assert "kill -9 of a worker" in first
