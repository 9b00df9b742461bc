"""What Node and Bull Board show of Toril's queues, jobs and workers."""

import asyncio
from contextlib import AsyncExitStack
from typing import Any

from tests.interop.node import Node
from tests.interop.side import KEPT, Steps, Toril, echo, running
from tests.servers import RedisServer
from toril import App, JobContext, PermanentError


async def workers(node: Node, queue: str, wanted: int) -> list[Any]:
    """Those that Node counts, once there are so many: a connection names itself a moment after it is made."""
    found: list[Any] = []
    for _ in range(200):
        found = await node.queue(queue).call("getWorkers")
        if len(found) == wanted:
            return found
        await asyncio.sleep(0.02)
    return found


async def test_a_process_is_one_worker_for_each_of_its_queues(node: Node, server: RedisServer) -> None:
    app = App(server.url)
    for name in ("a", "b é"):
        app.queue(name, {"echo": echo}, **KEPT)
    app.queue("only-added-to")

    async with running(app):
        assert len(await workers(node, "a", 1)) == 1
        assert len(await workers(node, "b é", 1)) == 1
        assert await workers(node, "only-added-to", 0) == []
        assert await node.queue("a").call("getWorkersCount") == 1
    assert await workers(node, "a", 0) == []


async def test_workers_of_both_kinds_are_counted_once_each(node: Node, toril: Toril) -> None:
    events = await node.events("q")
    async with AsyncExitStack() as stack:
        queue = await stack.enter_async_context(toril.queue("q"))
        for _ in range(3):
            await stack.enter_async_context(toril.working("q", concurrency=5))
        await node.worker("q", name="n1", concurrency=5)
        await queue.add_many([("echo", None)] * 20)  # busy ones have no more connections than idle ones
        await events.until("completed", times=20)

        found = await workers(node, "q", 4)
        board = await node.board("q", "/api/queues/:queueName/workers", params={"queueName": "q"})

    assert len({worker["rawname"] for worker in found}) == len(found) == 4
    assert len(board["workers"]) == 4


async def test_a_producer_is_no_worker(node: Node, toril: Toril) -> None:
    async with toril.queue("q") as queue:
        await queue.add("n")
        assert await workers(node, "q", 0) == []


async def test_the_name_on_a_job_is_the_name_of_a_worker(node: Node, toril: Toril) -> None:
    events = await node.events("q")
    async with toril.working("q") as queue:
        job = await queue.add("echo")
        await events.until("completed", jobId=job.id)
        (worker,) = await workers(node, "q", 1)
        (own,) = await queue.workers()

    found = await node.queue("q").job(job.id)
    assert found["processedBy"] == own.id
    assert worker["rawname"].endswith(f":w:{own.id}")


async def test_the_board_lists_torils_queue(node: Node, toril: Toril) -> None:
    async def fails(ctx: JobContext[Any]) -> None:
        raise PermanentError("no such bull")

    steps, events = Steps(), await node.events("q")
    handlers = {"echo": echo, "fails": fails, "hold": steps.hold}
    async with toril.working("q", handlers, concurrency=2) as queue:
        await queue.add("echo", {"a": 1})
        await queue.add("fails", {})
        await events.until("completed")
        await events.until("failed")
        await queue.add("hold", {})
        await steps.started()
        await queue.add("echo", {}, delay=600)
        await queue.set_concurrency(7)
        await workers(node, "q", 1)

        (shown,) = (await node.board("q", "/api/queues", query={"activeQueue": "q"}))["queues"]
        steps.let_go()

    counts = {state: number for state, number in shown["counts"].items() if number}
    assert counts == {"completed": 1, "failed": 1, "active": 1, "delayed": 1}
    assert (shown["isPaused"], shown["globalConcurrency"], shown["hasWorkers"]) == (False, 7, True)
    by_name = {job["name"]: job for job in shown["jobs"] if job.get("finishedOn")}
    assert by_name["echo"]["returnValue"] == {"a": 1}
    assert by_name["fails"]["isFailed"] is True
    assert by_name["fails"]["failedReason"] == "no such bull"


async def test_the_board_shows_a_job_and_its_logs(node: Node, toril: Toril) -> None:
    async def talks(ctx: JobContext[Any]) -> str:
        await ctx.update_progress(50)
        await ctx.log("first")
        await ctx.log("second")
        return "done"

    events = await node.events("q")
    async with toril.working("q", {"talks": talks}) as queue:
        job = await queue.add("talks", {"a": 1})
        await events.until("completed", jobId=job.id)

    where = {"queueName": "q", "jobId": job.id}
    page = await node.board("q", "/api/queues/:queueName/:jobId", params=where)
    logs = await node.board("q", "/api/queues/:queueName/:jobId/logs", params=where)
    assert page["status"] == "completed"
    assert page["job"]["progress"] == 50
    assert page["job"]["attempts"] == 1
    assert page["job"]["data"] == {"a": 1}
    assert logs == ["first", "second"]


async def test_the_board_draws_torils_figures(node: Node, toril: Toril) -> None:
    events = await node.events("q")
    async with toril.working("q") as queue:
        await queue.add_many([("echo", None)] * 3)
        await events.until("completed", times=3)

    shown = await node.board("q", "/api/queues/:queueName/metrics", params={"queueName": "q"})

    assert shown["completed"]["meta"]["count"] == 3
