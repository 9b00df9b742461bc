"""Hearing which jobs have ended, for those who wait for results."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from toril.clock import SYSTEM
from toril.engines.redis.line import Line, Way, lent
from toril.engines.redis.trouble import Trouble

__all__ = ["Ears"]

_FIRST_REST: Final = 0.05
_LONGEST_REST: Final = 5.0


class _Ear:
    """One who waits for some ids."""

    def __init__(self, ids: frozenset[str]) -> None:
        self.ids = ids
        self.news = asyncio.Event()


class Ears:
    """One connection, made when first needed, that is told the ids of ended jobs. It may miss some: who listens looks
    from time to time."""

    def __init__(self, way: Way) -> None:
        self._way = way
        self._line: Line | None = None
        self._task: asyncio.Task[None] | None = None
        self._ears: dict[str, set[_Ear]] = {}
        self._known: set[str] = set()
        self._told = asyncio.Event()

    @asynccontextmanager
    async def listening(self, channel: str, ids: frozenset[str]) -> AsyncIterator[asyncio.Event]:
        """An event that is set whenever one of these jobs may have ended."""
        ear = _Ear(ids)
        self._ears.setdefault(channel, set()).add(ear)
        if self._task is None:
            self._task = asyncio.create_task(self._run(), name="toril-redis-ears")
        elif self._line is not None and channel not in self._known:
            self._line.send("SUBSCRIBE", channel)
        try:
            yield ear.news
        finally:
            self._ears[channel].discard(ear)

    async def close(self) -> None:
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        self._tell_all()

    def _tell_all(self) -> None:
        for ears in self._ears.values():
            for ear in ears:
                ear.news.set()

    async def _run(self) -> None:
        rest = _FIRST_REST
        while True:
            try:
                async with lent(self._way) as line:
                    rest = _FIRST_REST
                    await self._hear(line)
            except (Trouble, OSError):
                pass
            finally:
                self._line, self._known = None, set()
            await self._way.rest(rest * SYSTEM.random())
            rest = min(rest * 2, _LONGEST_REST)

    async def _hear(self, line: Line) -> None:
        self._line = line
        if self._ears:
            line.send("SUBSCRIBE", *self._ears)
        while True:
            kind, channel, payload = await line.receive()
            ears = self._ears.get(channel, set())
            if kind == "subscribe":  # from here on nothing is missed, but what was before has to be looked for
                self._known.add(channel)
            ended = None if kind == "subscribe" else frozenset(str(payload).split("\n"))
            for ear in ears:
                if ended is None or not ended.isdisjoint(ear.ids):
                    ear.news.set()
