"""The same simulator on a real Redis server with the real scripts: no seed breaks a promise."""

import os
from unittest.mock import patch

import pytest

from tests.sim.figures import prove_seed
from tests.sim.kept import assert_clean
from tests.sim.redis_store import RedisStore
from tests.sim.world import simulate
from toril.engines.redis.engine import RedisEngine

SEEDS = int(os.environ.get("TORIL_SIM_SEEDS", "100")) // 5
CHUNK = 10


@pytest.mark.parametrize("first", range(0, SEEDS, CHUNK))
@pytest.mark.covers("G1", "G2", "G3", "G5", "G6", "G7", "I1", "I2", "I15", "F83", "F84")
def test_no_seed_breaks_a_promise_on_redis(first: int) -> None:
    for seed in range(first, min(first + CHUNK, SEEDS)):
        result = simulate(seed, store=RedisStore)
        prove_seed(result.tally, result.jobs)

        assert_clean(result)


@pytest.mark.covers("T9")
def test_a_wake_up_that_another_swallowed_is_missed_without_a_look() -> None:
    """The model loses markers as a server does: a worker that did not look for itself would be found out."""

    async def nothing(_: object, __: list[str]) -> list[str]:
        return []

    with patch.object(RedisEngine, "_ready", nothing):
        found = [violation.row for seed in (2, 22) for violation in simulate(seed, store=RedisStore).violations]

    assert "I15" in found
