"""The ASGI application: guards a request, finds its endpoint or page, runs it, and answers."""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Literal

from starlette.datastructures import Headers
from starlette.requests import HTTPConnection
from starlette.responses import RedirectResponse, Response
from starlette.types import Receive, Scope, Send

from toril.app import App
from toril.errors import Closed, TorilError
from toril.model import AuditEntry
from toril.policy.redaction import masked, redacted
from toril.runtime.clock import SYSTEM, Clock
from toril.runtime.logs import log
from toril.web.access import Access, Role, SignsIn, Who
from toril.web.api import ENDPOINTS
from toril.web.dashboard import LIVE, Dashboard
from toril.web.guard import HEADERS, Guard, GuardOptions, check_meant, check_own
from toril.web.messages import Problem, answer, as_json, form_field, problem_of, read_fields, read_form, read_json
from toril.web.openapi import DOCUMENT, document
from toril.web.prometheus import Exporter
from toril.web.routing import Endpoint, Form, Request, RouteTable, asked_for, query, sent
from toril.web.sign_in import SIGN_IN, SignInLink, check_role, means_of

__all__ = ["Probe", "Site", "site"]

# Answers a path that is open to everyone; None for other paths.
Probe = Callable[[str], "Response | None"]

_BASE: Final = "/api/v1"
_METRICS: Final = "/metrics"
_FORM: Final = "application/x-www-form-urlencoded"


def site(
    app: App,
    *,
    access: Access,
    hosts: Sequence[str] = (),
    proxies: Sequence[str] = (),
    dashboard: Literal["on", "off"] = "on",
    clock: Clock = SYSTEM,
) -> "Site":
    """The dashboard and HTTP API of an app as an ASGI application, to serve or to mount in another one. An application
    that mounts it must open the app itself.

    Args:
        app: The app to show.
        access: Who may do what, such as `Tokens` or `CustomAccess`.
        hosts: Host names to accept, besides those of loopback.
        proxies: Addresses of proxies whose `X-Forwarded-*` headers are trusted.
        dashboard: Whether to serve the dashboard, or only the API.
    """
    return Site(app, GuardOptions(access=access, hosts=hosts, proxies=proxies), clock, dashboard=dashboard)


