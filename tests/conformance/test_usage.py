"""Inspector.usage: about how many bytes a queue takes in its store."""

from typing import Any

import pytest

from tests.conformance.jobs import add, claim, new_job, settle
from tests.conformance.stepping import resting, running, steps_of, wait, write
from toril.model import KEEP_ALL, USAGE_SAMPLE, LogLine, NewJob, NewSignal, Usage
from toril.store.engine import Store


def job(size: int, **options: Any) -> NewJob:
    return new_job(data='"' + "x" * size + '"', **options)


async def test_a_queue_that_nobody_used_takes_nothing(engine: Store) -> None:
    assert await engine.usage("never") == Usage(bytes=0, jobs=0, sampled=0)


@pytest.mark.parametrize(("many", "size"), [(20, 200), (400, 200), (50, 10_000), (20, 100_000)])
async def test_jobs_take_what_they_hold_and_not_much_more(engine: Store, many: int, size: int) -> None:
    await add(engine, *[job(size) for _ in range(many)])

    found = await engine.usage("q")

    assert found.jobs == many
    assert min(many, USAGE_SAMPLE) <= found.sampled <= min(many, USAGE_SAMPLE + 10)
    assert many * size <= found.bytes <= many * (size + 1_200) * 1.5 + 20_000  # an allocator rounds up


async def test_jobs_of_every_state_count(engine: Store) -> None:
    big = 20_000
    kept = {"keep_completed": KEEP_ALL}
    jobs = [job(big, **kept), job(big, **kept), job(big, delay=60_000), job(big, priority=3), job(big, group="g")]
    await add(engine, *jobs)
    first = (await claim(engine, 1)).jobs[0]
    await settle(engine, first.lease)
    await claim(engine, 1)

    found = await engine.usage("q")

    assert (found.jobs, found.sampled) == (5, 5)
    assert 5 * big <= found.bytes <= 8 * big


async def test_log_lines_count_with_their_job(engine: Store) -> None:
    await add(engine, job(10))
    held = (await claim(engine, 1)).jobs[0]
    before = (await engine.usage("q")).bytes

    await engine.report("q", [LogLine(held.lease, "x" * 1_000) for _ in range(50)])

    assert 50_000 <= (await engine.usage("q")).bytes - before <= 75_000


async def test_queues_do_not_count_for_each_other(engine: Store) -> None:
    await add(engine, *[job(10_000) for _ in range(20)], queue="large")
    await add(engine, job(10), queue="small")

    large, small = await engine.usage("large"), await engine.usage("small")

    assert large.bytes > 200_000
    assert small.bytes < 20_000


async def test_a_drained_queue_is_small_again(engine: Store) -> None:
    await add(engine, *[job(10_000) for _ in range(20)])
    for held in (await claim(engine, 20)).jobs:
        await settle(engine, held.lease)

    found = await engine.usage("q")

    assert (found.jobs, found.sampled) == (0, 0)
    assert found.bytes < 60_000


async def test_what_jobs_record_and_are_sent_counts_with_them(engine: Store) -> None:
    lease = (await running(engine)).lease
    before = (await engine.usage("q")).bytes
    text = '"' + "x" * 10_000 + '"'

    for number in range(5):
        await write(engine, lease, f"step-{number}", text=text)
    recorded = (await engine.usage("q")).bytes
    await steps_of(engine).deliver("q", [NewSignal(name="s", payload=text, job_id=lease.id) for _ in range(5)])
    sent = (await engine.usage("q")).bytes

    assert 50_000 <= recorded - before <= 75_000
    assert 50_000 <= sent - recorded <= 75_000


async def test_signals_that_are_kept_and_jobs_that_rest_count(engine: Store) -> None:
    text = '"' + "x" * 10_000 + '"'
    lease = (await running(engine)).lease
    before = (await engine.usage("q")).bytes

    await steps_of(engine).deliver("q", [NewSignal(name="s", payload=text, key="k" * 200) for _ in range(5)])
    kept = (await engine.usage("q")).bytes
    await resting(engine, lease, *[wait("a", key=f"w{n}", by=f"{n}" * 200) for n in range(9)])
    rests = (await engine.usage("q")).bytes

    assert 50_000 <= kept - before <= 75_000
    assert 9 * 2 * 200 <= rests - kept <= 30_000
