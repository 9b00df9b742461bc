"""Flows under faults: a parent runs when its children have ended as their policy says, ends once, and is never stuck.
TORIL_SIM_SEEDS says how many seeds."""

import os
from collections.abc import Callable
from typing import Any

import pytest

from tests.sim.loom import weave
from tests.sim.mutants import Mutant, instead, nothing, planted
from tests.sim.redis_store import RedisStore
from tests.sim.test_redis import planted_in
from tests.sim.world import simulate
from toril.engines.sqlite import family

SEEDS = int(os.environ.get("TORIL_SIM_SEEDS", "120")) // 10
CHUNK = 4


def _in_any_case(_: Callable[..., Any]) -> Callable[..., Any]:
    def go_on(tx: Any, row: Any, parent: Any, hurried: set[int]) -> None:
        if parent.waits:
            family._free(tx, row, parent, parent.delay)

    return go_on


def _free_instead(_: Callable[..., Any]) -> Callable[..., Any]:
    def doom(tx: Any, row: Any, parent: Any, reason: str) -> None:
        if parent.waits:
            family._free(tx, row, parent, 0)

    return doom


MUTANTS = {
    mutant.name: mutant
    for mutant in (
        Mutant("freed_early", "the first child lets its parent go", ((family, "_go_on", _in_any_case),), 0, "I12"),
        Mutant("nobody_told", "a child ends, and nobody is told", ((family, "tell", instead(nothing)),), 0, "I12"),
        Mutant("doom_forgotten", "a parent runs that should fail", ((family, "_doom", _free_instead),), 0, "I12"),
    )
}
# The file, what it says, and what it says instead.
SCRIPT_BUGS = {
    "the first child lets its parent go": ("lib/parents.lua", "K.dependencies) == 0 then free", "K.toril) then free"),
    "a parent runs that should fail": ("lib/parents.lua", "try('HSET', link.key, F.deferred, reason, F.delay, 0)", ""),
}


@pytest.mark.parametrize("first", range(0, SEEDS, CHUNK))
@pytest.mark.covers("I12", "F10", "G7")
def test_no_seed_breaks_a_promise_of_flows(first: int) -> None:
    for seed in range(first, min(first + CHUNK, SEEDS)):
        result = weave(seed)

        assert not result.violations, str(result)


@pytest.mark.parametrize("first", range(0, SEEDS // 3, CHUNK))
@pytest.mark.covers("I12", "F10")
def test_no_seed_breaks_a_promise_of_flows_on_redis(first: int) -> None:
    for seed in range(first, min(first + CHUNK, SEEDS // 3)):
        result = weave(seed, store=RedisStore)

        assert not result.violations, str(result)


@pytest.mark.parametrize("name", MUTANTS)
def test_a_bug_planted_in_flows_is_found_and_only_here(name: str) -> None:
    with planted(MUTANTS[name]):
        caught = next(filter(None, (weave(seed).violations for seed in range(20))), ())
        elsewhere = simulate(1).violations

    assert [violation.row for violation in caught[:1]] == ["I12"]
    assert not elsewhere


@pytest.mark.parametrize("name", SCRIPT_BUGS)
def test_a_bug_planted_in_the_scripts_of_flows_is_found(name: str) -> None:
    with planted_in(*SCRIPT_BUGS[name]):
        found = (weave(seed, store=RedisStore).violations for seed in range(10))
        caught = next(filter(None, found), ())

    assert [violation.row for violation in caught[:1]] == ["I12"]
