"""Planted bugs: a simulator that does not find these would not find others."""

import pytest

from tests.sim.mutants import MUTANTS, Mutant, planted
from tests.sim.mutants_worker import WORKER_MUTANTS
from tests.sim.world import Result, simulate

SEEDS = 100
ALL = {**MUTANTS, **WORKER_MUTANTS}


def first_caught(mutant: Mutant) -> Result | None:
    """The seed that is known for it, or else the first of many."""
    with planted(mutant):
        for seed in (mutant.seed, *range(SEEDS)):
            result = simulate(seed)
            if result.violations:
                return result
    return None


def test_enough_bugs_are_planted_in_the_worker() -> None:
    assert len(WORKER_MUTANTS) >= 20
    assert not MUTANTS.keys() & WORKER_MUTANTS.keys()


@pytest.mark.parametrize("name", ALL)
def test_the_simulator_finds_a_planted_bug(name: str) -> None:
    mutant = ALL[name]

    caught = first_caught(mutant)

    assert caught is not None, f"{name} ({mutant.wrong}) went unseen in {SEEDS} seeds"
    assert not simulate(caught.seed).violations, "the same seed is clean without it"
    if mutant.row is not None:
        assert caught.violations[0].row == mutant.row


def test_a_failure_says_how_to_replay_it() -> None:
    caught = first_caught(MUTANTS["left_active"])

    assert caught is not None
    assert f".venv/bin/python -m tests.sim.replay {caught.seed}" in str(caught)
    assert "stands in 2 places" in str(caught)
