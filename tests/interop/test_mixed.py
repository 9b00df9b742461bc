"""Workers of both kinds on one queue."""

from collections import Counter
from contextlib import AsyncExitStack
from typing import Any

import pytest

from tests.interop.node import Node
from tests.interop.side import KEPT, Toril, echo, running
from tests.servers import RedisServer
from toril import App, JobContext


@pytest.mark.covers("F78")
async def test_every_job_runs_exactly_once(node: Node, toril: Toril) -> None:
    events = await node.events("q")
    async with AsyncExitStack() as stack:
        queue = await stack.enter_async_context(toril.queue("q"))
        for _ in range(2):
            await stack.enter_async_context(toril.working("q", concurrency=5))
            await node.worker("q", {"echo": [{"echo": True}]}, concurrency=5)
        for batch in range(10):
            await queue.add_many([("echo", {"n": n}) for n in range(batch * 40, batch * 40 + 20)])
            bulk = [{"name": "echo", "data": {"n": n}} for n in range(batch * 40 + 20, batch * 40 + 40)]
            await node.queue("q").call("addBulk", bulk)
        completed = await events.until("completed", times=400)

    assert sorted(entry["returnvalue"]["n"] for entry in completed) == list(range(400))
    started = Counter(entry["jobId"] for entry in await events.seen(event="active"))
    assert set(started.values()) == {1}
    assert (await node.queue("q").counts())["completed"] == 400


async def test_retries_and_delays_cross_over(node: Node, toril: Toril) -> None:
    """Every job fails twice, wherever it runs, and its attempts are counted together."""

    async def shaky(ctx: JobContext[Any]) -> str:
        if ctx.attempt < 3:
            raise ValueError(f"attempt {ctx.attempt}")
        return "done"

    events = await node.events("q")
    async with toril.working("q", {"shaky": shaky}, concurrency=3) as queue:
        await node.worker("q", {"shaky": [{"fail": "not yet", "times": 2}, {"return": "done"}]}, concurrency=3)
        options = {"attempts": 3, "backoff": {"type": "fixed", "delay": 20}}
        bulk = [{"name": "shaky", "data": {}, "opts": {**options, "priority": n % 3}} for n in range(60)]
        jobs = await node.queue("q").call("addBulk", bulk)
        await events.until("completed", times=60)

        for job in jobs:
            found = await queue.job(job["id"])
            assert found is not None
            assert found.attempts_made == 3

    assert await events.seen(event="failed") == []


async def test_a_prefix_of_ones_own_is_shared(node: Node, server: RedisServer) -> None:
    app = App(server.url, prefix="{mine}")
    queue = app.queue("q", {"echo": echo}, **KEPT)
    async with running(app):
        job = await queue.add("echo", {"a": 1})
        assert await job.result(15) == {"a": 1}
        await queue.pause()
        ours = await queue.add("echo", {"b": 2})
        theirs = await node.driver.do(
            "queue", queue="q", options={"prefix": "{mine}"}, method="add", args=["echo", {"c": 3}]
        )
        await queue.resume()
        assert await ours.result(15) == {"b": 2}
        added = await queue.job(theirs["id"])
        assert added is not None
        assert await added.result(15) == {"c": 3}

    assert {key.partition(":")[0] for key in await node.redis("KEYS", "*")} == {"{mine}"}
