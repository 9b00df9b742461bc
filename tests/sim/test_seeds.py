"""Many seeds, each with its own fleet, jobs and faults; and that over all of them the rare things did happen.

TORIL_SIM_SEEDS says how many, TORIL_SIM_FIRST which is the first. The workers are the real ones.
"""

import os
from collections import Counter

import pytest

from tests.sim.faults import ROUGH, Fault
from tests.sim.figures import prove_seed
from tests.sim.kept import STORES, Trial, assert_clean
from tests.sim.world import simulate

SEEDS = int(os.environ.get("TORIL_SIM_SEEDS", "100"))
FIRST = int(os.environ.get("TORIL_SIM_FIRST", "0"))
CHUNK = 15

# What must have happened at least once in a few dozen seeds: a fault that never strikes finds nothing.
SOMETIMES = [
    *(fault for fault in Fault if fault not in ROUGH),
    "add given up",
    "ambiguous add recovered",
    "control given up",
    "dead letter replayed",
    "dead worker's job taken back early",
    "failed for stalling alone",
    "killed by a job",
    "late call refused",
    "process died",
    "process stopped",
    "renewal found the lease lost",
    "request took effect late",
    "resent call answered from memory",
    "running job asked to stop",
    "settled: cancelled",
    "settled: completed",
    "settled: failed",
    "settled: lease_lost",
    "settled: released",
    "settled: retrying",
    "settled: snoozed",
    "stale report refused",
    "stale settlement refused",
    "stall",
    "suspect run alone",
    "whole machine paused",
]


@pytest.mark.parametrize("first", range(FIRST, FIRST + SEEDS, CHUNK))
@pytest.mark.covers(
    "F27", "F28", "F29", "G1", "G2", "G3", "G5", "G6", "G7", "I1", "I2", "I3", "I4", "I5", "I6", "I7", "I9", "I14",
    "I15", "I16",
)  # fmt: skip
def test_no_seed_breaks_a_promise(first: int) -> None:
    for seed in range(first, min(first + CHUNK, FIRST + SEEDS)):
        result = simulate(seed)
        prove_seed(result.tally, result.jobs)

        assert_clean(result)


@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize("kind", ["long", "full", "paused", "wishes"])
@pytest.mark.covers("G3", "G5", "G6", "I4", "I15")
def test_leases_may_be_outlasted_by_jobs_and_by_faults(kind: str, store: str) -> None:
    tally: Counter[str] = Counter()
    for seed in range(FIRST, FIRST + max(3, SEEDS // 10)):
        result = Trial.draw(kind, seed, store).run()
        prove_seed(result.tally, result.jobs)
        tally += result.tally

        assert_clean(result)
    assert tally["stall"]


def test_what_is_rare_does_happen() -> None:
    tally: Counter[str] = Counter()
    for seed in range(60):
        tally += simulate(seed).tally

    assert [what for what in SOMETIMES if not tally[what]] == []
