"""Circuit breakers under faults: what the store answers is what the rules say, and no job is left behind.
TORIL_SIM_SEEDS says how many seeds."""

import os

import pytest

from tests.sim.circuit_world import run_circuits
from tests.sim.figures import prove_seed
from tests.sim.kept import assert_clean
from tests.sim.redis_store import RedisStore

SEEDS = int(os.environ.get("TORIL_SIM_SEEDS", "120")) // 10
CHUNK = 4


@pytest.mark.parametrize("first", range(0, SEEDS, CHUNK))
@pytest.mark.covers("R225", "G7")
def test_no_seed_breaks_a_promise_of_circuits(first: int) -> None:
    for seed in range(first, min(first + CHUNK, SEEDS)):
        result = run_circuits(seed)
        prove_seed(result.tally)

        assert_clean(result)


@pytest.mark.parametrize("first", range(0, SEEDS // 3, CHUNK))
@pytest.mark.covers("R225")
def test_no_seed_breaks_a_promise_of_circuits_on_redis(first: int) -> None:
    for seed in range(first, min(first + CHUNK, SEEDS // 3)):
        result = run_circuits(seed, store=RedisStore)
        prove_seed(result.tally)

        assert_clean(result)
