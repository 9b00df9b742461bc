"""The driver itself, Node with Node: what the other tests rest on."""

from collections.abc import Callable

import pytest

from tests.interop.node import Driver, Node, NodeError


async def test_node_works_for_node(node: Node) -> None:
    events = await node.events("q")
    job = await node.queue("q").add("greet", {"name": "é"}, attempts=2)
    worker = await node.worker("q", {"greet": [{"progress": 50}, {"log": "a line"}, {"return": {"said": "hello"}}]})

    (completed,) = await worker.until("completed", jobId=job["id"])
    await events.until("completed", jobId=job["id"])

    assert completed["result"] == {"said": "hello"}
    assert await events.names(job["id"]) == ["added", "waiting", "active", "progress", "completed"]
    assert (await node.queue("q").call("getJobLogs", job["id"]))["logs"] == ["a line"]
    assert (await node.queue("q").counts())["completed"] == 1


async def test_a_script_fails_as_often_as_it_is_told(node: Node) -> None:
    worker = await node.worker("q", {"shaky": [{"fail": "not yet", "times": 2}, {"return": "there"}]})
    job = await node.queue("q").add("shaky", attempts=3)

    await worker.until("completed", jobId=job["id"])

    assert [entry["event"] for entry in await worker.seen(jobId=job["id"])].count("failed") == 2


async def test_a_held_job_waits_for_its_release(node: Node) -> None:
    worker = await node.worker("q", {"slow": [{"hold": True}, {"return": 1}]})
    job = await node.queue("q").add("slow")
    await worker.until("active", jobId=job["id"])

    assert await node.queue("q").state(job["id"]) == "active"
    await worker.release(job["id"])
    await worker.until("completed", jobId=job["id"])


async def test_what_node_refuses_is_an_error_here(node: Node) -> None:
    with pytest.raises(NodeError, match="Custom Id cannot be integers"):
        await node.queue("q").add("n", jobId="12")


async def test_a_request_that_is_not_answered_is_told_of(node: Node) -> None:
    events = await node.events("q")

    with pytest.raises(AssertionError, match="did not answer until"):
        await events.until("completed", deadline=0.1)


async def test_a_killed_node_leaves_its_job_behind(node: Node, another_node: Callable[[], Driver]) -> None:
    other = another_node()
    worker = await Node(other).worker("q", {"slow": [{"hold": True}]}, lockDuration=60_000)
    job = await node.queue("q").add("slow")
    await worker.until("active", jobId=job["id"])

    other.kill()

    assert await node.queue("q").state(job["id"]) == "active"


async def test_the_board_shows_what_node_did(node: Node) -> None:
    worker = await node.worker("q", name="n1")
    job = await node.queue("q").add("echo", {"a": 1})
    await worker.until("completed", jobId=job["id"])

    (queue,) = (await node.board("q", "/api/queues", query={"activeQueue": "q"}))["queues"]

    assert queue["counts"]["completed"] == 1
    assert [shown["processedBy"] for shown in queue["jobs"]] == ["n1"]
