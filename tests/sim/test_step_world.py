"""Jobs with durable steps under faults: S1 to S11, as `step_ledger` has them. TORIL_SIM_SEEDS says how many seeds."""

import os

import pytest

from tests.sim.figures import prove_seed
from tests.sim.kept import Trial, assert_clean

SEEDS = int(os.environ.get("TORIL_SIM_SEEDS", "120")) // 4
CHUNK = 5


@pytest.mark.parametrize("kind", ["steps", "rough-steps"])
@pytest.mark.parametrize("first", range(0, SEEDS, CHUNK))
@pytest.mark.covers("S1", "S2", "S3", "S4", "S5", "S6", "S7", "S8", "S9", "S10", "S11")
def test_no_seed_breaks_a_promise_of_steps(first: int, kind: str) -> None:
    for seed in range(first, min(first + CHUNK, SEEDS)):
        result = Trial.draw(kind, seed).run()
        prove_seed(result.tally)

        assert_clean(result)


@pytest.mark.parametrize("first", range(0, SEEDS // 2, CHUNK))
@pytest.mark.covers("S1", "S2", "S3", "S4", "S5", "S6", "S7", "S8", "S9", "S10", "S11")
def test_no_seed_breaks_a_promise_of_steps_on_redis(first: int) -> None:
    for seed in range(first, min(first + CHUNK, SEEDS // 2)):
        result = Trial.draw("steps", seed, "redis").run()
        prove_seed(result.tally)

        assert_clean(result)
