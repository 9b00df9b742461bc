"""Pause, rate and concurrency hold for everyone, whoever set them."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from tests.interop.node import Driver, Node, NodeEvents
from tests.interop.side import Steps, Toril
from toril import Job, JobContext, Queue, RateLimit
from toril.model.states import State

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
    # Version 5 adds to a list of its own meanwhile. When it resumes, it puts that in the place of all that waits, and
    # if there is none it wakes nobody: the next add does.
    alone = node.major == 5 and resumes == "node"

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
            await (queue if alone else node.queue("q")).add("echo", number)
        counts = await node.queue("q").counts()
        assert (await queue.counts()).waiting == counts["waiting"] + counts.get("paused", 0) == 4
        await change(queue, resumes, "resume")
        if alone:
            await queue.add("echo")
        await events.until("completed", times=5 if alone else 4, deadline=7)  # woken, not polled for

    if works == "toril":
        async with toril.working("q") as queue:
            await go(queue)
    else:
        await node.worker("q")
        async with toril.queue("q") as queue:
            await go(queue)

    assert (await order(events, "paused", "resumed", "active"))[:3] == ["paused", "resumed", "active"]


@pytest.mark.covers("R178")
@pytest.mark.parametrize("resumes", ["another version", "toril"])
async def test_what_an_older_node_put_aside_comes_back_in_its_order(
    node: Node, toril: Toril, drivers: Callable[[int], Driver], resumes: str
) -> None:
    """Version 5 moves what waits to a list of its own, and adds there while the queue is paused."""
    steps, events, old, new = Steps(), await node.events("q"), Node(drivers(5)), Node(drivers(6))
    added = [(await old.queue("q").add("note"))["id"] for _ in range(2)]
    await old.queue("q").call("pause")
    async with toril.working("q", {"note": steps.note}) as queue:
        added += [(await old.queue("q").add("note"))["id"] for _ in range(2)]
        later = [(await queue.add("note")).id, (await new.queue("q").add("note"))["id"]]
        assert await node.redis("LLEN", "bull:q:paused") == 4
        assert (await queue.counts()).waiting == 6
        assert [job.id for job in (await queue.jobs("waiting")).items] == [*added, *later]
        assert [job.id for job in await pages(queue, 2)] == [*added, *later]
        assert await (await queue.jobs("waiting")).items[0].state() is State.WAITING

        await (queue.resume() if resumes == "toril" else new.queue("q").call("resume"))
        await events.until("completed", times=6)

    assert steps.ran == [*added, *later]
    assert await node.redis("EXISTS", "bull:q:paused") == 0


async def pages(queue: Queue, size: int) -> list[Job[Any]]:
    """All that wait, read a few at a time."""
    page = await queue.jobs("waiting", limit=size)
    found = [*page.items]
    while page.cursor is not None:
        page = await queue.jobs("waiting", cursor=page.cursor, limit=size)
        found += page.items
    return found


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
        assert await job.cancel("enough") == "requested"
        (failed,) = await events.until("failed", jobId=added["id"])

    assert "enough" in failed["failedReason"]
