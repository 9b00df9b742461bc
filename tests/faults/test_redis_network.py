"""The Redis engine when scripts are forgotten, connections die, links are slow and answers are lost: no error reaches
the user, nothing is lost, nothing is done twice."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, suppress

import pytest

from tests.faults.proxy import proxied
from tests.servers import RedisServer
from toril import App, JobContext
from toril.engines.redis import RedisEngine, connect
from toril.model import (
    KEEP_ALL,
    Call,
    Claim,
    Completed,
    JobOptions,
    LogLine,
    NewJob,
    Pause,
    Resume,
    RunStatus,
    Settlement,
)
from toril.model.states import State
from toril.runtime.calls import Caller
from toril.runtime.clock import SYSTEM
from toril.store.engine import Store


@pytest.fixture
def server() -> Iterator[RedisServer]:
    server = RedisServer().start()
    yield server
    server.stop()


@asynccontextmanager
async def repeated(action: Callable[[], object], seconds: float) -> AsyncIterator[None]:
    """Do something again and again while something else goes on."""

    async def again() -> None:
        while True:
            await asyncio.sleep(seconds)
            await asyncio.get_running_loop().run_in_executor(None, action)

    task = asyncio.create_task(again())
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def worked(url: str, total: int, meanwhile: Callable[[], Awaitable[None]] | None = None) -> Counter[int]:
    """Add jobs one by one and in bulk while a worker runs them; how often each ran."""
    app, ran, done = App(url), Counter[int](), asyncio.Event()

    async def handler(ctx: JobContext[int]) -> None:
        ran[ctx.data] += 1
        if len(ran) == total:
            done.set()

    queue = app.queue("q", {"n": handler}, concurrency=20)
    async with app:
        working = asyncio.create_task(app.run())
        half = total // 2
        for number in range(half):
            await queue.add("n", number)
        await queue.add_many([("n", number) for number in range(half, total)])
        if meanwhile is not None:
            await meanwhile()
        async with asyncio.timeout(60):
            await done.wait()
        app.stop()
        assert await working == 0
        assert (await queue.counts()).active == 0
        runs = [run for page in [await queue.runs("completed", limit=1000)] for run in page.items]
        assert len(runs) == total
    return ran


@pytest.mark.covers("F56", "R193", "P17")
async def test_scripts_that_the_server_forgets_are_sent_again(server: RedisServer) -> None:
    async with repeated(lambda: server.tell("SCRIPT", "FLUSH"), 0.01):
        ran = await worked(server.url, 300)

    assert ran == Counter(range(300))


@pytest.mark.covers("F71")
async def test_killed_connections_are_made_anew(server: RedisServer) -> None:
    async with repeated(lambda: server.tell("CLIENT", "KILL", "TYPE", "normal"), 0.05):
        ran = await worked(server.url, 300)

    assert set(ran) == set(range(300))


@pytest.mark.covers("F52")
async def test_a_slow_link_only_makes_it_slow(server: RedisServer) -> None:
    async with proxied(server.port) as proxy:
        proxy.delay = 0.25  # each way: half a second a round trip
        ran = await worked(proxy.url, 4)

    assert ran == Counter(range(4))


@pytest.mark.covers("F44", "F57")
async def test_a_server_that_is_started_anew_is_found_again() -> None:
    server = RedisServer("--appendonly", "yes", "--appendfsync", "always", "--save", "").start()

    async def restart() -> None:
        loop = asyncio.get_running_loop()
        for _ in range(2):
            await loop.run_in_executor(None, server.kill)
            await asyncio.sleep(0.2)
            await loop.run_in_executor(None, server.start)

    try:
        ran = await worked(server.url, 100, restart)
    finally:
        server.stop()

    assert set(ran) == set(range(100))


@pytest.mark.covers("F58")
async def test_a_server_that_only_reads_for_a_while_is_waited_for(server: RedisServer) -> None:
    engine = connect(server.url)
    await engine.open()
    server.tell("REPLICAOF", "127.0.0.1", "1")
    adding = asyncio.create_task(engine.add("q", [NewJob(name="n")]))
    await asyncio.sleep(0.1)
    assert not adding.done()

    server.tell("REPLICAOF", "NO", "ONE")

    assert [added.id for added in await adding] == ["1"]
    assert (await engine.counts("q")).waiting == 1
    await engine.close()


async def life(engine: Store, caller: Caller) -> list[object]:
    """All that changes something, once; what it was answered."""
    told: list[object] = []
    claims = 0

    async def exchange(batch: list[Settlement], want: int) -> list[Settlement]:
        nonlocal claims
        claims += 1
        claim = Claim(want=want, token=f"token-{claims}", lease=60_000, worker="w")
        answer = await caller.send(lambda call: engine.exchange("q", batch, claim, call=call))
        told.append((answer.verdicts, [job.lease.id for job in answer.jobs]))
        return [Settlement(job.lease, Completed("1")) for job in answer.jobs]

    async def send(make: Callable[[Call], Awaitable[object]]) -> None:
        told.append(await caller.send(make))

    await send(
        lambda call: engine.add(
            "q", [NewJob(name="n", options=JobOptions(keep_completed=KEEP_ALL)) for _ in range(3)], call=call
        )
    )
    await send(lambda call: engine.add("q", [NewJob(name="x", id="x"), NewJob(name="d", delay=90_000)], call=call))
    held = await exchange([], 2)
    await send(lambda call: engine.report("q", [LogLine(held[0].lease, "line")], call=call))
    held = await exchange(held, 1)
    await exchange(held, 0)
    await send(lambda call: engine.retry("q", ["1"], call=call))
    await send(lambda call: engine.remove("q", ["2"], call=call))
    await send(lambda call: engine.promote("q", ["5"], call=call))
    await send(lambda call: engine.configure("q", [Pause(), Resume()], call=call))
    await send(lambda call: engine.drain("q", states=frozenset({State.WAITING}), call=call))
    told.append((await engine.logs("q", "1")).items)
    told.append(await engine.counts("q"))
    told.append(len((await engine.runs("q", RunStatus.COMPLETED)).items))
    return told


@pytest.mark.covers("F02", "F07", "F50", "F53")
async def test_whichever_answer_is_lost_nothing_is_done_twice(server: RedisServer) -> None:
    async with proxied(server.port) as proxy:

        async def lived(cut_at: int) -> list[object]:
            server.tell("FLUSHALL")
            engine = connect(proxy.url)
            await engine.open()
            proxy.answers = proxy.cuts = 0
            proxy.cut = lambda number: number == cut_at
            try:
                return await life(engine, Caller("c", SYSTEM))
            finally:
                await engine.close()

        await lived(-1)  # from here on the server knows the scripts
        expected = await lived(-1)
        answers = proxy.answers
        for cut_at in range(1, answers + 1):
            assert await lived(cut_at) == expected, cut_at
            assert proxy.cuts == 1

    assert answers > 10


async def test_who_waits_is_woken_again_after_the_connection_broke(server: RedisServer) -> None:
    engine = connect(server.url)
    await engine.open()
    waiter = asyncio.create_task(engine.wait(["q"], timeout=60_000))
    while "bzpopmin" not in server.clients():  # noqa: ASYNC110 - the server has no event for it
        await asyncio.sleep(0.01)

    server.tell("CLIENT", "KILL", "TYPE", "normal")
    async with asyncio.timeout(60):
        assert await waiter == {"q"}  # something may have been missed
    await engine.close()


async def test_an_answer_that_does_not_come_is_not_waited_for(server: RedisServer) -> None:
    engine = RedisEngine.from_url(server.url + "?timeout=0.3")
    await engine.open()
    server.tell("CLIENT", "PAUSE", "1000")

    assert not (await engine.health()).ok
    async with asyncio.timeout(20):
        while not (await engine.health()).ok:
            pass
    await engine.close()
