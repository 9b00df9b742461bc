"""The same simulator on a real Redis server with the real scripts: no seed breaks a promise."""

import os

import pytest

from tests.sim.figures import prove_seed
from tests.sim.kept import assert_clean
from tests.sim.redis_store import RedisStore
from tests.sim.world import simulate

SEEDS = int(os.environ.get("TORIL_SIM_SEEDS", "100")) // 5
CHUNK = 10


@pytest.mark.parametrize("first", range(0, SEEDS, CHUNK))
@pytest.mark.covers("G1", "G2", "G3", "G5", "G6", "G7", "I1", "I2", "I15", "F83", "F84")
def test_no_seed_breaks_a_promise_on_redis(first: int) -> None:
    for seed in range(first, min(first + CHUNK, SEEDS)):
        result = simulate(seed, store=RedisStore)
        prove_seed(result.tally, result.jobs)

        assert_clean(result)
