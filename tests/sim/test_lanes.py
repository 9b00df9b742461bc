"""Two exchanges of one worker at the same time, which only large batches bring about: no seed breaks a promise."""

import os
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from tests.sim.kept import assert_clean
from tests.sim.plan import Plan
from tests.sim.redis_store import RedisStore
from tests.sim.store import MemoryStore
from tests.sim.world import simulate
from toril.worker import loop

SEEDS = int(os.environ.get("TORIL_SIM_SEEDS", "100"))


@pytest.mark.parametrize(("store", "seeds"), [(MemoryStore, SEEDS // 5), (RedisStore, SEEDS // 20)])
@pytest.mark.covers("G1", "G2", "G3")
def test_no_seed_breaks_a_promise_with_two_lanes(
    store: Callable[..., Any], seeds: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    used: Counter[bool] = Counter()
    original = loop.Loop._answered

    async def counted(self: loop.Loop, lane: Any, *rest: Any) -> Any:
        used[lane is self._second] += 1
        return await original(self, lane, *rest)

    monkeypatch.setattr(loop.Loop, "_answered", counted)
    for seed in range(5, 5 + seeds):
        assert_clean(simulate(seed, store=store, plan=Plan.draw(seed).with_two_lanes()))

    assert used[True] > 0
