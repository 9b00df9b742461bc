"""A job that is removed takes with it what it has beside its hash. Where many end at once, not each is looked at."""

from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest

from tests.conformance.jobs import add, claim, claim_one, settle
from tests.servers import running
from toril.engines.redis import RedisEngine, connect
from toril.model import KEEP_ALL, Claim, Claimed, Completed, JobOptions, LogLine, NewJob, Settlement

MANY = 10
HAS_MORE = ("HGET", "bull:q:toril", "beside")


@pytest.fixture
async def engine() -> AsyncIterator[RedisEngine]:
    server = running()
    server.tell("FLUSHALL")
    made = connect(server.url)
    await made.open()
    yield made
    await made.close()


async def end_all(engine: RedisEngine, jobs: Sequence[Claimed]) -> None:
    nothing = Claim(want=0, token="t", lease=1000, worker="w")
    await engine.exchange("q", [Settlement(job.lease, Completed()) for job in jobs], nothing)


async def worked_off(engine: RedisEngine, *meddling: tuple[Any, ...], **options: Any) -> list[str]:
    """Many jobs end in one step, after others have done this to each. What is left of them."""
    await add(engine, *[NewJob(name="n", **options)] * MANY)
    taken = (await claim(engine, MANY)).jobs
    for job in taken:
        for verb, key, *rest in meddling:
            await engine._runner.client.ask(verb, f"bull:q:{job.lease.id}:{key}", *rest)
    await end_all(engine, taken)
    keys = [
        key for job in taken for key in (f"bull:q:{job.lease.id}", *(f"bull:q:{job.lease.id}:{b[1]}" for b in meddling))
    ]
    return [key for key in keys if await engine._runner.client.ask("EXISTS", key)]


@pytest.mark.parametrize("options", [{}, {"priority": 3}], ids=["the short way", "the long way"])
async def test_of_many_bare_jobs_one_is_looked_at(engine: RedisEngine, options: dict[str, Any]) -> None:
    assert await worked_off(engine, **options) == []
    assert await engine._runner.client.ask(*HAS_MORE) is None
    await add(engine, *[NewJob(name="n", **options)] * MANY)
    *others, last = (await claim(engine, MANY)).jobs
    await engine._runner.client.ask("RPUSH", f"bull:q:{last.lease.id}:logs", "by nobody who could be known of")

    await end_all(engine, [*others, last])

    assert await engine._runner.client.ask("KEYS", "bull:q:*:logs") == [
        f"bull:q:{last.lease.id}:logs"
    ]  # what that costs


@pytest.mark.parametrize("options", [{}, {"priority": 3}], ids=["the short way", "the long way"])
async def test_what_others_hang_on_jobs_is_found_and_looked_for_from_then_on(
    engine: RedisEngine, options: dict[str, Any]
) -> None:
    assert await worked_off(engine, ("RPUSH", "logs", "a line"), **options) == []

    assert await engine._runner.client.ask(*HAS_MORE) == "1"
    for verb in (("RPUSH", "logs", "a line"), ("SADD", "dependencies", "x"), ("HSET", "processed", "x", "1")):
        assert await worked_off(engine, verb, **options) == []


@pytest.mark.parametrize("options", [{}, {"priority": 3}], ids=["the short way", "the long way"])
@pytest.mark.parametrize("place", [0, 4, 9])
async def test_what_every_tenth_job_has_is_noticed_wherever_it_stands(
    engine: RedisEngine, place: int, options: dict[str, Any]
) -> None:
    """The job that is looked at is drawn by lot: no pattern of the others' escapes it for long."""
    left = list[int]()
    for step in range(100):
        await add(engine, *[NewJob(name="n", **options)] * (5 * MANY))
        taken = (await claim(engine, 5 * MANY)).jobs
        marked = [job for number, job in enumerate(taken) if number % 10 == place]
        for job in marked:
            await engine._runner.client.ask("RPUSH", f"bull:q:{job.lease.id}:logs", "a line")
        nothing = Claim(want=0, token=f"step-{step}", lease=1000, worker="w")
        await engine.exchange("q", [Settlement(job.lease, Completed()) for job in taken], nothing)
        left.append(await engine._runner.client.ask("EXISTS", *(f"bull:q:{job.lease.id}:logs" for job in marked)))
        if await engine._runner.client.ask(*HAS_MORE):
            break

    assert await engine._runner.client.ask(*HAS_MORE) == "1"
    assert left[-1] == 0
    assert left[:-1] == [5] * (len(left) - 1)


async def test_log_lines_of_our_own_go_with_their_job(engine: RedisEngine) -> None:
    await add(engine, *[NewJob(name="n")] * MANY)
    taken = (await claim(engine, MANY)).jobs
    await engine.report("q", [LogLine(taken[-1].lease, "a line")])

    await end_all(engine, taken)

    assert await engine._runner.client.ask("KEYS", "bull:q:*:logs") == []


@pytest.mark.parametrize(
    "foreign",
    [
        pytest.param(("HSET", "bull:q:meta", "version", "bullmq:6.7.0"), id="Node has opened the queue"),
        pytest.param(("HSET", "bull:q:3", "opts", '{"removeOnComplete":true,"removeOnFail":true}'), id="Node's job"),
        pytest.param(("HSET", "bull:q:3", "ats", "1"), id="somebody has run it before"),
        pytest.param(("HSET", "bull:q:3", "toril:parked", "0"), id="it has had children"),
    ],
)
async def test_where_others_had_their_hands_in_it_each_is_looked_at(
    engine: RedisEngine, foreign: tuple[Any, ...]
) -> None:
    await add(engine, *[NewJob(name="n")] * MANY)
    await engine._runner.client.ask(*foreign)
    taken = (await claim(engine, MANY)).jobs
    await engine._runner.client.ask("HSET", "bull:q:3:processed", "child", "1")

    await end_all(engine, taken)

    assert await engine._runner.client.ask("EXISTS", "bull:q:3", "bull:q:3:processed") == 0


async def test_one_that_ends_alone_takes_all_with_it(engine: RedisEngine) -> None:
    await add(engine, NewJob(name="n"))
    job = await claim_one(engine)
    await engine._runner.client.ask("RPUSH", f"bull:q:{job.lease.id}:logs", "a line")

    await settle(engine, job.lease)

    assert await engine._runner.client.ask("EXISTS", "bull:q:1", "bull:q:1:logs") == 0


async def test_what_is_kept_keeps_what_it_has(engine: RedisEngine) -> None:
    left = await worked_off(engine, ("RPUSH", "logs", "a line"), options=JobOptions(keep_completed=KEEP_ALL))

    assert len(left) == 2 * MANY
