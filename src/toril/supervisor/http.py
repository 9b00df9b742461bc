"""A small HTTP server for probes. It needs nothing but Python, and answers from what is known already."""

import asyncio
import ipaddress
import json
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

from toril.runtime.idle_connections import IdleConnections
from toril.supervisor.plan import Listen

__all__ = ["Probes"]

_HEAD: Final = 5.0  # seconds for a request's head
_SILENT: Final = 256  # connections without a request; more than can be accepted before the first of them is read
_BACKLOG: Final = 128
_LONGEST: Final = 8192
_PHRASES: Final = {200: "OK", 400: "Bad Request", 403: "Forbidden", 404: "Not Found", 405: "Method Not Allowed",
                   503: "Service Unavailable"}  # fmt: skip
_PLAIN: Final = "text/plain; charset=utf-8"


class Probes:
    """`/livez`, `/readyz` and `/health`. Off loopback, where anyone may ask, only the first two say something."""

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
        """Listen; the port."""
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
            return _response(400, _PLAIN, "a request has a method, a path and a version\n")
        method, path = words[0], words[1].partition("?")[0]
        if path not in ("/livez", "/readyz", "/health"):
            return _response(404, _PLAIN, "there are /livez, /readyz and /health\n")
        if method not in ("GET", "HEAD"):
            return _response(405, _PLAIN, "only GET\n", allow="GET, HEAD")
        answer = self._probe(path)
        return answer[: answer.index(b"\r\n\r\n") + 4] if method == "HEAD" else answer

    def _probe(self, path: str) -> bytes:
        if path == "/livez":
            return _response(200, _PLAIN, "alive\n")
        problems = self._problems()
        if path == "/readyz":
            return _response(503, _PLAIN, "not ready\n") if problems else _response(200, _PLAIN, "ready\n")
        if not _is_loopback(self._listen.host):
            return _response(403, _PLAIN, "details are told on loopback only\n")
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
