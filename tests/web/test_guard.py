"""What is let in, and what is told to those who are not."""

import asyncio
import base64
from typing import Any

import pytest
from starlette.requests import HTTPConnection

from tests.web.conftest import TOKEN, Served, served
from toril import App
from toril.errors import EngineUnavailable, InvalidOption
from toril.runtime.clock import SYSTEM
from toril.web import Basic, CustomAccess, Open, Role, Tokens, Who
from toril.web.guard import Guard, GuardOptions
from toril.web.messages import Problem

API = b"/api/v1/queues"
PASSWORD = "the right password"


def request(head: bytes, body: bytes = b"", host: bytes = b"Host: 127.0.0.1\r\n") -> bytes:
    return head + b"\r\n" + host + b"connection: close\r\n\r\n" + body


@pytest.mark.covers("B77")
async def test_who_sends_no_credentials_is_told_to() -> None:
    async with served(access=Tokens({TOKEN: Role.ADMIN})) as here, here.client() as client:
        refused = await client.get("/queues")
        let_in = await client.get("/queues", headers={"authorization": f"Bearer {TOKEN}"})

    assert refused.status_code == 401
    assert refused.headers["www-authenticate"].startswith("Bearer")
    assert let_in.status_code == 200


@pytest.mark.covers("B78")
@pytest.mark.parametrize(
    "header",
    ["Bearer", "Bearer wrong", "Bearer " + TOKEN[:-1], "Basic !!!", "Basic " + base64.b64encode(b"no colon").decode(),
     "Basic " + base64.b64encode(b"\xff\xfe:\x00").decode(), "Basic", "", "Bearer " + "x" * 20_000, "Digest a=b"],
)  # fmt: skip
async def test_wrong_credentials_are_all_told_the_same(header: str) -> None:
    access = Tokens({TOKEN: Role.ADMIN})
    async with served(access=access) as here, here.client() as client:
        plain = await client.get("/queues")
        found = await client.get("/queues", headers={"authorization": header})

    assert (found.status_code, found.text) == (401, plain.text)


@pytest.mark.covers("B79")
async def test_who_guesses_has_to_wait() -> None:
    async with served(access=Basic({"ops": (PASSWORD, Role.READ)})) as here, here.client() as client:
        tries = [(await client.get("/queues", auth=("ops", "wrong"))).status_code for _ in range(21)]
        right = await client.get("/queues", auth=("ops", PASSWORD))

    assert tries == [401] * 20 + [429]
    assert right.status_code == 429
    assert 1 <= int(right.headers["retry-after"]) <= 60


@pytest.mark.covers("B79")
async def test_who_has_an_account_cannot_guess_the_passwords_of_others() -> None:
    people = {"ada": ("the password of ada", Role.READ), "root": ("open sesame 12", Role.ADMIN)}
    async with served(access=Basic(people)) as here, here.client() as client:
        guesses = []
        for _ in range(30):
            guesses.append((await client.get("/queues", auth=("root", "wrong"))).status_code)
            own = await client.get("/queues", auth=("ada", "the password of ada"))
            assert own.status_code == 200, "whoever guesses one name does not lock another one out"

    assert guesses == [401] * 20 + [429] * 10


async def test_names_that_are_made_up_do_not_have_wrong_tries_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toril.web.guard._REMEMBERED", 10)
    access = Basic({"root": ("open sesame 12", Role.ADMIN)})
    async with served(access=access) as here, here.client() as client:
        guesses = [(await client.get("/queues", auth=("root", "wrong"))).status_code for _ in range(20)]
        made_up = [(await client.get("/queues", auth=(f"x{n}", "wrong"))).status_code for n in range(30)]
        guesses.append((await client.get("/queues", auth=("root", "wrong"))).status_code)

    assert made_up == [401] * 30
    assert guesses == [401] * 20 + [429]


async def test_a_token_that_is_known_does_not_undo_wrong_tries() -> None:
    async with served(access=Tokens({TOKEN: Role.READ, "a" * 16: Role.ADMIN})) as here, here.client() as client:
        guesses = []
        for _ in range(21):
            await client.get("/queues", headers={"authorization": f"Bearer {TOKEN}"})
            guesses.append((await client.get("/queues", headers={"authorization": "Bearer wrong"})).status_code)

    assert guesses == [401] * 20 + [429]


