"""The wire of a torture: what it passes on is whole; what it swallows, it never passes on later."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from toril.torture.faults import Proxy
from toril.torture.plan import FaultType, PlannedFault


@asynccontextmanager
async def echoing() -> AsyncIterator[tuple[Proxy, list[bytes]]]:
    """A server that answers each line with itself, and what it heard."""
    heard: list[bytes] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := await reader.readline():
            heard.append(line)
            writer.write(line)
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    proxy = await Proxy("127.0.0.1", server.sockets[0].getsockname()[1]).start()
    try:
        yield proxy, heard
    finally:
        await proxy.stop()
        server.close()


async def said(proxy: Proxy, line: bytes, timeout: float = 5) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
    writer.write(line)
    try:
        return await asyncio.wait_for(reader.readline(), timeout)
    finally:
        writer.transport.abort()


async def test_a_wire_passes_everything_on() -> None:
    async with echoing() as (proxy, _):
        proxy.delay = 0.01

        assert [await said(proxy, b"%d\n" % n) for n in range(5)] == [b"%d\n" % n for n in range(5)]


async def test_a_lost_reply_is_of_something_that_was_done() -> None:
    async with echoing() as (proxy, heard):
        proxy.cut_replies(1)

        with pytest.raises(ConnectionResetError):
            await said(proxy, b"a\n")
        assert heard == [b"a\n"]
        assert await said(proxy, b"b\n") == b"b\n"


async def test_a_silent_wire_passes_nothing_on_and_is_reset_when_it_heals() -> None:
    async with echoing() as (proxy, heard):
        reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
        writer.write(b"first\n")
        assert await reader.readline() == b"first\n"
        proxy.silent = True
        writer.write(b"swallowed\n")
        await asyncio.sleep(0.05)

        proxy.restore()

        with pytest.raises(ConnectionResetError):
            await reader.readline()
        assert heard == [b"first\n"]
        assert await said(proxy, b"after\n") == b"after\n"
        writer.transport.abort()


async def test_the_first_blow_to_end_ends_those_beside_it() -> None:
    async with echoing() as (proxy, _):
        long = asyncio.create_task(proxy.inject(PlannedFault(0, FaultType.BLACKHOLE, 0, 3600)))
        await asyncio.sleep(0)
        assert proxy.silent

        await proxy.inject(PlannedFault(0, FaultType.DELAY, 0, 0.01))

        await asyncio.wait_for(long, 60)
        assert not proxy.silent
        assert await said(proxy, b"after\n", timeout=60) == b"after\n"
