"""The connection that callers share, and its end."""

import asyncio

import pytest

from toril.engines.redis.connection.connection import Connection
from toril.engines.redis.connection.pipeline import NotSent, Pipeline

pytestmark = pytest.mark.usefixtures("both_kinds_of_asyncio")


class _Counted(Connection):
    """A connection that tells what was done with it."""

    sent = dropped = 0

    def send(self, *_: object) -> None:
        self.sent += 1

    def drop(self) -> None:
        self.dropped += 1


class Slow:
    """A way on which the connection comes when the test lets it."""

    def __init__(self) -> None:
        self.asked, self.there = asyncio.Event(), asyncio.Event()
        self.made = _Counted()

    async def connect(self, _name: str | None = None) -> Connection:
        self.asked.set()
        await self.there.wait()
        return self.made

    async def pause(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


async def test_what_is_closed_while_it_connects_sends_nothing_and_keeps_no_connection() -> None:
    way = Slow()
    link = Pipeline(way)
    asking = asyncio.create_task(link.ask("PING"))
    await way.asked.wait()

    await link.close()
    way.there.set()

    async with asyncio.timeout(60):
        with pytest.raises(NotSent, match="closed"):
            await asking
    assert (way.made.sent, way.made.dropped) == (0, 1)
