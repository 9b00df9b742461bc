"""Many seeds, each with its own fleet, jobs and faults; and that over all of them the rare things did happen.

TORIL_SIM_SEEDS says how many, TORIL_SIM_FIRST which is the first.
"""

import os
from collections import Counter

import pytest

from tests.sim.faults import Fault
from tests.sim.world import simulate

SEEDS = int(os.environ.get("TORIL_SIM_SEEDS", "1000"))
FIRST = int(os.environ.get("TORIL_SIM_FIRST", "0"))
CHUNK = 25

# What must have happened at least once in a few dozen seeds: a fault that never strikes finds nothing.
SOMETIMES = [
    *Fault,
    "add given up",
    "ambiguous add recovered",
    "dead worker's job taken back early",
    "exchange given up",
    "failed for stalling alone",
    "killed by a job",
    "late call refused",
    "process died",
    "renewal found the lease lost",
    "request took effect late",
    "resent call answered from memory",
    "running job asked to stop",
    "stale report refused",
    "stale settlement refused",
    "stall",
    "suspect run alone",
    "whole machine paused",
]


@pytest.mark.parametrize("first", range(FIRST, FIRST + SEEDS, CHUNK))
@pytest.mark.covers(
    "F27", "F28", "F29", "G1", "G2", "G3", "G5", "G6", "G7", "I1", "I2", "I3", "I4", "I5", "I6", "I9", "I15"
)
def test_no_seed_breaks_a_promise(first: int) -> None:
    for seed in range(first, min(first + CHUNK, FIRST + SEEDS)):
        result = simulate(seed)

        assert not result.violations, str(result)


def test_what_is_rare_does_happen() -> None:
    tally: Counter[str] = Counter()
    for seed in range(60):
        tally += simulate(seed).tally

    assert [what for what in SOMETIMES if not tally[what]] == []
