"""The same simulator on a real Redis server with the real scripts: no seed breaks a promise, and bugs planted in the
scripts are found."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from tests.sim.redis_store import RedisStore
from tests.sim.world import simulate
from toril.engines.redis import scripts

SEEDS = int(os.environ.get("TORIL_SIM_SEEDS", "100")) // 5
CHUNK = 10

# What is planted: the file, what it says, what it says instead; and a seed that finds it.
BUGS: dict[str, tuple[str, str, str, int]] = {
    "anyone settles": ("lib/leases.lua", "held[i] = locks[i] == tokens[i] and", "held[i] = locks[i] and", 22),
    "a lease has no end": ("lib/leases.lua", "and tonumber(deadlines[i]) > now", "", 18),
    "calls are forgotten": ("lib/calls.lua", "if last[1] < seq then return nil end", "if last then return nil end", 1),
    "late calls are heard": ("lib/calls.lua", "if last[1] > seq then", "if false then", 1),
    "recovery takes live leases": ("recover.lua", "'-inf', now, 'LIMIT'", "'-inf', now + 60000, 'LIMIT'", 0),
    "recovery leaves the job active": ("recover.lua", "call('LREM', P .. K.active, -1, id) > 0", "true", 1),
    "a settled job stays active": ("lib/settling.lua", "leave_active(leaving, running)", "", 0),
    "a retry is not counted": ("lib/settle.lua", "job.made + 1, unpack", "job.made, unpack", 0),
    "a retry comes at once": ("lib/settle.lua", "delay_until(id, now + delay)", "delay_until(id, now)", 1),
    "a wish to stop is forgotten": ("lib/settle.lua", "if job.cancelling and", "if false and", 47),
    "a stall is not counted": ("lib/stalled.lua", "(tonumber(f[5]) or 0) + 1", "(tonumber(f[5]) or 0)", 1),
    "a failed job is gone": ("lib/ending.lua", "if not MOURNED[cause] then", "if true then", 0),
    "a replayed job is a letter too": ("replay.lua", "call('ZREM', D .. K.letters, letter)", "", 56),
    "a suspect is like any other": ("lib/stalled.lua", "P .. K.suspects, call", "P .. 'x', call", 1),
}  # fmt: skip
SEARCHED = 40


@contextmanager
def planted_in(file: str, right: str, wrong: str) -> Iterator[None]:
    """The scripts say something else meanwhile."""
    read: Callable[[str], str] = scripts._read

    def changed(path: str) -> str:
        text = read(path)
        if path != file:
            return text
        assert right in text, f"{file} no longer says {right!r}"
        return text.replace(right, wrong)

    scripts._read = changed  # type: ignore[assignment]
    scripts.script.cache_clear()
    try:
        yield
    finally:
        scripts._read = read  # type: ignore[assignment]
        scripts.script.cache_clear()


@pytest.mark.parametrize("first", range(0, SEEDS, CHUNK))
@pytest.mark.covers("G1", "G2", "G3", "G5", "G6", "G7", "I1", "I2", "I15", "F83", "F84")
def test_no_seed_breaks_a_promise_on_redis(first: int) -> None:
    for seed in range(first, min(first + CHUNK, SEEDS)):
        result = simulate(seed, store=RedisStore)

        assert result.violations == (), str(result)


def breaks(seed: int) -> bool:
    try:
        return bool(simulate(seed, store=RedisStore).violations)
    except ExceptionGroup:
        return True  # an answer that makes no sense


@pytest.mark.parametrize("name", BUGS)
def test_a_bug_planted_in_the_scripts_is_found(name: str) -> None:
    file, right, wrong, known = BUGS[name]
    with planted_in(file, right, wrong):
        seeds = [known, *(seed for seed in range(SEARCHED) if seed != known)]

        assert any(map(breaks, seeds)), f"{name}: not found"
