"""Connections. One carries the commands of all who call at once, in order; another blocks."""

import asyncio
from collections import deque
from typing import Any, Final

import hiredis
from redis.exceptions import ConnectionError as Lost
from redis.exceptions import RedisError

from toril.engines.redis.place import Address
from toril.errors import EngineUnavailable

__all__ = ["Line", "Link", "Unsent"]

_CONNECT: Final = 5.0  # seconds


class Unsent(EngineUnavailable):
    """There was no connection: nothing has happened."""


class Line:
    """One connection, from the library: it connects, authenticates and encrypts. Requests may overlap."""

    def __init__(self, address: Address, name: str | None = None) -> None:
        kind = type("_Line", (_Overlapping, address.connection), {})
        self._connection: Any = kind(
            **address.arguments, client_name=name, decode_responses=True, encoding_errors="replace", protocol=2,
            socket_timeout=None, socket_connect_timeout=min(_CONNECT, address.timeout), driver_info=None,
        )  # fmt: skip
        if hasattr(self._connection, "socket_keepalive"):
            self._connection.socket_keepalive = True

    async def connect(self) -> None:
        async with asyncio.timeout(_CONNECT):
            await self._connection.connect()

    def send(self, *arguments: Any) -> None:
        """Put a command on its way, after those before it."""
        self._connection.put(hiredis.pack_command(arguments))

    async def receive(self) -> Any:
        """The next answer; the server's complaints are raised."""
        return await self._connection.next_answer()

    async def close(self) -> None:
        self._connection.drop()


class _Overlapping:
    """What the library's connections lack for several requests at once."""

    _writer: Any
    _parser: Any

    def put(self, packed: bytes) -> None:
        if self._writer is None:
            raise Lost("not connected")
        self._writer.write(packed)

    async def next_answer(self) -> Any:
        return await self._parser.read_response()

    def drop(self) -> None:
        self._parser.on_disconnect()
        writer, self._writer, self._reader = self._writer, None, None
        if writer is not None:
            writer.transport.abort()


class Link:
    """A connection that many callers share. It is made when first needed, and made anew after it broke."""

    def __init__(self, address: Address, name: str | None = None) -> None:
        self._address = address
        self._name = name
        self._line: Line | None = None
        self._reading: asyncio.Task[None] | None = None
        self._waiting: deque[asyncio.Future[Any]] = deque()
        self._connecting = asyncio.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closed = False

    async def ask(self, *arguments: Any) -> Any:
        """The answer to one command. `Unsent`: it never left; any other lack of an answer: nobody knows."""
        line, loop = self._line, asyncio.get_running_loop()
        if line is None or loop is not self._loop:
            line = await self._connected(loop)
        answer: asyncio.Future[Any] = loop.create_future()
        try:
            line.send(*arguments)
        except (Lost, OSError) as error:
            raise Unsent(str(error)) from None
        self._waiting.append(answer)
        return await answer

    async def _connected(self, loop: asyncio.AbstractEventLoop) -> Line:
        if loop is not self._loop:  # after a fork: what the parent uses is left to it
            self._line, self._waiting, self._connecting, self._loop = None, deque(), asyncio.Lock(), loop
        async with self._connecting:
            if self._line is not None:
                return self._line
            if self._closed:
                raise Unsent("closed")
            line = Line(self._address, self._name)
            try:
                await line.connect()
            except (RedisError, OSError, TimeoutError) as error:
                await line.close()
                raise Unsent(str(error) or type(error).__name__) from error
            except BaseException:
                await line.close()
                raise
            self._line = line
            self._reading = asyncio.create_task(self._read(line, self._waiting), name="toril-redis-answers")
            return line

    async def _read(self, line: Line, waiting: "deque[asyncio.Future[Any]]") -> None:
        try:
            while True:
                answer = await line.receive()
                future = waiting.popleft()
                if future.done():
                    continue
                if isinstance(answer, Exception):
                    future.set_exception(answer)
                else:
                    future.set_result(answer)
        except (RedisError, OSError, IndexError) as error:
            await self._break(line, error)

    async def _break(self, line: Line, error: Exception) -> None:
        """Nobody who waits for an answer on this connection will get one."""
        if self._line is line:
            waiting, self._waiting, self._line = self._waiting, deque(), None
            for future in waiting:
                if not future.done():
                    future.set_exception(error if isinstance(error, RedisError) else Lost(str(error)))
        await line.close()

    async def drop(self, why: str) -> None:
        """Give the connection up: an answer that has not come in time may still come, to whoever asks next."""
        line, reading = self._line, self._reading
        if line is not None:
            await self._break(line, Lost(why))
            if reading is not None and reading is not asyncio.current_task():
                reading.cancel()
                await asyncio.gather(reading, return_exceptions=True)

    async def close(self) -> None:
        self._closed = True
        await self.drop("closed")
