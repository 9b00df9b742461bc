"""Durable steps beside Node: what it sees of jobs that sleep or wait, and what its methods and workers do to them."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.interop.node import Node, NodeEvents
from tests.interop.side import Toril
from toril import JobContext, Queue
from toril.operate.doctor import Doctor
from toril.runtime.clock import SYSTEM
from toril.store.engine import connect

LONG, SHORT = 600, 1.5  # seconds


class People:
    """A handler that records a step, sleeps or waits as its job says, and records another step."""

    def __init__(self) -> None:
        self.done: list[str] = []

    async def onboard(self, ctx: JobContext[dict[str, Any]]) -> list[Any]:
        first = await ctx.step("create", self.do, "create")
        answer = None
        if "sleep" in ctx.data:
            await ctx.sleep("cool-off", ctx.data["sleep"])
        if "wait" in ctx.data:
            answer = await ctx.wait_for(ctx.data["wait"], key=ctx.data.get("key"))
        if ctx.data.get("fail"):
            raise ConnectionError("away")
        return [first, answer, await ctx.step("send", self.do, "send")]

    def do(self, what: str) -> str:
        self.done.append(what)
        return what


@pytest.fixture
def people() -> People:
    return People()


@asynccontextmanager
async def resting(
    node: Node, toril: Toril, people: People, data: Mapping[str, Any], **options: Any
) -> AsyncIterator[tuple[Queue, str, NodeEvents]]:
    """A queue with one job that rests, the job's id, and what Node hears of it. Toril works it until the block ends."""
    events = await node.events("q")
    async with toril.working("q", {"onboard": people.onboard}, **options) as queue:
        added = await node.queue("q").add("onboard", dict(data), attempts=1)
        await events.until("delayed", jobId=added["id"])
        yield queue, added["id"], events


async def left(node: Node, toril: Toril) -> tuple[list[str], Any]:
    """What the doctor finds, and what is noted of jobs that rest, once it has repaired that."""
    store = connect(toril.url)
    await store.open()
    try:
        doctor = Doctor(store, SYSTEM, between=0.2)
        found = await doctor.findings()
        await doctor.repair(found)
    finally:
        await store.close()
    notes = [
        await node.redis("ZCARD", "bull:q:toril:resting"),
        await node.redis("HLEN", "bull:q:toril:awaited"),
    ]
    return [str(each.fault.kind) for each in found if each.fault is not None], notes


@pytest.mark.covers("R279")
async def test_node_sees_a_resting_job_as_delayed(node: Node, toril: Toril, people: People) -> None:
    queue = node.queue("q")
    async with resting(node, toril, people, {"sleep": LONG}) as (_, job_id, _):
        seen = await queue.job(job_id)
        (listed,) = await queue.call("getDelayed")
        board = await node.board("q", "/api/queues", query={"activeQueue": "q", "status": "delayed"})

        assert await queue.state(job_id) == "delayed"
        assert (await queue.counts())["delayed"] == 1
        assert (await queue.counts())["active"] == 0
        assert listed["id"] == job_id == board["queues"][0]["jobs"][0]["id"]
        assert (seen["data"], seen["attemptsMade"], seen.get("failedReason")) == ({"sleep": LONG}, 0, None)
        assert await queue.of_job(job_id, "isActive") is False


async def test_a_job_that_node_adds_sleeps_and_gets_its_signal(node: Node, toril: Toril, people: People) -> None:
    async with resting(node, toril, people, {"sleep": SHORT, "wait": "approval"}) as (queue, job_id, events):
        await events.until("delayed", jobId=job_id, times=2)
        job = await queue.job(job_id)
        assert job is not None
        assert (await job.signal("approval", {"ok": True})).outcome == "woken"
        await events.until("completed", jobId=job_id)

        assert (await node.queue("q").job(job_id))["returnvalue"] == ["create", {"ok": True}, "send"]
        assert [step.key for step in await job.steps()] == ["create", "cool-off", "approval", "send"]
    assert people.done == ["create", "send"]
    assert (await left(node, toril)) == ([], [0, 0])


