"""A flow that has ended can be looked at for as long as the run records of its jobs are kept."""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest

from tests.access import ANYONE_MAY_ACT
from toril import App, Flow, JobContext, PermanentError, Retry
from toril.testing import drain
from toril.web import site

HTML = {"accept": "text/html"}


async def work(ctx: JobContext[Any]) -> str:
    if ctx.data == "slow":
        await asyncio.sleep(0.01)
    if ctx.data == "bad":
        raise PermanentError("page 3 is broken")
    return "done"


@asynccontextmanager
async def looked_at(app: App) -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(site(app, access=ANYONE_MAY_ACT), client=("127.0.0.1", 1))
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost", headers=HTML) as client:
        yield client


def books(url: str = "memory://", **options: Any) -> App:
    app = App(url)
    for name in ("books", "pages", "images"):
        app.queue(name, {"publish": work, "render": work, "draw": work}, retry=Retry(1), **options)
    return app


async def published(app: App, *, page: str = "good") -> str:
    """A book of two pages, the second of which waits for an image; nothing is kept of it."""
    new = app.queue("pages").new
    second = Flow(new("render", page, job_id="two"), [app.queue("images").new("draw")])
    top = await app.flow(app.queue("books").new("publish"), [new("render", "good", job_id="one"), second])
    await drain(app)
    return top.id


def lines(page: str) -> list[tuple[str, str, str]]:
    """Of the chosen flow: how each job stands, where its name leads, and its name."""
    return re.findall(r'role="img" aria-label="([^"]*)"></i><a href="([^"]*)" title="[^"]*">([^<]*)</a>', page)


async def test_a_flow_that_has_ended_is_drawn_from_the_run_records_of_its_jobs() -> None:
    async with (app := books()), looked_at(app) as client:
        top = await published(app)
        listed = (await client.get("/flows")).text
        job = (await client.get(f"/queues/books/jobs/{top}")).text
        leaf = (await client.get("/queues/images?state=completed")).text
        child = re.search(r'href="\.\./(queues/images/jobs/[^"]*)"', leaf)
        assert child is not None
        below = (await client.get("/" + child[1])).text

    assert [(how, name) for how, _, name in lines(listed)] == [
        ("Completed", "publish"), ("Completed", "render"), ("Completed", "render"), ("Completed", "draw"),
    ]  # fmt: skip
    assert [to.split("/")[2] for _, to, _ in lines(listed)] == ["books", "pages", "pages", "images"]
    assert "Ended 1" in listed
    assert "2 <small>of 2</small>" in listed
    for page in (job, below):
        assert [name for name in ("publish", "render", "draw") if name not in page] == []
        assert "View flow</a>" in page
    assert '<a class="link" href="../../../queues/pages/jobs/' in below  # its parent


async def test_children_of_a_flow_under_way_stand_in_the_order_in_which_they_were_added() -> None:
    async with (app := books()), looked_at(app) as client:
        new = app.queue("pages").new
        first, *others = (new("render", job_id=name) for name in ("zoe", "ben", "mia"))
        last = Flow(new("render", job_id="anna"), [app.queue("images").new("draw")])
        top = await app.flow(app.queue("books").new("publish"), [first, *others, last])
        shown = (await client.get(f"/flows?queue=books&id={top.id}")).text
        own = (await client.get(f"/queues/books/jobs/{top.id}")).text

    ids = [to.rpartition("/")[2] for _, to, name in lines(shown) if name == "render"]
    assert ids == ["zoe", "ben", "mia", "anna"]
    assert re.findall(r'queues/pages/jobs/(\w+)"', own) == ids


async def test_the_failed_child_of_a_flow_that_has_ended_is_a_click_away() -> None:
    async with (app := books()), looked_at(app) as client:
        top = await published(app, page="bad")
        page = (await client.get("/flows?show=ended")).text
        letter = (await client.get(f"/dead/books%2F{top}")).text
        listed = (await client.get("/queues/books?state=failed")).text

    found = lines(page)
    assert [(how, name) for how, _, name in found] == [
        ("Failed", "publish"), ("Completed", "render"), ("Failed", "render"), ("Completed", "draw"),
    ]  # fmt: skip
    assert found[2][1].startswith("./dead/pages%2F")
    assert found[2][1].removeprefix("./") in letter
    assert "it never started." in letter
    assert "<small>1 of 2</small>" in letter, "one of its two children is done"
    assert [words for words in ("Attempt 1", "1 of 1 spent", "1 <small>of 1") if words in letter + listed] == []


