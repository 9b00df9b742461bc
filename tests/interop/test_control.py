"""Pause, rate and concurrency hold for everyone, whoever set them."""

import asyncio
from typing import Any

import pytest

from tests.interop.node import Node, NodeEvents
from tests.interop.side import Steps, Toril
from toril import JobContext, Queue, RateLimit

WINDOW = 700  # ms of the rate limits here


async def order(events: NodeEvents, *wanted: str) -> list[str]:
    """The names of these events, in the order in which they happened."""
    return [entry["event"] for entry in await events.seen() if entry["event"] in wanted]


@pytest.mark.covers("R014")
@pytest.mark.parametrize("resumes", ["node", "toril"])
@pytest.mark.parametrize("pauses", ["node", "toril"])
@pytest.mark.parametrize("works", ["node", "toril"])
async def test_nothing_starts_between_pause_and_resume(
    node: Node, toril: Toril, pauses: str, resumes: str, works: str
) -> None:
    events = await node.events("q")

    async def change(queue: Queue, who: str, method: str) -> None:
        if who == "node":
            await node.queue("q").call(method)
        else:
            await getattr(queue, method)()

    async def go(queue: Queue) -> None:
        await change(queue, pauses, "pause")
        assert (await queue.counts()).paused is await node.queue("q").call("isPaused") is True
        for number in range(2):
            await queue.add("echo", number)
            await node.queue("q").add("echo", number)
        assert (await queue.counts()).waiting == (await node.queue("q").counts())["waiting"] == 4
        await change(queue, resumes, "resume")
        await events.until("completed", times=4, deadline=7)  # woken, not polled for

    if works == "toril":
        async with toril.working("q") as queue:
            await go(queue)
    else:
        await node.worker("q")
        async with toril.queue("q") as queue:
            await go(queue)

    assert (await order(events, "paused", "resumed", "active"))[:3] == ["paused", "resumed", "active"]


async def test_jobs_of_an_older_list_of_paused_ones_come_back(node: Node, toril: Toril) -> None:
    events = await node.events("q")
    first = await node.queue("q").add("echo")
    async with toril.working("q") as queue:
        await events.until("completed", jobId=first["id"])
        await queue.pause()
        old = await node.queue("q").add("echo", jobId="old")
        await node.redis("LREM", "bull:q:wait", 0, old["id"])
        await node.redis("LPUSH", "bull:q:paused", old["id"])
        await queue.resume()

        await events.until("completed", jobId="old")

    assert await node.redis("EXISTS", "bull:q:paused") == 0


async def test_nodes_bound_on_running_jobs_holds_for_toril(node: Node, toril: Toril) -> None:
    events, steps = await node.events("q"), Steps()
    await node.queue("q").call("setGlobalConcurrency", 1)
    async with toril.working("q", {"note": steps.note}, concurrency=10) as queue:
        await queue.add_many([("note", None)] * 12)
        await events.until("completed", times=12)

        assert (await queue.settings()).concurrency == 1
    assert await alternating(events)
    assert steps.most == 1


async def test_torils_bound_on_running_jobs_holds_for_node(node: Node, toril: Toril) -> None:
    events = await node.events("q")
    async with toril.queue("q") as queue:
        await queue.set_concurrency(1)
        await queue.add_many([("n", None)] * 12)
    await node.worker("q", concurrency=10)
    await events.until("completed", times=12)

    assert await node.queue("q").call("getGlobalConcurrency") == 1
    assert await alternating(events)


@pytest.mark.covers("R254")
async def test_a_bound_is_shared_by_workers_of_both_kinds(node: Node, toril: Toril) -> None:
    events = await node.events("q")
    async with toril.working("q", concurrency=10) as queue:
        await queue.set_concurrency(1)
        await node.worker("q", concurrency=10)
        await queue.add_many([("echo", None)] * 30)
        await events.until("completed", times=30)

    assert await alternating(events)


