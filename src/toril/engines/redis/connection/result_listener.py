"""Receives the ids of ended jobs, for callers that wait for results."""

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from toril.engines.redis.connection.connection import Connection, Connector, borrowed
from toril.engines.redis.connection.errors import ConnectionLost, ErrorReply, ProtocolError
from toril.runtime.clock import SYSTEM

__all__ = ["ResultListener"]

_FIRST_REST: Final = 0.05
_LONGEST_REST: Final = 5.0
_log: Final = logging.getLogger("toril")


class _Subscriber:
    """A caller that waits for some ids."""

    def __init__(self, ids: frozenset[str]) -> None:
        self.ids = ids
        self.news = asyncio.Event()


class ResultListener:
    """One connection, made when first needed, that receives the ids of ended jobs. It may miss some, so callers also
    check from time to time."""

    def __init__(self, connector: Connector) -> None:
        self._connector = connector
        self._loop: asyncio.AbstractEventLoop | None = None
        self._start_afresh()

    def _start_afresh(self) -> None:
        self._connection: Connection | None = None
        self._task: asyncio.Task[None] | None = None
        self._subscribers: dict[str, set[_Subscriber]] = {}
        self._asked: deque[str] = deque()  # channels without an answer so far, in order
        self._known: set[str] = set()
        self._refused: set[str] = set()  # channels whose refusal has been logged
        self._rest = _FIRST_REST
        self._failing = False  # whether the failure has been logged

    @asynccontextmanager
    async def listening(self, channel: str, ids: frozenset[str]) -> AsyncIterator[asyncio.Event]:
        """An event that is set whenever one of these jobs may have ended."""
        loop = asyncio.get_running_loop()
        if loop is not self._loop:  # after a fork: leave the parent's connection alone
            self._loop = loop
            self._start_afresh()
        subscriber, subscribers = _Subscriber(ids), self._subscribers.setdefault(channel, set())
        subscribers.add(subscriber)
        if self._task is None:
            self._task = loop.create_task(self._run(), name="toril-redis-ears")
        elif self._connection is not None and channel not in self._known and channel not in self._asked:
            self._subscribe(self._connection, channel)
        try:
            yield subscriber.news
        finally:
            subscribers.discard(subscriber)

    async def close(self) -> None:
        task, self._task = self._task, None
        if task is not None and self._loop is asyncio.get_running_loop():
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            self._tell_all()

    def _tell_all(self) -> None:
        for subscribers in self._subscribers.values():
            for subscriber in subscribers:
                subscriber.news.set()

    async def _run(self) -> None:
        """Keep listening, whatever goes wrong: nobody else receives results."""
        while True:
            try:
                async with borrowed(self._connector) as connection:
                    await self._hear(connection)
            except Exception as error:
                self._complain(error)
            finally:
                self._connection, self._known = None, set()
            rest, self._rest = self._rest, min(self._rest * 2, _LONGEST_REST)
            await self._connector.pause(rest * SYSTEM.random())

    def _complain(self, error: Exception) -> None:
        """Log the failure once, until it works again. Those who ask the server for results report that it cannot be
        reached."""
        if not self._failing and not isinstance(error, ConnectionLost | OSError):
            self._failing = True
            _log.warning("lost the subscription to results; results may arrive late until it is restored: %r", error)

    def _subscribe(self, connection: Connection, channel: str) -> None:
        """Subscribe to one channel at a time: if the server refuses one of several, it refuses the whole command."""
        try:
            connection.send("SUBSCRIBE", channel)
        except (ConnectionLost, OSError):
            return  # the next connection subscribes to it
        self._asked.append(channel)

    async def _hear(self, connection: Connection) -> None:
        self._connection = connection
        self._asked.clear()
        for channel in self._subscribers:
            self._subscribe(connection, channel)
        while True:
            match await connection.receive():
                case ["subscribe", str(channel), _] if channel in self._asked:
                    self._asked.remove(channel)
                    self._known.add(channel)
                    self._refused.discard(channel)
                    self._tell(channel, None)  # nothing is missed from now on; earlier results have to be looked up
                case ["message", str(channel), str(payload)]:
                    self._tell(channel, frozenset(payload.split("\n")))
                case ErrorReply() as refusal if self._asked:
                    self._note_refused(self._asked.popleft(), refusal)
                case other:
                    raise ProtocolError(f"neither a subscription nor a message: {other!r:.100}")
            self._rest, self._failing = _FIRST_REST, False

    def _tell(self, channel: str, ended: frozenset[str] | None) -> None:
        for subscriber in self._subscribers.get(channel, ()):
            if ended is None or not ended.isdisjoint(subscriber.ids):
                subscriber.news.set()

    def _note_refused(self, channel: str, refusal: ErrorReply) -> None:
        if channel not in self._refused:
            self._refused.add(channel)
            _log.warning("the server refuses %s, so results are polled every second instead: %s", channel, refusal)
