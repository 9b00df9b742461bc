"""A rate is used, not only kept: who comes back when the store says finds what it may start."""

from heapq import heappop, heappush

import pytest

from tests.conformance.jobs import add, claim
from toril.model import Limits, NewJob, RateLimit
from toril.store.engine import Store
from toril.testing import ManualClock

SECONDS = 4
LATE = 5  # ms that each claim takes to arrive


@pytest.mark.covers("R201", "R202")
@pytest.mark.parametrize("want", [1, 20])
async def test_three_who_come_when_told_use_the_rate_and_do_not_exceed_it(
    engine: Store, clock: ManualClock, want: int
) -> None:
    """At 100 a second, in the store's own time: each claim arrives 5 ms after it was to, so that at most 99.5 % are
    left, and the number of claims is bounded by that of starts."""
    rate = Limits(rate=RateLimit(100, 1.0))
    await add(engine, *(NewJob(name="n") for _ in range(100 * (SECONDS + 1))))
    begin, starts, claims = clock.now(), list[int](), 0
    turns: list[tuple[int, int]] = [(begin + worker, worker) for worker in range(3)]

    while turns[0][0] < begin + SECONDS * 1000:
        due, worker = heappop(turns)
        clock.advance(max(0, due - clock.now()))
        answer = await claim(engine, want, limits=rate)
        claims += 1
        starts += [clock.now()] * len(answer.jobs)
        again = clock.now() + 1 if answer.wake_at is None else answer.wake_at
        heappush(turns, (max(again, clock.now()) + LATE, worker))

    for start in set(starts):
        assert sum(start - 1000 < each <= start for each in starts) <= 100
    assert len(starts) >= 0.97 * 100 * SECONDS
    assert claims <= 3 * len(starts)
