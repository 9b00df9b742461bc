"""What a dead worker leaves behind is taken up by the other kind."""

import asyncio
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from tests.interop.node import Driver, Node
from tests.interop.side import KEPT, Steps, Toril, running
from tests.servers import RedisServer
from toril import App

LOCK = 1000  # ms
PROGRAM = f"""
import asyncio, sys
from toril import App

app = App(sys.argv[1])

async def hold(ctx):
    print(ctx.job_id, flush=True)
    await asyncio.Event().wait()

kept = {{"keep_completed": True, "keep_failed": True}}
app.queue("q", {{"hold": hold}}, concurrency=5, lease={LOCK / 1000}, **kept)
asyncio.run(app.run())
"""


@asynccontextmanager
async def apart(server: RedisServer, program: str) -> AsyncIterator[asyncio.StreamReader]:
    """A worker in a process of its own, which is killed in the end. It tells the jobs that it starts."""
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", program, server.url, stdout=PIPE)
    assert process.stdout is not None
    try:
        async with asyncio.timeout(30):
            yield process.stdout
    finally:
        process.kill()
        await process.wait()
        process._transport.close()  # type: ignore[attr-defined]


async def killed_while_holding(server: RedisServer, program: str = PROGRAM) -> str:
    """The id of a job whose worker, one of Toril, was killed in the middle of it."""
    async with apart(server, program) as told:
        return (await told.readline()).decode().strip()


@pytest.mark.covers("F04", "R114")
async def test_toril_takes_up_what_a_dead_node_held(
    node: Node, toril: Toril, another_node: Callable[[], Driver]
) -> None:
    steps, events, other = Steps(), await node.events("q"), another_node()
    worker = await Node(other).worker("q", {"note": [{"hold": True}]}, lockDuration=LOCK)
    job = await node.queue("q").add("note", {"a": 1})
    await worker.until("active", jobId=job["id"])
    other.kill()

    async with toril.working("q", {"note": steps.note}, lease=LOCK / 1000):
        await events.until("completed", jobId=job["id"])

    found = await node.queue("q").job(job["id"])
    names = await events.names(job["id"])
    assert names == ["added", "waiting", "active", "waiting", "stalled", "active", "completed"]
    assert (found["stalledCounter"], found["attemptsMade"], found["attemptsStarted"]) == (1, 1, 2)
    assert steps.ran == [job["id"]]


async def test_node_takes_up_what_a_dead_toril_held(node: Node, toril: Toril, server: RedisServer) -> None:
    events = await node.events("q")
    job = await node.queue("q").add("hold", {"a": 1})
    assert await killed_while_holding(server) == job["id"]

    worker = await node.worker("q", {"hold": [{"echo": True}]}, stalledInterval=300, lockDuration=LOCK)
    (completed,) = await worker.until("completed", jobId=job["id"])
    await events.until("completed", jobId=job["id"])

    assert completed["result"] == {"a": 1}
    names = await events.names(job["id"])
    assert names == ["added", "waiting", "active", "waiting", "stalled", "active", "completed"]


async def test_a_job_lost_too_often_in_company_gets_one_run_alone(
    node: Node, toril: Toril, another_node: Callable[[], Driver]
) -> None:
    """Node would fail it; but whoever ran beside it may have brought the worker down."""
    steps, events, other = Steps(), await node.events("q"), another_node()
    worker = await Node(other).worker("q", {"note": [{"hold": True}]}, lockDuration=LOCK)
    job = await node.queue("q").add("note")
    await worker.until("active", jobId=job["id"])
    other.kill()
    await node.redis("HSET", f"bull:q:{job['id']}", "stc", 1)  # it has been lost once before

    async with toril.working("q", {"note": steps.note}, lease=LOCK / 1000):
        await events.until("completed", jobId=job["id"])

    assert (await node.queue("q").job(job["id"]))["stalledCounter"] == 2


async def test_node_fails_what_toril_lost_too_often(node: Node, toril: Toril, server: RedisServer) -> None:
    job = await node.queue("q").add("hold", attempts=5)
    await killed_while_holding(server)
    await node.redis("HSET", f"bull:q:{job['id']}", "stc", 1)

    worker = await node.worker("q", stalledInterval=300, lockDuration=LOCK)
    (failed,) = await worker.until("failed", jobId=job["id"])

    assert failed["message"] == "job stalled more than allowable limit"
    assert await worker.seen(event="active") == []


async def test_a_job_that_lives_is_left_alone_by_both(node: Node, toril: Toril) -> None:
    """Both hold a job for longer than its lock while the other looks for dead ones."""
    steps, events = Steps(), await node.events("q")
    async with toril.working("q", {"ours": steps.hold, "theirs": steps.hold}, lease=LOCK / 1000) as queue:
        ours = await queue.add("ours")
        await steps.started()
        options = {"lockDuration": LOCK, "stalledInterval": 300}
        worker = await node.worker("q", {"theirs": [{"hold": True}]}, **options)
        theirs = await queue.add("theirs")
        await worker.until("active", jobId=theirs.id)

        await asyncio.sleep(2.5 * LOCK / 1000)  # the time itself is what is tested: locks are renewed through it

        await worker.release(theirs.id)
        steps.let_go()
        await events.until("completed", times=2)

    assert await events.seen(event="stalled") == []
    assert await events.names(ours.id) == ["added", "waiting", "active", "completed"]


@pytest.mark.parametrize("priority", [0, 3])
async def test_a_job_given_back_by_toril_wakes_an_idle_node(node: Node, server: RedisServer, priority: int) -> None:
    """A worker that has to stop at once gives back what it could not finish, with no attempt spent."""
    steps, app = Steps(), App(server.url)
    queue = app.queue("q", {"n": steps.hold}, **KEPT)
    async with running(app):
        job = await queue.add("n", {"a": 1}, priority=priority)
        await steps.started()
        worker = await node.worker("q")
        app.stop()
        app.stop()
        await worker.until("completed", jobId=job.id)

    found = await node.queue("q").job(job.id)
    assert (found["attemptsMade"], found["stalledCounter"]) == (1, 0)
