"""Serving a site with uvicorn: bounds on how long a request's head may take, and on how many connections and requests
there are at once. None of them applies to the probes of an orchestrator, which would restart a worker that is well."""

import asyncio
import socket
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final

import uvicorn
from starlette.types import Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from toril.errors import EngineUnavailable
from toril.runtime.clock import SYSTEM
from toril.runtime.idle_connections import IdleConnections
from toril.runtime.logs import log
from toril.web.problems import Problem, answer
from toril.web.site import Site

__all__ = ["Server"]

_HEAD: Final = 5.0  # seconds for the head of a request, and for the next one on the same connection
_SILENT: Final = 256  # connections without a request; more than can be accepted before the first of them is read
_REQUESTS: Final = 128  # at once
_OF_ONE_ADDRESS: Final = 96  # of those; a proxy is one address
_BACKLOG: Final = 128
_TRY_AGAIN: Final = 2.0  # seconds until a store that was away is tried again
_LONGEST_HEAD: Final = 128 * 1024


class Hurried(H11Protocol):
    """A connection that is closed when it sends no whole head in time, so that the slow cannot hold the places."""

    idle: IdleConnections  # all of its server
    _late: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._hurry()

    def handle_events(self) -> None:
        before = self.cycle
        super().handle_events()
        if self.cycle is not before:
            self._relax()

    def on_response_complete(self) -> None:
        self._hurry()  # with the next head on this connection
        super().on_response_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        self._relax()
        super().connection_lost(exc)

    def _hurry(self) -> None:
        self._relax()
        if not self.transport.is_closing():
            self.idle.add(self.transport, self._address)
        self._late = asyncio.get_running_loop().call_later(_HEAD, self.transport.abort)

    def _relax(self) -> None:
        self.idle.discard(self.transport, self._address)
        if self._late is not None:
            self._late.cancel()
            self._late = None

    @property
    def _address(self) -> str:
        return "" if self.client is None else self.client[0]


class Bounded:
    """The site, with a bound on the requests at once, of all and of one address. Probes are not counted."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._under_way: Counter[str] = Counter()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or self._site.is_probe(scope):
            await self._site(scope, receive, send)
            return
        address = (scope.get("client") or ("", 0))[0]
        if self._under_way.total() >= _REQUESTS or self._under_way[address] >= _OF_ONE_ADDRESS:
            headers = {"retry-after": "1", "connection": "close"}
            await answer(Problem(503, "busy", "too many requests at once", headers=headers))(scope, receive, send)
            return
        self._under_way[address] += 1
        try:
            await self._site(scope, receive, send)
        finally:
            self._under_way[address] -= 1
            if not self._under_way[address]:
                del self._under_way[address]


class Server:
    """A site on an address. Signals are left to whoever runs it."""

    def __init__(self, site: Site, host: str, port: int) -> None:
        class Connection(Hurried):
            idle = IdleConnections(_SILENT)

        config = uvicorn.Config(
            Bounded(site), host=host, port=port, http=Connection, ws="none", lifespan="off", loop="none",
            log_config=None, access_log=False, server_header=False, date_header=True, proxy_headers=False,
            timeout_keep_alive=int(_HEAD), timeout_graceful_shutdown=2, backlog=_BACKLOG,
            h11_max_incomplete_event_size=_LONGEST_HEAD,
        )  # fmt: skip
        self._site = site
        self._server = _Quiet(config)
        self._running: asyncio.Task[None] | None = None
        self._opened = False
        self._opening: asyncio.Task[None] | None = None

    async def start(self) -> int:
        """Open the app and listen; the port. `OSError` if the address cannot be had."""
        config = self._server.config
        sock = _bound(config.host, config.port)
        await self._open()
        self._running = asyncio.ensure_future(self._server.serve([sock]))
        waiting = asyncio.ensure_future(self._server.up.wait())
        await asyncio.wait([self._running, waiting], return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        if self._running.done():
            await self._close()
            self._running.result()
            raise OSError(f"HTTP could not be started on {config.host}:{config.port}")
        return int(sock.getsockname()[1])

    async def close(self) -> None:
        self._site.leave()
        self._server.should_exit = True
        if self._running is not None:
            await asyncio.wait([self._running])
            await self._close()

    async def _open(self) -> None:
        """A store that is away keeps nobody from hearing so: what needs it says that it is not open, and it is tried
        again."""
        try:
            await self._site.app.open()
            self._opened = True
        except EngineUnavailable as error:
            log.warning("HTTP has no store: %s", error)
            self._opening = asyncio.ensure_future(self._open_later())

    async def _open_later(self) -> None:
        while not self._opened:
            await SYSTEM.sleep(_TRY_AGAIN)
            with suppress(EngineUnavailable):
                await self._site.app.open()
                self._opened = True

    async def _close(self) -> None:
        if self._opening is not None:
            self._opening.cancel()
        if self._opened:
            await self._site.app.close()


class _Quiet(uvicorn.Server):
    """Leaves signals alone, and tells when it is up."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.up = asyncio.Event()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: Any = None) -> None:
        await super().startup(sockets)
        if self.started:
            self.up.set()


def _bound(host: str, port: int) -> socket.socket:
    """A socket on the address. uvicorn's own way ends the process when it cannot be had."""
    # Named as TCP's: only of such does asyncio send small parts at once, and not when the last one was confirmed.
    sock = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((host, port))
    except OSError:
        sock.close()
        raise
    return sock
