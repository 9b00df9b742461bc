"""Workers that are killed again and again are replaced by the supervisor's own rules: not at once for ever, nor never.

TORIL_SIM_SEEDS says how many, up to a hundred: ten in memory and two on Redis in every run.
"""

import os
from collections import Counter

import pytest

from tests.sim.figures import prove_seed
from tests.sim.plan import POSTED
from tests.sim.redis_store import RedisStore
from tests.sim.world import simulate

SEEDS = min(100, int(os.environ.get("TORIL_SIM_SEEDS", "10")))


@pytest.mark.covers("F40", "G1", "G2", "G3", "I15")
def test_posts_are_filled_by_the_rules_whatever_happens() -> None:
    tally = Counter[str]()
    for seed in range(POSTED, POSTED + SEEDS):
        result = simulate(seed)
        prove_seed(result.tally, result.jobs)
        tally += result.tally

        assert not result.violations, str(result)

    assert tally["died again without having done anything"] > 0
    assert tally["dead worker's job taken back early"] > 0


@pytest.mark.covers("F40")
def test_posts_are_filled_by_the_rules_on_redis_too() -> None:
    for seed in range(POSTED, POSTED + max(2, SEEDS // 10)):
        result = simulate(seed, store=RedisStore)
        prove_seed(result.tally, result.jobs)

        assert not result.violations, str(result)
