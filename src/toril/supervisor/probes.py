"""Serves `/livez`, `/readyz` and `/health`, without extra packages."""

import asyncio
import ipaddress
import json
from asyncio import CancelledError, Event, create_task
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from typing import Any, Final

from toril.errors import TorilError
from toril.model.states import State
from toril.runtime.clock import SYSTEM, Clock
from toril.runtime.idle_connections import IdleConnections
from toril.runtime.logs import log
from toril.store.engine import Store
from toril.supervisor.child import BootFailure
from toril.supervisor.supervisor import Listen, Supervisor

__all__ = ["HealthMonitor", "Probes", "serve"]

_ASK: Final = (1.0, 2.5)  # seconds between two checks of the store: a quarter of the time that it may be unavailable
_SELDOM: Final = 4  # checks between two looks at the oldest jobs
_SLOW: Final = 30.0  # seconds without a tick after which a loop counts as dead, unless the process is replaced before
_GONE: Final = 5.0  # seconds that a child may be missing
_OLDEST: Final = 10  # queues whose oldest job is read


class HealthMonitor:
    """Watches the store and the children, so that answers are ready when someone asks."""

    def __init__(self, supervisor: Supervisor, clock: Clock) -> None:
        self._supervisor = supervisor
        self._clock = clock
        self._answered = self._complete = clock.monotonic()
        self._detail = ""
        self._oldest: dict[str, float | None] = {}

    async def watch(self) -> None:
        """Run until cancelled."""
        soonest, latest = _ASK
        for number in count():
            self.problems()  # to know since when a child is missing, however seldom anyone asks
            await self._ask(self._supervisor.store, oldest=number % _SELDOM == 0)
            await self._clock.sleep(min(latest, max(soonest, self._supervisor.options.unready_after / 4)))

    def problems(self) -> list[str]:
        """Why it is not ready; empty if it is."""
        supervisor, now = self._supervisor, self._clock.monotonic()
        found = []
        if supervisor.draining:
            found.append("draining")
        elif not supervisor.up.is_set():
            found.append("booting")
        if now - self._answered > supervisor.options.unready_after:
            found.append(f"the store has not answered for {now - self._answered:.0f} s: {self._detail}")
        alive = [child for child in supervisor.regular if child.ready]
        if len(alive) >= supervisor.options.processes:
            self._complete = now
        elif now - self._complete > _GONE:
            found.append(f"{len(alive)} of {supervisor.options.processes} worker processes are ready")
        dead = [child.pid for child in alive if now - child.table.ticked > min(_SLOW, supervisor.options.hang_timeout)]
        return found + [f"the event loop of worker process {pid} is blocked" for pid in dead]

    def document(self) -> dict[str, Any]:
        """Everything, for people and dashboards."""
        supervisor, now = self._supervisor, self._clock.monotonic()
        problems = self.problems() + self._dead_pollers()
        hello = supervisor.hello or {}
        return {
            "status": "OK" if not problems else "DEGRADED",
            "message": "; ".join(problems) or "all is well",
            "draining": supervisor.draining,
            "pollers": _worst({poller["state"] for child in supervisor.children.values() for poller in child.pollers}),
            "store": {"ok": now - self._answered <= supervisor.options.unready_after, "detail": self._detail},
            "queues": hello.get("queues", {}),
            "oldest_waiting": self._oldest,
            "restarts": supervisor.restarts,
            "workers": [
                {
                    "pid": child.pid,
                    "ready": child.ready,
                    "draining": child.draining,
                    "running": child.table.running,
                    "ended": child.table.ended,
                    "silent_seconds": round(max(0.0, now - child.table.ticked), 3) if child.table.ticked else None,
                    "loop_lag_seconds": round(child.table.late, 3),
                    "rss_bytes": child.rss(),
                    "pollers": child.pollers,
                }
                for child in supervisor.children.values()
            ],
        }

    def _dead_pollers(self) -> list[str]:
        """Pollers that wait to be restarted. That is no reason to be unready: jobs still run."""
        return [
            f"poller {poller['name']} of worker process {child.pid} died and will be restarted: {poller['error']}"
            for child in self._supervisor.children.values()
            for poller in child.pollers
            if poller["state"] == "restarting"
        ]

    async def _ask(self, store: Store | None, *, oldest: bool) -> None:
        if store is None:  # in memory, in the child, or not open yet
            self._answered = self._clock.monotonic()
            return
        health = await store.health()
        self._detail = health.detail
        if health.ok:
            self._answered = self._clock.monotonic()
            if oldest:
                await self._look_for_the_oldest(store, health.now)

    async def _look_for_the_oldest(self, store: Store, now: int) -> None:
        try:
            for queue in list((self._supervisor.hello or {}).get("queues", {}))[:_OLDEST]:
                page = await store.page(queue, State.WAITING, limit=1)
                self._oldest[queue] = (now - page.items[0].added_at) / 1000 if page.items else None
        except TorilError as error:
            self._detail = str(error)


