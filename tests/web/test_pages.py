"""The pages' ground: who gets in, what is sent with them, and how they are kept up to date."""

import asyncio
import contextlib
import json
import re
from dataclasses import replace
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette
from starlette.routing import Mount

from tests.declared import declared
from tests.servers import RedisServer
from tests.web.conftest import TOKEN, Served, served
from toril import App
from toril.errors import EngineUnavailable
from toril.model import KEEP_ALL, Claim, Failed, Failure, Heartbeat, JobOptions, NewJob, RateLimit, Settlement
from toril.operate.transfer import Transfer
from toril.runtime.clock import SYSTEM
from toril.web import Basic, CustomAccess, Role, Tokens, site
from toril.web.dashboard import PageState
from toril.web.server import StoreWatch
from toril.web.templates import assets

HTML = {"accept": "text/html"}


def browser(here: Served, **headers: str) -> httpx.AsyncClient:
    return httpx.AsyncClient(base_url=f"http://127.0.0.1:{here.port}", headers={**HTML, **headers})


def links(page: str) -> list[str]:
    return re.findall(r'(?:href|src|action)="([^"]*)"', page)


async def test_a_page_comes_with_its_style_and_script_which_may_be_kept_for_ever(here: Served) -> None:
    async with browser(here) as client:
        page = await client.get("/")
        files = [await client.get(asset.path) for asset in assets().values()]

    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert page.headers["cache-control"] == "no-store"
    assert [each.headers["cache-control"] for each in files] == ["public, max-age=31536000, immutable"] * 2
    assert all("./" + asset.path in page.text for asset in assets().values())


@pytest.mark.covers("B94")
async def test_no_page_has_a_script_or_a_style_of_its_own(here: Served) -> None:
    async with browser(here) as client:
        page = await client.get("/")

    assert "script-src 'self'; style-src 'self'" in page.headers["content-security-policy"]
    assert re.findall(r"<script(?![^>]* src=)|<style| style=| on[a-z]+=", page.text) == []


