"""Inspector.explain: what a job has to wait for."""

import pytest

from tests.conformance.jobs import add, claim, ids, settle
from tests.conformance.plants import tell
from tests.kinds import REDIS
from toril.engines.redis import RedisEngine
from toril.model import JobBlockers, Limits, NewJob, Precedence, RateLimit, SetRateLimit
from toril.store.engine import Store
from toril.testing import ManualClock


async def test_a_job_is_behind_those_that_start_before_it(engine: Store) -> None:
    a, b, low, high = await add(
        engine, NewJob(name="a"), NewJob(name="b"), NewJob(name="low", priority=9), NewJob(name="high", priority=1)
    )

    plain = [(await engine.explain("q", each.id, Limits())).ahead for each in (a, b, high, low)]
    first = Limits(precedence=Precedence.PRIORITY_FIRST)
    priorities = [(await engine.explain("q", each.id, first)).ahead for each in (high, low, a, b)]

    assert (plain, priorities) == ([0, 1, 2, 3], [0, 1, 2, 3])


async def test_those_that_run_are_named(engine: Store, clock: ManualClock) -> None:
    await add(engine, *(NewJob(name="n") for _ in range(3)))
    running = ids((await claim(engine, 2)).jobs)

    standing = await engine.explain("q", "3", Limits())

    assert (standing.now, set(standing.running), standing.ahead) == (clock.now(), set(running), 0)


@pytest.mark.parametrize("window", ["sliding", "fixed"])
@pytest.mark.parametrize("declared", ["in the claim", "in the store"])
async def test_a_used_up_rate_says_until_when(engine: Store, clock: ManualClock, window: str, declared: str) -> None:
    rate = RateLimit(2, 5.0, window)  # type: ignore[arg-type]
    limits = Limits(rate=rate) if declared == "in the claim" else Limits()
    if declared == "in the store":
        await engine.configure("q", [SetRateLimit(rate)])
    await add(engine, *(NewJob(name="n") for _ in range(4)))

    before = (await engine.explain("q", "4", limits)).rate_till
    await claim(engine, limits=limits)
    clock.advance(1000)
    during = (await engine.explain("q", "4", limits)).rate_till
    clock.advance(4000)
    after = (await engine.explain("q", "4", limits)).rate_till

    assert (before, during, after) == (None, clock.now(), None)


@pytest.mark.parametrize("engine", REDIS, indirect=True)
@pytest.mark.parametrize("window", ["sliding", "fixed"])
async def test_a_rate_stored_without_its_window_has_that_of_the_worker(
    engine: RedisEngine, clock: ManualClock, window: str
) -> None:
    """As in BullMQ. Claims go by it, and so does what is told of a job that waits."""
    limits = Limits(rate=RateLimit(9, 5.0))
    await tell(engine, "HSET", "bull:q:meta", "max", "2")
    await tell(engine, "HSET", "bull:q:toril", "window", window)
    await add(engine, *(NewJob(name="n") for _ in range(4)))

    claimed = await claim(engine, limits=limits)
    till = (await engine.explain("q", "4", limits)).rate_till

    assert (len(claimed.jobs), claimed.wake_at, till) == (2, clock.now() + 5000, clock.now() + 5000)


async def test_of_no_queue_nothing_is_known(engine: Store, clock: ManualClock) -> None:
    assert await engine.explain("never", "1", Limits()) == JobBlockers(now=clock.now())


async def test_a_job_whose_worker_died_runs_alone_behind_others_of_that_kind(engine: Store, clock: ManualClock) -> None:
    await add(engine, *(NewJob(name="n") for _ in range(3)))
    died = (await claim(engine, 3)).jobs
    await engine.recover("q", dead=[each.lease for each in died[:2]], cause="signal 9")
    await add(engine, NewJob(name="new"))

    async def stands(job_id: str) -> tuple[bool, int]:
        standing = await engine.explain("q", job_id, Limits())
        return standing.alone, standing.ahead

    assert [await stands(each) for each in ("1", "2")] == [(True, 0), (True, 1)]
    assert [(await stands(each))[0] for each in ("3", "4", "never")] == [False] * 3

    (first,) = (await claim(engine, alone=True)).jobs
    assert await stands(first.lease.id) == (True, 0), "it runs alone"
    assert await stands("2") == (True, 0)
    await settle(engine, first.lease)
    assert (await stands(first.lease.id))[0] is False


async def test_jobs_that_run_alone_do_not_count_as_ahead_of_others(engine: Store) -> None:
    await add(engine, *(NewJob(name="n") for _ in range(3)))
    died = (await claim(engine, 2)).jobs
    await engine.recover("q", dead=[each.lease for each in died], cause="signal 9")
    await add(engine, NewJob(name="new"), NewJob(name="low", priority=9))

    ahead = [(await engine.explain("q", each, Limits())).ahead for each in ("3", "4", "5")]

    assert ahead == [0, 1, 2]
