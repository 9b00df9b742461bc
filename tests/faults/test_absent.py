"""A worker that starts before its Redis waits for it. Where waiting would not help it says so at once."""

import asyncio
import logging
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.faults.fleet import SLOW, fleet
from tests.faults.nursery import until
from tests.servers import RedisServer
from toril import App, EngineRefused, EngineUnavailable, EngineUnusable, JobContext
from toril.engines.sql.schedules import SqlSchedules
from toril.engines.sqlite.engine import SqliteEngine
from toril.store.connect import open_with_patience
from toril.testing import ManualClock


@pytest.fixture
def server() -> Iterator[RedisServer]:
    server = RedisServer()
    yield server
    server.stop()


def worker(url: str) -> tuple[App, asyncio.Event]:
    app, ran = App(url), asyncio.Event()

    async def handler(ctx: JobContext[int]) -> None:
        ran.set()

    app.queue("q", {"n": handler})
    return app, ran


def booting(folder: Path) -> tuple[App, asyncio.Event]:
    """One whose boot has something to declare and something to set."""
    app, ran = worker(f"sqlite:///{folder / 'q.db'}")
    app.queue("bounded", {"n": _nothing}, max_waiting=10)
    return app, ran


async def _nothing(ctx: JobContext[int]) -> None: ...


@pytest.mark.covers("F45")
async def test_a_worker_waits_for_its_redis(server: RedisServer, caplog: pytest.LogCaptureFixture) -> None:
    app, ran = worker(server.url + "?timeout=0.1")
    with caplog.at_level(logging.INFO, "toril"):
        working = asyncio.create_task(app.run())
        async with asyncio.timeout(30):
            while "waiting for the store" not in caplog.text:  # noqa: ASYNC110 - the log has no event
                await asyncio.sleep(0.01)
        await asyncio.get_running_loop().run_in_executor(None, server.start)
        producer = App(server.url)
        async with producer, asyncio.timeout(30):
            await producer.queue("q").add("n", 1)
            await ran.wait()
        app.stop()
        assert await working == 0

    assert caplog.text.count("waiting for the store") == 1
    assert caplog.text.count("connected to the store") == 1
    assert f"127.0.0.1:{server.port}" in caplog.text


@pytest.mark.covers("F45")
async def test_who_waits_can_be_stopped(server: RedisServer, caplog: pytest.LogCaptureFixture) -> None:
    app, _ = worker(server.url)
    working = asyncio.create_task(app.run())
    await asyncio.sleep(0.1)

    app.stop()

    async with asyncio.timeout(60):
        assert await working == 0


