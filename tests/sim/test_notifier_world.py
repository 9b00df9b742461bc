"""Nobody sleeps through a commit of another process; and bugs that are planted in the sockets are found.

TORIL_SIM_SEEDS says how many seeds. TORIL_BLIND chooses them, else today's date does.
"""

import os
import random
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.sim.mutants import Mutant, planted
from tests.sim.mutants_notifier import NOTIFIER_MUTANTS
from tests.sim.notifier_world import lost_wake_ups

SEEDS = max(60, int(os.environ.get("TORIL_SIM_SEEDS", "60")))
BASE = os.environ.get("TORIL_BLIND") or datetime.now(UTC).date().isoformat()


def fresh_seeds(what: str) -> list[int]:
    """Seeds that nobody has chosen."""
    chance = random.Random(f"{BASE} {what}")
    return [chance.randrange(10**12) for _ in range(SEEDS)]


@pytest.mark.covers("F107")
def test_no_seed_loses_a_wake_up(tmp_path: Path) -> None:
    for seed in fresh_seeds("none"):
        assert lost_wake_ups(seed, tmp_path) == [], seed


@pytest.mark.parametrize("mutant", NOTIFIER_MUTANTS, ids=str)
def test_a_planted_bug_is_found_by_fresh_seeds(mutant: Mutant, tmp_path: Path) -> None:
    with planted(mutant):
        for number, seed in enumerate(fresh_seeds(mutant.name), 1):
            if lost_wake_ups(seed, tmp_path):
                print(f"found by seed {number}")
                return
    pytest.fail(f"no seed of {SEEDS} finds it: {mutant.wrong}")
