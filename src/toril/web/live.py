"""Open pages kept up to date: one reader for all tabs of a process, which sleeps while nobody looks."""

import asyncio
import html
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final

from toril.errors import TorilError
from toril.runtime.clock import Clock
from toril.runtime.logs import log
from toril.web.access import Role
from toril.web.problems import Problem

__all__ = ["Live", "Look", "Seen"]

_TABS: Final = 64  # of the 128 connections: the API keeps places of its own
_REST: Final = 1.0  # seconds between two messages, at least
_SHARE: Final = 25  # the reader rests so many times as long as it reads: at most a twenty-fifth of a core
_MOST: Final = 5.0  # seconds of rest, however busy the machine is
_LONGEST: Final = 15.0  # seconds without a message, until a comment shows that the stream is alive
_CELL: Final = re.compile(r'<[a-z]+ (?:[^<>]* )?id="(n-[^"]*)"([^>]*)>([^<]*)')
_VALUE: Final = re.compile(r' (?:data-)?value="([^"]*)"')
_ROW: Final = re.compile(r'<tr data-id="([^"]*)"')


@dataclass(frozen=True, slots=True)
class Look:
    """What a tab looks at: a page, its query, and as whom, for pages differ by role."""

    path: str
    query: bytes
    role: Role


@dataclass(frozen=True, slots=True)
class Seen:
    """What of a page can change while it is open: cells, by their ids, and which rows there are."""

    cells: dict[str, str]
    rows: tuple[str, ...]

    @classmethod
    def of(cls, page: str) -> "Seen":
        """Read from the page itself, so that a cell is named in one place, its template."""
        cells = {}
        for name, attributes, text in _CELL.findall(page):
            value = _VALUE.search(attributes)
            cells[html.unescape(name)] = html.unescape(value.group(1) if value else text).strip()
        return cls(cells, tuple(html.unescape(row) for row in _ROW.findall(page)))


@dataclass(eq=False, slots=True)
class _Tab:
    """One open page. What it has not read yet is merged, so that a slow one holds nothing up and keeps little."""

    look: Look
    waiting: dict[str, str] = field(default_factory=dict)
    sent: dict[str, str] = field(default_factory=dict)
    rows: tuple[str, ...] = ()
    news: dict[str, object] = field(default_factory=dict)
    lost: str = ""
    woken: asyncio.Event = field(default_factory=asyncio.Event)

    def show(self, seen: Seen) -> None:
        if self.lost:
            self.lost = ""
            self.tell("back")
        changed = {name: text for name, text in seen.cells.items() if self.sent.get(name) != text}
        self.sent |= changed
        self.waiting |= changed
        if seen.rows != self.rows:
            self.rows = seen.rows
            self.news["rows"] = {"ids": list(seen.rows)}
        if self.waiting or self.news:
            self.woken.set()

    def lose(self, why: str) -> None:
        """The page cannot be drawn for now; that is told once."""
        if self.lost != why:
            self.lost = why
            self.tell(why)

    def tell(self, store: str) -> None:
        self.news["state"] = {"store": store}
        self.woken.set()

    def messages(self) -> str:
        """All that is new, as server-sent events."""
        if self.waiting:
            self.news["patch"] = [{"id": name, "text": text} for name, text in self.waiting.items()]
        found = "".join(f"event: {kind}\ndata: {json.dumps(data)}\n\n" for kind, data in self.news.items())
        self.waiting, self.news = {}, {}
        self.woken.clear()
        return found


class Live:
    """The reader, and the tabs that it reads for. `draw` gives a page as its text."""

    def __init__(self, draw: Callable[[Look], Awaitable[str]], clock: Clock) -> None:
        self._draw = draw
        self._clock = clock
        self._tabs: set[_Tab] = set()
        self._reader: asyncio.Task[None] | None = None
        self._over = False

    def follow(self, look: Look) -> AsyncIterator[str]:
        """What changes on a page, until the tab or the server closes."""
        if self._over or len(self._tabs) >= _TABS:
            raise Problem(503, "busy", "too many pages are open", headers={"retry-after": "30"})
        return self._messages(_Tab(look))

    async def _messages(self, tab: _Tab) -> AsyncIterator[str]:
        self._tabs.add(tab)
        if self._reader is None or self._reader.done():
            self._reader = asyncio.ensure_future(self._read())
        try:
            yield "retry: 2000\n\n"
            while not self._over:
                try:
                    async with asyncio.timeout(_LONGEST):
                        await tab.woken.wait()
                except TimeoutError:
                    yield ": here\n\n"
                    continue
                if found := tab.messages():
                    yield found
                await self._clock.sleep(_REST)
        finally:
            self._tabs.discard(tab)

    async def _read(self) -> None:
        while self._tabs and not self._over:
            started = self._clock.monotonic()
            for look in {tab.look for tab in self._tabs}:
                await self._look(look)
            took = self._clock.monotonic() - started
            await self._clock.sleep(min(_MOST, max(_REST, took * _SHARE)))

    async def _look(self, look: Look) -> None:
        tabs = [tab for tab in self._tabs if tab.look == look]
        try:
            seen = Seen.of(await self._draw(look))
        except (TorilError, Problem) as error:
            for tab in tabs:
                tab.lose("gone" if isinstance(error, TorilError) else "changed")
            return
        except Exception:
            log.exception("a page could not be kept up to date: %s", look.path)
            return
        for tab in tabs:
            tab.show(seen)

    def close(self) -> None:
        """End all streams, so that a server that stops need not wait for them."""
        self._over = True
        for tab in self._tabs:
            tab.woken.set()
        if self._reader is not None:
            self._reader.cancel()
