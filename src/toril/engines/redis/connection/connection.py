"""`Connection`: RESP over asyncio; `Reply`: a future that resumes its waiter at once."""

import asyncio
import socket
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from contextvars import Context
from typing import Any, Final, Protocol, TypeVar

import hiredis

from toril.engines.redis.connection.errors import ConnectionLost, ErrorReply, ProtocolError, said
from toril.engines.redis.connection.url import Trust
from toril.runtime.clock import plain_asyncio

__all__ = ["Connection", "Connector", "PromptReply", "Reply", "answer_kind", "borrowed", "connected"]

T = TypeVar("T")


class Reply(asyncio.Future[T]):
    """A future as in asyncio: its waiter continues in the next turn of the event loop."""

    __slots__ = ()

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop=loop)

    def come(self, value: T) -> None:
        """It is here."""
        self.set_result(value)


def answer_kind() -> type[Reply[Any]]:
    """The class of futures to wait for answers with in this process."""
    return Reply if plain_asyncio() else PromptReply


class PromptReply(Reply[T]):
    """A future whose `come` resumes its waiter at once. An ordinary future's waiter continues in the next turn of the
    event loop, which is a large part of what a job by itself costs. In every other respect it is an ordinary future."""

    __slots__ = ("_waits",)

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop)
        self._waits: tuple[Callable[[Any], object], Context | None] | None = None

    def add_done_callback(self, fn: Callable[[Any], object], /, *, context: Context | None = None) -> None:
        if self._waits is None and not self.done():
            self._waits = fn, context
        else:
            super().add_done_callback(fn, context=context)

    def remove_done_callback(self, fn: Callable[[Any], object], /) -> int:
        self._wait_as_usual()
        return super().remove_done_callback(fn)

    def come(self, value: T) -> None:
        """It is here. Called from anywhere but a task: one cannot go on within another."""
        if asyncio.current_task(self.get_loop()) is not None:
            self.set_result(value)
            return
        waits, self._waits = self._waits, None
        super().set_result(value)
        if waits is not None:
            self._go_on(*waits)

    def set_result(self, value: T, /) -> None:
        self._wait_as_usual()
        super().set_result(value)

    def set_exception(self, error: type[BaseException] | BaseException, /) -> None:
        self._wait_as_usual()
        super().set_exception(error)

    def cancel(self, msg: Any | None = None) -> bool:
        self._wait_as_usual()
        return super().cancel(msg)

    def _go_on(self, callback: Callable[[Any], object], context: Context | None) -> None:
        """Call a callback as the event loop would: whoever delivers the answer is not to blame for what it raises."""
        try:
            if context is None:
                callback(self)
            else:
                context.run(callback, self)
        except Exception as error:
            report = {"message": f"a callback of {self!r} failed", "exception": error, "future": self}
            self.get_loop().call_exception_handler(report)

    def _wait_as_usual(self) -> None:
        waits, self._waits = self._waits, None
        if waits is not None:
            super().add_done_callback(waits[0], context=waits[1])


Hear = Callable[[Any], None]

_USUAL_PORT: Final = 6379
_MORE: Final = object()


