"""The pages: which one a path means, drawn with what is around all of them, and what is shown when one cannot be."""

from collections.abc import Mapping
from functools import partial
from typing import Any, Final, Literal
from urllib.parse import urlencode

from starlette.responses import HTMLResponse, RedirectResponse, Response, StreamingResponse
from starlette.types import Scope

from toril.app import App
from toril.runtime.clock import Clock
from toril.web.access import COOKIE, Ticket, Who
from toril.web.endpoint import asked_for
from toril.web.fleet_status import Surroundings
from toril.web.frame import framed
from toril.web.live import Live, Look
from toril.web.pages import PAGES
from toril.web.pages.page import Looking, Page
from toril.web.paths import query
from toril.web.problems import Problem
from toril.web.rendering import Links, rendered
from toril.web.sign_in import CODE_MINUTES, SIGN_IN, Means, check_role
from toril.web.static import file
from toril.web.table import Table

__all__ = ["LIVE", "Dashboard"]

LIVE: Final = "/live"


class _Html(HTMLResponse):
    """A page. A lone surrogate cannot be sent as UTF-8; it is sent as its escape, as in JSON and CSV."""

    def render(self, content: str) -> bytes:
        return content.encode("utf-8", "backslashreplace")


class Dashboard:
    """One app's pages. `means` is how someone signs in, where that is possible."""

    def __init__(self, app: App, clock: Clock, means: Means) -> None:
        self._app = app
        self._clock = clock
        self._means = means
        self._table = Table(PAGES)
        self._surroundings = Surroundings(app, clock)
        self.live = Live(self._draw, clock)

    def asset(self, path: str) -> Response | None:
        """A file that everyone may have; None if the path is none of one."""
        return file(path)

    async def page(self, path: str, raw: bytes, who: Who) -> Response:
        """The page at a path, as one sees it."""
        return _Html(await self._drawn(path, raw, who))

    def stream(self, raw: bytes, who: Who) -> Response:
        """What changes on the page that `view` names, by its address from the site's root."""
        view = query(raw).get("view", "")
        path, _, more = view.partition("?")
        self._found("/" + path.lstrip("/"), who)
        follow = self.live.follow(Look("/" + path.lstrip("/"), more.encode(), who.role))
        return StreamingResponse(follow, media_type="text/event-stream", headers={"x-accel-buffering": "no"})

    async def _draw(self, look: Look) -> str:
        return await self._drawn(look.path, look.query, Who("", look.role))

    async def _drawn(self, path: str, raw: bytes, who: Who) -> str:
        page, names = self._found(path, who)
        asked, around = asked_for(page.query, query(raw)), await self._surroundings.now()
        values = await page.show(Looking(self._app, who, names, asked, None, around, self._surroundings.recall))
        frame = {**framed(self._app.url, around, page.nav), "onward": partial(_onward, query(raw))}
        return self._rendered(page.template, path, who, frame, values)

    def _found(self, path: str, who: Who) -> tuple[Page, Mapping[str, str]]:
        page, names = self._table.find("GET", path)
        check_role(who, page.role, self._means)
        return page, names

    def _rendered(
        self, template: str, path: str, who: Who | None, frame: Mapping[str, Any], values: Mapping[str, Any]
    ) -> str:
        given = {**frame, "means": self._means, **values}
        return rendered(template, given, to=Links.at(path), who=who, now=values.get("now") or self._clock.now())

    def problem(self, problem: Problem, path: str, incident: str | None = None) -> Response:
        """What someone sees in place of a page. Whoever may not enter is asked to sign in, where that is possible."""
        values: dict[str, Any] = {"problem": problem, "incident": incident}
        template = "away.html" if problem.code in ("store_unavailable", "closed", "uncertain") else "problem.html"
        if problem.code in ("who_are_you", "bad_code"):
            return self.sign_in_page(problem, path)
        text = self._rendered(template, path or "/", None, framed(self._app.url), values)
        return _Html(text, problem.status, problem.headers)

    def sign_in_page(self, problem: Problem | None = None, path: str = SIGN_IN, *, told: bool = False) -> Response:
        """Where someone signs in. `told`: another link was just printed."""
        values = {"problem": problem, "told": told, "minutes": CODE_MINUTES}
        text = self._rendered("enter.html", path or "/", None, framed(self._app.url), values)
        return _Html(text) if problem is None else _Html(text, problem.status, problem.headers)

    def signed_in(
        self, ticket: Ticket, path: str, scope: Scope, *, cookie: str = COOKIE, secure: bool = False,
        samesite: Literal["lax", "strict"] = "strict",
    ) -> Response:  # fmt: skip
        """Back to the page that was asked for, with a ticket; from the page for signing in to the overview."""
        value, seconds = ticket
        back = RedirectResponse("./" if path == SIGN_IN else "./" + path.rpartition("/")[2], 303)
        back.set_cookie(
            cookie, value, max_age=seconds, path=scope.get("root_path") or "/", secure=secure, httponly=True,
            samesite=samesite,
        )  # fmt: skip
        return back


def _onward(given: Mapping[str, str], after: str) -> str:
    """Where a list goes on: the same view, from that place. It is whole, for those who read without the script."""
    return "?" + urlencode({**given, "after": after})
