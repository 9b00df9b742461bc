"""A Redis that is emptied, busy, full of others' work, or cannot write: the worker lives, and nothing is done twice."""

import asyncio
import os
import random
import shutil
import signal
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.faults.mounts import make_image, mounted
from tests.faults.proxy import proxied
from tests.proof import prove
from tests.servers import RedisServer
from toril import App, EngineUnavailable, JobContext
from toril.engines.redis import RedisEngine, connect
from toril.model import Claim, NewJob
from toril.model.states import State

SHARED = Path("/dev/shm")


@pytest.fixture
def server() -> Iterator[RedisServer]:
    server = RedisServer().start()
    yield server
    server.stop()


@pytest.mark.covers("F51")
async def test_calls_cancelled_at_random_leave_nobody_the_answer_of_another(server: RedisServer) -> None:
    engine, chance, right = connect(server.url), random.Random(51), 0
    await engine.open()
    ids = [added.id for added in await engine.add("q", [NewJob(name=f"n{number}") for number in range(1, 101)])]

    async def look(wanted: str) -> None:
        nonlocal right
        (found,) = await engine.jobs("q", [wanted])
        assert found is not None
        assert (found.id, found.name) == (wanted, f"n{wanted}")
        right += 1

    for _ in range(60):
        looks = [asyncio.create_task(look(chance.choice(ids))) for _ in range(50)]
        await asyncio.sleep(chance.random() * 0.002)
        for task in chance.sample(looks, 20):
            task.cancel()
        for ended in await asyncio.gather(*looks, return_exceptions=True):
            assert ended is None or isinstance(ended, asyncio.CancelledError)

    assert right >= 60 * 30
    await engine.close()


@pytest.mark.covers("F54", "F48", "R125")
async def test_a_worker_behind_a_wire_that_passes_nothing_loses_its_job_to_another(server: RedisServer) -> None:
    ran: list[str] = []
    here, there, done = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def cut_off(ctx: JobContext[None]) -> str:
        here.set()
        with suppress(asyncio.CancelledError):
            await there.wait()
        ran.append("cut off")
        return "cut off"

    async def beside(ctx: JobContext[None]) -> str:
        ran.append("beside")
        done.set()
        return "beside"

    async with proxied(server.port) as wire:
        first = App(wire.url + "?timeout=0.5")
        first.queue("q", {"n": cut_off}, lease=1, renew=0.2)
        second = App(server.url)
        queue = second.queue("q", {"n": beside}, lease=1, renew=0.2)
        async with first, second:
            working = asyncio.create_task(first.run())
            job = await queue.add("n", None, result_ttl=60)
            await here.wait()
            wire.hold = True
            also = asyncio.create_task(second.run())
            async with asyncio.timeout(30):
                await done.wait()
            wire.hold = False
            there.set()

            assert await job.result(30) == "beside"

            first.stop()
            second.stop()
            assert await working == 0
            assert await also == 0
            runs = (await queue.runs("completed")).items
    assert [run.id for run in runs] == [job.id], "the one that was cut off has finished nothing"


@pytest.mark.covers("F68")
async def test_a_server_that_cannot_write_to_its_disk_takes_no_jobs_and_goes_on_when_it_can() -> None:
    server = RedisServer("--save", "3600 100000", "--dbfilename", "dump.rdb").start()
    (server.folder / "dump.rdb").mkdir()  # the snapshot cannot be put there
    engine = connect(server.url)
    await engine.open()
    await engine.add("q", [NewJob(name="n")])
    while server.facts("persistence").get("rdb_last_bgsave_status") != "err":
        server.tell("BGSAVE")
        await asyncio.sleep(0.05)

    adding = asyncio.create_task(engine.add("q", [NewJob(name="n")]))
    with pytest.raises((EngineUnavailable, TimeoutError)):
        await asyncio.wait_for(asyncio.shield(adding), 1)
    health = await engine.health()
    assert not health.ok
    assert "MISCONF" in str(health)

    (server.folder / "dump.rdb").rmdir()
    while server.facts("persistence").get("rdb_last_bgsave_status") != "ok":
        server.tell("BGSAVE")
        await asyncio.sleep(0.05)
    with suppress(EngineUnavailable):
        await adding
    await engine.add("q", [NewJob(name="n")])
    assert (await engine.counts("q")).waiting >= 2
    await engine.close()
    server.stop()


