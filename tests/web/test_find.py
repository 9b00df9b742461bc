"""Jobs are looked for in all queues at once: within a bounded time, with what was looked at and where to go on."""

import re
from typing import Any

import httpx
import pytest

from tests.web.conftest import Served, served
from tests.web.test_api import ask
from toril import JobContext, PermanentError
from toril.testing import drain

HTML = {"accept": "text/html"}


async def breaks(ctx: JobContext[Any]) -> None:
    raise PermanentError(f"card of {ctx.data['who']} was refused")


async def works(_: JobContext[Any]) -> str:
    return "fine"


async def filled(here: Served) -> None:
    """Customers in four places: a dead letter, a kept failure, jobs that wait, and run records."""
    billing = here.app.queue("billing", {"charge": breaks})
    kept = here.app.queue("kept", {"charge": breaks}, keep_failed=True)
    mail = here.app.queue("mail", {"send": works})
    await billing.add("charge", {"who": "ada", "org": "nordwind"})
    await kept.add("charge", {"who": "bob"}, subject="app:nordwind")
    await mail.add("send", {"to": "eve"}, subject="app:nordwind")
    await drain(here.app)
    await mail.add("send", {"to": "mallory", "password": "hunter2"}, group="org:nordwind", delay=900)
    await (await kept.add("charge", {"who": "cy"}, delay=900)).cancel("cy has left")


def found_in(found: dict[str, Any]) -> list[tuple[str, str, bool]]:
    return [(each["queue"], each["state"], each["dead_letter"] is not None) for each in found["items"]]


async def test_errors_payloads_and_customers_are_found_in_all_queues(here: Served) -> None:
    await filled(here)
    async with here.client() as client:
        customer = await ask(client, "GET", "/search?q=NORDWIND")
        error = await ask(client, "GET", "/search?error=was+refused")
        payload = await ask(client, "GET", "/search?key=to=mallory")
        group = await ask(client, "GET", "/search?group=org:nordwind")
        subject = await ask(client, "GET", "/search?subject=app:nordwind")
        secret = await ask(client, "GET", "/search?q=hunter2")
        nothing = await client.get("/search")
        cancelled = await ask(client, "GET", "/search?error=has+left")

    assert found_in(customer) == [
        ("billing", "failed", True), ("kept", "failed", False), ("mail", "delayed", False),
        ("mail", "completed", False),
    ]  # fmt: skip
    assert found_in(error) == [("billing", "failed", True), ("kept", "failed", False)]
    assert found_in(payload) == found_in(group) == [("mail", "delayed", False)]
    assert found_in(subject) == [("kept", "failed", False), ("mail", "completed", False)]
    assert secret["items"] == []
    assert found_in(cancelled) == [("kept", "cancelled", False)]
    assert (customer["cursor"], customer["left"]) == (None, 0)
    assert {"kind": "delayed", "queue": "mail", "looked": 1, "more": False} in customer["places"]
    assert customer["looked"] == sum(place["looked"] for place in customer["places"])
    assert nothing.status_code == 422


async def test_a_look_ends_in_time_and_goes_on_where_it_stopped(here: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    await filled(here)
    monkeypatch.setattr("toril.web.api.search._SOON", 0.0)
    met: list[tuple[str, str, bool]] = []
    looks, cursor = 0, ""
    async with here.client() as client:
        while True:
            found = await ask(client, "GET", f"/search?q=nordwind{cursor}")
            met += found_in(found)
            looks += 1
            assert len(found["places"]) == 1
            if found["cursor"] is None:
                break
            cursor = f"&cursor={found['cursor']}"

    assert looks == 1 + 2 + 3 * 3  # the letters; two places with jobs; the run records of three queues
    assert set(met) == {
        ("billing", "failed", True), ("kept", "failed", False), ("mail", "delayed", False),
        ("mail", "completed", False),
    }  # fmt: skip


async def test_a_long_place_does_not_hide_the_others(here: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    await filled(here)
    await here.app.queue("aaa").add_many([("poll", {"n": n}) for n in range(1000)])
    monkeypatch.setattr("toril.web.api.search._EACH", 0.0)
    monkeypatch.setattr("toril.web.api.search._SOON", 60.0)
    async with here.client() as client:
        found = await ask(client, "GET", "/search?q=mallory")
        page = await client.get(f"http://127.0.0.1:{here.port}/find?q=mallory", headers=HTML)

    assert found_in(found) == [("mail", "delayed", False)]
    (long,) = [place for place in found["places"] if place["more"]]
    assert (long["kind"], long["queue"], long["looked"]) == ("waiting", "aaa", 100)
    assert 'href="./queues/aaa?state=waiting&amp;q=mallory">aaa, waiting</a>' in page.text
    assert "mallory" in page.text


async def test_the_page_of_a_job_leads_to_all_of_its_subject(here: Served) -> None:
    options: dict[str, Any] = {"subject": "app:nordwind", "job_id": "one"}
    for name in ("dead", "kept", "gone"):
        queue = here.app.queue(name, {"charge": breaks, "send": works}, keep_failed=name == "kept")
        await queue.add("send" if name == "gone" else "charge", {"who": "ada"}, **options)
    await drain(here.app)
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{here.port}", headers=HTML) as client:
        places = ("/dead/dead%2Fone", "/queues/kept/jobs/one", "/queues/gone/jobs/one")
        pages = [(await client.get(place)).text for place in places]
        found = (await client.get("/find?q=subject:app:nordwind")).text

    for page in pages:
        assert re.search(r'<dt>Subject</dt><dd><a class="link" href="[./]*find\?q=subject%3Aapp%3Anordwind">', page)
    assert "Priority</dt><dd>none" in pages[0]
    assert "<dt>Group</dt>" not in pages[0]
    assert [name for name in ("dead", "kept", "gone") if f">{name}</a>" not in found] == []


async def test_the_page_finds_ids_queues_and_whatever_else(here: Served) -> None:
    await filled(here)
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{here.port}", headers=HTML) as client:
        pages = {
            q: (await client.get("/find", params={"q": q})).text for q in ("1", "bill", "group:org:nordwind", "zz")
        }
        plain = (await client.get("/find")).text

    assert re.findall(r'<tr data-id="([^"]*)"', pages["1"])[:3] == ["billing/1", "kept/1", "mail/1"]
    assert 'href="./queues/billing">billing</a></td><td class="n dim">queue' in pages["bill"]
    assert re.findall(r'<tr data-id="([^"]*)"', pages["group:org:nordwind"]) == ["mail/2"]
    assert "No results" in pages["zz"]
    assert "run records in 4\u00a0queues" in pages["zz"]
    assert "Looked at" not in plain


async def test_what_the_app_hides_is_not_found() -> None:
    def hidden(value: Any, _: Any) -> Any:
        return "(not shown)"

    async with served(redact=hidden) as here, here.client() as client:
        await filled(here)
        found = [await ask(client, "GET", f"/search?q={text}") for text in ("mallory", "refused")]

    assert [each["items"] for each in found] == [[], []]
