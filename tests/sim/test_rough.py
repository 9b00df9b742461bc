"""Rough weather: clocks jump and connections go one by one; and the healthy get on while others suffer.

TORIL_SIM_SEEDS says how many seeds.
"""

import os
from collections import Counter
from dataclasses import replace

import pytest

from tests.sim.bugs import BUGS
from tests.sim.faults import ROUGH
from tests.sim.figures import prove_seed
from tests.sim.kept import assert_clean
from tests.sim.plan import ROUGH_FROM, Plan
from tests.sim.redis_store import RedisStore
from tests.sim.world import simulate

SEEDS = int(os.environ.get("TORIL_SIM_SEEDS", "120")) // 10
LIVELY = max(1, SEEDS // 3)


@pytest.mark.covers("F55", "F85", "F86")
def test_clocks_and_connections_may_do_as_they_like() -> None:
    tally: Counter[str] = Counter()
    for seed in range(ROUGH_FROM, ROUGH_FROM + min(SEEDS, 1000)):
        result = simulate(seed)
        prove_seed(result.tally, result.jobs)
        tally += result.tally

        assert_clean(result)
    assert [fault for fault in ROUGH if not tally[fault]] == []


@pytest.mark.covers("F55", "F85", "F86")
def test_clocks_and_connections_may_do_as_they_like_on_redis() -> None:
    for seed in range(ROUGH_FROM, ROUGH_FROM + max(2, min(SEEDS, 1000) // 6)):
        result = simulate(seed, store=RedisStore)
        prove_seed(result.tally, result.jobs)

        assert_clean(result)


@pytest.mark.covers("G7", "F54")
def test_who_is_well_gets_on_while_others_suffer() -> None:
    struck: Counter[str] = Counter()
    for seed in range(LIVELY):
        result = simulate(seed, plan=Plan.lively(seed))
        prove_seed(result.tally, result.jobs)
        struck += result.tally

        assert_clean(result)
    assert struck["kill"] + struck["pause"] + struck["cut connection"] > LIVELY


def test_who_does_not_get_on_in_time_is_found_while_the_storm_lasts() -> None:
    result = simulate(0, plan=replace(Plan.lively(0), storm=1.0))

    assert [violation.row for violation in result.violations[:1]] == ["liveness"]


def test_a_bug_that_stops_a_job_for_good_is_found_in_a_lively_storm() -> None:
    with BUGS["recover_forgets"].planted():
        assert any(simulate(seed, plan=Plan.lively(seed)).violations for seed in range(1, 3))
