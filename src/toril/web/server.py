"""Runs uvicorn, beside a supervisor or alone, and answers whether it is ready."""

import asyncio
import socket
import sys
from asyncio import CancelledError, Event, create_task
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from logging import INFO
from typing import Any, Final

import uvicorn
from starlette.responses import PlainTextResponse, Response
from starlette.types import Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from toril.app import App
from toril.errors import EngineUnavailable, TorilError
from toril.runtime.clock import SYSTEM, Clock
from toril.runtime.idle_connections import IdleConnections
from toril.runtime.logs import log
from toril.store.connect import is_in_memory
from toril.supervisor import BootFailure, HealthMonitor, Supervisor
from toril.supervisor import serve as probes_alone
from toril.web.access import Access, Nobody, Role, Tokens, is_loopback
from toril.web.guard import GuardOptions
from toril.web.messages import Problem, answer, as_json
from toril.web.sign_in import CODE_MINUTES, SignInLink
from toril.web.site import Site

__all__ = ["HttpServer", "StoreWatch", "access_by", "address_of", "serving"]

_HEAD: Final = 5.0  # seconds for the head of a request, and for the next one on the same connection
_SILENT: Final = 256  # connections without a request; more than are accepted before the first of them is read
_REQUESTS: Final = 128  # requests at a time
_OF_ONE_ADDRESS: Final = 96  # of those from one address; a proxy is one address
_BACKLOG: Final = 128
_TRY_AGAIN: Final = 2.0  # seconds between attempts to open a store that is away
_LONGEST_HEAD: Final = 128 * 1024


class Hurried(H11Protocol):
    """A connection that is closed if it does not send a complete head in time, so that slow clients cannot occupy all
    connections."""

    idle: IdleConnections  # of this server
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
        self._hurry()  # for the next head on this connection
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
    """The site with a limit on simultaneous requests, in total and per address. Probes are not counted."""

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


class HttpServer:
    """A site on an address. The caller handles signals."""

    def __init__(self, site: Site, host: str, port: int) -> None:
        class HttpConnection(Hurried):
            idle = IdleConnections(_SILENT)

        config = uvicorn.Config(
            Bounded(site),
            host=host,
            port=port,
            http=HttpConnection,
            ws="none",
            lifespan="off",
            loop="none",
            log_config=None,
            access_log=False,
            server_header=False,
            date_header=True,
            proxy_headers=False,
            timeout_keep_alive=int(_HEAD),
            timeout_graceful_shutdown=2,
            backlog=_BACKLOG,
            h11_max_incomplete_event_size=_LONGEST_HEAD,
        )
        self._site = site
        self._server = _Quiet(config)
        self._running: asyncio.Task[None] | None = None
        self._opened = False
        self._opening: asyncio.Task[None] | None = None

    async def start(self) -> int:
        """Open the app and listen; return the port. `OSError` if the address is not available."""
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
            raise OSError(f"could not start HTTP on {config.host}:{config.port}")
        return int(sock.getsockname()[1])

    async def close(self) -> None:
        self._site.leave()
        self._server.should_exit = True
        if self._running is not None:
            await asyncio.wait([self._running])
            await self._close()

    async def _open(self) -> None:
        """If the store is away, serve anyway: requests that need it fail, and opening is tried again."""
        try:
            await self._site.app.open()
            self._opened = True
        except EngineUnavailable as error:
            log.warning("HTTP is up, but the store is not: %s", error)
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
    """Leaves signals alone, and sets an event once it is up."""

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
    """A socket on the address. uvicorn itself would end the process if the address is not available."""
    # Explicitly TCP: only then does asyncio send small parts at once, without waiting for confirmations.
    sock = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((host, port))
    except OSError:
        sock.close()
        raise
    return sock


_UNREADY: Final = 503


def access_by(host: str, token: str | None, read_token: str | None) -> Access:
    """Tokens if there are any. Without them, on loopback, everyone on this machine has read-only access and the printed
    link gives full access; elsewhere nobody gets in."""
    tokens = {given: role for given, role in ((read_token, Role.READ), (token, Role.ADMIN)) if given}
    if tokens:
        return Tokens(tokens)
    return SignInLink() if is_loopback(host) else Nobody()


