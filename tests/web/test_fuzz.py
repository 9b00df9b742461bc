"""Requests of all shapes, over every endpoint: none is answered with a 5xx, and the server goes on.

TORIL_HTTP_FUZZ says how many are sent; each number makes the same requests every time.
"""

import asyncio
import json
import os
import random
from typing import Any
from urllib.parse import quote

from tests.proof import prove
from tests.web.conftest import Served
from toril.web.api import ENDPOINTS
from toril.web.routing import Endpoint

REQUESTS = int(os.environ.get("TORIL_HTTP_FUZZ", "150"))

ODD = [
    "", "email", "known", "0", "-1", "1e309", "9" * 40, "%00", "%0d%0aX: y", "..", "%2e%2e%2f", "..%5c", "%252e", "é✓",
    "%ff", "\ud7ff", "a" * 300, "(a+)+$", "{{7*7}}", "<svg onload=x>", "javascript:x", "=cmd()", "null", "true", "[]",
    "user.id=7", "=7", "a=" + "[" * 150, "NaN", "2026-01-01T00:00:00Z", "failed", "waiting", "1h", "7d", "//evil",
]  # fmt: skip
VALUES: list[Any] = [
    None, True, 0, -1, 1, 2**31, 2**63, -(2**70), 1.5, 1e308, "", "x", "é\u0000", "a" * 300, [], ["x"], [[]], {},
    {"a": {"b": [1]}}, ["known"] * 3, "failed", "0 2 * * *", {"max": 1, "per": 1},
]  # fmt: skip
HEADERS = [
    "host: evil.example", "host: 127.0.0.1", "origin: http://evil.example", "sec-fetch-site: cross-site", "cookie: a=b",
    "content-type: text/plain", "content-type: application/json", "authorization: Basic !!!", "authorization: Bearer x",
    "x-forwarded-for: 1.2.3.4, evil", "transfer-encoding: chunked", "expect: 100-continue", "content-length: -1",
    "content-length: 99999999999", "upgrade: websocket", "connection: upgrade", "range: bytes=0-", "te: trailers",
    "x" * 300 + ": y", "accept: text/html", "bad header: x", " folded: x",
]  # fmt: skip
METHODS = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "PROPFIND", "GE T"]


def request(chance: random.Random) -> bytes:
    """One request: an endpoint's own, bent in some places."""
    endpoint = chance.choice(ENDPOINTS)
    bent = chance.random() < 0.5
    method = chance.choice(METHODS) if chance.random() < 0.1 else endpoint.method
    headers = ["host: localhost", "connection: close"]
    body = _body(chance, endpoint)
    if endpoint.method != "GET" or chance.random() < 0.05:
        headers += [f"content-length: {len(body)}", "content-type: application/json"]
    else:
        body = b""
    if bent:
        headers += chance.sample(HEADERS, chance.randint(1, 2))
    if bent and chance.random() < 0.1:
        headers = headers[1:]
    head = f"{method} {_target(chance, endpoint)} HTTP/1.1\r\n" + "\r\n".join(headers) + "\r\n\r\n"
    raw = bytearray(head.encode("utf-8", "surrogatepass") + body)
    if chance.random() < 0.05:
        raw[chance.randrange(len(raw))] = chance.randrange(256)
    return bytes(raw)


def _target(chance: random.Random, endpoint: Endpoint) -> str:
    parts = []
    for part in endpoint.path.split("/"):
        if not part.startswith("{"):
            parts.append(part)
        elif chance.random() < 0.6:
            parts.append({"{queue}": "email", "{id}": "known"}.get(part, "x"))
        else:
            parts.append(quote(chance.choice(ODD), safe="%"))
    names = list(endpoint.query.model_fields) if endpoint.query else []
    asked = chance.sample(names, chance.randint(0, min(3, len(names)))) if names else []
    if chance.random() < 0.1:
        asked.append(chance.choice(["next", "page", "interval", "é", ""]))
    query = "&".join(f"{name}={quote(chance.choice(ODD), safe='%=')}" for name in asked)
    return "/api/v1" + "/".join(parts) + (f"?{query}" if query else "")


def _body(chance: random.Random, endpoint: Endpoint) -> bytes:
    names = list(endpoint.body.model_fields) if endpoint.body else ["x"]
    given = {name: chance.choice(VALUES) for name in chance.sample(names, chance.randint(0, len(names)))}
    shapes = [
        json.dumps(given).encode(),
        json.dumps(given).encode(),
        b"",
        b"{",
        b"[" * 2000,
        b'{"a":1,"a":2}',
        b"\xff{}",
    ]
    return chance.choice(shapes)


async def test_no_request_is_answered_with_a_5xx(here: Served) -> None:
    chance = random.Random(20_000)
    answers: dict[int, int] = {}
    wrong = []

    async def tried(sent: bytes) -> None:
        answer = await here.raw(sent, patience=60)
        status = int(answer.split(b" ", 2)[1]) if answer.startswith(b"HTTP/1.1 ") else 0
        answers[status] = answers.get(status, 0) + 1
        if status >= 500:
            wrong.append((status, sent[:400], answer[-400:]))

    async with asyncio.TaskGroup() as group:
        for _ in range(REQUESTS):
            if chance.random() < 0.02:
                await here.app.queue("email").add("x", {"user": {"id": 7}}, job_id=chance.choice(["known", "other"]))
            # The server waits some seconds for a body that does not come; the next request need not.
            await asyncio.wait({group.create_task(tried(request(chance)))}, timeout=0.5)
    prove("T13", requests=REQUESTS, failures=len(wrong))
    async with here.client() as client:
        alive = await client.get("/queues")

    print(dict(sorted(answers.items())))
    assert wrong == []
    assert alive.status_code == 200
    assert {200, 404, 422} <= set(answers)
