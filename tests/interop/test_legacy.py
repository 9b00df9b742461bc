"""What older versions of BullMQ have left in Redis, and what `meta` says, whoever wrote it."""

from typing import Any

import pytest

from tests.interop.node import Node
from tests.interop.side import Steps, Toril
from toril import JobContext

MARKERS = ("0:0", "0:1794723374180")


@pytest.mark.parametrize("marker", MARKERS)
@pytest.mark.parametrize("side", ["RPUSH", "LPUSH"])
async def test_markers_among_the_jobs_never_run(node: Node, toril: Toril, marker: str, side: str) -> None:
    steps, events = Steps(), await node.events("q")
    jobs = [(await node.queue("q").add("note"))["id"] for _ in range(2)]
    await node.redis(side, "bull:q:wait", marker)
    async with toril.queue("q") as queue:
        assert [job.id for job in (await queue.jobs("waiting")).items] == jobs
        if side == "RPUSH":  # where those versions put it
            assert (await queue.counts()).waiting == (await node.queue("q").counts())["waiting"] == 2
    async with toril.working("q", {"note": steps.note}):
        await events.until("completed", times=2)

    assert steps.ran == jobs
    assert await node.redis("EXISTS", f"bull:q:{marker}", f"bull:q:{marker}:lock", "bull:q:wait", "bull:q:active") == 0


@pytest.mark.parametrize("marker", MARKERS)
async def test_a_marker_among_running_jobs_is_taken_for_none(node: Node, toril: Toril, marker: str) -> None:
    steps, events = Steps(), await node.events("q")
    await node.redis("LPUSH", "bull:q:active", marker)
    async with toril.working("q", {"note": steps.note}) as queue:
        job = await queue.add("note")
        await events.until("completed", jobId=job.id)
        await queue.store.recover("q")
        assert (await queue.jobs("active")).items == ()

    assert steps.ran == [job.id]
    assert await node.redis("EXISTS", f"bull:q:{marker}", "bull:q:active", "bull:q:wait") == 0


async def test_a_repeatable_of_an_older_kind_runs_and_stays_its_libraries(node: Node, toril: Toril) -> None:
    """Version 6 has none of these any more, and only workers of version 5 make the next run."""
    key, now = "5d41402abc4b2a76b9719d911017c592", int((await node.redis("TIME"))[0]) * 1000
    run = f"repeat:{key}:{now}"
    await node.redis("HSET", f"bull:q:repeat:{key}", "name", "note", "every", 60_000)
    await node.redis("ZADD", "bull:q:repeat", now, key)
    fields: dict[str, Any] = {"name": "note", "data": "{}", "timestamp": now, "delay": 0, "priority": 0, "rjk": key}
    options = f'{{"repeat":{{"every":60000,"count":1}},"jobId":"{run}","prevMillis":{now},"attempts":0}}'
    await node.redis("HSET", f"bull:q:{run}", "opts", options, *[part for pair in fields.items() for part in pair])
    await node.redis("LPUSH", "bull:q:wait", run)
    steps, events = Steps(), await node.events("q")
    async with toril.working("q", {"note": steps.note}) as queue:
        await events.until("completed", jobId=run)
        assert (await queue.schedules.list()).items == ()

    assert steps.ran == [run]
    assert await node.redis("ZRANGE", "bull:q:repeat", 0, -1) == [key]
    assert await node.redis("EXISTS", f"bull:q:repeat:{key}") == 1


async def test_what_meta_says_of_others_is_left_alone(node: Node, toril: Toril) -> None:
    await node.queue("q").add("echo")
    await node.redis("HSET", "bull:q:meta", "of-somebody", "else")
    before = await node.redis("HGETALL", "bull:q:meta")
    async with toril.working("q") as queue:
        await queue.add_and_wait("echo", 1)
        await queue.pause()
        await queue.set_concurrency(5)
        assert await node.redis("HMGET", "bull:q:meta", "paused", "concurrency") == ["1", "5"]
        await queue.resume()
        await queue.set_concurrency(None)

    assert await node.redis("HGETALL", "bull:q:meta") == before
    version = await node.redis("HGET", "bull:q:meta", "version")
    assert version == f"bullmq:{(await node.driver.do('versions'))['bullmq']}"


async def test_the_length_of_the_stream_is_as_node_has_set_it(node: Node, toril: Toril) -> None:
    async def quick(ctx: JobContext[Any]) -> None: ...

    options = {"streams": {"events": {"maxLen": 50}}}
    await node.driver.do("queue", queue="q", options=options, method="waitUntilReady")
    assert await node.redis("HGET", "bull:q:meta", "opts.maxLenEvents") == "50"
    async with toril.working("q", {"quick": quick}, concurrency=50) as queue:
        await queue.add_many([("quick", None)] * 500)
        await (await queue.add("quick")).result(15)

    # Redis drops whole stretches of a hundred entries, and what one step of a hundred jobs writes comes on top.
    assert await node.redis("XLEN", "bull:q:events") < 700
