"""Draws the dashboard's pages and keeps open tabs up to date."""

import asyncio
import html
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, Literal
from urllib.parse import urlencode

from starlette.responses import HTMLResponse, RedirectResponse, Response, StreamingResponse
from starlette.types import Scope

from toril.app import App
from toril.errors import TorilError
from toril.runtime.clock import Clock
from toril.runtime.logs import log
from toril.web.access import COOKIE, Role, Ticket, Who
from toril.web.fleet_status import FleetStatus, FleetStatusReader
from toril.web.messages import Problem
from toril.web.pages import FORMS, PAGES
from toril.web.pages.page import Act, FormRequest, PageRequest, PageSpec, SeeOther
from toril.web.routing import RouteTable, asked_for, query
from toril.web.sign_in import CODE_MINUTES, SIGN_IN, Means, check_role
from toril.web.templates import Links, file, framed, rendered

__all__ = ["LIVE", "Dashboard", "Live", "PageState", "TabView"]

_TABS: Final = 64  # of 128 connections: the rest is for the API
_PAUSE: Final = 1.0  # seconds between two messages, at least
_SHARE: Final = 25  # the reader rests this many times as long as it reads: at most a twenty-fifth of a core
_MOST: Final = 5.0  # seconds of rest at most, however busy the machine is
_LONGEST: Final = 15.0  # seconds without a message, after which a comment shows that the stream is alive
_CELL: Final = re.compile(r'<[a-z]+ (?:[^<>]* )?id="(n-[^"]*)"([^>]*)>([^<]*)')
_VALUE: Final = re.compile(r' (?:data-)?value="([^"]*)"')
_ROW: Final = re.compile(r'<tr data-id="([^"]*)"')


@dataclass(frozen=True, slots=True)
class TabView:
    """What a tab shows: a page, its query, and for whom, because pages differ by role."""

    path: str
    query: bytes
    role: Role


@dataclass(frozen=True, slots=True)
class PageState:
    """The parts of a page that can change while it is open: cells, by id, and which rows there are."""

    cells: dict[str, str]
    rows: tuple[str, ...]

    @classmethod
    def of(cls, page: str) -> "PageState":
        """Read from the rendered page, so that each cell is named in one place only, its template."""
        cells = {}
        for name, attributes, text in _CELL.findall(page):
            value = _VALUE.search(attributes)
            cells[html.unescape(name)] = html.unescape(value.group(1) if value else text).strip()
        return cls(cells, tuple(html.unescape(row) for row in _ROW.findall(page)))


@dataclass(eq=False, slots=True)
class _Tab:
    """An open page. Messages that it has not read yet are merged, so that a slow tab holds up nothing and needs little
    memory."""

    look: TabView
    waiting: dict[str, str] = field(default_factory=dict)
    sent: dict[str, str] = field(default_factory=dict)
    rows: tuple[str, ...] = ()
    news: dict[str, object] = field(default_factory=dict)
    lost: str = ""
    woken: asyncio.Event = field(default_factory=asyncio.Event)

    def show(self, seen: PageState) -> None:
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
        """The page cannot be rendered at the moment; this is sent once."""
        if self.lost != why:
            self.lost = why
            self.tell(why)

    def tell(self, store: str) -> None:
        self.news["state"] = {"store": store}
        self.woken.set()

    def messages(self) -> str:
        """Everything new, as server-sent events."""
        if self.waiting:
            self.news["patch"] = [{"id": name, "text": text} for name, text in self.waiting.items()]
        found = "".join(f"event: {kind}\ndata: {json.dumps(data)}\n\n" for kind, data in self.news.items())
        self.waiting, self.news = {}, {}
        self.woken.clear()
        return found


class Live:
    """The reader, and the tabs that it reads for. `draw` renders a page as text."""

    def __init__(self, draw: Callable[[TabView], Awaitable[str]], clock: Clock) -> None:
        self._draw = draw
        self._clock = clock
        self._tabs: set[_Tab] = set()
        self._reader: asyncio.Task[None] | None = None
        self._over = False

    def follow(self, look: TabView) -> AsyncIterator[str]:
        """The changes of a page, until the tab or the server closes."""
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
                await self._clock.sleep(_PAUSE)
        finally:
            self._tabs.discard(tab)

    async def _read(self) -> None:
        while self._tabs and not self._over:
            started = self._clock.monotonic()
            for look in {tab.look for tab in self._tabs}:
                await self._look(look)
            took = self._clock.monotonic() - started
            await self._clock.sleep(min(_MOST, max(_PAUSE, took * _SHARE)))

    async def _look(self, look: TabView) -> None:
        tabs = [tab for tab in self._tabs if tab.look == look]
        try:
            seen = PageState.of(await self._draw(look))
        except (TorilError, Problem) as error:
            for tab in tabs:
                tab.lose("gone" if isinstance(error, TorilError) else "changed")
            return
        except Exception:
            log.exception("could not update an open page: %s", look.path)
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


LIVE: Final = "/live"


_NO_PAGE: Final = "there is no page at this address"


class _Html(HTMLResponse):
    """A page. A lone surrogate cannot be sent as UTF-8; it is sent as its escape, as in JSON and CSV."""

    def render(self, content: str) -> bytes:
        return content.encode("utf-8", "backslashreplace")


