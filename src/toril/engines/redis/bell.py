"""Waiting for news: one connection that blocks on the markers of all queues waited for."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Final

from toril.clock import SYSTEM
from toril.engines.redis.answer import Answer, answer_kind
from toril.engines.redis.line import Line, Way, lent
from toril.engines.redis.trouble import Trouble

__all__ = ["Bell"]

_BLOCK: Final = 20  # seconds that one blocking read lasts at most
_BEYOND: Final = 2.0  # seconds after which a blocking read that has not ended counts as lost
_RETURN: Final = 0.002  # seconds in which who was woken usually waits again
_FIRST_REST: Final = 0.05
_LONGEST_REST: Final = 2.0

Waiter = Answer[set[str]]


class Bell:
    """Wakes those who wait for a key. A marker is taken by who is woken by it; one that nobody waits for any more is
    put back, so that another process hears it."""

    def __init__(self, way: Way, own_key: str, ask: Callable[..., Awaitable[Any]]) -> None:
        self._way = way
        self._own_key = own_key
        self._ask = ask
        self._answer = answer_kind()
        self._waiting: dict[str, set[Waiter]] = {}
        self._heard_by_server: frozenset[str] = frozenset()
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._has_rung = False

    async def wait(self, keys: Iterable[str], timeout: float) -> set[str] | None:
        """The keys that rang; None if the time was up."""
        keys = list(keys)
        if self._task is None:
            self._task = asyncio.create_task(self._run(), name="toril-redis-bell")
        waiter: Waiter = self._answer(asyncio.get_running_loop())
        for key in keys:
            self._waiting.setdefault(key, set()).add(waiter)
        self._changed.set()
        try:
            async with asyncio.timeout(timeout):
                if self._heard_by_server and not self._heard_by_server.issuperset(keys):
                    await self._wake_server()
                return await waiter
        except TimeoutError:  # of both at once, the key counts: its marker has been taken
            return waiter.result() if waiter.done() and not waiter.cancelled() else None
        finally:
            self._forget(keys, waiter)

    def _forget(self, keys: list[str], waiter: Waiter) -> None:
        for key in keys:
            waiting = self._waiting.get(key, set())
            waiting.discard(waiter)
            if not waiting:
                self._waiting.pop(key, None)

    async def _wake_server(self) -> None:
        """End the blocking read, so that the next one knows of all keys."""
        await self._ask("ZADD", self._own_key, 0, "0")
        await self._ask("PEXPIRE", self._own_key, 60_000)

    async def close(self) -> None:
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        self._ring_all()

    def _ring_all(self) -> None:
        """Something may have been missed: have all look for themselves."""
        for key in list(self._waiting):
            self._ring(key)

    def _ring(self, key: str) -> bool:
        waiting = [waiter for waiter in self._waiting.get(key, ()) if not waiter.done()]
        for waiter in waiting:
            if not waiter.done():  # still: one who goes on may have ended the wait of another
                waiter.come({key} if self._task is not None else set())
        return bool(waiting)

    async def _run(self) -> None:
        rest = _FIRST_REST
        while True:
            try:
                async with lent(self._way) as line:
                    if rest > _FIRST_REST:
                        self._ring_all()  # a marker may have been taken by a read whose answer was lost
                    rest = _FIRST_REST
                    await self._listen(line)
            except (Trouble, OSError):
                self._heard_by_server = frozenset()
            await self._way.rest(rest * SYSTEM.random())
            rest = min(rest * 2, _LONGEST_REST)
            self._ring_all()

    async def _listen(self, line: Line) -> None:
        turn = 0
        line.heed(self._heard)
        while True:
            keys = list(self._waiting)
            self._changed.clear()
            if not keys:
                await self._changed.wait()
                continue
            turn = (turn + 1) % len(keys)  # the server serves keys in order: each is first in its turn
            self._heard_by_server = frozenset(keys)
            line.send("BZPOPMIN", self._own_key, *keys[turn:], *keys[:turn], _BLOCK)
            async with asyncio.timeout(_BLOCK + _BEYOND):
                answer = await line.receive()
            self._heard_by_server = frozenset()
            if isinstance(answer, Exception):
                raise answer
            if answer is not None and answer[0] != self._own_key:
                await self._rung(*answer)

    def _heard(self, answer: Any) -> None:
        """Wake who waits in the very tick in which it comes: every other one is time that a job waits for."""
        self._has_rung = isinstance(answer, list) and self._ring(answer[0])

    async def _rung(self, key: str, member: str, score: str) -> None:
        if not self._has_rung:
            await self._ask("ZADD", key, "NX", score, member)
            return
        try:
            async with asyncio.timeout(_RETURN):
                await self._changed.wait()
        except TimeoutError:
            return
