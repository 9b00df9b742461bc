"""Schedulers made by one side and run by the other, taking turns on the same ones."""

import asyncio
from collections import Counter
from collections.abc import Callable

import pytest

from tests.interop.node import Node
from tests.interop.side import Steps, Toril
from toril.model import ms_of

DATA = {"v": 1}


async def until(happened: Callable[[], bool], deadline: float = 15) -> None:
    async with asyncio.timeout(deadline):
        while not happened():  # noqa: ASYNC110 - some of it happens in Node
            await asyncio.sleep(0.02)


@pytest.mark.covers("R214")
async def test_node_runs_what_toril_has_scheduled(node: Node, toril: Toril) -> None:
    worker = await node.worker("q")
    async with toril.queue("q") as queue:
        await queue.schedules.put("ticks", "tick", DATA, every=0.3, attempts=3)
        await queue.schedules.put("seconds", "second", DATA, cron="* * * * * *", tz="Europe/Berlin", limit=2)

        done = await worker.until("completed", times=6)
        await asyncio.sleep(1.2)
        ticks, seconds = await queue.schedules.get("ticks"), await queue.schedules.get("seconds")
        await worker.close()

        ran = [each["jobId"] for each in done]
        assert max(Counter(ran).values()) == 1
        assert ticks.count > 3
        assert (seconds.count, seconds.limit) == (2, 2)
        assert done[0]["result"] == DATA
        await queue.schedules.remove("ticks")
        await queue.schedules.remove("seconds")
        assert await node.redis("ZCARD", "bull:q:repeat") == 0


@pytest.mark.covers("R214")
async def test_toril_runs_what_node_has_scheduled(node: Node, toril: Toril) -> None:
    steps = Steps()
    await node.queue("q").call("upsertJobScheduler", "ev", {"every": 300}, {"name": "note", "data": DATA})
    await node.queue("q").call(
        "upsertJobScheduler", "by:clock", {"pattern": "* * * * * *", "tz": "UTC", "limit": 3},
        {"name": "note", "data": DATA, "opts": {"priority": 4}},
    )  # fmt: skip
    async with toril.working("q", {"note": steps.note}) as queue:
        await until(lambda: sum("ev" in each for each in steps.ran) >= 5)
        await until(lambda: sum("by:clock" in each for each in steps.ran) >= 3)
        shown = {each.id: each for each in (await queue.schedules.list()).items}

    assert max(Counter(steps.ran).values()) == 1
    slots = sorted(int(each.rpartition(":")[2]) for each in steps.ran if ":ev:" in each)
    assert {slot % 300 for slot in slots} == {slots[0] % 300}
    assert sum("by:clock" in each for each in steps.ran) == 3
    assert (shown["ev"].every, shown["by:clock"].cron) == (0.3, "* * * * * *")
    assert (shown["by:clock"].over, shown["by:clock"].priority) == (True, 4)


@pytest.mark.covers("R214", "F78")
async def test_both_take_turns_on_one_schedule(node: Node, toril: Toril) -> None:
    steps = Steps()
    async with toril.queue("q") as queue:
        await queue.schedules.put("turns", "note", DATA, every=0.1)
    worker = await node.worker("q")
    await worker.until("completed", times=3)  # Node alone, then both, then Toril alone: who of two is first is luck
    async with toril.working("q", {"note": steps.note}) as queue:
        await asyncio.sleep(1)
        theirs = [each["jobId"] for each in await worker.seen(event="completed")]
        await worker.close()
        already = len(steps.ran)
        async with asyncio.timeout(60):
            while len(steps.ran) < already + 3:  # noqa: ASYNC110 - the worker tells nobody
                await asyncio.sleep(0.05)
        await queue.schedules.remove("turns")

    assert max(Counter([*steps.ran, *theirs]).values()) == 1


async def test_node_and_bull_board_list_our_schedulers(node: Node, toril: Toril) -> None:
    async with toril.queue("q") as queue:
        made = await queue.schedules.put(
            "nightly", "report", DATA, cron="0 2 * * *", tz="Europe/Berlin", limit=5, priority=3, attempts=4
        )
        (listed,) = await node.queue("q").call("getJobSchedulers")
        board = await node.board("q", "/api/job-schedulers")

    assert (listed["key"], listed["name"], listed["pattern"]) == ("nightly", "report", "0 2 * * *")
    assert (listed["tz"], listed["limit"], listed["next"]) == ("Europe/Berlin", 5, ms_of(made.slot))
    assert (listed["template"]["data"], listed["template"]["opts"]["priority"]) == (DATA, 3)
    assert "nightly" in str(board)


async def test_a_change_by_node_is_seen_and_taken_back(node: Node, toril: Toril) -> None:
    async with toril.queue("q") as queue:
        await queue.schedules.put("s", "report", DATA, every=3600, overlap="skip")
        await node.queue("q").call("upsertJobScheduler", "s", {"every": 60000}, {"name": "other"})
        theirs = await queue.schedules.get("s")
        ours = await queue.schedules.put("s", "report", DATA, every=3600, overlap="skip")
        pending = await node.queue("q").counts()

    assert (theirs.every, theirs.name) == (60, "other")
    assert (ours.every, ours.name, ours.overlap) == (3600, "report", "skip")
    assert pending["waiting"] + pending["delayed"] == 1


@pytest.mark.parametrize("paused", [False, True])
async def test_a_change_leaves_one_run_even_while_the_queue_is_paused(node: Node, toril: Toril, paused: bool) -> None:
    async with toril.queue("q") as queue:
        if paused:
            await queue.pause()
        await node.queue("q").call("upsertJobScheduler", "s", {"every": 60000}, {"name": "n", "data": {"v": 1}})
        await queue.schedules.put("s", "n", {"v": 2}, every=60)

        counts = await node.queue("q").counts()

    assert counts["waiting"] + counts["delayed"] + counts["prioritized"] == 1


async def test_draining_leaves_nodes_scheduler_its_run(node: Node, toril: Toril) -> None:
    async with toril.queue("q") as queue:
        await queue.add("before")
        await node.queue("q").call("upsertJobScheduler", "s", {"every": 60000}, {"name": "n"})
        await queue.add("after")

        assert await queue.drain() == 2

        (run,) = (await queue.jobs("waiting")).items
        assert run.id.startswith("repeat:s:")
        assert await node.redis("LLEN", "bull:q:wait") == 1