async def test_a_child_of_nodes_flow_rests_and_its_parent_waits(node: Node, toril: Toril, people: People) -> None:
    events = await node.events("q")
    async with toril.working("q", {"onboard": people.onboard}) as queue:
        child = {"name": "onboard", "queueName": "q", "data": {"sleep": SHORT}}
        root = await node.flow(name="onboard", queueName="q", data={}, children=[child])
        await events.until("completed", jobId=root["id"])
        parent = await queue.job(root["id"])
        assert parent is not None
        assert await parent.result() == ["create", None, "send"]
    assert people.done == ["create", "send"] * 2


@pytest.mark.covers("R279")
@pytest.mark.parametrize("who", ["node", "board"])
async def test_promote_wakes_a_job_which_rests_again_until_its_time(
    node: Node, toril: Toril, people: People, who: str
) -> None:
    async with resting(node, toril, people, {"sleep": LONG}) as (queue, job_id, events):
        until = (await step_of(queue, job_id, "cool-off")).until
        await promote(node, who, job_id)
        await events.until("delayed", jobId=job_id, times=2)
        assert (await step_of(queue, job_id, "cool-off")).until == until

        job = await queue.job(job_id)
        assert job is not None
        await job.promote()  # by Toril, which ends the sleep
        await events.until("completed", jobId=job_id)
    assert people.done == ["create", "send"]


async def test_a_job_that_waits_and_is_promoted_still_gets_its_signal(node: Node, toril: Toril, people: People) -> None:
    async with resting(node, toril, people, {"wait": "paid", "key": "invoice:7"}) as (queue, job_id, events):
        await promote(node, "node", job_id)
        await events.until("delayed", jobId=job_id, times=2)
        assert (await queue.signal("paid", 5, key="invoice:7")).outcome == "woken"
        await events.until("completed", jobId=job_id)
        assert (await node.queue("q").job(job_id))["returnvalue"] == ["create", 5, "send"]
    assert (await left(node, toril)) == ([], [0, 0])


async def test_a_delay_that_node_changes_wakes_a_job_which_rests_again(
    node: Node, toril: Toril, people: People
) -> None:
    """A signal meanwhile waits until the job is looked at again, which is when the changed delay is over."""
    async with resting(node, toril, people, {"wait": "approval"}) as (queue, job_id, events):
        await node.queue("q").of_job(job_id, "changeDelay", 200)
        await events.until("delayed", jobId=job_id, times=3)  # once by Node's change, once as it rests again
        await node.queue("q").of_job(job_id, "changeDelay", int(SHORT * 1000))
        job = await queue.job(job_id)
        assert job is not None
        assert (await job.signal("approval", True)).outcome == "kept"
        await events.until("completed", jobId=job_id)
    assert people.done == ["create", "send"]
    assert (await left(node, toril))[1] == [0, 0]


async def promote(node: Node, who: str, job_id: str) -> None:
    if who == "node":
        await node.queue("q").of_job(job_id, "promote")
    else:
        params = {"queueName": "q", "jobId": job_id}
        await node.board("q", "/api/queues/:queueName/:jobId/promote", "put", params=params, body={})


async def step_of(queue: Queue, job_id: str, key: str) -> Any:
    job = await queue.job(job_id)
    assert job is not None
    return next(step for step in await job.steps() if step.key == key)


async def remove(node: Node, job_id: str) -> None:
    await node.queue("q").of_job(job_id, "remove")


async def drain(node: Node, job_id: str) -> None:
    await node.queue("q").call("drain", True)


async def clean(node: Node, job_id: str) -> None:
    await node.queue("q").call("clean", 0, 100, "delayed")


async def obliterate(node: Node, job_id: str) -> None:
    await node.queue("q").call("obliterate", {"force": True})


@pytest.mark.covers("R279")
@pytest.mark.parametrize("how", [remove, drain, clean, obliterate])
async def test_what_node_removes_is_gone_with_all_it_recorded(
    node: Node, toril: Toril, people: People, how: Callable[[Node, str], Any]
) -> None:
    data = {"wait": "paid", "key": "invoice:7"}
    async with resting(node, toril, people, data) as (queue, job_id, _):
        if how is obliterate:
            await node.queue("q").call("pause")
        await how(node, job_id)

        assert await queue.job(job_id) is None
        assert await node.redis("EXISTS", f"bull:q:{job_id}") == 0
        assert (await queue.signal("paid", 5, key="invoice:7")).outcome == "kept", "for whoever waits for it next"
        if how is not obliterate:
            job = await queue.add("onboard", data)  # the key is free again
            assert await asyncio.wait_for(job.result(), 30) == ["create", 5, "send"]
    assert (await left(node, toril))[1] == [0, 0], "the doctor leaves nothing of it"
    assert people.done == (["create"] if how is obliterate else ["create", "create", "send"])


