"""A wire on loopback between processes and their server, that can be cut, slow, silent or deaf."""

import asyncio
import socket
import struct

from toril.runtime.clock import SYSTEM
from toril.torture.plan import Blow, Strike

__all__ = ["Proxy"]

_CHUNK = 65_536


class Proxy:
    """Passes bytes on. What is swallowed leaves a hole in the stream, so such a connection is reset when the wire is
    healed: no byte is ever wrong, some never arrive."""

    def __init__(self, host: str, port: int) -> None:
        self.target = (host, port)
        self.delay = 0.0  # seconds, each way
        self.silent = False  # nothing arrives, either way
        self.deaf = False  # what the server answers does not arrive
        self._doomed = 0  # so many answers are lost, each with its connection
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._ends: set[asyncio.StreamWriter] = set()
        self._holed: set[asyncio.StreamWriter] = set()
        self._healed = asyncio.Event()

    @property
    def port(self) -> int:
        if self._server is None:
            raise RuntimeError("the wire has not been laid yet")
        return int(self._server.sockets[0].getsockname()[1])

    async def start(self) -> "Proxy":
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        return self

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
        self.delay = 0.0
        self.cut()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def cut(self) -> None:
        """Reset every connection."""
        for end in list(self._ends):
            _reset(end)

    def cut_replies(self, count: int) -> None:
        """Lose the next answers: the server has done what nobody hears of."""
        self._doomed += count

    async def struck(self, blow: Blow) -> None:
        """For as long as the blow lasts; then the wire is as it was. The first blow to end ends those beside it."""
        match blow.strike:
            case Strike.CUT:
                self.cut()
            case Strike.CUT_REPLIES:
                self.cut_replies(1 + int(blow.target * 5))
            case Strike.DELAY:
                self.delay = 0.05 + blow.target * 0.3
            case Strike.BLACKHOLE:
                self.silent = True
            case _:
                self.deaf = True
        if blow.seconds:
            self._healed.clear()
            try:
                async with asyncio.timeout(blow.seconds):
                    await self._healed.wait()
            except TimeoutError:
                self.heal()

    def heal(self) -> None:
        self.delay, self.silent, self.deaf, self._doomed = 0.0, False, False, 0
        for end in list(self._holed):
            _reset(end)
        self._holed.clear()
        self._healed.set()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        if task is not None:
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        ends = {writer}
        self._ends.add(writer)
        try:
            there, out = await asyncio.open_connection(*self.target)
            ends.add(out)
            self._ends.add(out)
            async with asyncio.TaskGroup() as ways:
                ways.create_task(self._pass_on(reader, out, ends, answers=False))
                ways.create_task(self._pass_on(there, writer, ends, answers=True))
        except OSError:
            pass  # the server is not there: neither is the wire
        except ExceptionGroup as group:
            if group.split(OSError)[1] is not None:
                raise
        finally:
            self._ends -= ends
            self._holed -= ends
            for end in ends:
                _reset(end)

    async def _pass_on(
        self,
        source: asyncio.StreamReader,
        sink: asyncio.StreamWriter,
        ends: set[asyncio.StreamWriter],
        *,
        answers: bool,
    ) -> None:
        while data := await source.read(_CHUNK):
            if answers and self._doomed:
                self._doomed -= 1
                break
            if self.silent or (answers and self.deaf):
                self._holed |= ends
                continue
            if ends & self._holed:
                continue
            if self.delay:
                await SYSTEM.sleep(self.delay)
            sink.write(data)
            await sink.drain()
        for end in ends:
            _reset(end)


def _reset(end: asyncio.StreamWriter) -> None:
    """Close it as a host does that knows of no such connection, instead of politely."""
    if not end.transport.is_closing():
        end.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        end.transport.abort()
