"""Whether replicas have what was written: many who ask at once are answered by one question."""

import asyncio
from typing import Any, Final

from toril.engines.redis.link import Line, Link
from toril.errors import EngineUnavailable

__all__ = ["Replicas", "Unconfirmed"]

_KEPT: Final = 60_000  # ms for which the key stays whose writing is waited for


class Unconfirmed(EngineUnavailable):
    """It was done, and `answer` is what was said to it, but too few replicas have it so far."""

    def __init__(self, message: str, answer: Any) -> None:
        super().__init__(message)
        self.answer = answer


class Replicas:
    """The replicas of the server at the other end of a link. The link is for this alone: while the server waits for its
    replicas it does nothing else for who asked."""

    def __init__(self, link: Link, key: str, least: int, timeout: float) -> None:
        self._link = link
        self._key = key
        self._least = least
        self._timeout = timeout
        self._asking = asyncio.Lock()
        self._wishes = 0
        self._last: tuple[Line, int, int] | None = None  # connection, the last wish that it answers, the answer

    async def confirm(self, line: Line, answer: Any) -> None:
        """Return once enough replicas have all that was written on this connection up to now."""
        self._wishes += 1
        wish = self._wishes
        async with self._asking:
            known = self._last
            if known is None or known[0] is not line or known[1] < wish:
                known = self._last = (line, self._wishes, await self._count(line))
        if known[2] < self._least:
            raise Unconfirmed(
                f"only {known[2]} of {self._least} replicas have confirmed it within {self._timeout:g} s", answer
            )

    async def _count(self, line: Line) -> int:
        # The server waits for what this connection has written. If the answer was a remembered one, that is nothing,
        # and it would say at once that all replicas have it: so something is written that comes after all before it.
        await self._link.ask("SET", self._key, "", "PX", _KEPT, on=line)
        return int(await self._link.ask("WAIT", self._least, round(self._timeout * 1000), on=line))
