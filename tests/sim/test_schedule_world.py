"""Schedules and keys under faults: each schedule has one pending run at rest, each slot one run, no key is without its
job. TORIL_SIM_SEEDS says how many seeds."""

import os
from dataclasses import replace

import pytest

from tests.sim.faults import CALM, Fate, Point
from tests.sim.figures import prove_seed
from tests.sim.kept import assert_clean
from tests.sim.mutants import planted
from tests.sim.mutants_time import TIME_MUTANTS
from tests.sim.plan import SmallPlan, StruckCall
from tests.sim.redis_store import RedisStore
from tests.sim.schedule_world import is_struck, run_schedules
from tests.sim.world import simulate

SEEDS = int(os.environ.get("TORIL_SIM_SEEDS", "150")) // 10
CHUNK = 5
STEPS = 14  # of the calls that a worker makes on a short day, the first so many


@pytest.mark.parametrize("first", range(0, SEEDS, CHUNK))
@pytest.mark.covers("R214", "R219", "R086", "I11", "I13", "F120")
def test_no_seed_breaks_a_promise_of_schedules_or_keys(first: int) -> None:
    for seed in range(first, min(first + CHUNK, SEEDS)):
        result = run_schedules(seed)
        prove_seed(result.tally)

        assert_clean(result)


@pytest.mark.parametrize("first", range(0, SEEDS // 3, CHUNK))
@pytest.mark.covers("R214", "R219", "R086")
def test_no_seed_breaks_a_promise_of_schedules_or_keys_on_redis(first: int) -> None:
    for seed in range(first, min(first + CHUNK, SEEDS // 3)):
        result = run_schedules(seed, store=RedisStore)
        prove_seed(result.tally)

        assert_clean(result)


@pytest.mark.parametrize(
    "fate", [*(Fate(crash=point) for point in Point), Fate(lost="reply")], ids=[*Point, "lost reply"]
)
@pytest.mark.covers("R214", "R219", "F12")
def test_a_worker_may_die_around_any_step_of_a_schedule(fate: Fate) -> None:
    for at in range(STEPS):
        assert_clean(run_schedules(0, plan=replace(SmallPlan.calm(), struck_call=StruckCall(at, fate))))


def test_the_steps_at_which_a_worker_may_die_are_those_of_schedules() -> None:
    """What is struck by the test above, as the trace of the same day tells it when nothing is."""
    result = run_schedules(0, plan=replace(SmallPlan.calm(), struck_call=StruckCall(-1, CALM)), trace=True)
    made = [line.split()[2] for line in result.lines if line.split()[1] == "w0"]
    struck = [what for what in made if is_struck(what)][:STEPS]

    assert_clean(result)
    assert {"schedules.sync", "schedules.put", "schedules.advance", "exchange"} <= set(struck)


def test_the_other_rules_do_not_see_them() -> None:
    """The ordinary world has neither schedules nor keys: what is planted there changes nothing in it."""
    for name in ("next_from_anywhere", "owner_overlooked"):
        with planted(TIME_MUTANTS[name]):
            assert not simulate(1).violations