async def test_who_is_signed_in_is_let_in_whatever_others_at_the_address_try() -> None:
    async with served(access=Tokens({TOKEN: Role.READ})) as here, here.client() as client:
        root = f"http://127.0.0.1:{here.port}/"
        signed_in = await client.post(root, data={"token": TOKEN}, headers={"origin": root.rstrip("/")})
        tries = [
            (await client.get("/queues", headers={"authorization": "Bearer wrong"})).status_code for _ in range(21)
        ]
        known = await client.get("/queues")

    assert (signed_in.status_code, tries[-1], known.status_code) == (303, 429, 200)


async def test_a_network_of_ipv6_is_one_client() -> None:
    guard = Guard(GuardOptions(access=Open()), SYSTEM)
    for last in range(20):
        guard.refuse_secret(f"2001:db8::{last:x}", "ops")

    with pytest.raises(Problem, match="too many failed sign-in attempts"):
        guard.check_tries("2001:db8::ffff", "ops")
    guard.check_tries("2001:db8:0:1::1", "ops")
    guard.check_tries("2001:db8::ffff", "ada")


@pytest.mark.parametrize(
    ("people", "why"),
    [({}, "at least one user name"), ({"ops": ("hunter2", Role.READ)}, "'ops' needs at least 12 characters"),
     ({"ops": ("", Role.READ)}, "'ops' needs at least 12 characters"),
     ({"a:b": ("a long password", Role.READ)}, "contain a colon; got 'a:b'"),
     ({"": ("a long password", Role.READ)}, "not be empty")],
)  # fmt: skip
def test_a_password_that_can_be_guessed_is_refused(people: dict[str, tuple[str, Role]], why: str) -> None:
    with pytest.raises(InvalidOption, match=why) as refused:
        Basic(people)

    assert "hunter2" not in str(refused.value)


@pytest.mark.covers("B80")
@pytest.mark.parametrize(
    ("host", "status"),
    [(b"Host: evil.example\r\n", 421), (b"", 400), (b"Host: 127.0.0.1\r\nHost: 127.0.0.1\r\n", 400),
     (b"Host: 127.0.0.1.evil.com\r\n", 421), (b"Host: localhost:1\r\n", 200), (b"Host: [::1]:8\r\n", 200),
     (b"Host: jobs.example.org\r\n", 200)],
)  # fmt: skip
async def test_only_our_own_names_are_answered_to(host: bytes, status: int) -> None:
    async with served(hosts=["jobs.example.org"]) as here:
        assert await here.status(request(b"GET " + API + b" HTTP/1.1", host=host)) == status


@pytest.mark.parametrize("path", [b"/metrics", API])
@pytest.mark.parametrize("host", [b"10.1.2.3:8484", b"toril-dashboard.jobs.svc.cluster.local"])
async def test_valid_credentials_are_answered_under_any_name(path: bytes, host: bytes) -> None:
    token, password = b"Bearer " + TOKEN.encode(), b"Basic " + base64.b64encode(b"ada:correct horse battery")

    async def status(here: Served, credentials: bytes) -> int:
        named = b"Host: " + host + b"\r\n" + (b"authorization: " + credentials + b"\r\n" if credentials else b"")
        return await here.status(request(b"GET " + path + b" HTTP/1.1", host=named))

    async with served(access=Tokens({TOKEN: Role.READ})) as here:
        assert [await status(here, sent) for sent in (token, b"Bearer wrong", b"")] == [200, 401, 421]
    async with served(access=Basic({"ada": ("correct horse battery", Role.READ)})) as here:
        assert [await status(here, sent) for sent in (password, token, b"")] == [200, 401, 421]
    async with served(access=Open()) as here:
        assert await status(here, token) == 421, "where nobody checks them they prove nothing"


