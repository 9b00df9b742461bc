"""Schedules and keys under faults: each schedule has one pending run at rest, each slot one run, no key is without its
job. TORIL_SIM_SEEDS says how many seeds."""

import os

import pytest

from tests.sim.agenda import AgendaPlan, keep_agenda
from tests.sim.faults import CALM, Fate, Point
from tests.sim.figures import prove_seed
from tests.sim.mutants import planted
from tests.sim.mutants_time import TIME_MUTANTS
from tests.sim.redis_store import RedisStore
from tests.sim.world import simulate

SEEDS = int(os.environ.get("TORIL_SIM_SEEDS", "150")) // 10
CHUNK = 5
_STEPS = ("exchange", "add", "recover")  # beside all of schedules


class OneCall:
    """Calm, but for one of the steps that a worker makes with schedules and jobs."""

    patience = 0.1

    def __init__(self, at: int = -1, fate: Fate = CALM) -> None:
        self.steps: list[str] = []
        self._at = at
        self._fate = fate

    def fate(self, node: str, what: str) -> Fate:
        if node != "w0" or not (what.startswith("schedules") or what in _STEPS):
            return CALM
        self.steps.append(what)
        return self._fate if len(self.steps) - 1 == self._at else CALM


@pytest.mark.parametrize("first", range(0, SEEDS, CHUNK))
@pytest.mark.covers("R214", "R219", "R086", "I11", "I13", "F120")
def test_no_seed_breaks_a_promise_of_schedules_or_keys(first: int) -> None:
    for seed in range(first, min(first + CHUNK, SEEDS)):
        result = keep_agenda(seed)
        prove_seed(result.tally)

        assert not result.violations, str(result)


def test_a_schedule_that_is_far_behind_gets_the_time_to_catch_up() -> None:
    """Runs that wait for one another were eight seconds behind when the faults of this seed were over."""
    assert not keep_agenda(777000877093).violations


def test_a_kept_job_may_be_given_up_before_it_ran() -> None:
    """In this seed the answer to its only claim was lost, and a job that stalls once has failed."""
    assert not keep_agenda(794833427820, store=RedisStore).violations


@pytest.mark.parametrize("first", range(0, SEEDS // 3, CHUNK))
@pytest.mark.covers("R214", "R219", "R086")
def test_no_seed_breaks_a_promise_of_schedules_or_keys_on_redis(first: int) -> None:
    for seed in range(first, min(first + CHUNK, SEEDS // 3)):
        result = keep_agenda(seed, store=RedisStore)
        prove_seed(result.tally)

        assert not result.violations, str(result)


@pytest.mark.parametrize(
    "fate", [*(Fate(crash=point) for point in Point), Fate(lost="reply")], ids=[*Point, "lost reply"]
)
@pytest.mark.covers("R214", "R219", "F12")
def test_a_worker_may_die_around_any_step_of_a_schedule(fate: Fate) -> None:
    calm = OneCall()
    assert not keep_agenda(0, plan=AgendaPlan.calm(), weather=calm).violations
    made = calm.steps[:14]
    assert {"schedules.sync", "schedules.put", "schedules.advance", "exchange"} <= set(made)

    for at, what in enumerate(made):
        result = keep_agenda(0, plan=AgendaPlan.calm(), weather=OneCall(at, fate))

        assert not result.violations, f"at step {at}, {what}: {result}"


def test_the_other_rules_do_not_see_them() -> None:
    """The ordinary world has neither schedules nor keys: what is planted there changes nothing in it."""
    for name in ("next_from_anywhere", "owner_overlooked"):
        with planted(TIME_MUTANTS[name]):
            assert not simulate(1).violations