class Site:
    """One app's HTTP side."""

    def __init__(
        self,
        app: App,
        terms: GuardOptions,
        clock: Clock,
        probe: Probe | None = None,
        pages: Mapping[str, Callable[[], Response]] | None = None,
        dashboard: Literal["on", "off"] = "on",
    ) -> None:
        self.app = app
        self._clock = clock
        self._guard = Guard(terms, clock)
        self._table = RouteTable(ENDPOINTS, f"no such endpoint; see {_BASE}{DOCUMENT}")
        self._probe = probe
        self._pages = pages or {}
        self._exporter = Exporter(app, clock)
        self._dashboard = Dashboard(app, clock, means_of(terms.access)) if dashboard == "on" else None

    def is_probe(self, scope: Scope) -> bool:
        """Whether an orchestrator sends a probe: that is always answered, however busy the server is."""
        return self._probe is not None and self._probe(scope["path"]) is not None

    def leave(self) -> None:
        """End the streams of open pages: the server is about to stop."""
        if self._dashboard is not None:
            self._dashboard.live.close()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        match scope["type"]:
            case "lifespan":
                await self._live(receive, send)
            case "websocket":
                await send({"type": "websocket.close", "code": 1008})
            case _:
                response = await self._answered(scope, receive)
                for name, value in HEADERS.items():
                    response.headers.setdefault(name, value)
                await response(scope, receive, send)

    async def _live(self, receive: Receive, send: Send) -> None:
        """Keep the app open while the server runs."""
        await receive()
        try:
            await self.app.open()
        except TorilError as error:
            await send({"type": "lifespan.startup.failed", "message": str(error)})
            return
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await self.app.close()
        await send({"type": "lifespan.shutdown.complete"})

    async def _answered(self, scope: Scope, receive: Receive) -> Response:
        try:
            return await self._asked(scope, receive)
        except Problem as problem:
            return self._problem_response(scope, problem)
        except Closed:
            return self._problem_response(scope, Problem(503, "closed", "the app is not open"))
        except TorilError as error:
            return self._problem_response(scope, problem_of(error))
        except Exception:
            incident = self._clock.unique()[:12]
            log.exception("a request failed, incident %s", incident)
            failed = Problem(500, "failed", "something went wrong; look for this incident in the server log")
            return self._problem_response(scope, failed, incident)

    def _problem_response(self, scope: Scope, problem: Problem, incident: str | None = None) -> Response:
        """A browser that requested a page gets a page; everything else gets JSON."""
        path, wanted = _path(scope), Headers(scope=scope).get("accept", "")
        if self._dashboard is None or _is_api(path) or path == LIVE or "text/html" not in wanted:
            return answer(problem, incident)
        return self._dashboard.problem(problem, path, incident)

    async def _asked(self, scope: Scope, receive: Receive) -> Response:
        headers = Headers(scope=scope)
        self._guard.check_path(scope)
        path = _path(scope)
        reads = scope["method"] in ("GET", "HEAD")
        probed = self._probe(path) if self._probe is not None else None
        if (probed is not None or path in self._pages or path == _METRICS) and not reads:
            raise Problem(405, "method", "only GET is allowed", headers={"allow": "GET, HEAD"})
        if probed is not None:
            return probed  # whatever the host is, because orchestrators use addresses
        connection, address = HTTPConnection(scope), self._guard.address(scope, headers)
        known = await self._guard.check_host(connection, address)
        for_all = await self._for_strangers(scope, receive, path, address)
        if for_all is not None:
            return for_all
        who = known or await self._guard.admit(connection, address)
        if path in self._pages or path == _METRICS:
            return self._pages[path]() if path in self._pages else await self._exporter.response()
        if path == _BASE + DOCUMENT and reads:
            return as_json(document(ENDPOINTS, _BASE))
        if not _is_api(path):
            return await self._shown(scope, receive, path, who, address)
        return await self._done(scope, receive, path[len(_BASE) :], who, address)

    async def _done(self, scope: Scope, receive: Receive, path: str, who: Who, address: str) -> Response:
        endpoint, names = self._table.find(scope["method"], path)
        check_meant(scope["method"], Headers(scope=scope))
        check_role(who, endpoint.role, means_of(self._guard.terms.access))
        asked = asked_for(endpoint.query, query(scope["query_string"]))
        body = sent(endpoint.body, b"" if endpoint.method == "GET" else await read_json(receive))
        asking = Request(self.app, who, names, asked, body)
        given = await self._noted(endpoint, asking, address)
        return given if isinstance(given, Response) else as_json(given, endpoint.status)

    async def _for_strangers(self, scope: Scope, receive: Receive, path: str, address: str) -> Response | None:
        """The responses that need no access: styles, scripts, and signing in. None for everything else."""
        if self._dashboard is None or _is_api(path):
            return None
        access, posts = self._guard.terms.access, scope["method"] == "POST"
        if isinstance(access, SignInLink) and path == SIGN_IN:
            return await _signed_in_by_link(access, self._dashboard, scope)
        if isinstance(access, SignsIn) and posts and not await self._is_form(scope, path):
            return await self._signed_in_by_token(access, self._dashboard, scope, receive, path, address)
        if isinstance(access, SignsIn) and path == SIGN_IN:
            return self._dashboard.sign_in_page()
        return self._dashboard.asset(path)

    async def _is_form(self, scope: Scope, path: str) -> bool:
        """Whether someone who has signed in sends the form of a page."""
        if self._dashboard is None or not self._dashboard.takes_form(path):
            return False
        return await self._guard.terms.access.who(HTTPConnection(scope)) is not None

    async def _signed_in_by_token(
        self, access: SignsIn, dashboard: Dashboard, scope: Scope, receive: Receive, path: str, address: str
    ) -> Response:
        headers = Headers(scope=scope)
        check_own(headers)
        self._guard.check_tries(address)
        ticket = access.ticket(form_field(await read_form(receive), "token").strip())
        if ticket is None:
            self._guard.refuse_secret(address)
            raise Problem(401, "who_are_you", "Unknown token.", field="token")
        return dashboard.signed_in(ticket, path, scope, secure=self._guard.is_secure(scope, headers))

    async def _shown(self, scope: Scope, receive: Receive, path: str, who: Who, address: str) -> Response:
        if self._dashboard is None:
            raise Problem(404, "not_found", "the dashboard is switched off")
        if scope["method"] == "POST" and self._dashboard.takes_form(path):
            return await self._sent(self._dashboard, scope, receive, path, who, address)
        if scope["method"] not in ("GET", "HEAD"):
            raise Problem(405, "method", "only GET is allowed", headers={"allow": "GET, HEAD"})
        if not path:  # relative addresses need the slash after a prefix
            return RedirectResponse("./" + scope["path"].rpartition("/")[2] + "/", 307)
        if path == LIVE:
            check_own(Headers(scope=scope))
            return self._dashboard.stream(scope["query_string"], who)
        return await self._dashboard.page(path, scope["query_string"], who)

    async def _sent(
        self, dashboard: Dashboard, scope: Scope, receive: Receive, path: str, who: Who, address: str
    ) -> Response:
        """The answer to the form of a page. It may do what the API may, and is noted as that is."""
        headers = Headers(scope=scope)
        check_own(headers)
        if "origin" not in headers and "sec-fetch-site" not in headers:
            raise Problem(403, "cross_site", "the form has no Origin or Sec-Fetch-Site header; programs use the API")
        if headers.get("content-type", "").partition(";")[0].strip().lower() != _FORM:
            raise Problem(415, "not_a_form", f"send the form as {_FORM}")

        async def act(endpoint: Endpoint, path: Mapping[str, str], body: Form) -> Any:
            check_role(who, endpoint.role, means_of(self._guard.terms.access))
            return await self._noted(endpoint, Request(self.app, who, path, None, body), address)

        return await dashboard.sent(path, scope["query_string"], who, await read_fields(receive), act)

    async def _noted(self, endpoint: Endpoint, asking: Request, address: str) -> Any:
        """The response. Whatever may have changed something is written to the audit log, however it ended."""
        if endpoint.method == "GET":
            return await endpoint.run(asking)
        ended, given = "failed", None
        try:
            given = await endpoint.run(asking)
            ended = "done"
        except (TorilError, Problem) as error:
            ended = f"refused: {redacted(str(error))}"[:300]
            raise
        finally:
            entry = AuditEntry(
                who=asking.who.name,
                address=address,
                action=endpoint.action,
                target="/".join(asking.path.values()),
                detail=_detail(asking),
                ended=ended,
                **_counted(given),
            )
            await self._note(entry)
        return given

    async def _note(self, entry: AuditEntry) -> None:
        try:
            await self.app.store.audit.append(entry)
        except TorilError as error:
            log.warning(
                "the audit log could not be written: %s %s by %s: %s", entry.action, entry.target, entry.who, error
            )


