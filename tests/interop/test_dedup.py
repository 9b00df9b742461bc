"""Deduplication keys, taken by one side and honoured by the other."""

from typing import Any

import pytest

from tests.interop.node import Node
from tests.interop.side import Steps, Toril
from toril import Dedup


@pytest.mark.covers("R086")
@pytest.mark.parametrize("ttl", [None, 60])
async def test_a_key_taken_by_one_is_taken_for_the_other(node: Node, toril: Toril, ttl: float | None) -> None:
    wire: dict[str, Any] = {"id": "n"} if ttl is None else {"id": "n", "ttl": 60_000}
    async with toril.queue("q") as queue:
        ours = await queue.add("a", dedup=Dedup("t", ttl))
        theirs = await node.queue("q").add("b", deduplication={**wire, "id": "t"})
        first = await node.queue("q").add("c", deduplication=wire)
        second = await queue.add("d", dedup=Dedup("n", ttl))

    assert theirs["id"] == ours.id
    assert (second.id, second.outcome) == (first["id"], "deduplicated")
    assert await node.queue("q").call("getDeduplicationJobId", "t") == ours.id


async def test_a_key_is_let_go_by_whoever_ends_the_job(node: Node, toril: Toril) -> None:
    async with toril.queue("q") as queue:
        job = await queue.add("echo", {"n": 1}, dedup=Dedup("t"))
        worker = await node.worker("q")
        await worker.until("completed", jobId=job.id)
        await worker.close()
        assert (await queue.add("echo", dedup=Dedup("t"), delay=60)).added

    theirs = await node.queue("q").add("echo", {"n": 2}, deduplication={"id": "n"})
    async with toril.working("q") as queue:
        found = await queue.job(theirs["id"])
        assert found is not None
        await found.result(15)
        again = await node.queue("q").add("echo", {"n": 3}, deduplication={"id": "n"})
    assert again["id"] != theirs["id"]


async def test_a_delayed_job_of_one_is_replaced_by_the_other(node: Node, toril: Toril) -> None:
    debounce = {"id": "n", "ttl": 50_000, "extend": True, "replace": True}
    async with toril.queue("q") as queue:
        first = await node.queue("q").add("a", deduplication=debounce, delay=50_000)
        second = await queue.add("b", dedup=Dedup("n", 50, "replace"), delay=50)
        third = await node.queue("q").add("c", deduplication=debounce, delay=50_000)
        assert second.outcome == "replaced"
        assert await queue.job(first["id"]) is None
        assert await queue.job(second.id) is None
        assert await node.queue("q").call("getDeduplicationJobId", "n") == third["id"]


async def test_a_delayed_job_is_put_off_where_the_version_knows_how(node: Node, toril: Toril) -> None:
    again = {"id": "r", "reschedule": True}
    async with toril.queue("q") as queue:
        ours = await queue.add("d", dedup=Dedup("r", mode="reschedule"), delay=10)
        await node.queue("q").add("e", deduplication=again, delay=90_000)
        assert (await node.queue("q").job(ours.id))["delay"] == (90_000 if node.major == 6 else 10_000)
        theirs = await node.queue("q").add("f", deduplication={**again, "id": "s"}, delay=10_000)
        await queue.add("g", dedup=Dedup("s", mode="reschedule"), delay=70)

    assert (await node.queue("q").job(theirs["id"]))["delay"] == 70_000


async def test_the_last_one_kept_by_one_is_made_by_the_other(node: Node, toril: Toril) -> None:
    keep = {"id": "n", "keepLastIfActive": True}
    worker = await node.worker("q", {"a": [{"hold": True}, {"return": 1}], "*": [{"echo": True}]})
    async with toril.queue("q") as queue:
        job = await queue.add("a", dedup=Dedup("n", mode="keep_last"))
        await worker.until("active", jobId=job.id)
        await queue.add("b", {"v": 1}, dedup=Dedup("n", mode="keep_last"))
        await queue.add("b", {"v": 2}, dedup=Dedup("n", mode="keep_last"))
        await worker.release(job.id)
        done = await worker.until("completed", times=2)
        await worker.close()
    assert done[1]["result"] == {"v": 2}

    steps = Steps()
    async with toril.working("q2", {"hold": steps.hold, "note": steps.note}) as queue:
        await node.queue("q2").add("hold", deduplication=keep)
        await steps.started()
        await node.queue("q2").add("note", {"v": 3}, deduplication=keep, jobId="kept")
        events = await node.events("q2")
        steps.let_go()
        await events.until("completed", jobId="kept")
    assert steps.ran[-1] == "kept"
