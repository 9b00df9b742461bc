"""Planted bugs: a simulator that does not find these would not find others."""

import pytest

from tests.sim.mutants import MUTANTS, planted
from tests.sim.world import Result, simulate

SEEDS = 100


def first_caught(name: str) -> Result | None:
    with planted(MUTANTS[name]):
        return next((result for seed in range(SEEDS) if (result := simulate(seed)).violations), None)


@pytest.mark.parametrize("name", MUTANTS)
def test_the_simulator_finds_a_planted_bug(name: str) -> None:
    caught = first_caught(name)

    assert caught is not None, f"{name} ({MUTANTS[name].wrong}) went unseen in {SEEDS} seeds"
    assert not simulate(caught.seed).violations, "the same seed is clean without it"


def test_without_the_lease_check_old_holders_settle() -> None:
    caught = first_caught("settle_without_lease_check")

    assert caught is not None
    assert caught.violations[0].row == "I4"


def test_a_failure_says_how_to_replay_it() -> None:
    caught = first_caught("left_active")

    assert caught is not None
    assert f".venv/bin/python -m tests.sim.replay {caught.seed}" in str(caught)
    assert "stands in 2 places" in str(caught)