def address_of(host: str, port: int) -> str:
    """The URL of a server that listens there."""
    return f"http://[{host}]:{port}/" if ":" in host else f"http://{host}:{port}/"


def serving(access: Access, hosts: Sequence[str], proxies: Sequence[str]) -> Callable[[Supervisor], Awaitable[None]]:
    """What a supervisor runs beside its children, until it is cancelled."""

    async def serve(supervisor: Supervisor) -> None:
        listen = supervisor.options.http
        if listen is None:
            return
        await supervisor.up.wait()
        if supervisor.hello is None or is_in_memory(supervisor.hello["url"]):
            await probes_alone(supervisor)  # its jobs are in another process, which only that one can see
            return
        monitor = HealthMonitor(supervisor, SYSTEM)
        terms = GuardOptions(access=access, hosts=(*hosts, listen.host), proxies=proxies)
        site = Site(
            _app(supervisor),
            terms,
            SYSTEM,
            probe=_probes(monitor),
            pages={"/health": lambda: _health(monitor, listen.origin)},
        )
        server = HttpServer(site, listen.host, listen.port)
        try:
            port = await server.start()
        except (OSError, TorilError) as error:
            _refused(supervisor, str(error))
            return
        log.info("HTTP on %s:%s: the dashboard, /livez, /readyz, /health, /metrics, /api/v1", listen.host, port)
        if isinstance(access, SignInLink):
            access.start(address_of(listen.host, port), _tell_link)
        watching = create_task(monitor.watch())
        try:
            await Event().wait()
        except CancelledError:
            watching.cancel()
            await server.close()
            raise

    return serve


def _tell_link(link: str) -> None:
    """Print the link even if the log level hides the line, because nobody could make changes without it."""
    text = f"open this link (it works once, within {CODE_MINUTES} minutes): {link}"
    if log.isEnabledFor(INFO):
        log.info("to sign in to the dashboard, %s", text)
    else:
        sys.stderr.write(f"To sign in to the dashboard, {text}\n")
        sys.stderr.flush()


def _app(supervisor: Supervisor) -> App:
    """An app on the workers' store, without their code."""
    hello = supervisor.hello or {}
    return App(hello["url"], prefix=hello["prefix"], outbox=hello["outbox"], **hello["options"])


def _refused(supervisor: Supervisor, reason: str) -> None:
    """The failure of the boot if a requested address is not available."""
    listen = supervisor.options.http
    assert listen is not None  # noqa: S101 - who serves has an address
    text = f"cannot serve HTTP on {listen.host}:{listen.port}: {reason}"
    if listen.asked_for:
        supervisor.fail(BootFailure(1, text))
    else:
        log.warning("%s; the workers continue without it", text)


def _probes(monitor: HealthMonitor) -> Callable[[str], Response | None]:
    def probe(path: str) -> Response | None:
        match path:
            case "/livez":
                return PlainTextResponse("alive\n")
            case "/readyz":
                unready = bool(monitor.problems())
                return PlainTextResponse("not ready\n" if unready else "ready\n", _UNREADY if unready else 200)
            case _:
                return None

    return probe


def _health(monitor: HealthMonitor, origin: str | None) -> Response:
    headers = {} if origin is None else {"access-control-allow-origin": origin, "vary": "Origin"}
    return as_json(monitor.document(), _UNREADY if monitor.problems() else 200, headers)


_BETWEEN: Final = 2.0  # seconds between two checks of the store
_PATIENCE: Final = 5.0


class StoreWatch:
    """`watch` checks the store until it is cancelled; `probe` answers with the latest result."""

    def __init__(self, app: App, clock: Clock) -> None:
        self._app = app
        self._clock = clock
        self._answers = False

    def probe(self, path: str) -> Response | None:
        match path:
            case "/livez":
                return PlainTextResponse("alive\n")
            case "/readyz":
                return PlainTextResponse("ready\n") if self._answers else PlainTextResponse("not ready\n", 503)
            case _:
                return None

    async def watch(self) -> None:
        while True:
            await self.look()
            await self._clock.sleep(_BETWEEN)

    async def look(self) -> None:
        try:
            async with asyncio.timeout(_PATIENCE):
                self._answers = (await self._app.store.health()).ok
        except (TorilError, TimeoutError):
            self._answers = False