def _worst(states: set[str]) -> str:
    """One word for the state of all pollers."""
    return next((state for state in ("restarting", "running", "standby", "finished") if state in states), "disabled")


_HEAD: Final = 5.0  # seconds to send a request's head
_SILENT: Final = 256  # connections without a request; more than are accepted before the first of them is read
_BACKLOG: Final = 128
_LONGEST: Final = 8192
_PHRASES: Final = {200: "OK", 400: "Bad Request", 403: "Forbidden", 404: "Not Found", 405: "Method Not Allowed",
                   503: "Service Unavailable"}  # fmt: skip
_PLAIN: Final = "text/plain; charset=utf-8"


class Probes:
    """Serves `/livez`, `/readyz` and `/health`. Off loopback, where anyone may ask, only the first two give details."""

    def __init__(
        self, listen: Listen, problems: Callable[[], list[str]], document: Callable[[], dict[str, Any]]
    ) -> None:
        self._listen = listen
        self._problems = problems
        self._document = document
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.Task[Any]] = set()
        self._idle = IdleConnections(_SILENT)

    async def start(self) -> int:
        """Listen, and return the port."""
        self._server = await asyncio.start_server(
            self._serve, self._listen.host, self._listen.port, limit=_LONGEST, backlog=_BACKLOG
        )
        return int(self._server.sockets[0].getsockname()[1])

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
            for task in list(self._open):
                task.cancel()
            await asyncio.gather(*self._open, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task, transport = asyncio.current_task(), writer.transport
        assert task is not None  # noqa: S101 - the server runs each connection in a task
        address = (transport.get_extra_info("peername") or ("",))[0]
        self._open.add(task)
        self._idle.add(transport, address)
        try:
            with suppress(OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
                async with asyncio.timeout(_HEAD):
                    head = await reader.readuntil(b"\r\n\r\n")
                    writer.write(self._answered(head))
                    await writer.drain()
        finally:
            self._open.discard(task)
            self._idle.discard(transport, address)
            writer.close()

    def _answered(self, head: bytes) -> bytes:
        words = head.split(b"\r\n", 1)[0].decode("latin-1").split(" ")
        if len(words) != 3:
            return _response(400, _PLAIN, "bad request: expected a method, a path and a version\n")
        method, path = words[0], words[1].partition("?")[0]
        if path not in ("/livez", "/readyz", "/health"):
            return _response(404, _PLAIN, "not found; use /livez, /readyz or /health\n")
        if method not in ("GET", "HEAD"):
            return _response(405, _PLAIN, "use GET or HEAD\n", allow="GET, HEAD")
        answer = self._probe(path)
        return answer[: answer.index(b"\r\n\r\n") + 4] if method == "HEAD" else answer

    def _probe(self, path: str) -> bytes:
        if path == "/livez":
            return _response(200, _PLAIN, "alive\n")
        problems = self._problems()
        if path == "/readyz":
            return _response(503, _PLAIN, "not ready\n") if problems else _response(200, _PLAIN, "ready\n")
        if not _is_loopback(self._listen.host):
            return _response(403, _PLAIN, "details are only served on loopback\n")
        text = json.dumps(self._document(), indent=2) + "\n"
        more = (
            {}
            if self._listen.origin is None
            else {"access_control_allow_origin": self._listen.origin, "vary": "Origin"}
        )
        return _response(503 if problems else 200, "application/json", text, **more)


def _response(code: int, kind: str, text: str, **headers: str) -> bytes:
    body = text.encode()
    given = {
        "content-type": kind, "content-length": str(len(body)), "connection": "close", "cache-control": "no-store",
        "x-content-type-options": "nosniff", **{name.replace("_", "-"): value for name, value in headers.items()},
    }  # fmt: skip
    lines = [f"HTTP/1.1 {code} {_PHRASES[code]}", *(f"{name}: {value}" for name, value in given.items())]
    return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + body


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


async def serve(supervisor: Supervisor) -> None:
    """Run until cancelled. If a requested address is not available, the boot fails."""
    listen = supervisor.options.http
    if listen is None:
        return
    health = HealthMonitor(supervisor, SYSTEM)
    probes = Probes(listen, health.problems, health.document)
    await supervisor.up.wait()
    try:
        port = await probes.start()
    except OSError as error:
        reason = f"cannot serve HTTP on {listen.host}:{listen.port}: {error.strerror or error}"
        if listen.asked_for:
            supervisor.fail(BootFailure(1, reason))
        else:
            log.warning("%s; the workers continue without it", reason)
        return
    log.info("HTTP on %s:%s: /livez, /readyz, /health", listen.host, port)
    watching = create_task(health.watch())
    try:
        await Event().wait()
    except CancelledError:
        watching.cancel()
        await probes.close()
        raise
