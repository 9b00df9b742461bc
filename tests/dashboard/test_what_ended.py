"""What a queue's page says of jobs that ended: its tabs count what they list, and its charts count this minute too."""

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest

from tests.access import ANYONE_MAY_ACT
from toril import App, Fixed, JobContext, PermanentError, Retry
from toril.web import Access, Role, Tokens, site

HTML = {"accept": "text/html"}


async def send(ctx: JobContext[dict[str, Any]]) -> str:
    if "bad" in ctx.data:
        raise PermanentError(f"mailbox of {ctx.data['to']} is full")
    return f"sent to {ctx.data['to']}"


@asynccontextmanager
async def looked_at(app: App, access: Access | None = None) -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(site(app, access=access or ANYONE_MAY_ACT), client=("127.0.0.1", 1))
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost", headers=HTML) as client:
        yield client


async def worked(app: App, good: int = 3, bad: int = 2) -> None:
    queue = app.queue("mail")
    await queue.add_many([("send", {"to": f"ada{n}"}) for n in range(good)])
    await queue.add_many([("send", {"to": f"bob{n}", "bad": True}) for n in range(bad)])
    await app.run(burst=True, signals="leave")


def tab(page: str, state: str) -> str:
    found = re.search(rf'id="n-tab-{state}">([^<]*)<', page)
    assert found is not None
    return found[1]


def rows(page: str) -> list[str]:
    return re.findall(r'<tr data-id="([^"]*)"', page)


async def test_a_tab_counts_what_it_lists_where_nothing_is_kept() -> None:
    app = App("memory://")
    app.queue("mail", {"send": send})
    async with app, looked_at(app) as client:
        await worked(app)
        first = (await client.get("/queues/mail")).text
        done = (await client.get("/queues/mail?state=completed")).text

    assert (tab(first, "completed"), tab(first, "failed")) == ("3", "2")
    assert sorted(rows(first)) == ["mail/4", "mail/5"]  # failed first, for there are some
    assert "mailbox of bob1 is full" in first
    assert 'data-act="replay" data-all="2"' in first
    assert len(rows(done)) == 3
    assert "This queue keeps no completed jobs" in done


@pytest.mark.covers("R239")
async def test_what_failed_is_listed_with_its_reason_and_its_attempts() -> None:
    app = App("memory://")

    async def fail(ctx: JobContext[str]) -> None:
        raise ValueError(f"no {ctx.data}, attempt {ctx.attempt}")

    queue = app.queue("mail", {"fail": fail}, retry=Retry(3, Fixed(0.001)))
    async with app, looked_at(app) as client:
        await queue.add("fail", "stamp")
        while not await app.dead_letters.count():
            await app.run(burst=True, signals="leave")
        page = (await client.get("/queues/mail?state=failed")).text

    assert rows(page) == ["mail/1"]
    assert "<span>no stamp, attempt 3</span>" in page
    assert "3 <small>of 3</small>" in page


async def test_failed_jobs_that_are_kept_are_retried_where_they_are() -> None:
    app = App("memory://")
    app.queue("mail", {"send": send}, keep_failed=10)
    async with app, looked_at(app) as client:
        await worked(app, bad=3)
        page = (await client.get("/queues/mail")).text

    assert (tab(page, "failed"), len(rows(page))) == ("3", 3)
    assert 'data-act="retry" data-all="3"' in page
    assert 'rel="next"' not in page


async def test_kept_ones_and_dead_letters_are_walked_through_in_one_list() -> None:
    app = App("memory://")
    queue = app.queue("mail", {"send": send})
    async with app, looked_at(app) as client:
        await worked(app)
        await queue.add("send", {"to": "eve", "bad": True}, keep_failed=5)
        await app.run(burst=True, signals="leave")
        first = (await client.get("/queues/mail?limit=1")).text
        met, page = rows(first), first
        while more := re.search(r'href="(\?[^"]+)" rel="next"', page):
            page = (await client.get("/queues/mail" + more[1].replace("&amp;", "&"))).text
            met += rows(page)

    assert tab(first, "failed") == "3"
    assert met == ["6", "mail/5", "mail/4"]


async def test_the_next_page_is_of_the_same_view_without_the_script() -> None:
    app = App("memory://")
    app.queue("mail", {"send": send}, keep_completed=10)
    async with app, looked_at(app) as client:
        await worked(app)
        page = (await client.get("/queues/mail?state=completed&q=send&limit=1&range=4h")).text
        more = re.search(r'href="(\?[^"]+)" rel="next"', page)
        assert more is not None
        then = (await client.get("/queues/mail" + more[1].replace("&amp;", "&"))).text

    assert re.search(r'href="\?state=completed[^"]*" aria-current="true"', then)
    assert (rows(page), rows(then)) == (["3"], ["2"])


async def test_long_data_of_a_dead_letter_is_cut() -> None:
    app = App("memory://")
    queue = app.queue("mail", {"send": send})
    async with app, looked_at(app) as client:
        await queue.add("send", {"to": "bob", "bad": True, "blob": "y" * 300_000})
        await app.run(burst=True, signals="leave")
        pages = [await client.get(path) for path in ("/dead/mail%2F1", "/queues/mail/jobs/1", "/queues/mail", "/dead")]

    assert [page.status_code for page in pages] == [200] * 4
    assert [len(page.content) > 100_000 for page in pages] == [False] * 4
    assert [("truncated</small>" in page.text) for page in pages[:2]] == [True] * 2
    assert "cannot be edited here" in pages[0].text


