"""Faults that once passed the tests of their row: each is planted in a copy of the tree, and has to break the test."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from tools.capabilities import ROOT, marks

pytestmark = pytest.mark.thorough

PASSED, FAILED = 0, 1  # exit codes of pytest


@dataclass(frozen=True, slots=True)
class Mutant:
    """`wrong` in place of `right` in a file breaks what `row` says, and `test` has to notice."""

    row: str
    file: str
    right: str
    wrong: str
    test: str

    def __str__(self) -> str:
        return f"{self.row} {self.wrong}"


MUTANTS = [
    Mutant(
        "R023", "src/toril/worker/loop.py", "_LONGEST_PAUSE: Final = 1.5", "_LONGEST_PAUSE: Final = 15.0",
        "tests/worker/test_loop.py::test_work_goes_on_within_two_seconds_of_the_stores_return",
    ),
    Mutant(
        "R102", "src/toril/worker/loop.py", 'token=f"{call.sender}:{call.seq}"', 'token="t"',
        "tests/worker/test_loop.py::test_every_claim_of_a_worker_has_a_token_of_its_own",
    ),
    Mutant(
        "R104", "src/toril/worker/leases.py", "HeldLease(ttl, renew / 1000, since + renew / 1000,",
        "HeldLease(ttl, ttl / 1300, since + ttl / 1300,",
        "tests/worker/test_lease_lost.py::test_a_queue_has_the_lease_that_it_asks_for_and_it_is_renewed_so",
    ),
    Mutant(
        "R137", "src/toril/worker/leases.py", "held.due, held.deadline = sent + held.renew,",
        "held.due, held.deadline = sent + held.ttl / 1300,",
        "tests/worker/test_lease_lost.py::test_a_queue_has_the_lease_that_it_asks_for_and_it_is_renewed_so",
    ),
    Mutant(
        "R139", "src/toril/web/prometheus.py", "round(late / self._leases[each.name], 4)", "0.1",
        "tests/web/test_prometheus.py::test_run_times_are_told_as_a_share_of_the_lease",
    ),
    Mutant(
        "R152", "src/toril/operate/reaper.py", "lease / 3 if renew is None", "lease / 1.05 if renew is None",
        "tests/worker/test_reaping.py::test_a_leader_renews_at_a_third_of_its_lease_and_others_try_at_a_sixth",
    ),
    Mutant(
        "R153", "src/toril/operate/reaper.py", "lease / 6 if interval is None", "lease * 0.9 if interval is None",
        "tests/worker/test_reaping.py::test_a_lead_that_is_given_up_is_taken_at_the_next_try",
    ),
    Mutant(
        "R183", "src/toril/worker/loop.py", "_LONGEST_WAIT: Final = 60_000", "_LONGEST_WAIT: Final = 100",
        "tests/faults/test_redis_counts.py::test_an_idle_worker_asks_little",
    ),
    Mutant(
        "R228", "src/toril/operate/metrics.py", "for at in range(0, len(queues) or 1, AT_ONCE)",
        "for at in range(len(queues))",
        "tests/conformance/test_metrics.py::test_an_overview_has_every_queue_however_many",
    ),
    Mutant(
        "R261", "deploy/jobs.py", '"MAIL_LEASE", "60"', '"MAIL_LEASE", "600"',
        "tests/deploy/test_topology.py::test_the_app_of_these_files_has_a_lease_of_a_minute",
    ),
]  # fmt: skip


@pytest.fixture(scope="module")
def marked() -> dict[str, list[str]]:
    return marks()


@pytest.fixture(scope="module")
def copied(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tree, with times and compiled files as they are, so that only what changes is compiled again."""
    tree = tmp_path_factory.mktemp("tree")
    for name in ("src", "tests", "deploy", "tools"):
        shutil.copytree(ROOT / name, tree / name, ignore=shutil.ignore_patterns("*.pyc.*"))  # being written beside us
    shutil.copy(ROOT / "pyproject.toml", tree)
    return tree


@contextmanager
def planted(mutant: Mutant, tree: Path) -> Iterator[None]:
    """A fault that cannot be planted is an error: the code has changed, and so has to be the fault."""
    source = (ROOT / mutant.file).read_text("utf-8")
    assert source.count(mutant.right) == 1, f"{mutant.file} does not have {mutant.right!r} once"
    (tree / mutant.file).write_text(source.replace(mutant.right, mutant.wrong), "utf-8")
    try:
        yield
    finally:
        shutil.copy2(ROOT / mutant.file, tree / mutant.file)


def outcome_of(tree: Path, *tests: str) -> "subprocess.CompletedProcess[str]":
    """What pytest says, without the plugins that these tests do not need: they take longer to load than the tests."""
    env = os.environ | {
        "PYTHONPATH": os.pathsep.join((str(tree / "src"), str(tree))),
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        "TORIL_ENGINES": "sqlite,redis",
    }
    plugins = ["-p", "pytest_asyncio.plugin", "-p", "pytest_timeout"]
    command = [sys.executable, "-m", "pytest", "-q", "-x", *plugins, *tests]
    return subprocess.run(command, cwd=tree, env=env, check=False, capture_output=True, text=True)


def test_every_test_holds_where_nothing_is_planted(copied: Path) -> None:
    found = outcome_of(copied, *dict.fromkeys(mutant.test for mutant in MUTANTS))

    assert found.returncode == PASSED, found.stdout


@pytest.mark.parametrize("mutant", MUTANTS, ids=str)
def test_a_planted_fault_breaks_the_test_of_its_row(copied: Path, marked: dict[str, list[str]], mutant: Mutant) -> None:
    assert mutant.test in marked[mutant.row], "the test is not the one that the row names"

    with planted(mutant, copied):
        found = outcome_of(copied, mutant.test)

    assert found.returncode == FAILED, found.stdout
    assert f"FAILED {mutant.test}" in found.stdout, "it broke for another reason"
