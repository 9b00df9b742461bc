"""Groups of one, in the storm: no two of a group run at once, they keep their order, and nothing stays parked for ever.

TORIL_SIM_SEEDS says how many: ten in memory and three on Redis in every run.
"""

import os

import pytest

from tests.sim.mutants import Mutant, planted
from tests.sim.plan import GROUPED
from tests.sim.redis_store import RedisStore
from tests.sim.world import simulate
from toril.engines.sqlite import groups, step

SEEDS = int(os.environ.get("TORIL_SIM_SEEDS", "10"))

MUTANTS = [
    Mutant("roomy", "a group has room for two", (
        (groups.Group, "room", lambda _: property(lambda self: 0 if self.paused else 2 - self.seats)),
        (groups.Group, "weight", lambda _: property(lambda _: 2)),
    )),
    Mutant("forgetful", "whoever leaves a group does not let the next one in", (
        (step, "touched", lambda _: lambda _tx, _keys: []),
    )),
    Mutant("impatient", "who was put off gives the seat of its group up", (
        (groups._SQL, "state", lambda sql: sql.replace("j.starts > 0", "j.starts > 9")),
    )),
]  # fmt: skip


@pytest.mark.parametrize("first", range(GROUPED, GROUPED + SEEDS, 15))
def test_groups_hold_whatever_happens(first: int) -> None:
    for seed in range(first, min(first + 15, GROUPED + SEEDS)):
        result = simulate(seed)

        assert not result.violations, str(result)


def test_groups_hold_on_redis_too() -> None:
    for seed in range(GROUPED, GROUPED + max(3, SEEDS // 6)):
        result = simulate(seed, store=RedisStore)

        assert not result.violations, str(result)


@pytest.mark.parametrize("mutant", MUTANTS, ids=str)
def test_the_simulator_finds_a_bug_planted_in_groups(mutant: Mutant) -> None:
    with planted(mutant):
        caught = next((seed for seed in range(GROUPED, GROUPED + 30) if simulate(seed).violations), None)

    assert caught is not None, f"{mutant.wrong}: unseen"
    assert not simulate(caught).violations, "the same seed is clean without it"