async def alternating(events: NodeEvents) -> bool:
    """Whether each job ended before the next one started."""
    seen = await order(events, "active", "completed")
    return seen == ["active", "completed"] * (len(seen) // 2)


async def test_a_bound_taken_away_lets_the_rest_run(node: Node, toril: Toril) -> None:
    steps = Steps()
    async with toril.working("q", {"hold": steps.hold}, concurrency=3) as queue:
        await queue.set_concurrency(1)
        await queue.add_many([("hold", None)] * 3)
        await steps.started()
        await queue.set_concurrency(None)
        await steps.started()
        await steps.started()
        steps.let_go()

    assert await node.queue("q").call("getGlobalConcurrency") is None


async def test_nodes_rate_limit_holds_for_toril(node: Node, toril: Toril) -> None:
    events = await node.events("q")
    await node.queue("q").call("setGlobalRateLimit", 2, WINDOW)
    async with toril.working("q", concurrency=10) as queue:
        jobs = await queue.add_many([("echo", None)] * 5)
        await events.until("completed", times=5)

        limit = (await queue.settings()).rate
    assert limit == RateLimit(2, WINDOW / 1000, window="fixed")
    await assert_limited(node, [job.id for job in jobs])


async def test_torils_rate_limit_holds_for_node(node: Node, toril: Toril) -> None:
    events = await node.events("q")
    async with toril.queue("q") as queue:
        await queue.set_rate_limit(RateLimit(2, WINDOW / 1000, window="fixed"))
        jobs = await queue.add_many([("n", None)] * 5)
    await node.worker("q", concurrency=10)
    await events.until("completed", times=5)

    assert await node.queue("q").call("getGlobalRateLimit") == {"max": 2, "duration": WINDOW}
    await assert_limited(node, [job.id for job in jobs])


@pytest.mark.covers("R204")
async def test_a_rate_limit_is_shared_by_workers_of_both_kinds(node: Node, toril: Toril) -> None:
    events = await node.events("q")
    async with toril.working("q", concurrency=10) as queue:
        await queue.set_rate_limit(RateLimit(2, WINDOW / 1000, window="fixed"))
        await node.worker("q", concurrency=10)
        jobs = await queue.add_many([("echo", None)] * 5)
        await events.until("completed", times=5)

    await assert_limited(node, [job.id for job in jobs])


async def assert_limited(node: Node, ids: list[str]) -> None:
    """Two in a window: the third starts in the second one, the fifth in the third."""
    started = sorted([(await node.queue("q").job(job))["processedOn"] for job in ids])
    # The window runs on the server's clock, the times of starts on that of whoever claims; both are this machine's.
    assert started[2] - started[0] >= WINDOW - 20
    assert started[4] - started[2] >= WINDOW - 20


async def test_a_worker_of_node_that_limits_itself_counts_for_toril_too(node: Node, toril: Toril) -> None:
    """`limiter` is one key for all: what Toril starts under a rate is counted where Node looks."""
    events = await node.events("q")
    await node.queue("q").call("setGlobalRateLimit", 3, 60_000)
    async with toril.working("q") as queue:
        await queue.add_many([("echo", None)] * 5)
        await events.until("completed", times=3)

        assert await node.queue("q").call("getRateLimitTtl", 3) > 0
        assert (await queue.counts()).waiting == 2
        assert await node.redis("GET", "bull:q:limiter") == "3"


async def test_a_queue_obliterated_by_node_is_empty_for_toril(node: Node, toril: Toril) -> None:
    async with toril.queue("q") as queue:
        await queue.add_many([("n", None, options) for options in _OPTIONS])
        await node.queue("q").call("obliterate")

        counts = await queue.counts()
        assert (counts.waiting, counts.delayed, counts.prioritized) == (0, 0, 0)
        assert (await queue.add("n")).added


async def test_a_queue_obliterated_by_toril_is_empty_for_node(node: Node, toril: Toril) -> None:
    for options in _THEIRS:
        await node.queue("q").add("n", **options)
    async with toril.queue("q") as queue:
        await queue.obliterate()

    assert set((await node.queue("q").counts()).values()) == {0}
    assert await node.redis("EXISTS", "bull:q:1", "bull:q:2", "bull:q:3", "bull:q:wait", "bull:q:delayed") == 0


_OPTIONS: list[dict[str, Any]] = [{}, {"delay": 60}, {"priority": 3}]
_THEIRS: list[dict[str, Any]] = [{}, {"delay": 60_000}, {"priority": 3}]


async def test_a_running_job_can_be_cancelled_though_node_added_it(node: Node, toril: Toril) -> None:
    begun = asyncio.Event()

    async def waits(ctx: JobContext[Any]) -> None:
        begun.set()
        await ctx.signal.wait()
        ctx.raise_if_cancelled()

    events = await node.events("q")
    added = await node.queue("q").add("waits", attempts=3)
    async with toril.working("q", {"waits": waits}) as queue, asyncio.timeout(15):
        await begun.wait()
        job = await queue.job(added["id"])
        assert job is not None
        assert not await job.cancel("enough")
        (failed,) = await events.until("failed", jobId=added["id"])

    assert "enough" in failed["failedReason"]