class Dashboard:
    """One app's pages. `means` is how to sign in, if that is possible."""

    def __init__(self, app: App, clock: Clock, means: Means) -> None:
        self._app = app
        self._clock = clock
        self._means = means
        self._table = RouteTable(PAGES, _NO_PAGE)
        self._forms = RouteTable(FORMS, _NO_PAGE)
        self._fleet = FleetStatusReader(app, clock)
        self.live = Live(self._draw, clock)

    def asset(self, path: str) -> Response | None:
        """A file that everyone may have; None if the path is not one of them."""
        return file(path)

    async def page(self, path: str, raw: bytes, who: Who) -> Response:
        """The page at a path, as this person sees it."""
        return _Html(await self._drawn(path, raw, who))

    def takes_form(self, path: str) -> bool:
        """Whether the page at a path has a form that is sent to it."""
        try:
            self._forms.find("POST", path)
        except Problem:
            return False
        return True

    async def sent(self, path: str, raw: bytes, who: Who, form: Mapping[str, str], act: Act) -> Response:
        """The answer to the form of a page: what was done, or the page again."""
        page, names = self._forms.find("POST", path)
        check_role(who, page.role, self._means)
        asked, around = asked_for(page.query, query(raw)), await self._fleet.now()
        given = await page.send(FormRequest(self._app, who, names, asked, None, around, self._fleet.recall, form, act))
        if isinstance(given, SeeOther):
            return RedirectResponse(Links.at(path)(*given.to, **given.query), 303)
        return _Html(
            self._rendered(page.template, path, who, self._frame(raw, around, page.nav), given.values), given.status
        )

    def _frame(self, raw: bytes, around: FleetStatus, nav: str) -> dict[str, Any]:
        return {**framed(self._app.url, around, nav), "onward": partial(_onward, query(raw))}

    def stream(self, raw: bytes, who: Who) -> Response:
        """The changes of the page that `view` names, by its address relative to the site's root."""
        view = query(raw).get("view", "")
        path, _, more = view.partition("?")
        self._found("/" + path.lstrip("/"), who)
        follow = self.live.follow(TabView("/" + path.lstrip("/"), more.encode(), who.role))
        return StreamingResponse(follow, media_type="text/event-stream", headers={"x-accel-buffering": "no"})

    async def _draw(self, look: TabView) -> str:
        return await self._drawn(look.path, look.query, Who("", look.role))

    async def _drawn(self, path: str, raw: bytes, who: Who) -> str:
        page, names = self._found(path, who)
        asked, around = asked_for(page.query, query(raw)), await self._fleet.now()
        values = await page.show(PageRequest(self._app, who, names, asked, None, around, self._fleet.recall))
        return self._rendered(page.template, path, who, self._frame(raw, around, page.nav), values)

    def _found(self, path: str, who: Who) -> tuple[PageSpec, Mapping[str, str]]:
        page, names = self._table.find("GET", path)
        check_role(who, page.role, self._means)
        return page, names

    def _rendered(
        self, template: str, path: str, who: Who | None, frame: Mapping[str, Any], values: Mapping[str, Any]
    ) -> str:
        given = {**frame, "means": self._means, **values}
        return rendered(template, given, to=Links.at(path), who=who, now=values.get("now") or self._clock.now())

    def problem(self, problem: Problem, path: str, incident: str | None = None) -> Response:
        """The page shown instead when there is a problem. Whoever lacks access is asked to sign in, if that is
        possible."""
        values: dict[str, Any] = {"problem": problem, "incident": incident}
        template = "away.html" if problem.code in ("store_unavailable", "closed", "uncertain") else "problem.html"
        if problem.code in ("who_are_you", "bad_code"):
            return self.sign_in_page(problem, path)
        text = self._rendered(template, path or "/", None, framed(self._app.url), values)
        return _Html(text, problem.status, problem.headers)

    def sign_in_page(
        self, problem: Problem | None = None, path: str = SIGN_IN, *, link_printed: bool = False
    ) -> Response:
        """The page for signing in. `link_printed`: another link was just printed."""
        values = {"problem": problem, "told": link_printed, "minutes": CODE_MINUTES}
        text = self._rendered("enter.html", path or "/", None, framed(self._app.url), values)
        return _Html(text) if problem is None else _Html(text, problem.status, problem.headers)

    def signed_in(
        self,
        ticket: Ticket,
        path: str,
        scope: Scope,
        *,
        cookie: str = COOKIE,
        secure: bool = False,
        samesite: Literal["lax", "strict"] = "strict",
    ) -> Response:
        """Redirect, with a ticket, to the page that was requested; from the sign-in page, to the overview."""
        value, seconds = ticket
        back = RedirectResponse("./" if path == SIGN_IN else "./" + path.rpartition("/")[2], 303)
        back.set_cookie(
            cookie,
            value,
            max_age=seconds,
            path=scope.get("root_path") or "/",
            secure=secure,
            httponly=True,
            samesite=samesite,
        )
        return back


def _onward(given: Mapping[str, str], after: str) -> str:
    """The address at which a list continues: the same view, from that position. It works without the script too."""
    return "?" + urlencode({**given, "after": after})
