"""What ended is counted by the minute, to the job, kept or not."""

import random

import pytest

from tests.conformance.claims import add, claim, settle
from toril.engine import Store
from toril.metrics import metrics
from toril.model import Completed, Failed, Failure, NewJob
from toril.policy.figures import RANGES
from toril.testing import ManualClock


@pytest.mark.covers("R227", "R229", "R230", "R232", "R233")
async def test_every_range_counts_what_ended_within_it(engine: Store, clock: ManualClock) -> None:
    chance = random.Random(7)
    ended: list[tuple[int, bool]] = []
    for _ in range(12):
        await add(engine, *(NewJob(name="n") for _ in range(3)))
        for job in (await claim(engine, 3)).jobs:
            good = chance.random() < 0.7
            await settle(engine, job.lease, Completed() if good else Failed(Failure("no", "E")))
            ended.append((clock.now() // 60_000, good))
        clock.advance(chance.choice([1_000, 60_000, 3_600_000, 20 * 3_600_000]))
    await add(engine, NewJob(name="n"))
    this = clock.now() // 60_000

    for name, minutes in RANGES.items():
        found = await metrics(engine, "q", name)
        within = [good for minute, good in ended if minute > this - minutes]
        assert (found.completed, found.failed) == (sum(within), len(within) - sum(within)), name
        for series, total in zip(found.series, (found.completed, found.failed), strict=True):
            assert len(series.data) <= 240
            assert sum(count for _, count in series.data) == total
            assert [x for x, _ in series.data] == sorted(x for x, _ in series.data)
        assert (found.counts.waiting, found.workers) == (1, 0)
