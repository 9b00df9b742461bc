"""Many short jobs at once, under the same faults. TORIL_SIM_CROWDS says how many seeds."""

import os

import pytest

from tests.sim.figures import prove_seed
from tests.sim.kept import assert_clean
from tests.sim.plan import Plan
from tests.sim.world import simulate

CROWDS = int(os.environ.get("TORIL_SIM_CROWDS", "1"))
CHUNK = 4


@pytest.mark.parametrize("first", range(0, CROWDS, CHUNK))
@pytest.mark.covers("T3", "G1", "G2", "G3")
def test_no_crowd_breaks_a_promise(first: int) -> None:
    for seed in range(first, min(first + CHUNK, CROWDS)):
        result = simulate(seed, plan=Plan.crowd(seed))
        prove_seed(result.tally, result.jobs)

        assert_clean(result)
        assert result.jobs > 100
