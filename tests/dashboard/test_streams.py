"""Many open dashboards are read for by one reader."""

import asyncio

from tests.dashboard.guests import BROWSED
from tests.dashboard.stage import Stage
from tests.servers import RedisServer

pytestmark = BROWSED
_REQUEST = "GET /live?view={view} HTTP/1.1\r\nhost: 127.0.0.1\r\naccept: text/event-stream\r\n\r\n"


async def test_fifty_open_pages_add_at_most_one_connection_to_redis(
    redis_stage: Stage, redis_of_ours: RedisServer
) -> None:
    before = len(redis_of_ours.clients().splitlines())
    tabs = [await _open(redis_stage, view) for view in ("workers", "dead", "groups", "flows", "breakers") * 10]
    try:
        heads = [await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 60) for reader, _ in tabs]
        await asyncio.gather(*(asyncio.wait_for(reader.readuntil(b"\n\n"), 60) for reader, _ in tabs))
        during = len(redis_of_ours.clients().splitlines())
    finally:
        for _, writer in tabs:
            writer.close()

    assert all(head.startswith(b"HTTP/1.1 200") and b"text/event-stream" in head for head in heads)
    assert during <= before + 1


async def _open(stage: Stage, view: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection("127.0.0.1", stage.port)
    writer.write(_REQUEST.format(view=view).encode())
    return reader, writer
