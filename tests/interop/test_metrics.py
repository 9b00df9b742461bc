"""Figures by the minute, as Node's metrics are."""

import asyncio
from typing import Any

import pytest

from tests.interop.node import Node
from tests.interop.side import Toril
from toril import JobContext, PermanentError


async def fails(ctx: JobContext[Any]) -> None:
    raise PermanentError("told to")


async def fine(ctx: JobContext[Any]) -> None: ...


HANDLERS = {"fine": fine, "fails": fails}
SCRIPT: dict[str, list[dict[str, Any]]] = {"fine": [], "fails": [{"fail": "told to"}]}


@pytest.mark.covers("R232")
async def test_counts_of_torils_jobs_are_read_by_node(node: Node, toril: Toril) -> None:
    events = await node.events("q")
    for name in ("fine", "fine", "fails", "fine"):
        await node.queue("q").add(name)

    async with toril.working("q", HANDLERS):
        await events.until("completed", times=3)
        await events.until("failed")

    completed = await node.queue("q").call("getMetrics", "completed")
    failed = await node.queue("q").call("getMetrics", "failed")
    assert (completed["meta"]["count"], failed["meta"]["count"]) == (3, 1)
    assert completed["meta"]["prevTS"] > 0


@pytest.mark.parametrize("minutes", [1, 3, 30])
async def test_minutes_go_by_as_they_do_for_node(node: Node, toril: Toril, minutes: int) -> None:
    """The same past is written for a queue of each, and each lets a job end now."""
    seconds, _ = await node.redis("TIME")
    if int(seconds) % 60 > 45:  # both have to end within one minute
        await asyncio.sleep(60 - int(seconds) % 60)
        seconds, _ = await node.redis("TIME")
    past = int(seconds) * 1000 - minutes * 60_000
    for queue in ("a", "b"):
        await node.redis("HSET", f"bull:{queue}:metrics:completed", "count", 7, "prevTS", past, "prevCount", 5)
        await node.redis("RPUSH", f"bull:{queue}:metrics:completed:data", 2, 0, 3)
        await node.queue(queue).add("fine")
    ours, theirs = await node.events("a"), await node.events("b")

    async with toril.working("a", HANDLERS):
        await ours.until("completed")
    await node.worker("b", SCRIPT, metrics={"maxDataPoints": 15 * 24 * 60})
    await theirs.until("completed")

    mine, others = [await node.queue(queue).call("getMetrics", "completed") for queue in ("a", "b")]
    assert mine["data"] == others["data"]
    assert mine["meta"]["count"] == others["meta"]["count"] == 8
    assert mine["meta"]["prevCount"] == others["meta"]["prevCount"]


async def test_both_count_into_the_same_figures(node: Node, toril: Toril) -> None:
    events = await node.events("q")
    await node.queue("q").add("fine")
    async with toril.working("q", HANDLERS):
        await events.until("completed", times=1)
    await node.worker("q", SCRIPT, metrics={"maxDataPoints": 60})
    await node.queue("q").add("fine")
    await events.until("completed", times=2)

    assert (await node.queue("q").call("getMetrics", "completed"))["meta"]["count"] == 2
    async with toril.queue("q") as queue:
        found = await queue.metrics("1h")
    assert (found.completed, found.failed) == (2, 0)
    assert (found.run.count, found.wait.count) == (1, 1)  # how long Node's jobs took is not known


async def test_a_job_that_toril_cancels_is_a_failed_one_to_node_and_no_failure_in_its_metrics(
    node: Node, toril: Toril
) -> None:
    events = await node.events("q")
    job = await node.queue("q").add("fine")
    async with toril.queue("q") as queue:
        found = await queue.job(job["id"])
        assert found is not None
        await found.cancel("not wanted")
        await events.until("failed")

        metrics, view = await queue.metrics("1h"), await queue.store.queue("q")

    assert await node.queue("q").call("getFailedCount") == 1
    assert (await node.queue("q").call("getMetrics", "failed"))["meta"]["count"] == 0
    assert (metrics.failed, metrics.cancelled, view.failed_total, view.cancelled_total) == (0, 1, 0, 1)
