"""Whoever waits for a key is woken when it rings, whatever others do who are woken before."""

import asyncio
from typing import Any

import pytest

from toril.engines.redis.connection.connection import Connection
from toril.engines.redis.connection.marker_listener import MarkerListener
from toril.runtime.clock import yield_to_ready

pytestmark = pytest.mark.usefixtures("both_kinds_of_asyncio")


class NoServer:
    """A way on which no connection ever comes about."""

    async def connect(self, name: str | None = None) -> Connection:
        await asyncio.Event().wait()
        raise AssertionError(name)

    async def pause(self, seconds: float) -> None:
        raise AssertionError(seconds)


async def _asked(*_: Any) -> None: ...


async def _ready(_: list[str]) -> list[str]:
    return []


async def test_one_who_is_woken_may_end_the_wait_of_another() -> None:
    bell, heard = MarkerListener(NoServer(), "own", _asked, _ready), list[str]()
    waiting = list[asyncio.Task[None]]()

    async def wait(name: str) -> None:
        await bell.wait(["key"], 60)
        heard.append(name)
        for other in waiting:
            if other is not asyncio.current_task():
                other.cancel()

    waiting += [asyncio.create_task(wait(name)) for name in ("a", "b")]
    for _ in range(3):
        await yield_to_ready()
    rung = asyncio.Event()

    def ring() -> None:
        try:
            bell._heard(["key", "0", "0"])
        finally:
            rung.set()

    asyncio.get_running_loop().call_soon(ring)
    await rung.wait()

    await asyncio.gather(*waiting, return_exceptions=True)
    assert len(heard) == 1
    await bell.close()


async def test_a_key_that_rings_as_the_time_is_up_is_told() -> None:
    bell = MarkerListener(NoServer(), "own", _asked, _ready)
    waiting = asyncio.create_task(bell.wait(["key"], 0))
    await yield_to_ready()

    assert bell._ring("key")

    assert await waiting == {"key"}
    await bell.close()
