"""One connection: it connects, authenticates and encrypts as the library does; what comes in is handed on at once."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Final, Protocol

import hiredis
from redis.exceptions import ConnectionError as Lost
from redis.exceptions import InvalidResponse

__all__ = ["Line", "Way", "connected", "lent"]

Hear = Callable[[Any], None]

# Certificates by the settings that name them: to read them takes longer than to connect.
_trusted: Final[dict[tuple[tuple[str, str], ...], Any]] = {}
_MORE: Final = object()


class Line:
    """One connection. Requests may overlap; answers come in their order, to who waits for them or to who listens."""

    def __init__(self, connection: type[Any], arguments: Mapping[str, Any], name: str | None, limit: float) -> None:
        self._limit = limit
        kind = type("_Line", (_Ours, connection), {})
        self._connection: Any = kind(
            **arguments, client_name=name, decode_responses=True, encoding_errors="replace", protocol=2,
            socket_timeout=None, socket_connect_timeout=limit, driver_info=None,
        )  # fmt: skip
        if hasattr(self._connection, "socket_keepalive"):
            self._connection.socket_keepalive = True
        self._trusts = tuple(sorted((key, str(value)) for key, value in arguments.items() if key.startswith("ssl_")))
        if hasattr(self._connection, "ssl_context"):
            self._connection.ssl_context = _trusted.setdefault(self._trusts, self._connection.ssl_context)
        self._transport: Any = None
        self._came: deque[Any] = deque()
        self._wanted: asyncio.Future[None] | None = None
        self._over: Exception | None = None
        self._hear: Hear = self._keep
        self._end: Callable[[Exception], None] = self._wake

    async def connect(self) -> None:
        try:
            async with asyncio.timeout(self._limit):
                await self._connection.connect()
        except BaseException:
            _trusted.pop(self._trusts, None)  # there may be new ones by the next time
            raise
        # From here on answers do not take the library's way, which is a task longer.
        self._transport = self._connection.taken_over(partial(_Answers, self))
        if self._transport.is_closing():
            raise Lost("the connection broke")

    def listen(self, hear: Hear, end: Callable[[Exception], None]) -> None:
        """Have every answer handed to `hear` when it comes, and to `end` why there will be no more."""
        self._hear, self._end = hear, end
        if self._over is not None:
            end(self._over)

    def heed(self, hear: Hear) -> None:
        """Have every answer shown to `hear` when it comes, before whoever receives it gets it."""

        def heeded(answer: Any) -> None:
            hear(answer)
            self._keep(answer)

        self._hear = heeded

    async def ask(self, *arguments: Any) -> Any:
        """The answer to one command, on a connection that nobody else uses yet."""
        self.send(*arguments)
        answer = await self.receive()
        if isinstance(answer, Exception):
            raise answer
        return answer

    def send(self, *arguments: Any) -> None:
        """Put a command on its way, after those before it."""
        if self._over is not None or self._transport is None:
            raise Lost("not connected")
        self._transport.write(hiredis.pack_command(arguments))

    async def receive(self) -> Any:
        """The next answer, the server's complaints among them; that the connection is gone is raised."""
        while not self._came:
            if self._over is not None:
                raise self._over
            self._wanted = asyncio.get_running_loop().create_future()
            await self._wanted
        return self._came.popleft()

    def cut(self) -> None:
        """Have whoever reads from it find that it is broken."""
        if self._transport is not None:
            self._transport.abort()

    def drop(self) -> None:
        """Give it up."""
        self._over = self._over or Lost("closed")
        self._transport = None
        self._connection.let_go()

    async def close(self) -> None:
        self.drop()

    def heard(self, answer: Any) -> None:
        """One more answer has come."""
        if isinstance(answer, Lost):  # what the server says before it hangs up
            self.ended(answer)
            self.cut()
        else:
            self._hear(answer)

    def ended(self, error: Exception) -> None:
        """Nothing more will come."""
        if self._over is None:
            self._over = error
            self._end(error)

    def _keep(self, answer: Any) -> None:
        self._came.append(answer)
        self._wake()

    def _wake(self, _: Exception | None = None) -> None:
        if self._wanted is not None and not self._wanted.done():
            self._wanted.set_result(None)


class _Ours:
    """What the library's connections lack for being used in another way than its own."""

    _writer: Any
    _parser: Any

    def taken_over(self, answers: Callable[[Callable[[str], Exception]], asyncio.Protocol]) -> Any:
        transport = self._writer.transport
        transport.set_protocol(answers(self._parser.parse_error))
        return transport

    def let_go(self) -> None:
        self._parser.on_disconnect()
        writer, self._writer, self._reader = self._writer, None, None
        if writer is not None:
            writer.transport.abort()


class _Answers(asyncio.Protocol):
    """The near end of a connection."""

    def __init__(self, line: Line, complaint: Callable[[str], Exception]) -> None:
        self._reader = hiredis.Reader(
            protocolError=InvalidResponse, replyError=complaint, encoding="utf-8", errors="replace", notEnoughData=_MORE
        )
        self._line = line

    def data_received(self, data: bytes) -> None:
        reader, heard = self._reader, self._line.heard
        reader.feed(data)
        try:
            while (answer := reader.gets()) is not _MORE:
                heard(answer)
        except InvalidResponse as error:
            self._line.ended(error)
            self._line.cut()

    def connection_lost(self, error: Exception | None) -> None:
        self._line.ended(Lost(str(error) if error else "Connection closed by server."))


async def connected(connection: type[Any], arguments: Mapping[str, Any], name: str | None, limit: float) -> Line:
    """A new connection, which took no longer than `limit` seconds to make."""
    line = Line(connection, arguments, name, limit)
    try:
        await line.connect()
    except BaseException:
        line.drop()
        raise
    return line


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