@pytest.mark.covers("B81")
@pytest.mark.parametrize(
    ("headers", "status"),
    [({"sec-fetch-site": "cross-site"}, 403), ({"sec-fetch-site": "same-site"}, 403),
     ({"sec-fetch-site": "same-origin"}, 200), ({"origin": "http://evil.example"}, 403), ({"origin": "null"}, 403),
     ({"origin": "http://["}, 403),
     ({"cookie": "a=b"}, 403), ({}, 200)],
)  # fmt: skip
async def test_another_sites_page_changes_nothing(here: Served, headers: dict[str, str], status: int) -> None:
    async with here.client(**headers) as client:
        found = await client.post("/queues/email/pause")

    assert found.status_code == status
    assert (await here.app.queue("email").counts()).paused is (status == 200)


@pytest.mark.covers("B82")
@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""])
async def test_a_body_that_is_no_json_is_refused(here: Served, kind: str) -> None:
    async with here.client() as client:
        found = await client.post("/queues/email/jobs", content=b'{"name": "x"}', headers={"content-type": kind})

    assert found.status_code == 415


@pytest.mark.covers("B83")
async def test_methods_are_what_they_are_for(here: Served) -> None:
    async with here.client() as client:
        wrong = await client.get("/queues/email/pause")
        traced = await client.request("TRACE", "/queues")
        other = await client.request("PROPFIND", "/queues")
        head = await client.head("/queues")
    odd = await here.status(request(b"GE T " + API + b" HTTP/1.1"))
    tunnel = await here.status(request(b"CONNECT 127.0.0.1:1 HTTP/1.1"))

    assert (wrong.status_code, wrong.headers["allow"]) == (405, "POST")
    assert (traced.status_code, other.status_code, odd) == (405, 405, 400)
    assert tunnel in (400, 405)
    assert (head.status_code, head.content) == (200, b"")


@pytest.mark.covers("B84")
@pytest.mark.parametrize(
    "path",
    [b"/static/../../etc/passwd", b"/static/%2e%2e%2f%2e%2e/etc/passwd", b"/%252e%252e/etc/passwd", b"//etc/passwd",
     b"/..%5c..%5cetc", b"/api/v1/queues/..", b"/api/v1/../../etc/passwd"],
)  # fmt: skip
async def test_no_path_leads_to_a_file(here: Served, path: bytes) -> None:
    assert await here.status(request(b"GET " + path + b" HTTP/1.1")) == 404


@pytest.mark.covers("B85", "B98")
async def test_odd_urls_are_refused(here: Served) -> None:
    async def get(path: bytes) -> int:
        return await here.status(request(b"GET " + path + b" HTTP/1.1"))

    assert await get(b"/" + b"x" * 100_000) == 414
    assert await get(API + b"?" + b"&".join(b"p%d=1" % n for n in range(10_000))) in (400, 414)
    assert await get(API + b"?" + b"&".join(b"p%d=" % n for n in range(200))) == 400
    assert await get(b"/api/v1/queues/email/jobs?limit=1&limit=2") == 400
    assert await get(b"/api/v1/queues/a%0d%0aset-cookie:x") == 400
    assert await get(b"/api/v1/queues/a%00b") == 400
    assert await get(b"/api/v1/queues/%ff") == 400


@pytest.mark.covers("B86", "B87")
@pytest.mark.parametrize(
    ("headers", "statuses"),
    [(b"content-length: -1\r\n", {400}), (b"content-length: 3\r\ncontent-length: 4\r\n", {400}),
     (b"content-length: 5\r\ntransfer-encoding: chunked\r\n", {400}), (b"content-length: 99999999999\r\n", {413}),
     (b"bad name: x\r\n", {400}), (b"transfer-encoding: gzip\r\n", {400, 501}),
     (b"transfer-encoding: chunked\r\n", {400})],
)  # fmt: skip
async def test_a_request_that_can_be_read_in_two_ways_is_refused(
    here: Served, headers: bytes, statuses: set[int]
) -> None:
    head = b"POST /api/v1/queues/email/jobs HTTP/1.1\r\nHost: 127.0.0.1\r\ncontent-type: application/json\r\n"
    answer = await here.raw(head + headers + b"\r\n" + b"FFFFFFFFFFFFFFFFFFFFF\r\nx\r\n")

    assert int(answer.split(b" ", 2)[1]) in statuses
    assert b"connection: close" in answer.lower()