@pytest.mark.covers("B84")
@pytest.mark.parametrize(
    "path", ["/assets/../site.py", "/assets/%2e%2e/site.py", "/assets/app.js", "/assets/", "//etc"]
)
async def test_files_come_from_a_table_and_not_from_a_path(here: Served, path: str) -> None:
    answer = await here.raw(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nconnection: close\r\n\r\n".encode())

    assert answer.split(b" ", 2)[1] == b"404"


@pytest.mark.covers("R238")
async def test_pages_are_mounted_under_any_prefix_with_relative_addresses() -> None:
    app = App("memory://")
    app.queue("email")
    mounted = Starlette(
        routes=[Mount("/ops/jobs", site(app, access=CustomAccess(lambda _: Role.READ), hosts=["here"]))]
    )
    async with app, httpx.AsyncClient(transport=httpx.ASGITransport(mounted), base_url="http://here") as client:
        page = await client.get("/ops/jobs/", headers=HTML)
        style = await client.get(f"/ops/jobs/{assets()['app.css'].path}")

    assert (page.status_code, style.status_code) == (200, 200)
    assert [link for link in links(page.text) if link.startswith(("/", "http"))] == []


async def test_who_has_a_token_signs_in_once() -> None:
    async with served(access=Tokens({TOKEN: Role.READ})) as here, browser(here) as client:
        asked = await client.get("/")
        back = await client.post("/", data={"token": TOKEN})
        page = await client.get("/")
        api = await client.get("/api/v1/queues")
        act = await client.post("/api/v1/queues/email/pause", headers={"sec-fetch-site": "same-origin"})

    assert asked.status_code == 401
    assert 'name="token"' in asked.text
    assert (back.status_code, back.headers["location"]) == (303, "./")
    cookie = back.headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=strict" in cookie
    assert TOKEN not in cookie
    assert (page.status_code, api.status_code, act.status_code) == (200, 200, 403)


async def test_a_form_says_less_of_its_origin_than_a_script() -> None:
    ours = {"origin": "null", "sec-fetch-site": "same-origin"}
    async with served(access=Tokens({TOKEN: Role.READ})) as here, browser(here) as client:
        let_in = await client.post("/", data={"token": TOKEN}, headers=ours)
        sandboxed = await client.post("/", data={"token": TOKEN}, headers={"origin": "null"})

    assert (let_in.status_code, sandboxed.status_code) == (303, 403)


@pytest.mark.parametrize("ticket", ["", "1.2", "9999999999.", "9999999999." + "0" * 64, "x", "-1.2"])
async def test_a_ticket_that_was_not_given_out_opens_nothing(ticket: str) -> None:
    async with served(access=Tokens({TOKEN: Role.READ})) as here, browser(here) as client:
        client.headers["cookie"] = f"toril={ticket}"
        found = await client.get("/")

    assert found.status_code == 401


@pytest.mark.covers("B79")
async def test_wrong_tokens_are_counted_like_wrong_headers() -> None:
    async with served(access=Tokens({TOKEN: Role.READ})) as here, browser(here) as client:
        tries = [(await client.post("/", data={"token": f"wrong {n}"})).status_code for n in range(21)]

    assert tries == [401] * 20 + [429]


@pytest.mark.covers("B81")
async def test_another_site_cannot_sign_someone_in() -> None:
    async with served(access=Tokens({TOKEN: Role.READ})) as here, browser(here) as client:
        found = await client.post("/", data={"token": TOKEN}, headers={"origin": "https://evil.example"})

    assert found.status_code == 403
    assert "set-cookie" not in found.headers


async def test_a_ticket_ends_with_its_week() -> None:
    class Later:
        now_ms = 1_800_000_000_000

        def now(self) -> int:
            return self.now_ms

    clock: Any = Later()
    access = Tokens({TOKEN: Role.READ}, clock=clock)
    ticket, seconds = access.ticket(TOKEN) or ("", 0)

    assert access._signed_in(ticket) is not None
    clock.now_ms += seconds * 1000
    assert access._signed_in(ticket) is None


async def test_a_name_and_password_need_no_page_to_enter() -> None:
    async with served(access=Basic({"ops": ("a long password", Role.OPERATE)})) as here, browser(here) as client:
        asked = await client.get("/")
        page = await client.get("/", auth=("ops", "a long password"))

    assert asked.headers["www-authenticate"].startswith("Basic")
    assert "ops · operate" in page.text


async def test_what_is_not_there_is_said_on_a_page(here: Served) -> None:
    async with browser(here) as client:
        page = await client.get("/nothing")
        api = await client.get("/api/v1/nothing")

    assert (page.status_code, page.headers["content-type"]) == (404, "text/html; charset=utf-8")
    assert "Page not found" in page.text
    assert api.json()["error"]["code"] == "not_found"


@pytest.mark.covers("B107")
async def test_a_store_that_is_away_gets_a_page_of_its_own(here: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    async def away(*_: Any, **__: Any) -> Any:
        raise EngineUnavailable("redis://user:hush@db does not answer")

    monkeypatch.setattr(here.app.store, "queues", away)
    async with browser(here) as client:
        page = await client.get("/")

    assert page.status_code == 503
    assert "Toril cannot reach its store" in page.text
    assert "hush" not in page.text


@pytest.mark.covers("B108")
async def test_a_page_that_fails_gives_a_number(here: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    async def broken(*_: Any, **__: Any) -> Any:
        raise ZeroDivisionError("private")

    monkeypatch.setattr(here.app.store, "queues", broken)
    async with browser(here) as client:
        page = await client.get("/")

    assert page.status_code == 500
    assert re.search(r"Look for incident <code>[0-9a-f]{12}</code>", page.text)
    assert "private" not in page.text


def test_what_can_change_is_read_from_the_page_itself() -> None:
    seen = PageState.of(
        '<b class="x" id="n-a">1,284</b><span id="x">no</span><progress id="n-p" max="20" value="8"></progress>'
        '<tr data-id="&lt;7&gt;"><td><i id="n-b">a &amp; b</i>'
    )

    assert seen == PageState({"n-a": "1,284", "n-p": "8", "n-b": "a & b"}, ("<7>",))


async def events(stream: httpx.Response) -> Any:
    """What a stream says, one event after the other."""
    kind = ""
    async for line in stream.aiter_lines():
        if line.startswith("event: "):
            kind = line.removeprefix("event: ")
        elif line.startswith("data: "):
            yield kind, json.loads(line.removeprefix("data: "))


async def test_an_open_page_hears_what_changes(here: Served) -> None:
    async with browser(here) as client, client.stream("GET", "/live?view=", timeout=30) as stream:
        told = events(stream)
        first = [await anext(told), await anext(told)]
        await here.app.breakers.trip("mail")
        kind, data = await anext(told)

    assert first[0] == ("rows", {"ids": ["email"]})
    assert first[1][0] == kind == "patch"
    assert {"id": "n-nav-breakers", "text": "1"} in data
    assert {"id": "n-verdict", "text": "1 of 1"} in data


async def test_each_page_hears_that_the_store_is_away(here: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    real = here.app.store.circuits.list

    async def away() -> Any:
        raise EngineUnavailable("no answer")

    monkeypatch.setattr(here.app.store.circuits, "list", away)
    async with browser(here) as client, client.stream("GET", "/live?view=", timeout=30) as before:
        told = events(before)
        first = await anext(told)
        async with client.stream("GET", "/live?view=", timeout=30) as since:
            second = await anext(events(since))  # it came while the store was away
        monkeypatch.setattr(here.app.store.circuits, "list", real)
        back = await anext(told)

    assert first == second == ("state", {"store": "gone"})
    assert back == ("state", {"store": "back"})


async def test_the_reader_rests_when_nobody_looks(here: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    looks = 0
    real = here.app.store.circuits.list

    async def counted() -> Any:
        nonlocal looks
        looks += 1
        return await real()

    monkeypatch.setattr(here.app.store.circuits, "list", counted)
    async with browser(here) as client:
        async with client.stream("GET", "/live?view=", timeout=30) as stream:
            await anext(events(stream))
        await asyncio.sleep(1.2)  # it may be within a look
        before = looks
        await asyncio.sleep(2.5)

    assert looks == before > 0


@pytest.mark.covers("B102")
async def test_streams_are_for_our_own_pages_and_bounded(here: Served) -> None:
    async with browser(here) as client:
        foreign = await client.get("/live?view=", headers={"origin": "https://evil.example"})
        streams = [client.stream("GET", "/live?view=", timeout=60) for _ in range(65)]
        opened = await asyncio.gather(*(stream.__aenter__() for stream in streams))
        statuses = sorted(each.status_code for each in opened)
        for stream in streams:
            await stream.__aexit__(None, None, None)

    assert foreign.status_code == 403
    assert statuses == [200] * 64 + [503]


async def test_a_server_that_stops_does_not_wait_for_open_pages() -> None:
    async with contextlib.AsyncExitStack() as opened:
        here = await opened.enter_async_context(served())
        client = httpx.AsyncClient(base_url=f"http://127.0.0.1:{here.port}")
        request = client.build_request("GET", "/live?view=", timeout=30)
        stream = await client.send(request, stream=True)
        told = events(stream)
        await anext(told)

    assert [each async for each in told if each[0] == "state"] == []  # the server has ended it, and not we
    await client.aclose()


@pytest.mark.covers("R238")
async def test_a_site_alone_is_ready_while_its_store_answers() -> None:
    app = App("memory://")
    watch = StoreWatch(app, SYSTEM)

    async def told() -> int:
        await watch.look()
        answer = watch.probe("/readyz")
        assert answer is not None
        return answer.status_code

    before = await told()
    async with app:
        within = await told()

    assert (before, within, await told(), watch.probe("/")) == (503, 200, 503, None)


async def test_pages_show_what_another_store_remembered_of_jobs_that_never_started() -> None:
    server = RedisServer().start()
    try:
        async with served() as before, served(server.url) as here:
            email = before.app.queue("email")
            await email.schedules.put("nightly", "report", cron="0 2 * * *")
            job = await email.add("greet", delay=3600)
            await job.cancel()
            await here.app.queue("email").counts()  # both stores are open
            await Transfer(before.app.store, here.app.store, SYSTEM).move()
            async with browser(here) as client:
                pages = [
                    await client.get(path)
                    for path in ("/schedules", "/queues/email?state=cancelled", f"/queues/email/jobs/{job.id}")
                ]

        assert [page.status_code for page in pages] == [200] * 3
        assert "nightly" in pages[0].text
        assert "greet" in pages[1].text
        assert "Cancelled, not kept" in pages[2].text
    finally:
        server.stop()


async def test_a_queue_shows_what_the_code_declares_and_what_is_set_over_it(here: Served) -> None:
    said = declared("greet", concurrency=10, rate=RateLimit(50, per=1), timeout=5000)
    beat = Heartbeat(worker="w1", queues=["email"], slots=10, running=0, declares={"email": said})
    async with browser(here) as client:
        nobody = (await client.get("/queues/email")).text
        await here.app.store.heartbeat(beat, ttl=600_000)
        code = (await client.get("/queues/email")).text
        await here.app.queue("email").set_rate_limit(RateLimit(5, per=10))
        await here.app.queue("email").set_concurrency(4)
        newer = replace(beat, worker="w2", declares={"email": replace(said, rate=None)})
        await here.app.store.heartbeat(newer, ttl=600_000, now=(await here.app.store.health()).now + 1)
        over = (await client.get("/queues/email")).text

    def facts(page: str) -> dict[str, str]:
        found = re.findall(r"<div><dt>([^<]*)</dt><dd>(.*?)</dd></div>", page)
        return {name: re.sub("<[^>]*>", "", value).replace("\u00a0", " ") for name, value in found}

    assert (facts(nobody)["Concurrency"], facts(nobody)["Rate limit"]) == ("no limit", "none")
    assert "which no live worker reports at the moment" in nobody
    assert (facts(code)["Concurrency"], facts(code)["Rate limit"]) == ("10 per worker", "50 per 1 s")
    assert (facts(code)["Attempts"], facts(code)["Timeout"]) == ("5 exponential backoff from 1 s", "5 s")
    text = code.replace("\u00a0", " ")
    assert "use the code's value: 10 per worker (10 slots in 1 worker), 50 starts per 1 s." in text
    assert 'placeholder="50"' in code
    assert "declare different values" not in code
    assert facts(over)["Concurrency"] == "4 set here; code: 10 per worker"
    assert facts(over)["Rate limit"] == "5 per 10 s set here"
    assert "Workers declare different values for rate limit." in over


async def test_cancelled_jobs_have_a_tab_and_a_look_of_their_own(here: Served) -> None:
    email = here.app.queue("email")
    await email.add("stays", keep_failed=9, job_id="stays")
    await email.add("goes", job_id="goes")
    async with browser(here) as client:
        for each in ("stays", "goes"):
            await here.app.store.cancel("email", [each], reason="not wanted")
        await here.app.store.add("email", [NewJob(name="bad", id="bad", options=JobOptions(keep_failed=KEEP_ALL))])
        claim = Claim(want=1, token="t", lease=30_000, worker="w")
        (bad,) = (await here.app.store.exchange("email", [], claim)).jobs
        failed = [Settlement(bad.lease, Failed(Failure("it broke", "E")))]
        await here.app.store.exchange("email", failed, replace(claim, want=0, token="u"))
        pages = {
            name: (await client.get(path)).text
            for name, path in {
                "overview": "/", "first": "/queues/email", "cancelled": "/queues/email?state=cancelled",
                "kept": "/queues/email/jobs/stays", "gone": "/queues/email/jobs/goes",
                "other": "/queues/sync",
            }.items()
        }  # fmt: skip

    assert 'id="n-tab-cancelled"' not in pages["other"]
    assert re.search(r'id="n-tab-failed">1<.*id="n-tab-cancelled">2<', pages["first"], re.DOTALL)
    rows = {name: re.findall(r'<tr data-id="([^"]*)"', page) for name, page in pages.items()}
    assert rows["first"] == ["bad"]
    assert {*rows["cancelled"]} == {"stays", "goes"}
    assert 'data-all="1"' in pages["first"], "one can be retried"
    assert re.search(r's-cancelled tag"><i class="i-cancelled"></i>\s*Cancelled ', pages["kept"])
    assert 's-cancelled tag"><i class="i-cancelled"></i>Cancelled, not kept' in pages["gone"]
    assert not any(
        "s-failed" in re.sub(r"<nav.*?</nav>", "", pages[name], flags=re.DOTALL) for name in ("kept", "gone")
    )
    assert re.search(r'id="n-failed">1<.*2&nbsp;cancelled</small>', pages["overview"], re.DOTALL)
