"""The connection that carries all callers' commands, in order."""

import asyncio
from collections import deque
from typing import Any, Final

from toril.engines.redis.connection.connection import Connection, Connector, Reply, answer_kind
from toril.engines.redis.connection.errors import ConnectionLost, RedisFault, is_answer
from toril.errors import EngineUnavailable
from toril.runtime.clock import SYSTEM, Timer

__all__ = ["NotSent", "Pipeline"]

_AGAIN: Final = 0.2  # seconds for which a refusal applies to all callers, because each try costs milliseconds
_EVER: Final = float("inf")

# Each waiter, with its deadline.
_Waiting = deque[tuple[Reply[Any], float]]


class NotSent(EngineUnavailable):
    """There was no connection, so nothing was sent."""


class Pipeline:
    """A connection that many callers share. It is made when first needed, and again after it breaks."""

    def __init__(self, connector: Connector) -> None:
        self._connector = connector
        self._answer = answer_kind()
        self._connection: Connection | None = None
        self._waiting: _Waiting = deque()
        self._connecting = asyncio.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closed = False
        self._refusal: Exception | None = None
        self._not_before = 0.0
        self._timer: Timer | None = None
        self._rings = _EVER

    async def connection(self) -> Connection:
        """The current connection."""
        connection, loop = self._connection, asyncio.get_running_loop()
        return await self._connected(loop) if connection is None or loop is not self._loop else connection

    async def ask(self, *arguments: Any, on: Connection | None = None, until: float = _EVER) -> Any:
        """The answer to one command. `NotSent`: it was not sent; after any other failure, nobody knows. `on`: use this
        connection or none. `until`: raise TimeoutError then, and close the connection, because the answer may still
        come."""
        connection, loop = self._connection, asyncio.get_running_loop()
        if connection is None or loop is not self._loop:
            async with asyncio.timeout(None if until == _EVER else until - SYSTEM.monotonic()):
                connection = await self._connected(loop)
        if on is not None and connection is not on:
            raise ConnectionLost("the connection broke")
        answer: Reply[Any] = self._answer(loop)
        try:
            connection.send(*arguments)
        except (ConnectionLost, OSError) as error:
            raise NotSent(str(error)) from None
        self._waiting.append((answer, until))
        if until < self._rings:
            self._ring_at(until)
        return await answer

    async def _connected(self, loop: asyncio.AbstractEventLoop) -> Connection:
        if loop is not self._loop:  # after a fork: what the parent uses is left to it
            self._connection, self._waiting, self._connecting, self._loop = None, deque(), asyncio.Lock(), loop
            self._timer, self._rings = None, _EVER
        async with self._connecting:
            if self._connection is not None:
                return self._connection
            if self._closed:
                raise NotSent("closed")
            if SYSTEM.monotonic() < self._not_before:
                raise NotSent(str(self._refusal) or type(self._refusal).__name__) from self._refusal
            try:
                connection = await self._connector.connect()
            except (RedisFault, OSError) as error:  # a TimeoutError is an OSError
                self._refusal, self._not_before = error, SYSTEM.monotonic() + _AGAIN
                raise NotSent(str(error) or type(error).__name__) from error
            if self._closed:  # meanwhile
                connection.drop()
                raise NotSent("closed")
            self._connection = connection
            connection.listen(self._heard, lambda error: self._break(connection, error))
            if self._connection is not connection:
                raise NotSent("the connection broke")
            return connection

    def _heard(self, answer: Any) -> None:
        if not self._waiting:  # nobody has asked, so the next answers could not be matched
            self.drop("an answer that nobody asked for")
            return
        future, _ = self._waiting.popleft()
        if future.done():
            return
        if isinstance(answer, Exception):
            future.set_exception(answer)
        else:
            future.come(answer)

    def _ring_at(self, until: float) -> None:
        """One timer for all waiters; answers usually come first."""
        if self._timer is not None:
            self._timer.cancel()
        self._rings = until
        self._timer = SYSTEM.later(max(0.0, until - SYSTEM.monotonic()), self._ring)

    def _ring(self) -> None:
        self._timer, self._rings = None, _EVER
        waiting = [until for future, until in self._waiting if not future.done()]
        next_one = min(waiting, default=_EVER)
        if next_one == _EVER:
            return
        if next_one > SYSTEM.monotonic():
            self._ring_at(next_one)
            return
        for future, until in self._waiting:
            if until == next_one and not future.done():
                future.set_exception(TimeoutError())
        self.drop("no answer in time")

    def _break(self, connection: Connection, error: Exception) -> None:
        """Nobody who waits for an answer on this connection will get one."""
        if self._connection is connection:
            waiting, self._waiting, self._connection = self._waiting, deque(), None
            reason = error if isinstance(error, RedisFault) else ConnectionLost(str(error))
            for future, _ in waiting:
                if not future.done():
                    future.set_exception(reason)
                if is_answer(reason):  # it belongs to the first request only
                    reason = ConnectionLost("the connection broke")
        connection.drop()

    def drop(self, why: str) -> None:
        """Close the connection: a late answer would otherwise go to the next caller."""
        if self._connection is not None:
            self._break(self._connection, ConnectionLost(why))

    async def close(self) -> None:
        self._closed = True
        self.drop("closed")
        if self._timer is not None:
            self._timer.cancel()