async def _signed_in_by_link(access: SignInLink, dashboard: Dashboard, scope: Scope) -> Response:
    if scope["method"] == "POST":
        check_own(Headers(scope=scope))
        access.tell_link()
        return dashboard.sign_in_page(link_printed=True)
    code = query(scope["query_string"]).get("code")
    if code is None or scope["method"] != "GET":
        return dashboard.sign_in_page()
    ticket = access.redeem(code)
    if ticket is not None:
        # Lax, because the link may be clicked in a chat: the cookie must survive the redirect.
        return dashboard.signed_in(ticket, SIGN_IN, scope, cookie=access.cookie, samesite="lax")
    who = await access.who(HTTPConnection(scope))
    if who is not None and who.role is Role.ADMIN:  # the same link again, in the same browser
        return RedirectResponse("./", 303)
    raise Problem(403, "bad_code", "This link has expired or was already used.", field="code")


def _path(scope: Scope) -> str:
    """The path below the mount point."""
    return str(scope["path"]).removeprefix(scope.get("root_path", "").rstrip("/"))


def _is_api(path: str) -> bool:
    return path == _BASE or path.startswith(_BASE + "/")


def _counted(given: Any) -> dict[str, int]:
    """How many jobs an action changed, and how many were refused, if the answer says so."""
    if not isinstance(given, dict):
        return {}
    done = next((given[name] for name in ("done", "removed", "retried") if type(given.get(name)) is int), None)
    left = sum(len(given[name]) for name in ("refused", "invalid") if isinstance(given.get(name), list | dict))
    return {} if done is None else {"done": done, "refused": left}


def _detail(asking: Request) -> str:
    """The request's body, as far as it fits into the log, without secrets."""
    if asking.body is None:
        return ""
    found = asking.body.model_dump(mode="json", exclude_unset=True)
    if "data" in found:
        queue, name = asking.path.get("queue", ""), str(found.get("name") or found.get("job") or "")
        found["data"] = asking.app.redaction.seen(found["data"], asking.body.part, queue, name)
    return json.dumps(masked(found))[:1000]