async def talk(ctx: JobContext[dict[str, Any]]) -> None:
    await ctx.log(f"try {ctx.attempt} for {ctx.data['to']}, password=hunter2")
    await ctx.update_progress(30 * ctx.attempt)
    raise ValueError(f"bad try {ctx.attempt}")


async def gather_all(ctx: JobContext[Any]) -> None: ...


async def failed_flow(app: App) -> None:
    """A parent that failed for its child, which has tried twice and logged."""
    queue = app.queue("mail", {"talk": talk, "gather_all": gather_all}, retry=Retry(2, Fixed(0)))
    await app.flow(queue.new("gather_all", job_id="top"), [queue.new("talk", {"to": "ada"}, job_id="child")])
    await app.run(burst=True, signals="leave")


async def test_a_letter_shows_every_attempt_the_log_the_progress_and_its_parent() -> None:
    app = App("memory://")
    async with app, looked_at(app) as client:
        await failed_flow(app)
        page = (await client.get("/dead/mail%2Fchild")).text

    assert re.findall(r"<b>Attempt (\d)</b><code>([^<]*)</code>", page) == [
        ("2", "ValueError: bad try 2"), ("1", "ValueError: bad try 1"),
    ]  # fmt: skip
    assert page.count("frames in toril") == 2, "our own are folded, in each of them"
    assert page.count("in talk\n") == 2
    assert re.findall(r"<span>(try [^<]*)</span>", page) == [
        "try 1 for ada, password=***",
        "try 2 for ada, password=***",
    ]
    assert 'max="100" value="60"' in page
    assert re.search(r'<a href="[^"]*dead/mail%2Ftop">gather_all</a>', page), "in the flow"
    assert re.search(r"<dt>Parent</dt><dd><a [^>]*jobs/top", page)


async def test_the_letter_of_a_parent_leads_to_the_child_that_failed() -> None:
    app = App("memory://")
    async with app, looked_at(app) as client:
        await failed_flow(app)
        page = (await client.get("/dead/mail%2Ftop")).text
        (link,) = re.findall(r'failed: <a href="([^"]*)">talk', page)
        child = await client.get("/dead/" + link.rpartition("/")[2])

    assert "child mail:child failed: bad try 2" in page
    assert "No log lines" in page
    assert child.status_code == 200
    assert "try 2 for ada" in child.text


async def test_the_page_of_a_job_that_is_a_dead_letter_shows_it_and_leads_there() -> None:
    app = App("memory://")
    async with app, looked_at(app) as client:
        await failed_flow(app)
        page = (await client.get("/queues/mail/jobs/child")).text
        found = (await client.get("/queues/mail?q=id:child&state=failed")).text

    assert "Dead letter, failed" in page
    assert re.search(r'href="[^"]*dead/mail%2Fchild"><i class="i-dead"></i>View dead letter', page)
    assert 'data-act="retry"' in page
    assert page.count("try 1 for ada") == 1
    assert len(re.findall("<b>Attempt [12]</b><code>ValueError", page)) == 2
    assert rows(found) == ["child"]


async def test_a_failed_job_that_is_kept_shows_every_attempt_too() -> None:
    app = App("memory://")
    queue = app.queue("mail", {"talk": talk}, retry=Retry(3, Fixed(0)), keep_failed=5)
    async with app, looked_at(app) as client:
        await queue.add("talk", {"to": "ada"})
        await app.run(burst=True, signals="leave")
        page = (await client.get("/queues/mail/jobs/1")).text

    assert re.findall(r"<code>ValueError: bad try (\d)</code>", page) == ["3", "2", "1"]
    assert page.count('aria-label="Traceback"') == 3


async def test_a_queue_without_failures_opens_with_what_waits() -> None:
    app = App("memory://")
    app.queue("mail", {"send": send})
    async with app, looked_at(app) as client:
        await worked(app, bad=0)
        page = (await client.get("/queues/mail")).text

    assert re.search(r'href="\?state=waiting[^"]*" aria-current="true"', page)


async def test_what_ended_in_this_minute_is_in_the_rate() -> None:
    app = App("memory://")
    app.queue("mail", {"send": send})
    async with app:
        await worked(app, good=60)
        (found,) = (await app.overview()).queues

    assert 62 / 6 <= found.rate <= 62 / 5


async def test_what_the_app_hides_is_on_no_page_of_a_job_that_ended() -> None:
    def hidden(value: Any, _: Any) -> Any:
        return "(not shown)"

    app = App("memory://", redact=hidden)
    queue = app.queue("mail", {"send": send})
    async with app, looked_at(app) as client:
        await worked(app, good=1, bad=1)
        await queue.add("send", {"to": "bob", "bad": True}, keep_failed=5)
        await app.run(burst=True, signals="leave")
        paths = ["/", "/queues/mail", "/queues/mail?state=completed", "/queues/mail?state=failed", "/dead",
                 "/dead/mail%2F2", *[f"/queues/mail/jobs/{n}" for n in (1, 2, 3)]]  # fmt: skip
        pages = [await client.get(path) for path in paths]

    assert [page.status_code for page in pages] == [200] * len(paths)
    assert [str(page.url) for page in pages if re.search("ada0|bob", page.text)] == []


@pytest.mark.parametrize(("role", "there"), [(Role.ADMIN, True), (Role.OPERATE, False), (Role.READ, False)])
async def test_the_audit_log_is_in_the_navigation_of_those_who_may_see_it(role: Role, there: bool) -> None:
    token = "0123456789abcdef0123"
    async with App("memory://") as app, looked_at(app, Tokens({token: role})) as client:
        page = await client.get("/", headers={"authorization": f"Bearer {token}"})

    assert ('href="./audit"' in page.text) is there
