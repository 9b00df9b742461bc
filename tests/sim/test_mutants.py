"""Planted bugs: a simulator that does not find these would not find others. `make gate` prints how many were caught."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.proof import prove
from tests.sim.bugs import BUGS, found
from tests.sim.mutants import planted
from tests.sim.mutants_flows import FLOW_MUTANTS
from tests.sim.world import simulate

SEEDS = 100
SECONDS = 60.0  # of the processor, for each


def test_enough_bugs_are_planted_in_every_part() -> None:
    assert len(BUGS) >= 40
    assert len([name for name in BUGS if name.startswith("redis: ")]) >= 20
    assert len({bug.wrong for bug in BUGS.values()}) >= 40


@pytest.mark.covers("T9")
@pytest.mark.parametrize("name", BUGS)
def test_the_simulator_finds_a_planted_bug(name: str) -> None:
    bug, began = BUGS[name], time.process_time()

    caught = found(bug, SEEDS)

    took = time.process_time() - began
    prove("T9", planted=1, caught=int(caught is not None and took < SECONDS), longest=took)
    assert caught is not None, f"{name} ({bug.wrong}) went unseen in {SEEDS} seeds"
    seed, violations = caught
    assert took < SECONDS
    assert not bug.world(seed), "the same seed is clean without it"
    if bug.row is not None:
        assert violations[0].row == bug.row


def test_bugs_of_flows_are_found_by_the_rules_of_flows_alone() -> None:
    for mutant in FLOW_MUTANTS.values():
        with planted(mutant):
            assert not simulate(1).violations


def test_a_variable_switches_a_bug_on() -> None:
    replayed = subprocess.run(
        [sys.executable, "-m", "tests.sim.replay", "0"], cwd=Path(__file__).parents[2], capture_output=True, text=True,
        env={**os.environ, "TORIL_MUTANT": "left_active"}, check=False,
    )  # fmt: skip

    assert replayed.returncode == 1
    assert "I1: " in replayed.stdout
