"""The external services, simulated and unreliable: busy, failing, or breaking the connection after the work is done.
They recognize by the caller's key what they have already done, and do it once."""

import json
import threading
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit
from zlib import crc32

__all__ = ["MESSAGES", "REVOKED", "FakeApi", "Trouble"]

MESSAGES: Final = 45  # in every mailbox
REVOKED: Final = "revoked"  # prefix of the names of credentials that nobody can refresh


@dataclass(frozen=True, slots=True)
class Trouble:
    """A failed response. A `lost` one fails after the work was done."""

    status: int
    retry_after: float | None = None
    lost: bool = False


BUSY: Final = Trouble(429, retry_after=0.2)
BROKEN: Final = Trouble(503)
CUT: Final = Trouble(0, lost=True)


class FakeApi:
    """`with FakeApi(trouble=0.2) as api:` serves at `api.url`. One in five calls fails, always the same ones, and
    only the first time. `api.next["/hooks"]` says how the next call fails, regardless of chance; `api.down` says what
    always fails. `api.done` has the keys of what was done, by path; `api.times` how often each was requested."""

    def __init__(self, trouble: float = 0.0, seed: int = 0) -> None:
        self._share, self._seed = round(trouble * 100), seed
        self._lock = threading.Lock()
        self.calls: Counter[str] = Counter()
        self.done: defaultdict[str, set[str]] = defaultdict(set)
        self.times: Counter[str] = Counter()
        self.next: defaultdict[str, list[Trouble]] = defaultdict(list)
        self.down: dict[str, Trouble] = {}
        self._seen: set[str] = set()
        self._server = _Server(("127.0.0.1", 0), _serving(self))
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> "FakeApi":
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def so_far(self) -> defaultdict[str, set[str]]:
        """What was done so far, while calls continue."""
        with self._lock:
            return defaultdict(set, {service: set(keys) for service, keys in self.done.items()})

    def asked(self) -> int:
        """Return the number of calls."""
        with self._lock:
            return self.calls.total()

    def answer(self, method: str, path: str, query: dict[str, str], key: str, body: Any) -> Trouble | Any:
        """Return the response to a call."""
        service = "/" + path.split("/")[1]
        with self._lock:
            self.calls[service] += 1
            trouble = self._trouble(path, service, f"{method} {path} {key} {query}")
            if trouble is not None and not trouble.lost:
                return trouble
            if method == "POST":
                self.done[service].add(key)
                self.times[key] += 1
        return trouble or _content(method, path, query, body)

    def _trouble(self, path: str, service: str, call: str) -> Trouble | None:
        if path in self.down:
            return self.down[path]
        if self.next[service]:
            return self.next[service].pop(0)
        chance = crc32(f"{self._seed} {call}".encode())
        if call in self._seen or chance % 100 >= self._share:
            return None
        self._seen.add(call)
        return (BUSY, BROKEN, CUT)[chance // 100 % 3]


def _content(method: str, path: str, query: dict[str, str], body: Any) -> Any:  # noqa: PLR0911 - one a service
    match method, path.split("/")[1:]:
        case "GET", ["mailboxes", mailbox]:
            return [f"{mailbox}-{number}" for number in range(MESSAGES)]
        case "GET", ["mailboxes", _, "messages"]:
            return {message: f"About {message}" for message in query["ids"].split(",")}
        case "GET", ["calendars"]:
            return ["ada", "grace"]
        case "GET", ["meetings"]:
            return ["standup-on-monday", "review-on-tuesday"]
        case "GET", _:
            return []
        case _, ["embeddings"]:
            return [sha256(text.encode()).hexdigest()[:16] for text in body]
        case _, ["oauth", _]:
            return Trouble(400) if body.startswith(REVOKED) else f"token of {body}"
        case _:
            return {"ok": True}


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = True
    request_queue_size = 128

    def handle_error(self, request: Any, client_address: Any) -> None:
        """The caller may be dead by now."""


def _serving(api: FakeApi) -> Callable[..., BaseHTTPRequestHandler]:
    class Serving(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._serve(None)

        def do_POST(self) -> None:
            self._serve(json.loads(self.rfile.read(int(self.headers["Content-Length"])) or "null"))

        def _serve(self, body: Any) -> None:
            url = urlsplit(self.path)
            query = {name: values[0] for name, values in parse_qs(url.query).items()}
            answer = api.answer(self.command, url.path, query, self.headers["Idempotency-Key"] or "", body)
            match answer:
                case Trouble(lost=True):
                    return  # and close
                case Trouble(status, retry_after):
                    self._send(status, None, {} if retry_after is None else {"Retry-After": str(retry_after)})
                case _:
                    self._send(200, answer, {})

        def _send(self, status: int, content: Any, headers: dict[str, str]) -> None:
            data = json.dumps(content).encode()
            self.send_response(status)
            for name, value in (headers | {"Content-Length": str(len(data))}).items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: Any) -> None:
            """Log nothing."""

    return Serving
