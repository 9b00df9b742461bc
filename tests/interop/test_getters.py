"""What the two sides see of one queue is the same."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.interop.node import Node
from tests.interop.side import Steps, Toril
from toril import JobContext, PermanentError, Queue
from toril.model import ms_of

GETTERS = {
    "waiting": "getWaiting", "prioritized": "getPrioritized", "active": "getActive", "delayed": "getDelayed",
    "completed": "getCompleted", "failed": "getFailed",
}  # fmt: skip


async def fails(ctx: JobContext[Any]) -> None:
    raise PermanentError("told to")


async def good(ctx: JobContext[Any]) -> Any:
    return ctx.data


@asynccontextmanager
async def every_state(node: Node, toril: Toril) -> AsyncIterator[Queue]:
    """A queue with jobs in each state, added by both sides in turn."""
    steps, events, theirs = Steps(), await node.events("q"), node.queue("q")
    async with toril.working("q", {"good": good, "fails": fails, "hold": steps.hold}, concurrency=2) as queue:
        for name, end in (("good", "completed"), ("fails", "failed")):
            for turn in range(2):
                await queue.add(name, {"by": "toril"}, attempts=1)
                await theirs.add(name, {"by": "node"})
                await events.until(end, times=2 * turn + 2)
        for _ in range(2):
            await queue.add("hold", {})
            await steps.started()
        for delay in (700, 600):
            await queue.add("good", {}, delay=delay)
            await theirs.add("good", {}, delay=delay * 1000 + 50_000)
        for priority in (0, 0, 9, 4, 4):
            await queue.add("good", {}, priority=priority)
            await theirs.add("good", {}, priority=priority)
        await queue.add("good", {}, lifo=True)
        await queue.pause()
        try:
            yield queue
        finally:
            steps.let_go()


@pytest.mark.covers("R172", "R173")
async def test_counts_and_getters_are_equal(node: Node, toril: Toril) -> None:
    async with every_state(node, toril) as queue:
        ours, theirs = await queue.counts(), await node.queue("q").counts()

        assert {state: theirs[state] for state in GETTERS} == {state: getattr(ours, state) for state in GETTERS}
        assert [theirs[state] for state in GETTERS] == [5, 6, 2, 4, 4, 4]
        assert ours.paused is await node.queue("q").call("isPaused") is True

        for state, getter in GETTERS.items():
            seen = [job["id"] for job in await node.queue("q").call(getter)]
            mine = [job.id for job in (await queue.jobs(state)).items]  # type: ignore[arg-type]
            assert mine == seen, state


RANGES = ["waiting", "prioritized", "delayed", "active", "completed", "failed", "waiting-children"]


async def test_ranges_and_both_orders_are_nodes_own(node: Node, toril: Toril) -> None:
    """A page of Toril's is the same stretch of the line that Node's getters give, from either end."""
    async with every_state(node, toril) as queue:
        for name in ("first", "second"):
            children = [{"name": "child", "queueName": "other", "data": {}}]
            await node.flow(name="good", queueName="q", data={}, opts={"jobId": name}, children=children)
        for state in RANGES:
            ours = [job.id for job in (await queue.jobs(state.replace("-", "_"))).items]  # type: ignore[arg-type]
            newest_first = state in {"completed", "failed"}
            forth, back = [
                [job["id"] for job in await node.queue("q").call("getJobs", [state], 0, -1, ascending)]
                for ascending in (not newest_first, newest_first)
            ]
            assert ours == forth == back[::-1], state
            assert len(ours) > 1
            (first,) = await node.queue("q").call("getJobs", [state], 0, 0, not newest_first)
            page = await queue.jobs(state.replace("-", "_"), limit=1)  # type: ignore[arg-type]
            assert [job.id for job in page.items] == [first["id"]], state
        assert (await queue.counts()).waiting_children == (await node.queue("q").counts())["waiting-children"] == 2


async def test_a_job_looks_the_same_from_both_sides(node: Node, toril: Toril) -> None:
    async with every_state(node, toril) as queue:
        for state, getter in GETTERS.items():
            for seen in await node.queue("q").call(getter):
                job = await queue.job(seen["id"])
                assert job is not None
                record = job.record
                assert record is not None
                assert await node.queue("q").state(job.id) == state == record.state
                assert (job.name, job.data) == (seen["name"], seen["data"])
                assert (job.attempts_made, record.starts) == (seen["attemptsMade"], seen["attemptsStarted"])
                assert (job.error, job.worker) == (seen.get("failedReason"), seen.get("processedBy"))
                assert tuple(map(ms_of, (job.added_at, job.started_at, job.finished_at))) == (
                    seen["timestamp"], seen.get("processedOn"), seen.get("finishedOn"),
                )  # fmt: skip
                assert round(record.delay * 1000) == seen["delay"]
                assert record.priority == seen["priority"]


async def test_a_long_line_is_paged_without_loss(node: Node, toril: Toril) -> None:
    jobs = await node.queue("q").call("addBulk", [{"name": "n", "data": {}} for _ in range(120)])
    found: list[str] = []
    async with toril.queue("q") as queue:
        cursor = None
        while True:
            page = await queue.jobs("waiting", cursor=cursor, limit=50)
            found += [job.id for job in page.items]
            cursor = page.cursor
            if cursor is None:
                break

    assert found == [job["id"] for job in jobs]


async def test_a_missing_job_is_missing_on_both_sides(node: Node, toril: Toril) -> None:
    async with toril.queue("q") as queue:
        assert await queue.job("nobody") is None
    assert await node.queue("q").job("nobody") is None


async def test_counts_by_priority_are_read_by_node(node: Node, toril: Toril) -> None:
    async with toril.queue("q") as queue:
        await queue.add_many([("n", None, {"priority": priority}) for priority in (0, 1, 1, 2_097_151)])

    found = await node.queue("q").call("getCountsPerPriority", [0, 1, 2, 2_097_151])

    assert found == {"0": 1, "1": 2, "2": 0, "2097151": 1}
