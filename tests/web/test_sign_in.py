"""On loopback without credentials: everyone may look, and whoever opens the printed link may act."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

import httpx
import pytest

from tests.web.conftest import TOKEN, Served, served
from tests.web.test_pages import browser
from toril import App
from toril.runtime.clock import SYSTEM, Clock
from toril.testing import ManualClock
from toril.web import Access, Basic, CustomAccess, Open, Role, Tokens
from toril.web.api import ENDPOINTS
from toril.web.sign_in import SignInLink

OURS = {"sec-fetch-site": "same-origin"}


@asynccontextmanager
async def linked(clock: Clock = SYSTEM) -> AsyncIterator[tuple[Served, list[str]]]:
    """A site as `toril run` serves it on loopback, and the links that it has told."""
    told: list[str] = []
    access = SignInLink(clock)
    async with served(access=access) as here:
        access.start(f"http://127.0.0.1:{here.port}/", told.append)
        yield here, told


@pytest.mark.covers("B77")
async def test_without_credentials_nothing_can_be_changed() -> None:
    changing = [endpoint for endpoint in ENDPOINTS if endpoint.method != "GET"]
    async with linked() as (here, _), here.client() as client:
        looked = await client.get("/queues")
        answers = {
            f"{each.method} {each.path}": await client.request(each.method, each.path.format_map(_Anything()))
            for each in changing
        }

    assert looked.status_code == 200
    assert {name: answer.status_code for name, answer in answers.items()} == dict.fromkeys(answers, 403)
    assert len(changing) > 20
    told = answers["POST /queues/{queue}/obliterate"].json()["error"]
    assert told["code"] == "forbidden"
    assert "requires the admin role" in told["message"]
    assert "sign-in link" in told["message"]
    assert "TORIL_HTTP_TOKEN" in told["message"]


class _Anything(dict[str, str]):
    def __missing__(self, key: str) -> str:
        return "email"


@pytest.mark.covers("B77")
async def test_a_plain_proxy_gives_nobody_the_right_to_act() -> None:
    """nginx's `proxy_pass http://127.0.0.1:8484;` sends the server's own name as host, and no word of the client."""
    async with linked() as (here, _):
        await here.app.queue("email").add("x")
        head = f"POST /api/v1/queues/email/obliterate HTTP/1.0\r\nHost: 127.0.0.1:{here.port}\r\nConnection: close\r\n"
        status = await here.status(f"{head}Content-Length: 2\r\nContent-Type: application/json\r\n\r\n{{}}".encode())
        waiting = (await here.app.queue("email").counts()).waiting

    assert (status, waiting) == (403, 1)


@pytest.mark.covers("R238")
async def test_whoever_opens_the_printed_link_may_act() -> None:
    async with linked() as (here, told), browser(here) as client, here.client() as other:
        back = await client.get(told[0])
        page = await client.get("/")
        act = await client.post("/api/v1/queues/email/pause", headers=OURS)
        audit = await client.get("/api/v1/audit")
        stranger = await other.post("/queues/email/resume")

    assert (back.status_code, back.headers["location"]) == (303, "./")
    cookie = back.headers["set-cookie"].lower()
    assert f"toril-{here.port}=" in cookie
    assert "httponly" in cookie
    assert urlsplit(told[0]).query.partition("=")[2] not in cookie
    assert 'data-role="admin"' in page.text
    assert (act.status_code, audit.status_code, stranger.status_code) == (200, 200, 403)
    assert audit.json()["items"][0]["who"] == "local"


async def test_a_link_works_once_and_its_own_browser_may_open_it_again() -> None:
    async with linked() as (here, told), browser(here) as first, browser(here) as second:
        await first.get(told[0])
        again = await first.get(told[0])
        other = await second.get(told[0])
        page = await second.get("/")

    assert (again.status_code, again.headers["location"]) == (303, "./")
    assert other.status_code == 403
    assert "This link has expired or was already used." in other.text
    assert 'data-role="read"' in page.text


async def test_a_link_is_of_no_use_after_a_quarter_of_an_hour_and_another_can_be_printed() -> None:
    clock = ManualClock()
    async with linked(clock) as (here, told), browser(here) as client:
        clock.advance(15 * 60_000)
        late = await client.get(told[0])
        asked = await client.post("/sign-in", headers=OURS)
        let_in = await client.get(told[1])

    assert (late.status_code, asked.status_code, let_in.status_code) == (403, 200, 303)
    assert "A new link was printed" in asked.text


async def test_whoever_asks_for_many_links_does_not_flood_the_log() -> None:
    clock = ManualClock()
    async with linked(clock) as (here, told), browser(here) as client:
        for _ in range(5):
            await client.post("/sign-in", headers=OURS)
        at_first = len(told)
        clock.advance(10_000)
        await client.post("/sign-in", headers=OURS)
        foreign = await client.post("/sign-in", headers={"origin": "https://evil.example"})
        earlier = await client.get(told[0])

    assert (at_first, len(told), foreign.status_code) == (1, 2, 403)
    assert earlier.status_code == 303, "a link that someone else asked for ends no earlier one"


async def test_a_look_at_the_link_does_not_use_it_up() -> None:
    async with linked() as (here, told), browser(here) as client:
        head = await client.head(told[0])
        opened = await client.get(told[0])

    assert (head.status_code, opened.status_code) == (200, 303)


async def test_a_session_ends_with_its_server_and_is_not_another_ones() -> None:
    async with linked() as (one, told), linked() as (two, _), browser(one) as client, browser(two) as elsewhere:
        await client.get(told[0])
        mine = await client.get("/")
        elsewhere.cookies.set(f"toril-{two.port}", client.cookies[f"toril-{one.port}"])
        other = await elsewhere.get("/")

    assert 'data-role="admin"' in mine.text
    assert 'data-role="read"' in other.text


@pytest.mark.parametrize("name", ["forwarded", "via", "x-forwarded-for", "x-forwarded-host", "x-real-ip"])
async def test_what_a_proxy_says_it_forwarded_is_not_taken_for_local(name: str) -> None:
    async with served(access=Open()) as here, here.client(**{name: "8.8.8.8"}) as client:
        assert (await client.get("/queues")).status_code == 403


@pytest.mark.parametrize(
    ("access", "hint"),
    [(SignInLink(), "Sign in"), (Tokens({TOKEN: Role.READ}), "Sign in"), (Open(), ""),
     (CustomAccess(lambda _: Role.READ), "")],
)  # fmt: skip
async def test_whoever_may_only_look_is_told_so_on_every_page(access: Access, hint: str) -> None:
    async with served(access=access) as here, browser(here, authorization=f"Bearer {TOKEN}") as client:
        page = await client.get("/queues/email")

    assert '<p class="readonly">' in page.text
    assert ("Sign in" in page.text) is bool(hint)
    assert "data-act=" not in page.text


async def test_a_page_for_admins_says_how_to_become_one() -> None:
    async with linked() as (here, _), browser(here) as client:
        page = await client.get("/audit")

    assert page.status_code == 403
    assert 'href="./sign-in"' in page.text


async def test_another_token_can_be_given_to_act() -> None:
    tokens = Tokens({TOKEN: Role.READ, TOKEN[::-1]: Role.ADMIN})
    async with served(access=tokens) as here, browser(here) as client:
        await client.post("/", data={"token": TOKEN})
        read = await client.post("/api/v1/queues/email/pause", headers=OURS)
        form = await client.get("/sign-in")
        back = await client.post("/sign-in", data={"token": TOKEN[::-1]}, headers=OURS)
        act = await client.post("/api/v1/queues/email/pause", headers=OURS)

    assert (read.status_code, form.status_code, back.headers["location"], act.status_code) == (403, 200, "./", 200)
    assert "your token has the role read" in read.json()["error"]["message"]


async def test_whoever_is_asked_for_a_password_is_not_asked_for_a_token() -> None:
    async with served(access=Basic({"ops": ("a long password", Role.READ)})) as here, browser(here) as client:
        page = await client.get("/")

    assert page.status_code == 401
    assert "user name and password" in page.text
    assert 'name="token"' not in page.text


async def test_a_mounted_site_lets_local_people_look_and_not_act() -> None:
    from toril.web import site

    app = App("memory://")
    app.queue("email")
    transport = httpx.ASGITransport(site(app, access=Open()), client=("127.0.0.1", 1))
    async with app, httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        looked = await client.get("/api/v1/queues")
        act = await client.post("/api/v1/queues/email/pause")

    assert (looked.status_code, act.status_code) == (200, 403)
    assert "as set by `access`" in act.json()["error"]["message"]
