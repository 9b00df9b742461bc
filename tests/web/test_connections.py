"""Whoever holds connections or requests open keeps neither the probes nor other addresses from being answered."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.access import ANYONE_MAY_ACT
from toril import App
from toril.runtime.clock import SYSTEM
from toril.supervisor import Listen
from toril.supervisor.probes import Probes
from toril.web.guard import GuardOptions
from toril.web.server import HttpServer, StoreWatch
from toril.web.site import Site

HEAD = b"GET %s HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n\r\n"
QUEUES = b"/api/v1/queues"
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """No connection is cut off for its age, however slow this machine is."""
    monkeypatch.setattr("toril.web.server._HEAD", 120.0)
    monkeypatch.setattr("toril.supervisor.probes._HEAD", 120.0)


@asynccontextmanager
async def with_pages() -> AsyncIterator[tuple[int, App]]:
    """As `toril run` and `toril dashboard` serve it."""
    app = App("memory://")
    app.queue("email")
    site = Site(app, GuardOptions(access=ANYONE_MAY_ACT), SYSTEM, probe=StoreWatch(app, SYSTEM).probe)
    server = HttpServer(site, "127.0.0.1", 0)
    try:
        yield await server.start(), app
    finally:
        await server.close()


@asynccontextmanager
async def with_probes_alone() -> AsyncIterator[tuple[int, None]]:
    """As `toril run` serves it where the extra is not installed."""
    probes = Probes(Listen("127.0.0.1", 0), list, dict)
    try:
        yield await probes.start(), None
    finally:
        await probes.close()


async def opened(port: int, many: int, address: str = "127.0.0.1") -> list[Streams]:
    """Connections of an address of this machine that say nothing, in the order in which they came."""
    return [await asyncio.open_connection("127.0.0.1", port, local_addr=(address, 0)) for _ in range(many)]


async def asked(streams: Streams, path: bytes) -> int:
    """The status that it answers with; 0 if it was cut off."""
    reader, writer = streams
    try:
        writer.write(HEAD % path)
        async with asyncio.timeout(60):
            return int((await reader.readline() or b"- 0").split(b" ")[1])
    except ConnectionError:
        return 0
    finally:
        writer.close()


@pytest.mark.covers("F129")
@pytest.mark.parametrize("serve", [with_pages, with_probes_alone])
@pytest.mark.parametrize("silent", [160, 400])
async def test_connections_that_say_nothing_do_not_silence_the_probes(serve: Any, silent: int) -> None:
    async with serve() as (port, _):
        idle = await opened(port, silent)
        answers = [await asked(each, b"/livez") for each in await opened(port, 20)]
        for _, writer in idle:
            writer.close()

    assert answers == [200] * 20


@pytest.mark.parametrize("serve", [with_pages, with_probes_alone])
async def test_the_connections_of_one_address_do_not_displace_those_of_another(serve: Any) -> None:
    async with serve() as (port, _):
        (first,) = await opened(port, 1, "127.0.0.2")
        idle = await opened(port, 400)
        answers = [await asked(each, b"/livez") for each in (first, idle[0], idle[-1])]
        for _, writer in idle:
            writer.close()

    assert answers == [200, 0, 200], "of the many, the one that was silent for longest is cut off"


async def test_requests_are_bounded_by_address_and_probes_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    async with with_pages() as (port, app):
        arrived, go_on, real = asyncio.Semaphore(0), asyncio.Event(), app.store.queues

        async def slow() -> Any:
            arrived.release()
            await go_on.wait()
            return await real()

        monkeypatch.setattr(app.store, "queues", slow)
        held = [asyncio.create_task(asked(each, QUEUES)) for each in await opened(port, 96)]
        for _ in held:
            await arrived.acquire()
        (one, two), (other,) = await opened(port, 2), await opened(port, 1, "127.0.0.2")
        refused, probe = await asked(one, QUEUES), await asked(two, b"/livez")
        elsewhere = asyncio.create_task(asked(other, QUEUES))
        await arrived.acquire()
        go_on.set()
        answers = await asyncio.gather(*held, elsewhere)
        (after,) = await opened(port, 1)

        assert (refused, probe, await asked(after, QUEUES)) == (503, 200, 200)
        assert answers == [200] * 97
