"""Groups of one, in the storm: no two of a group run at once, they keep their order, and nothing stays parked for ever.

TORIL_SIM_SEEDS says how many: ten in memory and three on Redis in every run.
"""

import os

import pytest

from tests.sim.figures import prove_seed
from tests.sim.kept import assert_clean
from tests.sim.plan import GROUPED
from tests.sim.redis_store import RedisStore
from tests.sim.world import simulate

SEEDS = int(os.environ.get("TORIL_SIM_SEEDS", "10"))


@pytest.mark.parametrize("first", range(GROUPED, GROUPED + SEEDS, 15))
def test_groups_hold_whatever_happens(first: int) -> None:
    for seed in range(first, min(first + 15, GROUPED + SEEDS)):
        result = simulate(seed)
        prove_seed(result.tally, result.jobs)

        assert_clean(result)


def test_groups_hold_on_redis_too() -> None:
    for seed in range(GROUPED, GROUPED + max(3, SEEDS // 6)):
        result = simulate(seed, store=RedisStore)
        prove_seed(result.tally, result.jobs)

        assert_clean(result)