@pytest.mark.parametrize("what", ["drain", "clean"])
async def test_torils_own_drain_and_clean_pass_resting_jobs_over(
    node: Node, toril: Toril, people: People, what: str
) -> None:
    async with resting(node, toril, people, {"sleep": LONG}) as (queue, job_id, _):
        if what == "drain":
            await queue.drain(delayed="remove")
        else:
            await queue.clean("delayed", older_than=0)
        assert await node.queue("q").state(job_id) == "delayed"


@pytest.mark.parametrize("who", ["node", "board"])
async def test_a_failed_job_that_is_retried_goes_on_where_it_was(
    node: Node, toril: Toril, people: People, who: str
) -> None:
    async with resting(node, toril, people, {"sleep": SHORT, "fail": True}) as (queue, job_id, events):
        await events.until("failed", jobId=job_id)
        job = await queue.job(job_id)
        assert job is not None
        await job.update_data({"sleep": SHORT})
        if who == "node":
            await node.queue("q").of_job(job_id, "retry")
        else:
            params = {"queueName": "q", "jobId": job_id, "queueStatus": "failed"}
            await node.board("q", "/api/queues/:queueName/:jobId/retry", "put", params=params, body={})
        await events.until("completed", jobId=job_id)
        assert [step.key for step in await job.steps()] == ["create", "cool-off", "send"]
    assert people.done == ["create", "send"]


async def test_a_node_worker_runs_such_a_job_from_the_beginning(node: Node, toril: Toril, people: People) -> None:
    """By accident: it knows nothing of steps. It meets the job when its sleep is over, not earlier."""
    async with resting(node, toril, people, {"sleep": SHORT}) as (_, job_id, _):
        pass
    worker = await node.worker("q", {"onboard": [{"return": "all of it"}]})
    await worker.until("completed", jobId=job_id)
    async with toril.queue("q", {"onboard": people.onboard}) as queue:
        job = await queue.job(job_id)
        assert job is not None
        assert await job.state() == "completed"
        assert (await node.queue("q").job(job_id))["returnvalue"] == "all of it"
        assert [step.key for step in await job.steps()] == ["create", "cool-off"], "they stay with a job that is kept"
        await job.remove()
    assert people.done == ["create"]
    assert (await left(node, toril))[1] == [0, 0]


async def test_a_job_that_fails_on_node_goes_on_where_it_was_on_toril(node: Node, toril: Toril, people: People) -> None:
    async with resting(node, toril, people, {"sleep": SHORT}) as (_, job_id, events):
        pass
    await node.redis("HSET", f"bull:q:{job_id}", "atm", "0")
    worker = await node.worker("q", {"onboard": [{"unrecoverable": "what is that?"}]})
    await worker.until("failed", jobId=job_id)
    await worker.close()
    async with toril.working("q", {"onboard": people.onboard}) as queue:
        job = await queue.job(job_id)
        assert job is not None
        await job.retry()
        await events.until("completed", jobId=job_id)
        assert [step.key for step in await job.steps()] == ["create", "cool-off", "send"]
    assert people.done == ["create", "send"]


async def test_a_signal_ends_nothing_that_node_has_under_way(node: Node, toril: Toril, people: People) -> None:
    """Node has promoted a job that waits, and runs it: a signal is kept, and does not put the job into the line."""
    async with resting(node, toril, people, {"wait": "approval"}) as (_, job_id, _):
        pass
    worker = await node.worker("q", {"onboard": [{"hold": True}, {"return": 1}]})
    await promote(node, "node", job_id)
    await worker.until("active", jobId=job_id)
    async with toril.queue("q", {"onboard": people.onboard}) as queue:
        job = await queue.job(job_id)
        assert job is not None
        assert (await job.signal("approval", True)).outcome == "kept"
        assert await node.queue("q").state(job_id) == "active"
    await worker.release(job_id)
    await worker.until("completed", jobId=job_id)
    assert (await left(node, toril))[1] == [0, 0]
