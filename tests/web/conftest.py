"""A site that listens, and someone who asks."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from tests.access import ANYONE_MAY_ACT
from toril import App
from toril.web import site
from toril.web.server import HttpServer

TOKEN = "0123456789abcdef0123456789abcdef"


@dataclass
class Served:
    """A site under its address."""

    app: App
    port: int

    def client(self, **headers: str) -> httpx.AsyncClient:
        return httpx.AsyncClient(base_url=f"http://127.0.0.1:{self.port}/api/v1", headers=headers)

    async def raw(self, request: bytes, *, patience: float = 20.0) -> bytes:
        """The answer to these bytes, as far as it comes before the other side closes."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            writer.write(request)
            async with asyncio.timeout(patience):
                return await _read(reader)
        finally:
            writer.close()

    async def status(self, request: bytes) -> int:
        answer = await self.raw(request)
        return int(answer.split(b" ", 2)[1]) if answer.startswith(b"HTTP/1.1 ") else 0


async def _read(reader: asyncio.StreamReader) -> bytes:
    try:
        head = await reader.readuntil(b"\r\n\r\n")
        length = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
        return head + (await reader.readexactly(int(length[0].split(b":")[1])) if length else await reader.read())
    except (asyncio.IncompleteReadError, ConnectionError) as error:
        return getattr(error, "partial", b"")


Serve = Callable[..., Awaitable[Served]]


@asynccontextmanager
async def served(url: str = "memory://", *, redact: Any = None, **options: Any) -> AsyncIterator[Served]:
    app = App(url, redact=redact)
    app.queue("email")
    server = HttpServer(site(app, **{"access": ANYONE_MAY_ACT, **options}), "127.0.0.1", 0)
    port = await server.start()
    try:
        yield Served(app, port)
    finally:
        await server.close()


@pytest.fixture
async def here() -> AsyncIterator[Served]:
    """Whoever asks may do everything."""
    async with served() as found:
        yield found