@pytest.mark.covers("B88", "F129")
async def test_a_slow_head_and_too_many_connections_are_cut_off(here: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toril.web.server._HEAD", 0.2)

    slow = await here.raw(b"GET " + API + b" HTTP/1.1\r\nHost: ")
    idle = [await asyncio.open_connection("127.0.0.1", here.port) for _ in range(140)]
    ended = [await reader.read() for reader, _ in idle]
    for _, writer in idle:
        writer.close()

    assert slow == b""
    assert ended == [b""] * 140
    async with here.client() as client:
        assert (await client.get("/queues")).status_code == 200


@pytest.mark.covers("B88")
async def test_a_body_that_does_not_come_is_not_waited_for(here: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toril.web.messages._PATIENCE", 0.2)
    head = b"POST /api/v1/queues/email/jobs HTTP/1.1\r\nHost: 127.0.0.1\r\ncontent-type: application/json\r\n"

    assert await here.status(head + b"content-length: 50\r\n\r\n{") == 408


@pytest.mark.covers("B89", "B90")
@pytest.mark.parametrize(
    ("body", "status"),
    [(b"{", 400), (b"[" * 100_000, 400), (b'{"name": "a", "name": "b"}', 400), (b"\xff\xfe", 400),
     (b"\xef\xbb\xbf{}", 400), (b'{"name": "x", "data": "' + b"x" * 2**20 + b'"}', 413), (b'{"name": NaN}', 400),
     (b'{"name": "x", "colour": 1}', 422), (b'{"name": 1}', 422), (b'{"name": null}', 422), (b"[]", 422), (b"", 422),
     (b'{"name": "x", "delay": -1}', 422), (b'{"name": "x", "job_id": "1"}', 422),
     (b'{"name": "x", "attempts": 1, "data": "[[[[\\"{{{"}', 201), (b'{"name": "x"}', 422)],
)  # fmt: skip
async def test_a_body_is_held_to_its_form(here: Served, body: bytes, status: int) -> None:
    headers = {"content-type": "application/json"} if body else {}
    async with here.client(**headers) as client:
        found = await client.post("/queues/email/jobs", content=body)

    assert found.status_code == status
    assert (await here.app.queue("email").counts()).waiting == (1 if status == 201 else 0)
    if status == 422:
        assert set(found.json()["error"]) == {"code", "message", "field", "incident"}


@pytest.mark.covers("B90", "B91", "B93")
@pytest.mark.parametrize(
    ("query", "field"),
    [("limit=1000000000", "limit"), ("limit=abc", "limit"), ("limit=0", "limit"), ("limit=-1", "limit"),
     ("page=-1", "page"), ("state=sleeping", "state"), ("q=" + "x" * 201, "q")],
)  # fmt: skip
async def test_a_parameter_that_is_wrong_is_named(here: Served, query: str, field: str) -> None:
    async with here.client() as client:
        found = await client.get(f"/queues/email/jobs?{query}")

    assert (found.status_code, found.json()["error"]["field"]) == (422, field)


@pytest.mark.covers("B93")
@pytest.mark.parametrize("text", ["(a+)+$", ".*{1000}", "%", "_", "*", "a"])
async def test_a_search_looks_for_the_text_itself(here: Served, text: str) -> None:
    queue = here.app.queue("email")
    meant = await queue.add("meant", {"note": f"x{text}y"})
    await queue.add("other", {"note": "zzz"})
    async with here.client() as client:
        found = (await client.get("/queues/email/jobs", params={"q": f"x{text}y"})).json()

    assert [job["id"] for job in found["items"]] == [meant.id]


@pytest.mark.covers("B95", "B96", "B97")
async def test_answers_say_how_browsers_are_to_treat_them(here: Served) -> None:
    async with here.client(origin="http://evil.example") as client:
        found = await client.get("/queues")
        asked_before = await client.options("/queues", headers={"access-control-request-method": "POST"})

    assert found.headers["content-type"] == "application/json; charset=utf-8"
    assert found.headers["x-content-type-options"] == "nosniff"
    assert found.headers["cache-control"] == "no-store"
    assert found.headers["referrer-policy"] == "no-referrer"
    assert found.headers["cross-origin-resource-policy"] == "same-origin"
    assert found.headers["x-frame-options"] == "DENY"
    assert "frame-ancestors 'none'" in found.headers["content-security-policy"]
    assert not [name for name in (*found.headers, *asked_before.headers) if name.startswith("access-control")]
    assert asked_before.status_code == 405


@pytest.mark.covers("B100")
async def test_a_clients_word_on_its_address_is_not_taken() -> None:
    async def entered(proxy: str, *forwarded: str) -> str:
        known = [("authorization", f"Bearer {TOKEN}"), *(("x-forwarded-for", each) for each in forwarded)]
        async with served(access=Tokens({TOKEN: Role.ADMIN}), proxies=[proxy]) as here, here.client() as client:
            await client.post("/queues/email/pause", headers=known)
            return str((await client.get("/audit", headers=known)).json()["items"][0]["address"])

    assert await entered("10.1.2.3", "8.8.8.8") == "127.0.0.1"
    assert await entered("127.0.0.1", "1.1.1.1, 8.8.8.8") == "8.8.8.8"
    assert await entered("127.0.0.1", "1.1.1.1", "8.8.8.8") == "8.8.8.8"


@pytest.mark.covers("B103")
async def test_of_two_who_retry_one_job_one_does(here: Served) -> None:
    queue = here.app.queue("email")
    job = await queue.add("x", delay=100)
    async with here.client() as client:
        both = await asyncio.gather(*(client.post(f"/queues/email/jobs/{job.id}/promote") for _ in range(2)))

    assert sorted(answer.status_code for answer in both) == [200, 409]


@pytest.mark.covers("B107", "B108")
async def test_what_fails_inside_is_not_told_outside(
    here: Served, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(error: Exception) -> Any:
        async def queues() -> list[str]:
            raise error

        return queues

    async with here.client() as client:
        monkeypatch.setattr(here.app.store, "queues", fails(ZeroDivisionError("secret words")))
        broken = await client.get("/queues")
        monkeypatch.setattr(here.app.store, "queues", fails(EngineUnavailable("redis://me:hunter2@host is away")))
        away = await client.get("/queues")

    assert broken.status_code == 500
    assert "secret" not in broken.text
    assert broken.json()["error"]["incident"] in caplog.text
    assert (away.status_code, "hunter2" in away.text) == (503, False)


async def test_roles_hold() -> None:
    roles = {"r" * 16: Role.READ, "o" * 16: Role.OPERATE, "a" * 16: Role.ADMIN}
    async with served(access=Tokens(roles)) as here:
        found = {}
        for token, role in roles.items():
            async with here.client(authorization=f"Bearer {token}") as client:
                answers = [
                    await client.get("/queues"),
                    await client.post("/queues/email/pause"),
                    await client.post("/queues/email/drain", json={}),
                ]
                found[role] = [answer.status_code for answer in answers]

    assert found == {Role.READ: [200, 403, 403], Role.OPERATE: [200, 200, 403], Role.ADMIN: [200, 200, 200]}


async def test_the_host_application_can_decide() -> None:
    def decide(connection: HTTPConnection) -> Who | None:
        name = connection.headers.get("x-user")
        return None if name is None else Who(name, Role.OPERATE)

    async with served(access=CustomAccess(decide)) as here, here.client() as client:
        stranger = await client.get("/queues")
        known = await client.get("/queues", headers={"x-user": "ada"})

    assert (stranger.status_code, known.status_code) == (403, 200)


def test_a_token_that_can_be_guessed_is_refused() -> None:
    with pytest.raises(InvalidOption, match="at least 16"):
        Tokens({"short": Role.READ})


async def test_an_app_that_is_not_open_says_so() -> None:
    from httpx import ASGITransport, AsyncClient

    from toril.web import site

    transport = ASGITransport(site(App("memory://"), access=Open()))
    async with AsyncClient(transport=transport, base_url="http://localhost") as client:
        found = await client.get("/api/v1/queues")

    assert (found.status_code, found.json()["error"]["code"]) == (503, "closed")