@pytest.mark.covers("F75")
async def test_a_server_that_is_emptied_leaves_the_workers_at_work(
    server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("toril.worker.maintenance._HEARTBEAT", 0.5)
    app, started, go = App(server.url), asyncio.Event(), asyncio.Event()
    ran: list[str] = []

    async def work(ctx: JobContext[str]) -> None:
        started.set()
        await go.wait()
        ran.append(ctx.data)

    queue = app.queue("q", {"n": work}, lease=1, renew=0.2)
    queue.schedule("tick", "n", "by time", every=3600)
    async with app:
        working = asyncio.create_task(app.run())
        await queue.add("n", "before")
        await started.wait()
        server.tell("FLUSHALL")
        go.set()

        job = await queue.add("n", "after", result_ttl=60)

        await job.result(30)
        async with asyncio.timeout(60):
            while not (await queue.schedules.list()).items:  # noqa: ASYNC110 - the worker's next beat tells it
                await asyncio.sleep(0.1)
        app.stop()
        assert await working == 0
    assert ran.count("after") == 1


@pytest.mark.covers("F77")
async def test_a_server_that_is_busy_with_anothers_script_is_waited_for(server: RedisServer) -> None:
    server.tell("CONFIG", "SET", "busy-reply-threshold", "50")
    engine = connect(server.url)
    await engine.open()
    loop = asyncio.get_running_loop()
    spin = "local t = redis.call('TIME') while redis.call('TIME')[1] - t[1] < 2 do end return 1"
    spinning = loop.run_in_executor(None, server.tell, "EVAL", spin, "0")
    while True:
        if (await loop.run_in_executor(None, server.tell, "PING")).startswith(b"-BUSY"):
            break

    assert [added.id for added in await engine.add("q", [NewJob(name="n")])] == ["1"]

    assert await spinning == b":1", "nobody has killed the script"
    assert (await engine.counts("q")).waiting == 1
    await engine.close()


@pytest.mark.covers("F80")
async def test_many_calls_at_once_share_one_connection(server: RedisServer) -> None:
    engine = connect(server.url)
    await engine.open()

    await asyncio.gather(*(engine.add("q", [NewJob(name="n")]) for _ in range(500)))

    assert server.clients().count("\n") <= 3
    assert (await engine.counts("q")).waiting == 500
    await engine.close()


@pytest.mark.covers("F82")
async def test_more_running_jobs_than_a_script_can_unpack_are_given_back(server: RedisServer) -> None:
    engine, total = RedisEngine.from_url(server.url), 9_000
    await engine.open()
    for _ in range(total // 1000):
        await engine.add("q", [NewJob(name="n")] * 1000)
    for number in range(total // 100):
        await engine.exchange("q", [], Claim(want=100, token=f"t{number}", lease=1, worker="w"))
    assert (await engine.counts("q")).active == total

    back = 0
    async with asyncio.timeout(60):
        while back < total:
            back += len((await engine.recover("q")).returned)

    assert (await engine.counts("q")).active == 0
    assert len((await engine.page("q", State.WAITING, limit=1000)).items) == 1000
    await engine.close()


@pytest.mark.covers("F69", "G1")
async def test_a_power_cut_takes_nothing_from_a_server_that_always_syncs(rounds: int) -> None:
    cuts = int(os.environ.get("TORIL_POWER_CUTS", "0")) or max(3, rounds // 20)
    chance, lost, told = random.Random(69), 0, set[str]()
    with tempfile.TemporaryDirectory(dir=SHARED if SHARED.is_dir() else None) as name:  # noqa: ASYNC240
        memory = Path(name)
        make_image(memory / "disk.img", 48)
        with mounted(memory / "disk", "-o", "loop", str(memory / "disk.img")) as disk:
            server = RedisServer("--appendonly", "yes", "--appendfsync", "always", "--save", "", "--dir", str(disk))
            engine = connect(server.start().url)
            await engine.open()
            for _ in range(cuts):
                adding = asyncio.create_task(_add_for_ever(engine, told))
                await asyncio.sleep(0.05 + chance.random() * 0.2)
                server.signal(signal.SIGSTOP)
                known = set(told)
                shutil.copyfile(memory / "disk.img", memory / "cut.img")
                server.signal(signal.SIGCONT)
                adding.cancel()
                await asyncio.gather(adding, return_exceptions=True)
                lost += len(known - await _after_the_cut(memory))
            await engine.close()
            server.stop()
    print(f"{cuts} cuts, appendfsync always: {len(told)} acknowledged, {lost} lost")
    prove("T5", cuts=cuts, lost=lost)
    assert told
    assert lost == 0


async def _add_for_ever(engine: RedisEngine, told: set[str]) -> None:
    while True:
        told.update(added.id for added in await engine.add("q", [NewJob(name="n")] * 5))


async def _after_the_cut(memory: Path) -> set[str]:
    """The jobs that a server finds on a copy of the disk."""
    with mounted(memory / "after", "-o", "loop", str(memory / "cut.img")) as disk:
        server = RedisServer("--appendonly", "yes", "--save", "", "--dir", str(disk)).start()
        engine = connect(server.url)
        await engine.open()
        found: set[str] = set()
        cursor: str | None = None
        while True:
            page = await engine.page("q", State.WAITING, limit=1000, cursor=cursor)
            found |= {job.id for job in page.items}
            cursor = page.cursor
            if cursor is None:
                break
        await engine.close()
        server.stop()
        return found


@pytest.mark.covers("P10", "X09")
async def test_idle_queues_do_not_hold_up_another(server: RedisServer) -> None:
    app, idle = App(server.url), 20

    async def nothing(ctx: JobContext[None]) -> str:
        return "done"

    queues = [app.queue(f"q{number}", {"n": nothing}, concurrency=2) for number in range(idle + 1)]
    async with app:
        working = asyncio.create_task(app.run())
        await queues[0].add_and_wait("n", None, timeout=10)
        for queue in queues:
            assert await queue.add_and_wait("n", None, timeout=60) == "done"
        app.stop()
        assert await working == 0


@pytest.mark.covers("F47")
async def test_a_hundred_that_lost_their_server_come_back_without_overrunning_it() -> None:
    server = RedisServer("--appendonly", "no", "--save", "", "--maxclients", "260").start()
    engines = [connect(server.url) for _ in range(100)]
    for engine in engines:
        await engine.open()
    waits = [asyncio.create_task(engine.wait(["q"], timeout=60_000)) for engine in engines]
    while server.clients().count("\n") < 200:  # noqa: ASYNC110 - each has a line to ask and one to listen
        await asyncio.sleep(0.02)
    loop = asyncio.get_running_loop()
    await loop.run_in_executor(None, server.kill)
    await asyncio.sleep(0.5)
    await loop.run_in_executor(None, server.start)

    async with asyncio.timeout(60):
        while not all([(await engine.health()).ok for engine in engines]):
            pass

    assert server.facts("stats")["rejected_connections"] == "0"
    for engine in engines:
        await engine.close()
    await asyncio.gather(*waits, return_exceptions=True)
    server.stop()


@pytest.mark.covers("F49")
async def test_what_may_not_be_sent_twice_is_sent_once(server: RedisServer) -> None:
    async with proxied(server.port) as wire:
        engine = connect(wire.url)
        await engine.open()
        await engine.add("q", [NewJob(name="n")])  # so that the server knows the script
        wire.cut = lambda _: True

        with pytest.raises(EngineUnavailable):
            await engine.add("q", [NewJob(name="n")])  # without a number by which the store would know it again

        wire.cut = lambda _: False
        assert (await engine.counts("q")).waiting == 2
        await engine.close()