@pytest.mark.covers("F45")
@pytest.mark.parametrize("broken", [(SqlSchedules, "sync"), (SqliteEngine, "configure")])
async def test_a_store_that_goes_away_during_the_boot_is_waited_for(
    broken: tuple[type, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    app, ran = booting(tmp_path)
    really, away = getattr(*broken), iter((True, True))

    async def call(*args: Any, **options: Any) -> Any:
        if next(away, False):
            raise EngineUnavailable("it is away")
        return await really(*args, **options)

    monkeypatch.setattr(*broken, call)
    working = asyncio.create_task(app.run())
    async with app, asyncio.timeout(60):
        await app.queues["q"].add("n", 1)
        await ran.wait()

    app.stop()
    assert await working == 0
    assert next(away, None) is None


@pytest.mark.covers("F45")
@pytest.mark.parametrize("broken", [(SqlSchedules, "sync"), (SqliteEngine, "configure")])
async def test_who_waits_for_it_during_the_boot_can_be_stopped(
    broken: tuple[type, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    app, ran = booting(tmp_path)
    tried = asyncio.Event()

    async def call(*_: Any, **__: Any) -> None:
        tried.set()
        raise EngineUnavailable("it is away")

    monkeypatch.setattr(*broken, call)
    working = asyncio.create_task(app.run())
    async with asyncio.timeout(60):
        await tried.wait()
        app.stop()

        assert await working == 0
    assert not ran.is_set()


@pytest.mark.covers("F45")
async def test_it_is_told_seldom(caplog: pytest.LogCaptureFixture) -> None:
    clock, tries, stopped = ManualClock(), 0, asyncio.Event()

    async def opening() -> None:
        nonlocal tries
        tries += 1
        clock.advance(1_000)
        if tries == 121:
            stopped.set()
        raise EngineUnavailable("not there")

    with caplog.at_level(logging.WARNING, "toril"):
        waiting = asyncio.create_task(open_with_patience(opening, clock, stopped.wait))
        while not waiting.done():
            clock.advance(5_000)
            await asyncio.sleep(0)

    assert await waiting is False
    assert caplog.text.count("waiting for the store") <= clock.monotonic() // 30 + 1


@pytest.mark.covers("F45", "R245")
@pytest.mark.parametrize("gone", ["killed", "frozen"])
async def test_an_idle_worker_whose_redis_is_gone_stops_at_once(
    server: RedisServer, gone: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has a claim under way, and nothing to hand in."""
    server.start()
    app, _ = worker(server.url)
    app.queue("another", {"n": _nothing})
    working = asyncio.create_task(app.run(grace=600))
    async with asyncio.timeout(60):
        while server.clients().count("cmd=bzpopmin") == 0:  # noqa: ASYNC110 - the server has no event
            await asyncio.sleep(0.01)
    server.signal(signal.SIGKILL if gone == "killed" else signal.SIGSTOP)
    claimed, exchange = asyncio.Event(), app.store.exchange

    async def noted(*args: Any, **options: Any) -> Any:
        claimed.set()
        return await exchange(*args, **options)

    monkeypatch.setattr(app.store, "exchange", noted)
    assert app._process is not None
    app._process.look_again()
    try:
        async with asyncio.timeout(60):
            await claimed.wait()
        app.stop()

        async with asyncio.timeout(60):  # a tenth of the grace
            assert await working == 0
    finally:
        server.signal(signal.SIGCONT)


@pytest.mark.thorough
@pytest.mark.covers("F45", "R245")
@pytest.mark.parametrize("gone", ["killed", "silent"])
def test_an_idle_run_whose_redis_is_gone_stops_at_once(server: RedisServer, gone: str, tmp_path: Path) -> None:
    """Its workers have claims under way: from a silent server, once the wait for news was over, which took 22 s."""
    server.start()
    with fleet(server.url, tmp_path, "--processes", "2", "--grace", "300") as run:
        run.until_up(2)
        server.signal(signal.SIGKILL if gone == "killed" else signal.SIGSTOP)
        try:
            until(
                lambda: run.said("the store does not answer", 4), "its workers miss it", timeout=2 * SLOW
            )  # each 10 s
            run.send(signal.SIGTERM)

            assert run.ended() == 0
        finally:
            server.signal(signal.SIGCONT)


@pytest.mark.covers("F45", "F72")
@pytest.mark.parametrize("wrong", ["a password", "not Redis", "evicting"])
async def test_what_waiting_does_not_mend_is_an_error_at_once(server: RedisServer, wrong: str) -> None:
    server.start()
    url = server.url
    if wrong == "a password":
        url = url.replace("redis://", "redis://:wrong@")
        server.tell("CONFIG", "SET", "requirepass", "right")
    if wrong == "evicting":
        server.tell("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
    other = await asyncio.start_server(_speak_http, "127.0.0.1", 0)
    if wrong == "not Redis":
        url = f"redis://127.0.0.1:{other.sockets[0].getsockname()[1]}"
    app, _ = worker(url)

    async with asyncio.timeout(60):  # who waited for it to be mended would wait for ever
        with pytest.raises((EngineRefused, EngineUnusable)):
            await app.run()
    other.close()
    await other.wait_closed()


async def _speak_http(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read(10)
    writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
    writer.close()
