"""Waits for jobs: one connection that blocks on the markers of all queues that someone waits for."""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Final

from toril.engines.redis.connection.connection import Connection, Connector, Reply, answer_kind, borrowed
from toril.engines.redis.connection.errors import ConnectionLost, ProtocolError
from toril.errors import TorilError
from toril.runtime.clock import SYSTEM

__all__ = ["LOOK", "MarkerListener"]

LOOK: Final = 4.9  # seconds between two checks without a marker: a frozen reader may have taken it
_BLOCK: Final = 20  # seconds that a blocking read lasts at most
_BEYOND: Final = 2.0  # seconds beyond that after which a blocking read counts as lost
_RETURN: Final = 0.002  # seconds within which a waiter that was woken usually waits again
_FIRST_REST: Final = 0.05
_LONGEST_REST: Final = 2.0
_LAST_READ: Final = 0.5  # seconds for the server to end the blocking read when nobody waits any longer
_log: Final = logging.getLogger("toril")

Waiter = Reply[set[str]]


class MarkerListener:
    """Wakes those who wait for a key. Whoever is woken by a marker takes it; a marker that nobody waits for any longer
    is put back, so that another process gets it. Lost markers are made up for by `ready`, which tells for which of the
    keys there may be something; it is called every `LOOK` seconds while someone waits."""

    def __init__(
        self,
        connector: Connector,
        own_keys: str,
        ask: Callable[..., Awaitable[Any]],
        ready: Callable[[list[str]], Awaitable[Iterable[str]]],
    ) -> None:
        self._connector = connector
        self._own_keys = own_keys
        self._ask = ask
        self._ready = ready
        self._answer = answer_kind()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._start_afresh()

    def _start_afresh(self) -> None:
        self._own_key = f"{self._own_keys}{SYSTEM.unique()}:wake"
        self._waiting: dict[str, set[Waiter]] = {}
        self._heard_by_server: frozenset[str] = frozenset()
        self._changed = asyncio.Event()
        self._has_rung = False
        self._reading = False  # whether a blocking read is in progress, or its answer is not handled yet
        self._returning: set[asyncio.Task[None]] = set()  # putting back markers of waiters that have gone
        self._closing = False
        self._rest = _FIRST_REST
        self._failing = False  # whether the failure has been logged

    async def wait(self, keys: Iterable[str], timeout: float) -> set[str] | None:
        """The keys that were signalled; None if the time is up."""
        keys = list(keys)
        loop = asyncio.get_running_loop()
        self._start(loop)
        waiter: Waiter = self._answer(loop)
        for key in keys:
            self._waiting.setdefault(key, set()).add(waiter)
        self._changed.set()
        try:
            async with asyncio.timeout(timeout):
                if self._heard_by_server and not self._heard_by_server.issuperset(keys):
                    await self._wake_server()
                return await waiter
        except TimeoutError:  # if both happen at once, the key counts: its marker has been taken
            return waiter.result() if waiter.done() and not waiter.cancelled() else None
        except asyncio.CancelledError:
            for key in waiter.result() if waiter.done() and not waiter.cancelled() else ():
                returning = loop.create_task(self._put_back(key, "0", "0"))
                self._returning.add(returning)
                returning.add_done_callback(self._returning.discard)
            raise
        finally:
            self._forget(keys, waiter)

    def _start(self, loop: asyncio.AbstractEventLoop) -> None:
        if loop is not self._loop:  # after a fork: leave the parent's connection alone
            self._loop, self._tasks = loop, []
            self._start_afresh()
        if not self._tasks:
            self._tasks = [
                loop.create_task(self._run(), name="toril-redis-bell"),
                loop.create_task(self._look_round(), name="toril-redis-look"),
            ]

    def _forget(self, keys: list[str], waiter: Waiter) -> None:
        for key in keys:
            waiting = self._waiting.get(key, set())
            waiting.discard(waiter)
            if not waiting:
                self._waiting.pop(key, None)

    async def _wake_server(self) -> None:
        """End the blocking read, so that the next one includes all keys. If that fails, the read ends by itself in
        time."""
        try:
            await self._ask("ZADD", self._own_key, 0, "0")
            await self._ask("PEXPIRE", self._own_key, 60_000)
        except TorilError:
            return

    async def close(self) -> None:
        tasks, self._tasks = self._tasks, []
        if self._loop is asyncio.get_running_loop():
            await self._end_read(tasks)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            self._ring_all()

    async def _end_read(self, tasks: "list[asyncio.Task[None]]") -> None:
        """Make the server end the blocking read. A marker that it hands out while the connection closes would be lost,
        and its job would wait until another process checks."""
        self._closing = True
        self._changed.set()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_LAST_READ):
                if self._heard_by_server:
                    await self._wake_server()
                if self._reading:
                    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                await asyncio.gather(*self._returning)

    def _ring_all(self) -> None:
        """A marker may have been missed: wake all waiters, so that they check for themselves."""
        for key in list(self._waiting):
            self._ring(key)

    def _ring(self, key: str) -> bool:
        waiting = [waiter for waiter in self._waiting.get(key, ()) if not waiter.done()]
        for waiter in waiting:
            if not waiter.done():  # a waiter that resumes may have ended the wait of another
                waiter.come({key} if self._tasks else set())
        return bool(waiting)

    async def _look_round(self) -> None:
        while True:
            await SYSTEM.sleep(LOOK * (0.95 + 0.05 * SYSTEM.random()))
            try:
                for key in await self._ready(list(self._waiting)) if self._waiting else ():
                    self._ring(key)
            except Exception as error:
                self._complain(error)

    async def _run(self) -> None:
        """Keep reading, whatever goes wrong: nobody else receives the markers."""
        while True:
            try:
                async with borrowed(self._connector) as connection:
                    if self._rest > _FIRST_REST:
                        self._ring_all()  # a marker may have been taken by a read whose answer was lost
                    await self._listen(connection)
            except Exception as error:
                self._complain(error)
            self._heard_by_server, self._reading = frozenset(), False
            if self._closing:
                return
            rest, self._rest = self._rest, min(self._rest * 2, _LONGEST_REST)
            await self._connector.pause(rest * SYSTEM.random())
            self._ring_all()

    def _complain(self, error: Exception) -> None:
        """Log the failure once, until it works again. Those who ask the server for jobs report that it cannot be
        reached."""
        if not self._failing and not isinstance(error, ConnectionLost | OSError | TorilError):
            self._failing = True
            _log.warning("lost the connection that waits for jobs; jobs may start late until it is restored: %r", error)

    async def _listen(self, connection: Connection) -> None:
        turn = 0
        connection.heed(self._heard)
        while not self._closing:
            keys = list(self._waiting)
            self._changed.clear()
            if not keys:
                await self._changed.wait()
                continue
            turn = (turn + 1) % len(keys)  # the server serves keys in order, so rotate them
            self._heard_by_server, self._reading = frozenset(keys), True
            connection.send("BZPOPMIN", self._own_key, *keys[turn:], *keys[:turn], _BLOCK)
            async with asyncio.timeout(_BLOCK + _BEYOND):
                answer = await connection.receive()
            self._heard_by_server = frozenset()
            if isinstance(answer, Exception):
                raise answer
            if answer is not None and not _is_marker(answer):
                raise ProtocolError(f"no marker: {answer!r:.100}")
            self._rest, self._failing = _FIRST_REST, False
            if answer is not None and answer[0] != self._own_key:
                await self._rung(*answer)
            self._reading = False

    def _heard(self, answer: Any) -> None:
        """Wake the waiter in the same turn of the loop: every other turn is time that a job waits."""
        self._has_rung = not self._closing and _is_marker(answer) and self._ring(answer[0])

    async def _rung(self, key: str, member: str, score: str) -> None:
        if not self._has_rung:
            await self._put_back(key, member, score)
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_RETURN):
                await self._changed.wait()

    async def _put_back(self, key: str, member: str, score: str) -> None:
        """Put back a marker that nobody here waits for any longer."""
        try:
            await self._ask("ZADD", key, "NX", score, member)
        except TorilError as error:
            _log.warning("could not put back a marker; its job may start up to %g s late: %s", LOOK, error)


def _is_marker(answer: Any) -> bool:
    match answer:
        case [str(), str(), str()]:
            return True
        case _:
            return False
