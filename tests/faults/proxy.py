"""A wire between Toril and its server that can be slow, or cut at a chosen moment."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

__all__ = ["Proxy", "proxied"]


class Proxy:
    """Passes bytes on. `delay` is in seconds, each way. `cut` is asked with the number of an answer whether to cut the
    connection instead of passing it on: the server has done what nobody hears of. While it is to `hold`, nothing passes
    and nobody is told; what was sent meanwhile arrives afterwards, as it would on a real wire."""

    def __init__(self, target: int) -> None:
        self.target = target
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._ends: set[asyncio.StreamWriter] = set()
        self.delay = 0.0
        self.answers = 0
        self.cuts = 0
        self.hold = False
        self.cut: Callable[[int], bool] = lambda _: False

    @property
    def url(self) -> str:
        assert self._server is not None
        return f"redis://127.0.0.1:{self._server.sockets[0].getsockname()[1]}/0"

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)

    async def stop(self) -> None:
        assert self._server is not None
        self._server.close()
        for end in list(self._ends):
            end.transport.abort()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        there, out = await asyncio.open_connection("127.0.0.1", self.target)
        self._ends |= {writer, out}
        ways = [
            asyncio.create_task(self._pass_on(reader, out, counted=False)),
            asyncio.create_task(self._pass_on(there, writer, counted=True)),
        ]
        await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        for way in ways:
            way.cancel()
        await asyncio.gather(*ways, return_exceptions=True)
        for end in (writer, out):
            end.transport.abort()
        self._ends -= {writer, out}
        self._tasks.discard(task)

    async def _pass_on(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, *, counted: bool) -> None:
        while data := await source.read(65536):
            while self.hold:  # noqa: ASYNC110 - seldom, and for a second
                await asyncio.sleep(0.01)
            if counted:
                self.answers += 1
                if self.cut(self.answers):
                    self.cuts += 1
                    return
            if self.delay:
                await asyncio.sleep(self.delay)
            sink.write(data)


@asynccontextmanager
async def proxied(target: int) -> AsyncIterator[Proxy]:
    proxy = Proxy(target)
    await proxy.start()
    try:
        yield proxy
    finally:
        await proxy.stop()
