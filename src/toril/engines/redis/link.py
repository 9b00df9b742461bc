"""Connections. One carries the commands of all who call at once, in order; another blocks."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final, Protocol

import hiredis
from redis.exceptions import ConnectionError as Lost
from redis.exceptions import RedisError

from toril.clock import SYSTEM
from toril.engines.redis.trouble import is_answer
from toril.errors import EngineUnavailable

__all__ = ["Line", "Link", "Unsent", "Way", "connected", "lent"]


_AGAIN: Final = 0.2  # seconds for which a refusal holds for all callers, however many ask: each try costs milliseconds

# Certificates by the settings that name them: to read them takes longer than to connect.
_trusted: Final[dict[tuple[tuple[str, str], ...], Any]] = {}


class Unsent(EngineUnavailable):
    """There was no connection: nothing has happened."""


class Line:
    """One connection, from the library: it connects, authenticates and encrypts. Requests may overlap."""

    def __init__(self, connection: type[Any], arguments: Mapping[str, Any], name: str | None, limit: float) -> None:
        kind = type("_Line", (_Overlapping, connection), {})
        self._limit = limit
        self._connection: Any = kind(
            **arguments, client_name=name, decode_responses=True, encoding_errors="replace", protocol=2,
            socket_timeout=None, socket_connect_timeout=limit, driver_info=None,
        )  # fmt: skip
        if hasattr(self._connection, "socket_keepalive"):
            self._connection.socket_keepalive = True
        self._trusts = tuple(sorted((key, str(value)) for key, value in arguments.items() if key.startswith("ssl_")))
        if hasattr(self._connection, "ssl_context"):
            self._connection.ssl_context = _trusted.setdefault(self._trusts, self._connection.ssl_context)

    async def connect(self) -> None:
        try:
            async with asyncio.timeout(self._limit):
                await self._connection.connect()
        except BaseException:
            _trusted.pop(self._trusts, None)  # there may be new ones by the next time
            raise

    async def ask(self, *arguments: Any) -> Any:
        """The answer to one command, on a connection that nobody else uses yet."""
        self.send(*arguments)
        answer = await self.receive()
        if isinstance(answer, Exception):
            raise answer
        return answer

    def send(self, *arguments: Any) -> None:
        """Put a command on its way, after those before it."""
        self._connection.put(hiredis.pack_command(arguments))

    async def receive(self) -> Any:
        """The next answer; the server's complaints are raised."""
        return await self._connection.next_answer()

    def cut(self) -> None:
        """Have whoever reads from it find that it is broken."""
        self._connection.cut()

    async def close(self) -> None:
        self._connection.drop()


async def connected(connection: type[Any], arguments: Mapping[str, Any], name: str | None, limit: float) -> Line:
    """A new connection, which took no longer than `limit` seconds to make."""
    line = Line(connection, arguments, name, limit)
    try:
        await line.connect()
    except BaseException:
        await line.close()
        raise
    return line


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

    def cut(self) -> None:
        if self._writer is not None:
            self._writer.transport.abort()

    def drop(self) -> None:
        self._parser.on_disconnect()
        writer, self._writer, self._reader = self._writer, None, None
        if writer is not None:
            writer.transport.abort()


class Way(Protocol):
    """How to get a connection to the server, wherever it is."""

    async def line(self, name: str | None = None) -> Line: ...

    async def rest(self, seconds: float) -> None:
        """Between two tries; not to the end if somebody else gets through meanwhile."""


@asynccontextmanager
async def lent(way: Way, name: str | None = None) -> AsyncIterator[Line]:
    """A connection for as long as it is needed, or holds."""
    line = await way.line(name)
    try:
        yield line
    finally:
        await line.close()


class Link:
    """A connection that many callers share. It is made when first needed, and made anew after it broke."""

    def __init__(self, way: Way) -> None:
        self._way = way
        self._line: Line | None = None
        self._reading: asyncio.Task[None] | None = None
        self._waiting: deque[asyncio.Future[Any]] = deque()
        self._connecting = asyncio.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closed = False
        self._refusal: Exception | None = None
        self._not_before = 0.0

    async def line(self) -> Line:
        """The connection of the moment."""
        line, loop = self._line, asyncio.get_running_loop()
        return await self._connected(loop) if line is None or loop is not self._loop else line

    async def ask(self, *arguments: Any, on: Line | None = None) -> Any:
        """The answer to one command. `Unsent`: it never left; any other lack of an answer: nobody knows. `on`: on this
        connection, or not at all."""
        line, loop = self._line, asyncio.get_running_loop()
        if line is None or loop is not self._loop:
            line = await self._connected(loop)
        if on is not None and line is not on:
            raise Lost("the connection broke")
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
            if SYSTEM.monotonic() < self._not_before:
                raise Unsent(str(self._refusal) or type(self._refusal).__name__) from self._refusal
            try:
                line = self._line = await self._way.line()
            except (RedisError, OSError) as error:  # a TimeoutError is an OSError
                self._refusal, self._not_before = error, SYSTEM.monotonic() + _AGAIN
                raise Unsent(str(error) or type(error).__name__) from error
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
            reason = error if isinstance(error, RedisError) else Lost(str(error))
            for future in waiting:
                if not future.done():
                    future.set_exception(reason)
                if is_answer(reason):  # to the first request alone
                    reason = Lost("the connection broke")
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
