"""Deduplication keys, taken by one side and honoured by the other."""

import asyncio
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.interop.node import Node, NodeEvents
from tests.interop.operators import add_by, operator
from tests.interop.side import Steps, Toril
from toril import Dedup, JobContext, PermanentError


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


async def fails(ctx: JobContext[Any]) -> None:
    raise PermanentError("told to")


async def fine(ctx: JobContext[Any]) -> None: ...


ENDS = ["completed", "failed", "not kept", "removed", "drained", "cleaned", "obliterated"]


@pytest.mark.parametrize("adds", ["node", "toril"])
@pytest.mark.parametrize("ends", ["node", "toril"])
@pytest.mark.parametrize("how", ENDS)
async def test_a_key_is_let_go_by_whoever_ends_the_job(
    node: Node, toril: Toril, adds: str, ends: str, how: str
) -> None:
    events, name = await node.events("q"), "fails" if how in {"failed", "not kept"} else "fine"
    keep: dict[str, Any] = {"keep_failed": 0} if how == "not kept" else {}
    async with toril.queue("q", **keep) as queue:
        options: dict[str, Any] = {"deduplication": {"id": "k"}, "removeOnFail": how == "not kept"}
        given = options if adds == "node" else {"dedup": Dedup("k")}
        job = await add_by(adds, node, queue, name, **given)
        assert not (await queue.add("again", dedup=Dedup("k"))).added
        assert (await node.queue("q").add("again", deduplication={"id": "k"}))["id"] == job
        acting = operator(ends, node, queue)
        match how:
            case "removed":
                await acting.remove(job)
            case "drained":
                await acting.drain(delayed=True)
            case "cleaned":
                await asyncio.sleep(0.002)  # it has to be older than now
                await acting.clean("waiting", 0, 100)
            case "obliterated":
                await acting.obliterate(force=False)
            case _:
                await _run(node, toril, ends, events, name, job)
        assert await node.queue("q").call("getDeduplicationJobId", "k") is None
        assert await node.redis("EXISTS", "bull:q:de:k") == 0
        assert (await queue.add("again", dedup=Dedup("k"))).added


async def _run(node: Node, toril: Toril, who: str, events: NodeEvents, name: str, *jobs: str) -> None:
    """A worker of one side brings the jobs to their end."""
    end = "failed" if name == "fails" else "completed"
    if who == "toril":
        async with toril.working("q", {"fails": fails, "fine": fine}):
            for job in jobs:
                await events.until(end, jobId=job)
    else:
        worker = await node.worker("q", {"fails": [{"fail": "told to"}], "fine": []})
        for job in jobs:
            await worker.until(end, jobId=job)
        await worker.close()


@pytest.mark.parametrize("adds", ["node", "toril"])
async def test_a_key_is_let_go_by_a_job_that_toril_cancels(node: Node, toril: Toril, adds: str) -> None:
    async with toril.queue("q") as queue:
        given: dict[str, Any] = {"deduplication": {"id": "k"}} if adds == "node" else {"dedup": Dedup("k")}
        job = await queue.job(await add_by(adds, node, queue, "n", **given))
        assert job is not None
        assert await job.cancel("not wanted") == "cancelled"

        assert (await node.queue("q").add("n", deduplication={"id": "k"}))["id"] != job.id


@pytest.mark.parametrize("ends", ["node", "toril"])
@pytest.mark.parametrize("how", ["completed", "removed"])
async def test_a_key_for_a_time_outlives_the_end_but_not_the_removal(
    node: Node, toril: Toril, ends: str, how: str
) -> None:
    events = await node.events("q")
    async with toril.queue("q") as queue:
        theirs = (await node.queue("q").add("fine", deduplication={"id": "n", "ttl": 60_000}))["id"]
        ours = (await queue.add("fine", dedup=Dedup("t", 60))).id
        for job in (theirs, ours):
            if how == "removed":
                await operator(ends, node, queue).remove(job)
        if how == "completed":
            await _run(node, toril, ends, events, "fine", theirs, ours)

        assert await node.redis("EXISTS", "bull:q:de:n", "bull:q:de:t") == (2 if how == "completed" else 0)


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


async def test_the_last_one_is_not_early_whoever_ends_the_one_before(node: Node, toril: Toril) -> None:
    worker = await node.worker("q", {"a": [{"hold": True}, {"return": 1}]})
    async with toril.queue("q") as queue:
        job = await queue.add("a", dedup=Dedup("n", mode="keep_last"))
        await worker.until("active", jobId=job.id)
        due = datetime.now(UTC).replace(microsecond=0) + timedelta(hours=1)
        added = time.monotonic()
        await queue.add("b", {"v": 1}, dedup=Dedup("n", mode="keep_last"), at=due, job_id="last")
        await worker.release(job.id)
        await worker.until("completed", jobId=job.id)
        ran_on = (time.monotonic() - added) * 1000
        await worker.close()
        (last,) = await queue.store.jobs("q", ["last"])

    assert last is not None
    assert last.state == "delayed"
    assert last.due is not None
    assert 0 <= last.due - due.timestamp() * 1000 <= ran_on


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
