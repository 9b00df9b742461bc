"""Pages with nothing on them say what would be there; those whose filter finds nothing offer to clear it."""

import re
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from tests.access import ANYONE_MAY_ACT
from tests.dashboard.seed import filled, helpdesk
from toril import App
from toril.model import Heartbeat
from toril.web import Role, Tokens, site

HTML = {"accept": "text/html"}
EMPTY = {
    "/dead": "No dead letters", "/schedules": "No schedules", "/workers": "No workers",
    "/flows": "No flows", "/groups": "No groups", "/breakers": "No circuits",
    "/audit": "No changes yet",
}  # fmt: skip


async def shown(app: App, path: str, **options: Any) -> httpx.Response:
    transport = httpx.ASGITransport(site(app, **{"access": ANYONE_MAY_ACT, **options}), client=("127.0.0.1", 1))
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost", headers=HTML) as client:
        return await client.get(path)


@pytest.mark.parametrize(("path", "words"), EMPTY.items())
async def test_an_empty_page_says_what_would_be_there(path: str, words: str) -> None:
    async with App("memory://") as app:
        found = await shown(app, path)

    assert (found.status_code, words in found.text) == (200, True)


@pytest.mark.parametrize(
    "path",
    ["/dead?q=zz", "/schedules?q=zz", "/workers?q=zz&worker=zz", "/flows?q=zz", "/groups?q=zz", "/breakers?q=zz",
     "/audit?q=zz"],
)  # fmt: skip
async def test_a_filter_that_finds_nothing_can_be_cleared(one_of_each: App, path: str) -> None:
    found = await shown(one_of_each, path)

    assert (found.status_code, "Clear filter" in found.text) == (200, True)


async def test_a_flow_or_a_letter_that_is_gone_is_told_of(one_of_each: App) -> None:
    flow = await shown(one_of_each, "/flows?queue=q&id=zz")
    letter = await shown(one_of_each, "/dead/q%2Fzz")

    assert "Flow not found" in flow.text
    assert letter.status_code == 404
    assert "may have been replayed or discarded" in letter.text


@pytest.mark.parametrize("path", EMPTY)
async def test_who_may_only_look_is_offered_nothing_to_do(one_of_each: App, path: str) -> None:
    token = "0123456789abcdef0123"
    transport = httpx.ASGITransport(site(one_of_each, access=Tokens({token: Role.READ})), client=("127.0.0.1", 1))
    headers = HTML | {"authorization": f"Bearer {token}"}
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost", headers=headers) as client:
        found = await client.get(path)

    assert found.status_code == (403 if path == "/audit" else 200)
    assert re.findall(r"data-act=|data-acts=|data-pick|data-bulk|data-all|<template id=", _main(found.text)) == []


def _main(page: str) -> str:
    """Rows keep the mark of what could be done with them; without that of the table the script does nothing with it."""
    text = page[page.index("<main") :]
    return re.sub(r'(<tr [^>]*?) data-acts="[a-z]+"', r"\1", text)


@pytest.fixture
async def one_of_each() -> AsyncIterator[App]:
    """Something of everything, in memory."""
    app = helpdesk("memory://")
    async with app:
        await filled(app)
        await app.queue("billing").add("charge", {"customer": "nobody"})
        await app.run(queues={"billing": 1}, burst=True, signals="leave")
        await app.store.heartbeat(Heartbeat(worker="w", queues=["q"], slots=1, running=0), ttl=60_000)
        yield app