class Connection(asyncio.Protocol):
    """One connection. Requests may overlap; answers arrive in the order of the requests, and go to their waiters or to
    a listener."""

    def __init__(self) -> None:
        self._reader = hiredis.Reader(
            protocolError=ProtocolError, replyError=said, encoding="utf-8", errors="replace", notEnoughData=_MORE
        )
        self._transport: asyncio.Transport | None = None
        self._came: deque[Any] = deque()
        self._wanted: asyncio.Future[None] | None = None
        self._over: Exception | None = None
        self._hear: Hear = self._keep
        self._end: Callable[[Exception], None] = self._wake

    async def connect(self, arguments: Mapping[str, Any], name: str | None) -> None:
        """Connect with these arguments, authenticate, set this client name, and choose the database."""
        try:
            self._transport = await _reached(self, arguments)
        except OSError:
            raise
        except Exception as error:  # an impossible host name
            raise ConnectionLost(str(error) or type(error).__name__) from error
        greetings = _greetings(arguments, name)
        for greeting in greetings:
            self.send(*greeting)
        for _ in greetings:
            answer = await self.receive()
            if isinstance(answer, Exception):
                raise answer
        if self._over is not None:
            raise self._over

    def listen(self, hear: Hear, end: Callable[[Exception], None]) -> None:
        """Pass every answer to `hear` as it arrives, and the reason why there will be no more to `end`."""
        self._hear, self._end = hear, end
        if self._over is not None:
            end(self._over)

    def heed(self, hear: Hear) -> None:
        """Show every answer to `hear` before its waiter gets it."""

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
        """Send a command, after those before it."""
        if self._over is not None or self._transport is None:
            raise ConnectionLost("not connected")
        self._transport.write(hiredis.pack_command(arguments))

    async def receive(self) -> Any:
        """The next answer, which may be an error reply. Raises if the connection is gone."""
        while not self._came:
            if self._over is not None:
                raise self._over
            self._wanted = asyncio.get_running_loop().create_future()
            await self._wanted
        return self._came.popleft()

    def cut(self) -> None:
        """Make readers find the connection broken."""
        if self._transport is not None:
            self._transport.abort()

    def drop(self) -> None:
        """Close the connection."""
        self._over = self._over or ConnectionLost("closed")
        self.cut()
        self._transport = None

    async def close(self) -> None:
        self.drop()

    def data_received(self, data: bytes) -> None:
        reader = self._reader
        reader.feed(data)
        try:
            while (answer := reader.gets()) is not _MORE:
                if isinstance(answer, ErrorReply) and answer.is_last:
                    self._give_up(answer)
                else:
                    self._hear(answer)
        except ProtocolError as error:
            self._give_up(error)

    def connection_lost(self, error: Exception | None) -> None:
        self._ended(ConnectionLost(str(error) if error else "Connection closed by server."))

    def _give_up(self, error: Exception) -> None:
        self._ended(error)
        self.cut()

    def _ended(self, error: Exception) -> None:
        """The connection has ended."""
        if self._over is None:
            self._over = error
            self._end(error)

    def _keep(self, answer: Any) -> None:
        self._came.append(answer)
        self._wake()

    def _wake(self, _: Exception | None = None) -> None:
        if self._wanted is not None and not self._wanted.done():
            self._wanted.set_result(None)


async def _reached(answers: asyncio.Protocol, arguments: Mapping[str, Any]) -> asyncio.Transport:
    """Configure a new connection, so that the system's probes notice a peer that vanished silently."""
    loop = asyncio.get_running_loop()
    if "path" in arguments:
        return (await loop.create_unix_connection(lambda: answers, arguments["path"]))[0]
    trust: Trust | None = arguments.get("tls")
    host, port = arguments.get("host", "localhost"), arguments.get("port", _USUAL_PORT)
    if trust is None:
        transport, _ = await loop.create_connection(lambda: answers, host, port)
    else:
        with trust.context() as context:
            transport, _ = await loop.create_connection(lambda: answers, host, port, ssl=context)
    transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    return transport


def _greetings(arguments: Mapping[str, Any], name: str | None) -> list[tuple[Any, ...]]:
    """The commands to send first, without waiting for an answer in between."""
    user, password, database = (arguments.get(key) for key in ("username", "password", "db"))
    greetings: list[tuple[Any, ...]] = []
    if user or password:
        greetings.append(("AUTH", user, password or "") if user else ("AUTH", password))
    if name:
        greetings.append(("CLIENT", "SETNAME", name))
    if database:
        greetings.append(("SELECT", database))
    return greetings


async def connected(arguments: Mapping[str, Any], name: str | None, limit: float) -> Connection:
    """A new connection, made within `limit` seconds."""
    connection = Connection()
    try:
        async with asyncio.timeout(limit):
            await connection.connect(arguments, name)
    except BaseException as error:
        connection.drop()
        if isinstance(error, TimeoutError) and not str(error):
            raise TimeoutError(f"could not connect within {limit:g} s") from None
        raise
    return connection


class Connector(Protocol):
    """Provides connections to the server, wherever it is."""

    async def connect(self, name: str | None = None) -> Connection: ...

    async def pause(self, seconds: float) -> None:
        """Pause between two tries; end early if someone else gets through."""


@asynccontextmanager
async def borrowed(connector: Connector, name: str | None = None) -> AsyncIterator[Connection]:
    """A connection for as long as the caller needs it, or until it breaks."""
    connection = await connector.connect(name)
    try:
        yield connection
    finally:
        await connection.close()
