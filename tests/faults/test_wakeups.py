"""The word that there is a job, or a result, is lost on its way: nobody waits for long, and nobody stops listening."""

import asyncio
import logging
import socket
import time
from collections.abc import Callable, Iterator

import pytest

from tests.conformance.jobs import claim, settle
from tests.faults.proxy import proxied
from tests.faults.test_redis_counts import commands
from tests.servers import RedisServer
from toril import App, JobContext
from toril.engines.redis import connect
from toril.model import Completed, NewJob
from toril.worker.loop import Phase

MARKER = "bull:q:marker"


@pytest.fixture
def server() -> Iterator[RedisServer]:
    server = RedisServer().start()
    yield server
    server.stop()


async def until(what: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not what():  # noqa: ASYNC110 - the server has no event
            await asyncio.sleep(0.02)


def waiting_for_markers(server: RedisServer) -> int:
    return server.clients().count("cmd=bzpopmin")


def frozen_reader(server: RedisServer) -> socket.socket:
    """A worker that waits for the next marker, and never reads it."""
    reader = socket.create_connection(("127.0.0.1", server.port))
    reader.sendall(f"BZPOPMIN {MARKER} 0\r\n".encode())
    return reader


@pytest.mark.covers("G4", "F54")
async def test_a_wake_up_that_a_frozen_worker_swallowed_costs_five_seconds(server: RedisServer) -> None:
    app, ran = App(server.url), asyncio.Queue[float]()

    async def handler(ctx: JobContext[float]) -> None:
        ran.put_nowait(time.monotonic() - ctx.data)

    queue = app.queue("q", {"n": handler})
    async with app:
        with frozen_reader(server):
            await until(lambda: waiting_for_markers(server) == 1)
            working = asyncio.create_task(app.run())
            await until(lambda: waiting_for_markers(server) == 2)
            await queue.add("n", time.monotonic())
            async with asyncio.timeout(60):
                late = await ran.get()
        app.stop()
        assert await working == 0

    print(f"found after {late:.1f} s")
    assert late < 10  # the bound, and as much again for a busy machine; it was 16 to 24


@pytest.mark.covers("F54")
@pytest.mark.parametrize("option", ["delay", "priority", "group"])
async def test_jobs_of_all_kinds_are_found_without_their_marker(server: RedisServer, option: str) -> None:
    engine = connect(server.url)
    await engine.open()
    jobs = {"delay": NewJob(name="n", delay=500), "priority": NewJob(name="n", priority=3),
            "group": NewJob(name="n", group="g")}  # fmt: skip
    assert await engine._ready([MARKER]) == []
    await engine.add("q", [jobs[option]])
    if option == "delay":
        assert await engine._ready([MARKER]) == []
    server.tell("DEL", MARKER)

    async with asyncio.timeout(60):
        assert await engine.wait(["q", ":w"], timeout=120_000) == {"q"}
    assert len((await claim(engine)).jobs) == 1
    assert await engine._ready([MARKER]) == []
    await engine.close()


@pytest.mark.covers("F54", "F56")
async def test_a_marker_that_cannot_be_put_back_does_not_end_the_waiting(
    server: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    engine = connect(server.url)
    await engine.open()
    assert await engine.wait(["q"], timeout=100) == set()
    await until(lambda: waiting_for_markers(server) == 1)  # though nobody here waits for what it may bring
    server.tell("CONFIG", "SET", "maxmemory", "1")
    server.tell("EVAL", "#!lua flags=allow-oom\nreturn redis.call('ZADD', KEYS[1], 0, '0')", "1", MARKER)
    await until(lambda: "could not put back a marker" in caplog.text)
    server.tell("CONFIG", "SET", "maxmemory", "0")

    waiting = asyncio.create_task(engine.wait(["q"], timeout=120_000))
    await until(lambda: waiting_for_markers(server) == 1)
    await engine.add("q", [NewJob(name="n")])

    async with asyncio.timeout(60):
        assert await waiting == {"q"}
    await engine.close()


def marked(server: RedisServer) -> bool:
    return server.tell("ZSCORE", MARKER, "0") == b"$1"


@pytest.mark.covers("F54")
async def test_a_store_that_is_closed_keeps_no_wake_up(server: RedisServer) -> None:
    """The server has handed the marker out, and the answer is still on its way when the store is closed."""
    other = connect(server.url)
    await other.open()
    async with proxied(server.port) as proxy:
        engine = connect(proxy.url)
        await engine.open()
        assert await engine.wait(["q"], timeout=100) == set()
        await until(lambda: waiting_for_markers(server) == 1)
        proxy.delay = 0.1
        await other.add("q", [NewJob(name="n")])
        assert not marked(server)

        await engine.close()

    assert marked(server)
    await other.close()


@pytest.mark.covers("F54")
@pytest.mark.parametrize("order", ["stop", "quiet"])
async def test_a_worker_that_takes_nothing_more_leaves_the_wake_ups_to_others(server: RedisServer, order: str) -> None:
    """It has a free slot, so it waited for the next job; then it is told to drain, and that job comes."""
    app, started, may_end = App(server.url), asyncio.Event(), asyncio.Event()

    async def handler(_: JobContext[None]) -> None:
        started.set()
        await may_end.wait()

    queue = app.queue("q", {"n": handler}, concurrency=2)
    async with app:
        working = asyncio.create_task(app.run(signals="leave"))
        await until(lambda: waiting_for_markers(server) == 1)
        await queue.add("n")
        await started.wait()
        await until(lambda: waiting_for_markers(server) == 1)
        if order == "stop":
            app.stop()
        else:
            (worker,) = await app.workers()
            await app.quiet_worker(worker.id)
            assert app._process is not None
            loop = app._process._workers[0]._loop
            await until(lambda: loop._phase is Phase.QUIET)
        await queue.add("n")

        await until(lambda: marked(server))

        may_end.set()
        if order == "quiet":
            app.stop()
        assert await working == 0


@pytest.mark.covers("F54")
async def test_waiting_goes_on_when_the_server_allows_it_again(
    server: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    """Who may not wait looks; what is wrong is said once."""
    server.tell("ACL", "SETUSER", "toril", "on", ">secret", "~*", "&*", "+@all", "-bzpopmin")
    engine = connect(server.url.replace("redis://", "redis://toril:secret@"))
    await engine.open()
    for _ in range(3):
        async with asyncio.timeout(60):
            assert await engine.wait(["q"], timeout=120_000) == {"q"}  # it may have missed something
    server.tell("ACL", "SETUSER", "toril", "+@all")

    async def wait() -> None:
        while not waiting_for_markers(server):
            await engine.wait(["q"], timeout=1_000)

    async with asyncio.timeout(60):
        await wait()
    assert caplog.text.count("lost the connection that waits for jobs") == 1
    await engine.close()


@pytest.mark.covers("F54")
async def test_results_come_where_the_server_refuses_to_tell_of_them(
    server: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    server.tell("ACL", "SETUSER", "toril", "on", ">secret", "~*", "resetchannels", "+@all")
    refused, worker = connect(server.url.replace("redis://", "redis://toril:secret@")), connect(server.url)
    for engine in (refused, worker):
        await engine.open()

    async def end_one() -> None:
        (added,) = await worker.add("q", [NewJob(name="n")])
        waiting = asyncio.create_task(refused.finished("q", [added.id], timeout=60_000))
        (job,) = (await claim(worker)).jobs
        await asyncio.sleep(0.1)
        await settle(worker, job.lease, Completed("1"))
        ((_, ended),) = [(each.id, each.ended) for each in await waiting]
        assert ended == Completed("1")

    with caplog.at_level(logging.WARNING, "toril"):
        for _ in range(2):
            await end_one()
        assert caplog.text.count("the server refuses bull:q:toril:ended") == 1
        server.tell("ACL", "SETUSER", "toril", "allchannels")
        await end_one()
        await until(lambda: "cmd=subscribe" in server.clients())
        await end_one()
    assert caplog.text.count("refuses") == 1
    for engine in (refused, worker):
        await engine.close()


@pytest.mark.covers("R183")
async def test_an_idle_worker_sends_a_command_every_two_seconds(server: RedisServer) -> None:
    app = App(server.url)

    async def handler(_: JobContext[int]) -> None:
        raise AssertionError("there is nothing to do")

    app.queue("q", {"n": handler})
    working = asyncio.create_task(app.run())
    await until(lambda: waiting_for_markers(server) == 1)
    before, began = commands(server), time.monotonic()

    await asyncio.sleep(30)

    after, took = commands(server), time.monotonic() - began
    sent = sum(after.get(name, 0) - before.get(name, 0) for name in ("evalsha", "eval", "bzpopmin"))
    app.stop()
    assert await working == 0
    print(f"{sent / took:.2f} commands a second")
    assert 3 <= sent <= took * 0.5 + 8  # the rounds of its start are among them