async def test_the_lines_of_a_flow_show_whose_child_each_job_is() -> None:
    async with (app := books()), looked_at(app) as client:
        new = app.queue("pages").new
        deep = Flow(new("render", job_id="one"), [Flow(new("render"), [Flow(new("draw"), [new("draw")])])])
        await app.flow(app.queue("books").new("publish"), [deep, new("render", job_id="two")])
        await drain(app)
        page = (await client.get("/flows")).text

    drawn = [re.findall(r'class="rail (\w+)"', line) for line in page.split('<span class="nm')[1:]]
    assert drawn == [[], ["tee"], ["on", "end"], ["on", "off", "end"], ["on", "off", "off", "end"], ["end"]]


async def test_children_that_were_added_at_once_stand_in_the_order_in_which_they_started() -> None:
    async with (app := books()), looked_at(app) as client:
        new = app.queue("pages").new
        await app.flow(app.queue("books").new("publish"), [new("render", "slow", job_id=name) for name in "zmab"])
        await drain(app)
        page = (await client.get("/flows")).text

    assert [to.rpartition("/")[2] for _, to, name in lines(page) if name == "render"] == list("zmab")


async def test_the_axis_of_a_short_flow_tells_times_that_differ() -> None:
    async with (app := books()), looked_at(app) as client:
        await published(app)
        page = (await client.get("/flows")).text

    first, *later = re.findall(r'y="11">([^<]*)</text>', page)
    assert re.fullmatch(r"\d\d:\d\d:\d\d", first)
    assert [tick[0] for tick in later] == ["+", "+"]


async def test_a_kept_parent_whose_child_failed_has_no_attempts() -> None:
    async with (app := books(keep_failed=10)), looked_at(app) as client:
        top = await published(app, page="bad")
        page = (await client.get(f"/queues/books/jobs/{top}")).text
        listed = (await client.get("/queues/books?state=failed")).text
        child = (await client.get("/queues/pages/jobs/two")).text

    assert "<dt>Attempts</dt><dd>none, never started</dd>" in page
    assert [words for words in ("Attempt 1", "1 of 1 spent", "1 <small>of 1") if words in page + listed] == []
    assert "child pages:two failed" in page
    assert "Attempt 1</b>" in child


async def test_a_flow_of_which_some_jobs_are_kept_shows_the_others_by_their_records() -> None:
    async with (app := books(keep_completed=10)), looked_at(app) as client:
        await app.queue("images").add("draw")  # whose page has no flow
        top = await published(app)
        for queue in ("pages", "images"):
            await app.queue(queue).clean("completed")
        kept = (await client.get(f"/flows?queue=books&id={top}")).text
        await app.queue("books").clean("completed")
        gone = (await client.get(f"/flows?queue=books&id={top}")).text

    for page in (kept, gone):
        assert [(how, name) for how, _, name in lines(page)] == [
            ("Completed", "publish"), ("Completed", "render"), ("Completed", "render"), ("Completed", "draw"),
        ]  # fmt: skip


async def test_flows_in_progress_come_first_and_are_not_among_the_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    async with (app := books()), looked_at(app) as client:
        await published(app)
        waits = await app.flow(app.queue("books").new("publish", "late"), [app.queue("nobody").new("render")])
        page = (await client.get("/flows")).text
        ended = (await client.get("/flows?show=ended&q=publish")).text
        none = (await client.get("/flows?show=ended&q=zz")).text

    assert re.findall(r'<tr data-id="([^"]*)"', page) == [f"books/{waits.id}"]
    assert len(re.findall(r'<tr data-id="books/', ended)) == 1
    assert f"books/{waits.id}" not in re.findall(r'<tr data-id="([^"]*)"', ended)
    assert "No matching flows" in none


async def test_a_look_reads_as_many_records_as_it_has_time_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toril.web.pages.flows._SOON", -1.0)
    async with (app := books()), looked_at(app) as client:
        top = await published(app)
        before = (await client.get("/flows")).text
        named = (await client.get(f"/flows?queue=books&id={top}")).text

    assert "No flows" in before
    assert [(how, name) for how, _, name in lines(named)] == [("Completed", "publish")]
    assert re.search(r'id="n-flows-looked" data-refresh>1</span> of 3', named)
