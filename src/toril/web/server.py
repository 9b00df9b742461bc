"""Serving a site: uvicorn, with a bound on how long a request's head may take and on how many may be connected."""

import asyncio
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from toril.clock import SYSTEM
from toril.errors import EngineUnavailable
from toril.logs import log
from toril.web.site import Site

__all__ = ["Server"]

_HEAD: Final = 5.0  # seconds for the head of a request, and for the next one on the same connection
_CONNECTIONS: Final = 128
_TRY_AGAIN: Final = 2.0  # seconds until a store that was away is tried again
_LONGEST_HEAD: Final = 128 * 1024


class Hurried(H11Protocol):
    """A connection that is closed when it sends no whole head in time, so that the slow cannot hold the places."""

    _late: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > _CONNECTIONS:
            transport.abort()
            return
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
        self._late = asyncio.get_running_loop().call_later(_HEAD, self.transport.abort)

    def _relax(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None


class Server:
    """A site on an address. Signals are left to whoever runs it."""

    def __init__(self, site: Site, host: str, port: int) -> None:
        config = uvicorn.Config(
            site, host=host, port=port, http=Hurried, ws="none", lifespan="off", loop="none", log_config=None,
            access_log=False, server_header=False, date_header=True, proxy_headers=False,
            timeout_keep_alive=int(_HEAD), timeout_graceful_shutdown=2, limit_concurrency=_CONNECTIONS,
            h11_max_incomplete_event_size=_LONGEST_HEAD, backlog=_CONNECTIONS,
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
