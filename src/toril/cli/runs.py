"""Run records of all endings in one list, the last that ended first."""

from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, Final

import click

from toril.model import Ending

__all__ = ["newest_runs"]

_ENDINGS: Final = tuple(map(str, Ending))
_PAGE: Final = 1000
_OVER: Final = "-"  # in a cursor: there are no more of this ending

# Of an ending, from a cursor, at most so many: the documents, and where to go on.
Pages = Callable[[str, str | None, int], Awaitable[tuple[list[dict[str, Any]], str | None]]]


async def newest_runs(pages: Pages, cursor: str | None, limit: int) -> tuple[list[dict[str, Any]], str | None]:
    """The next `limit` run records after a cursor, and the cursor to go on at, if there are more."""
    places = [""] * len(_ENDINGS) if cursor is None else cursor.split(",")
    if len(places) != len(_ENDINGS):
        raise click.BadParameter(f"{cursor!r} is not a cursor of this listing", param_hint="--cursor")
    streams = [_Stream(pages, ending, place) for ending, place in zip(_ENDINGS, places, strict=True)]
    found: list[dict[str, Any]] = []
    while heads := [stream for stream in streams if await stream.fill(limit - len(found) or 1)]:
        if len(found) == limit:
            return found, ",".join([await stream.place() for stream in streams])
        newest = max(heads, key=lambda stream: stream.items[0]["finished_at"])
        found.append(newest.take())
    return found, None


class _Stream:
    """The run records of one ending, which can be left after any of them."""

    def __init__(self, pages: Pages, ending: str, place: str) -> None:
        self._pages = pages
        self._ending = ending
        self._over = place == _OVER
        self._start: str | None = None  # of the page that `items` are of
        self._next = place or None
        self._taken = 0  # of that page
        self.items: deque[dict[str, Any]] = deque()

    async def fill(self, most: int) -> bool:
        """Whether there is another. The first page is of one record: the newest moves on as jobs end, and the cursor
        after it does not."""
        while not self.items and not self._over:
            self._start, self._taken = self._next, 0
            size = 1 if self._start is None else min(most, _PAGE)
            items, self._next = await self._pages(self._ending, self._start, size)
            self.items.extend(items)
            self._over = self._next is None
        return bool(self.items)

    def take(self) -> dict[str, Any]:
        self._taken += 1
        return self.items.popleft()

    async def place(self) -> str:
        """The cursor after what was taken."""
        if not self.items:
            return self._next or _OVER
        cursor, left = self._start, self._taken
        while left > 0 and cursor is not None:
            items, cursor = await self._pages(self._ending, cursor, left)
            left -= len(items)
        return cursor or ""
