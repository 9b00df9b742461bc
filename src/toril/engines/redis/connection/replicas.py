"""Whether replicas have what was written: many who ask at once are answered by one question."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

from toril.engines.redis.connection.line import Line
from toril.engines.redis.connection.pipeline import Link
from toril.errors import AddUncertain, EngineUnavailable

__all__ = ["Replicas", "Unconfirmed", "uncertain"]

_KEPT: Final = 60_000  # ms for which the key stays whose writing is waited for


class Unconfirmed(EngineUnavailable):
    """It was done, and `answer` is what was said to it, but too few replicas have it so far."""

    def __init__(self, message: str, answer: Any) -> None:
        super().__init__(message)
        self.answer = answer


class _Wishes:
    """To know of all that was written on one connection so far. Those that come while one is answered are answered
    together."""

    def __init__(self, line: Line) -> None:
        self.line = line
        self._asking = asyncio.Lock()
        self._made = 0
        self._last = (0, 0)  # up to which wish the last answer is, and the answer

    async def answered(self, count: Callable[[Line], Awaitable[int]]) -> int:
        self._made += 1
        wish = self._made
        async with self._asking:
            if self._last[0] < wish:
                self._last = (self._made, await count(self.line))
            return self._last[1]


class Replicas:
    """The replicas of the server at the other end of a link. The link is for this alone: while the server waits for its
    replicas it does nothing else for who asked."""

    def __init__(self, link: Link, key: str, least: int, timeout: float) -> None:
        self._link = link
        self._key = key
        self._least = least
        self._timeout = timeout
        self._wishes: _Wishes | None = None

    async def confirm(self, line: Line, answer: Any) -> None:
        """Return once enough replicas have all that was written on this connection up to now."""
        wishes = self._wishes
        if wishes is None or wishes.line is not line:
            wishes = self._wishes = _Wishes(line)
        count = await wishes.answered(self._count)
        if count < self._least:
            raise Unconfirmed(
                f"only {count} of {self._least} replicas have confirmed it within {self._timeout:g} s", answer
            )

    async def _count(self, line: Line) -> int:
        # The server waits for what this connection has written. If the answer was a remembered one, that is nothing,
        # and it would say at once that all replicas have it: so something is written that comes after all before it.
        await self._link.ask("SET", self._key, "", "PX", _KEPT, on=line)
        return int(await self._link.ask("WAIT", self._least, round(self._timeout * 1000), on=line))


def uncertain(server: str, error: Unconfirmed, ids: Sequence[str]) -> AddUncertain:
    """What a producer is told of jobs that too few replicas have."""
    what = f"job {ids[0]!r} is" if len(ids) == 1 else f"jobs {ids[0]!r} to {ids[-1]!r} are"
    return AddUncertain(
        f"{what} stored in {server}, but {error}, so a failover may lose it; adding again with the same job_id is "
        "safe, and without one stores it a second time", job_ids=ids,
    )  # fmt: skip
