"""Workers that are killed again and again, or cannot start, are replaced by the supervisor's own rules: not at once for
ever, nor never.

TORIL_SIM_SEEDS says how many, up to a hundred: ten in memory and two on Redis in every run.
"""

import os
from collections import Counter
from dataclasses import replace

import pytest

from tests.sim.faults import Fault
from tests.sim.figures import prove_seed
from tests.sim.kept import assert_clean
from tests.sim.plan import POSTED, Plan
from tests.sim.redis_store import RedisStore
from tests.sim.world import simulate

SEEDS = min(100, int(os.environ.get("TORIL_SIM_SEEDS", "10")))


@pytest.mark.covers("G1", "G2", "G3", "I15")
def test_posts_are_filled_by_the_rules_whatever_happens() -> None:
    tally = Counter[str]()
    for seed in range(POSTED, POSTED + SEEDS):
        result = simulate(seed)
        prove_seed(result.tally, result.jobs)
        tally += result.tally

        assert_clean(result)

    assert tally["died again without having done anything"] > 0
    assert tally["dead worker's job taken back early"] > 0


def test_posts_are_filled_by_the_rules_on_redis_too() -> None:
    for seed in range(POSTED, POSTED + max(2, SEEDS // 10)):
        result = simulate(seed, store=RedisStore)
        prove_seed(result.tally, result.jobs)

        assert_clean(result)


@pytest.mark.covers("F40")
def test_what_cannot_start_for_two_minutes_is_tried_a_dozen_times_and_then_works() -> None:
    for seed in range(POSTED, POSTED + max(3, SEEDS // 10)):
        plan = Plan.draw(seed)
        plan = replace(plan, unfit=120.0, storm=130.0, mix=plan.mix | {Fault.KILL: 0.5})
        result = simulate(seed, plan=plan, trace=True)
        prove_seed(result.tally, result.jobs)
        failures = [line.split()[0] for line in result.lines if line.endswith("could not start: its update is broken")]
        tries = Counter(name.partition(".")[0] for name in failures)

        assert_clean(result)
        assert len(tries) == plan.workers
        assert all(4 <= count <= 13 for count in tries.values()), tries
