"""Sentinels that do not agree: those that are outvoted are not believed."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress

import pytest

from toril.engines.redis.connection import topology as way
from toril.engines.redis.connection.errors import RedisFault
from toril.engines.redis.connection.topology import Topology
from toril.engines.redis.connection.url import Place, parse


class Fake:
    """Says as a Sentinel where the server is, and as a server that it takes writes."""

    names: Place
    here: Place

    def __init__(self) -> None:
        self.looks = asyncio.Semaphore(0)
        self.tasks: set[asyncio.Task[None] | None] = set()

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.tasks.add(asyncio.current_task())
        with suppress(OSError):
            while head := await reader.readline():
                words = [(await reader.readline(), await reader.readline())[1].strip() for _ in range(int(head[1:]))]
                writer.write(self.answer(words[0]))
        writer.close()

    def answer(self, command: bytes) -> bytes:
        match command:
            case b"INFO":
                return b"$11\r\nrole:master\r\n"
            case b"SENTINEL":
                self.looks.release()
                return f"*2\r\n$9\r\n127.0.0.1\r\n${len(str(self.names[1]))}\r\n{self.names[1]}\r\n".encode()
            case _:
                return b"+OK\r\n"


@asynccontextmanager
async def fakes(count: int) -> AsyncIterator[list[Fake]]:
    made = [Fake() for _ in range(count)]
    async with AsyncExitStack() as stack:
        for fake in made:
            server = await stack.enter_async_context(await asyncio.start_server(fake.accept, "127.0.0.1", 0))
            fake.here = server.sockets[0].getsockname()[:2]
        yield made
    await asyncio.wait([task for fake in made for task in fake.tasks if task is not None])


def way_by(sentinels: list[Fake]) -> Topology:
    return Topology(parse(f"redis+sentinel://{','.join(f'127.0.0.1:{each.here[1]}' for each in sentinels)}/toril/0"))


async def test_a_sentinel_that_is_behind_is_outvoted_at_the_first_connection_and_after_a_cut(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(way, "CHECK", 0.05)
    async with fakes(5) as (old, new, *sentinels):
        behind, *others = sentinels
        for each in sentinels:
            each.names = old.here
        road = way_by(sentinels)
        line = await road.connect()
        assert road._place == old.here

        for each in others:
            each.names = new.here
        async with asyncio.timeout(30):
            with pytest.raises((RedisFault, OSError)):
                await line.receive()  # until it is cut
        newcomer = way_by(sentinels)
        lines = [line, await road.connect(), await newcomer.connect()]

        assert behind.names == old.here
        assert road._place == newcomer._place == new.here
        await road.close()
        await newcomer.close()
        for each_line in lines:
            await each_line.close()


async def test_where_as_many_sentinels_name_another_server_the_connection_is_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(way, "CHECK", 0.05)
    async with fakes(4) as (old, new, one, two):
        one.names = two.names = old.here
        road = way_by([one, two])
        line = await road.connect()
        one.names = new.here
        one.looks = asyncio.Semaphore(0)

        async with asyncio.timeout(30):
            for _ in range(3):  # it looks more than once
                await one.looks.acquire()
        facts = await line.ask("INFO", "replication")

        assert facts == "role:master"
        await road.close()
        await line.close()
