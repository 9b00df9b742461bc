"""Flows under faults: a parent runs when its children have ended as their policy says, ends once, and is never stuck.
TORIL_SIM_SEEDS says how many seeds."""

import os

import pytest

from tests.sim.figures import prove_seed
from tests.sim.flow_world import run_flows
from tests.sim.kept import assert_clean
from tests.sim.redis_store import RedisStore

SEEDS = int(os.environ.get("TORIL_SIM_SEEDS", "120")) // 10
CHUNK = 4


@pytest.mark.parametrize("first", range(0, SEEDS, CHUNK))
@pytest.mark.covers("I12", "F10", "G7")
def test_no_seed_breaks_a_promise_of_flows(first: int) -> None:
    for seed in range(first, min(first + CHUNK, SEEDS)):
        result = run_flows(seed)
        prove_seed(result.tally)

        assert_clean(result)


@pytest.mark.parametrize("first", range(0, SEEDS // 3, CHUNK))
@pytest.mark.covers("I12", "F10")
def test_no_seed_breaks_a_promise_of_flows_on_redis(first: int) -> None:
    for seed in range(first, min(first + CHUNK, SEEDS // 3)):
        result = run_flows(seed, store=RedisStore)
        prove_seed(result.tally)

        assert_clean(result)
