"""The ASGI application: guards, finds the endpoint, runs it, and answers in one shape."""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from starlette.datastructures import Headers
from starlette.requests import HTTPConnection
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from toril.app import App
from toril.clock import SYSTEM, Clock
from toril.errors import Closed, TorilError
from toril.logs import log
from toril.model import Audited
from toril.policy.masking import masked
from toril.web.access import Access
from toril.web.api import ENDPOINTS
from toril.web.bodies import read_json
from toril.web.endpoint import Asking, Endpoint, asked_for, sent
from toril.web.guard import HEADERS, Guard, Terms, check_meant
from toril.web.openapi import DOCUMENT, document
from toril.web.paths import query
from toril.web.problems import Problem, answer, as_json, problem_of
from toril.web.table import Table

__all__ = ["Probe", "Site", "site"]

# Answers a path that is open to everyone; None if it is none of its own.
Probe = Callable[[str], "Response | None"]

_BASE: Final = "/api/v1"


def site(
    app: App, *, access: Access, hosts: Sequence[str] = (), proxies: Sequence[str] = (), clock: Clock = SYSTEM
) -> "Site":
    """The HTTP API of an app, to serve or to mount in another ASGI application, which then opens the app itself.
    `access` says who may enter; `hosts` the names under which the site is reached, beside those of loopback; `proxies`
    the addresses whose word on the real client is taken."""
    return Site(app, Terms(access=access, hosts=hosts, proxies=proxies), clock)


class Site:
    """One app's HTTP side."""

    def __init__(
        self, app: App, terms: Terms, clock: Clock, probe: Probe | None = None,
        pages: Mapping[str, Callable[[], Response]] | None = None,
    ) -> None:  # fmt: skip
        self.app = app
        self._clock = clock
        self._guard = Guard(terms, clock)
        self._table = Table(ENDPOINTS)
        self._probe = probe
        self._pages = pages or {}

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
        """Open the app for as long as the server runs."""
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
            return answer(problem)
        except Closed:
            return answer(Problem(503, "closed", "the app is not open"))
        except TorilError as error:
            return answer(problem_of(error))
        except Exception:
            incident = self._clock.unique()[:12]
            log.exception("a request failed, incident %s", incident)
            return answer(Problem(500, "failed", "this failed; the log tells why, under this incident"), incident)

    async def _asked(self, scope: Scope, receive: Receive) -> Response:
        headers = Headers(scope=scope)
        self._guard.check_path(scope)
        path = scope["path"].removeprefix(scope.get("root_path", "").rstrip("/"))
        reads = scope["method"] in ("GET", "HEAD")
        probed = self._probe(path) if self._probe is not None else None
        if (probed is not None or path in self._pages) and not reads:
            raise Problem(405, "method", "only GET", headers={"allow": "GET, HEAD"})
        if probed is not None:
            return probed  # whatever the host: an orchestrator asks by address
        self._guard.check_host(headers)
        address = self._guard.address(scope, headers)
        who = await self._guard.admit(HTTPConnection(scope), address)
        if path in self._pages:
            return self._pages[path]()
        if path == _BASE + DOCUMENT and reads:
            return as_json(document(ENDPOINTS, _BASE))
        if not path.startswith(_BASE + "/"):
            raise Problem(404, "not_found", "there is nothing here")
        endpoint, names = self._table.find(scope["method"], path[len(_BASE) :])
        check_meant(scope["method"], headers)
        if who.role < endpoint.role:
            raise Problem(403, "forbidden", f"this needs the role {endpoint.role.name.lower()}")
        asked = asked_for(endpoint.query, query(scope["query_string"]))
        body = sent(endpoint.body, b"" if endpoint.method == "GET" else await read_json(receive))
        asking = Asking(self.app, who, names, asked, body)
        return as_json(await self._noted(endpoint, asking, address), endpoint.status)

    async def _noted(self, endpoint: Endpoint, asking: Asking, address: str) -> Any:
        """What it gives. What may have changed something is written down, however it ended."""
        if endpoint.method == "GET":
            return await endpoint.run(asking)
        ended = "failed"
        try:
            given = await endpoint.run(asking)
            ended = "done"
        except TorilError as error:
            ended = f"refused: {error}"[:300]
            raise
        finally:
            await self._note(endpoint, asking, address, ended)
        return given

    async def _note(self, endpoint: Endpoint, asking: Asking, address: str, ended: str) -> None:
        entry = Audited(
            who=asking.who.name, address=address, action=endpoint.action, target="/".join(asking.path.values()),
            detail=_detail(asking.body), ended=ended,
        )  # fmt: skip
        try:
            await self.app.store.note(entry)
        except TorilError as error:
            log.warning(
                "the audit log could not be written: %s %s by %s: %s", entry.action, entry.target, entry.who, error
            )


def _detail(body: Any) -> str:
    """What was sent, as far as it fits into a log, and without secrets."""
    return "" if body is None else json.dumps(masked(body.model_dump(mode="json", exclude_unset=True)))[:1000]
