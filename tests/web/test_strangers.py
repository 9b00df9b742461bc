"""What someone without credentials may send: headers, forms and paths of all shapes. None is answered with a 5xx.

The site is asked as a server asks it, so that bytes arrive here which some servers refuse and others hand on.
TORIL_HTTP_FUZZ says how many requests are made for each kind of access; each number makes the same ones every time.
"""

import os
import random
from typing import Any
from urllib.parse import quote_from_bytes

import pytest

from tests.web.conftest import TOKEN
from toril import App
from toril.web import Access, Basic, CustomAccess, Open, Role, Tokens, site
from toril.web.access import Nobody
from toril.web.sign_in import SignInLink
from toril.web.templates import assets

REQUESTS = max(int(os.environ.get("TORIL_HTTP_FUZZ", "0")), 1_500)
ACCESS: dict[str, Access] = {
    "tokens": Tokens({TOKEN: Role.ADMIN}),
    "basic": Basic({"ops": ("a long password", Role.ADMIN)}),
    "asked": CustomAccess(lambda _: None),
    "nobody": Nobody(),
    "open": Open(),
    "link": SignInLink(),
}

# Brackets without an end, numbers that are none, other alphabets, bytes of no text.
ODD = [
    b"", b" ", b"[", b"]", b"http://[", b"http://]", b"http://[::1", b"//[", b"http://a]b", b"null", b"http://a:b:c",
    b"http://127.0.0.1", b"http://localhost:99999999", b"\xff\xfe", "é✓".encode(), "²".encode("latin-1"), b"-1", b"1e9",
    b"0x10", b"9" * 400, b"a=b; c", b"toril=" + b"9" * 30 + b".x", b"toril=9999999999.\xff", b"toril=\xb2\xb2.x",
    b"=;=,", b"Basic", b"Basic !!!", b"Basic \xff", b"Basic eDp5", b"Basic =", b"Bearer", b"Bearer \xff", b"Digest a",
    b"%", b"%zz", b"text/html", b"*/*", b"application/json", b"same-origin", b"cross-site", b"none",
    b"multipart/form-data", b"q;q=", b"1.2.3.4, [", b"fe80::1%eth0", b"::ffff:1.2.3.4", b"[::1]:80", b"localhost",
    b"\x00", b"a" * 3000, b"chunked", b"0",
]  # fmt: skip
NAMES = [
    b"host", b"origin", b"sec-fetch-site", b"cookie", b"authorization", b"accept", b"content-type", b"content-length",
    b"x-forwarded-for", b"x-forwarded-proto", b"forwarded", b"referer", b"range", b"if-none-match", b"accept-language",
    b"transfer-encoding", b"last-event-id", b"\xff", b"",
]  # fmt: skip
PATHS = [
    b"/", b"/sign-in", b"/sign-in?code=x", b"/live", b"/live?view=queues/email", b"/queues/email", b"/metrics",
    b"/health", b"/api/v1/queues", b"/api/v1/openapi.json", b"/api/v1/queues/email/pause",
    b"/api/v1/queues/email/jobs", b"/static/[", *(f"/{asset.path}".encode() for asset in assets().values()),
     b"/livez", b"/%ff", b"/..", b"//x", b"/?a=%ff&a", b"*", b"",
]  # fmt: skip


def form(chance: random.Random) -> bytes:
    """A form's fields: few and many, doubled, without names, with bytes of no text."""
    many = chance.choice([0, 1, 2, 10, 11, 12, 300])
    fields = []
    for _ in range(many):
        value = chance.choice(ODD)
        name = chance.choice([b"token", b"token", b"code", b"", b"\xff", b"a"])
        fields.append(name + chance.choice([b"=", b"", b"=="]) + (value if chance.random() < 0.5 else _quoted(value)))
    return chance.choice([b"&", b";", b"&&"]).join(fields)


def _quoted(value: bytes) -> bytes:
    return quote_from_bytes(value).encode()


def headers(chance: random.Random) -> list[tuple[bytes, bytes]]:
    sent = [(chance.choice(NAMES), chance.choice(ODD)) for _ in range(chance.randint(0, 4))]
    if chance.random() < 0.9:
        sent = [(b"host", b"127.0.0.1"), *(each for each in sent if each[0] != b"host")]
    if chance.random() < 0.5:
        sent.append((b"accept", b"text/html"))
    return sent


async def answered(asked: Any, chance: random.Random) -> tuple[int, bytes, Any]:
    """The status that one request gets, its body, and the request."""
    raw = chance.choice(PATHS)
    path, _, query = raw.partition(b"?")
    scope = {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "scheme": "http", "root_path": "",
        "method": chance.choice(["GET", "POST", "POST", "HEAD", "PUT", "DELETE", "OPTIONS", "TRACE", "\xb2"]),
        "path": path.decode("latin-1"), "raw_path": path, "query_string": query, "headers": headers(chance),
        "client": chance.choice([("127.0.0.1", 1), ("10.0.0.1", 1), ("fe80::1%eth0", 1), None]),
        "server": ("127.0.0.1", 1),
    }  # fmt: skip
    body = form(chance)
    parts: list[dict[str, Any]] = [{"type": "http.request", "body": body, "more_body": False}]
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return parts.pop() if parts else {"type": "http.disconnect"}

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    await asked(scope, receive, send)
    text = b"".join(message.get("body", b"") for message in sent[1:])
    return sent[0]["status"], text, (scope["method"], raw, scope["headers"], body[:200])


@pytest.mark.covers("B79", "B81", "B86")
@pytest.mark.parametrize("kind", ACCESS)
async def test_nothing_that_a_stranger_sends_is_answered_with_a_5xx(
    kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    chance = random.Random(f"strangers {kind}")
    statuses: dict[int, int] = {}
    wrong = []
    async with App("memory://") as app:
        app.queue("email")
        asked = site(app, access=ACCESS[kind], proxies=["127.0.0.1"])
        for _ in range(REQUESTS):
            status, text, request = await answered(asked, chance)
            statuses[status] = statuses.get(status, 0) + 1
            if status >= 500:
                wrong.append((status, request, text[-300:]))
        asked.leave()

    assert wrong == []
    assert "a request failed" not in caplog.text
    usual = 401 if ACCESS[kind].challenge else 403
    assert {200, 400, 404, 421, usual} <= set(statuses), "the requests reach further than the first check"


@pytest.mark.parametrize("fields", [11, 300])
async def test_a_form_with_more_fields_than_ours_is_refused(fields: int) -> None:
    from httpx import ASGITransport, AsyncClient

    async with App("memory://") as app:
        transport = ASGITransport(site(app, access=ACCESS["tokens"]))
        async with AsyncClient(transport=transport, base_url="http://localhost") as client:
            found = await client.post(
                "/", content="&".join(f"f{n}=1" for n in range(fields)), headers={"accept": "*/*"}
            )

    assert (found.status_code, found.json()["error"]["code"]) == (400, "bad_form")
