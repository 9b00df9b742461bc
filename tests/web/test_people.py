"""Who waits for people, the form that answers, and what a job's page shows of its durable steps."""

import html
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from tests.declared import declared
from tests.web.conftest import TOKEN, Served, served
from toril import Fixed, JobContext, Retry, SignalKind, StepFailed
from toril.codec.schemas import schema_of
from toril.model import Heartbeat
from toril.testing import drain
from toril.web import Basic, Role, Tokens

OURS = {"accept": "text/html", "origin": "null", "sec-fetch-site": "same-origin"}


@dataclass
class Approval:
    ok: bool
    by: str
    amount: int = 5


APPROVAL = SignalKind("approval", Approval)


async def pay(ctx: JobContext[Any]) -> str:
    found = await ctx.wait_for(APPROVAL, timeout="3d")
    return "nobody" if found is None else f"{found.ok} {found.by!r} {found.amount}"


async def keyed(ctx: JobContext[Any]) -> Any:
    return await ctx.wait_for("paid", key="invoice:7")


async def first(ctx: JobContext[Any]) -> Any:
    return await ctx.wait_for_any(["withdrawn", APPROVAL])


async def broken() -> None:
    raise ConnectionError("no answer, password=hunter22")


async def count(_: JobContext[Any]) -> int:
    return 3


def browser(here: Served, **headers: str) -> httpx.AsyncClient:
    return httpx.AsyncClient(base_url=f"http://127.0.0.1:{here.port}", headers=OURS | headers)


@asynccontextmanager
async def waiting(*, code: bool = True, redact: Any = None, **options: Any) -> AsyncIterator[Served]:
    """Jobs that wait. Without `code`, the type of the signal is known as workers declare it."""
    async with served(redact=redact, **options) as here:

        async def all_kinds(ctx: JobContext[Any]) -> None:
            await ctx.step("create", lambda: {"email": "ada@example.org", "api_key": "very secret"})
            await ctx.step("draft", lambda: "x" * 300)
            with suppress(StepFailed):
                await ctx.step("ledger", broken)
            await ctx.version("layout", 2)
            await ctx.wait_for("early", timeout="1d")
            await ctx.call("count", here.app.queue("q").new("count"))
            await ctx.sleep("cool-off", "3d")

        here.app.queue(
            "q", {"pay": pay, "keyed": keyed, "first": first, "all_kinds": all_kinds, "count": count},
            keep_completed=True, signals=[APPROVAL] if code else [],
        )  # fmt: skip
        if not code:
            said = declared("pay", signals={"approval": schema_of(Approval)})
            beat = Heartbeat(
                worker="w", queues=["q"], slots=1, running=0, started_at=1, again=False, declares={"q": said}
            )
            await here.app.store.heartbeat(beat, ttl=60_000)
        yield here


async def resting(here: Served, name: str = "pay", data: Any = None) -> str:
    job = await here.app.queue("q").add(name, data)
    await drain(here.app)
    return job.id


def plain(page: httpx.Response) -> str:
    """What one reads on a page."""
    main = page.text.partition("<main")[2]
    text = re.sub(r"<template.*?</template>|<(script|style).*?</\1>", " ", main, flags=re.DOTALL)
    return " ".join(html.unescape(re.sub(r"<[^>]*>", " ", text)).split())


def fields(page: httpx.Response) -> dict[str, str]:
    """What a form would send as it stands, without choices that were not made."""
    found = dict(re.findall(r'<input type="hidden" name="([^"]*)" value="([^"]*)"', page.text))
    found |= dict(re.findall(r'<textarea[^>]* name="([^"]*)"[^>]*>\n?([^<]*)', page.text))
    found |= dict(re.findall(r'<input class="input"[^>]* name="([^"]*)" value="([^"]*)"', page.text))
    return {html.unescape(name): html.unescape(value) for name, value in found.items()}


async def test_if_nobody_waits_the_page_says_who_would_be_there(here: Served) -> None:
    async with browser(here) as client:
        page = await client.get("/people")

    assert "No job waits for a person" in plain(page)
    assert "ctx.wait_for" in plain(page)


async def test_who_waits_is_listed_by_signal_the_oldest_first() -> None:
    async with waiting() as here, browser(here) as client:
        ids = [await resting(here, "pay", {"amount": n, "card_token": "s3"}) for n in (1, 2)]
        other, both = await resting(here, "keyed"), await resting(here, "first")
        page = await client.get("/people")
        some = await client.get("/people?signal=paid")
        none = await client.get("/people?signal=nothing")
        start = await client.get("/")

    order = re.findall(r'<tr data-id="([^"]*)"', page.text)
    assert order == [
        f"q/{ids[0]}/approval", f"q/{ids[1]}/approval", f"q/{both}/approval", f"q/{other}/paid", f"q/{both}/withdrawn",
    ]  # fmt: skip
    assert '{"amount": 1, "card_token": "***"}' in plain(page)
    assert "invoice:7" in plain(page)
    assert "or withdrawn" in plain(page)
    assert re.findall(r'<tr data-id="([^"]*)"', some.text) == [f"q/{other}/paid"]
    assert "Nobody waits for nothing" in plain(none)
    assert re.search(r'id="n-nav-people">4<', start.text)


@pytest.mark.parametrize("code", [True, False], ids=["code", "declared"])
async def test_a_form_made_from_the_type_answers_without_a_script(code: bool) -> None:
    async with waiting(code=code) as here, browser(here) as client:
        job = await resting(here, "pay", {"amount": 1})
        address = f"/queues/q/jobs/{job}/signals/approval"
        form = await client.get(address)
        wrong = await client.post(address, data={"data:by": "two\r\nlines", "data:amount": "many"} | {"id": "once"})
        right = fields(wrong) | {"data:ok": "true", "data:amount": "7"}
        sent = await client.post(address, data=right)
        assert sent.next_request is not None
        back = await client.send(sent.next_request)
        again = await client.post(address, data=right)
        await drain(here.app)
        found = await here.app.queue("q").job(job)
        late = await client.post(address, data=right | {"id": "another"})
        noted = (await here.app.store.audit.page()).items
        assert found is not None
        result = await found.result()

    assert fields(form).keys() == {"id", "data:by", "data:amount"}
    assert len(fields(form)["id"]) > 20
    assert fields(form)["data:amount"] == "5"
    assert "autofocus" in form.text
    assert wrong.status_code == 422
    assert "2 fields need a correction" in plain(wrong)
    assert plain(wrong).count("Choose one.") == plain(wrong).count("Enter a whole number.") == 1
    assert fields(wrong)["data:by"].replace("\r\n", "\n") == "two\nlines"
    assert (fields(wrong)["data:amount"], fields(wrong)["id"]) == ("many", "once")
    assert sent.status_code == 303
    assert "Sent. Job 1 in q goes on." in plain(back)
    assert (again.status_code, "sent=duplicate" in again.headers["location"]) == (303, True)
    assert result == "True 'two\\nlines' 7"
    assert late.status_code == 409
    assert "has ended" in plain(late)
    assert fields(late)["data:amount"] == "7"
    assert [(each.action, each.target, each.ended[:4]) for each in noted] == [
        ("signal job", f"q/{job}/approval", ended) for ended in ("refu", "done", "done")
    ]


async def test_an_answer_that_nobody_waits_for_is_kept_only_if_one_says_so() -> None:
    async with waiting() as here, browser(here) as client:
        job = await resting(here)
        address = f"/queues/q/jobs/{job}/signals/another"
        form = await client.get(address)
        refused = await client.post(address, data=fields(form) | {"data:": '"yes"'})
        kept = await client.post(address, data=fields(refused) | {"anyway": "1"})
        unread = await here.app.store.steps.inbox("q", job)

    assert "not waiting for this signal now" in plain(form)
    assert refused.status_code == 409
    assert fields(refused)["data:"] == '"yes"'
    assert 'name="anyway"' in refused.text
    assert "sent=kept" in kept.headers["location"]
    assert [(each.name, each.payload) for each in unread] == [("another", '"yes"')]


async def test_what_only_the_type_itself_refuses_stands_beside_its_field() -> None:
    class Even(int):
        @classmethod
        def __get_pydantic_core_schema__(cls, *_: Any) -> Any:
            from pydantic_core import core_schema

            def check(value: int) -> int:
                if value % 2:
                    raise ValueError("it is odd")
                return value

            return core_schema.no_info_after_validator_function(check, core_schema.int_schema())

    @dataclass
    class Pair:
        number: Even
        name: str

    async with served() as here, browser(here) as client:
        queue = here.app.queue("q", {"keyed": keyed}, signals=[SignalKind("paid", Pair)])
        job = await queue.add("keyed")
        await drain(here.app)
        address = f"/queues/q/jobs/{job.id}/signals/paid?key=invoice%3A7"
        refused = await client.post(address, data={"id": "a", "data:number": "3", "data:name": "x"})
        sent = await client.post(address, data={"id": "a", "data:number": "4", "data:name": "x"})

    assert refused.status_code == 422
    assert re.search(r'id="f-data:number-wrong"[^\x00]*?it is odd', refused.text)
    assert fields(refused)["data:name"] == "x"
    assert "sent=woken" in sent.headers["location"]


async def test_a_full_inbox_is_said_and_nothing_is_lost() -> None:
    async with waiting() as here, browser(here) as client:
        job = await here.app.queue("q").add("pay", delay=3600)
        for n in range(100):
            await job.signal("another", n)
        sent = await client.post(
            f"/queues/q/jobs/{job.id}/signals/another", data={"id": "x", "data:": "1", "anyway": "1"}
        )

    assert sent.status_code in (400, 409)
    assert "Not sent" in plain(sent)
    assert fields(sent)["data:"] == "1"


async def test_a_form_is_taken_from_our_own_pages_and_from_those_who_may_act() -> None:
    good = {"id": "a", "data:ok": "true", "data:by": "x"}
    both = {TOKEN: Role.OPERATE, TOKEN[::-1]: Role.READ}
    async with waiting(access=Tokens(both)) as here, browser(here) as client:
        job = await resting(here)
        address = f"/queues/q/jobs/{job}/signals/approval"
        stranger = await client.post(address, data=good)
        await client.post("/", data={"token": TOKEN[::-1]})
        reader = await client.post(address, data=good)
        listed = await client.get("/people")
        seen = await client.get(f"/queues/q/jobs/{job}")
        await client.post("/sign-in", data={"token": TOKEN})
        elsewhere = await client.post(
            address, data=good, headers={"origin": "http://evil", "sec-fetch-site": "cross-site"}
        )
        as_json = await client.post(address, json=good)
        path = await client.post("/people", data=good)
        del client.headers["origin"], client.headers["sec-fetch-site"]
        bare = await client.post(address, data=good, headers={"authorization": f"Bearer {TOKEN}"})
        unread = await here.app.store.steps.inbox("q", job)

    assert [each.status_code for each in (stranger, reader, elsewhere, as_json, path, bare)] == [
        401,
        403,
        403,
        415,
        401,
        403,
    ]
    assert "Answer" not in re.sub(r"<h1.*?</h1>", "", listed.text.partition("<main")[2])
    assert "/signals/" not in seen.text
    assert unread == []


async def test_a_form_works_with_names_and_passwords_too() -> None:
    access = Basic({"ops": ("correct horse battery", Role.OPERATE)})
    async with waiting(access=access) as here, browser(here) as client:
        job = await resting(here)
        address = f"/queues/q/jobs/{job}/signals/approval"
        sent = await client.post(
            address, data={"id": "a", "data:ok": "true", "data:by": "x"}, auth=("ops", "correct horse battery")
        )
        (noted,) = (await here.app.store.audit.page()).items

    assert sent.status_code == 303
    assert noted.who == "ops"


async def test_a_queue_with_a_serializer_is_answered_by_its_application_alone() -> None:
    async with served() as here, browser(here) as client:
        plain_queue = here.app.queue("q")
        job = await plain_queue.add("pay", delay=60)
        beat = Heartbeat(
            worker="w", queues=["q"], slots=1, running=0, started_at=1, again=False,
            declares={"q": declared("pay", serializer=True)},
        )  # fmt: skip
        await here.app.store.heartbeat(beat, ttl=60_000)
        page = await client.get(f"/queues/q/jobs/{job.id}/signals/approval")

    assert "only the application can send signals" in plain(page)
    assert "Send</button>" not in page.text


async def test_a_job_shows_its_steps_and_how_far_it_can_be_rewound() -> None:
    async with waiting() as here, browser(here) as client:
        queue = here.app.queue("q")
        job = await queue.add("all_kinds")
        await job.signal("early", {"password": "hunter22", "note": "hi"})
        await drain(here.app)
        page = await client.get(f"/queues/q/jobs/{job.id}")
        listed = await client.get("/queues/q?state=resting")
        delayed = await client.get("/queues/q?state=delayed")
        waits = await resting(here)
        one = await client.get(f"/queues/q/jobs/{waits}")
        rewound = await client.post(
            f"/api/v1/queues/q/jobs/{job.id}/rewind", json={"to": "draft"}, headers={"accept": "application/json"}
        )

    text = plain(page)
    assert "Sleeping (cool-off), ends in" in text
    assert re.findall(r'<div class="did"><b>([^<]*)</b>', page.text) == [
        "create", "draft", "ledger", "layout", "early", "count", "cool-off",
    ]  # fmt: skip
    for said in (
        '{"email": "ada@example.org", "api_key": "***"}', "failed, and the handler caught it",
        "ConnectionError: no answer, password=***", 'received {"password": "***", "note": "hi"}', "sleeping, ends in",
    ):  # fmt: skip
        assert said in text, said
    assert "hunter22" not in page.text
    assert "very secret" not in page.text
    assert text.count("Value") == 1, "a long value is folded"
    assert page.text.count("Rewind to here") == 7
    assert re.search(r'id="form-rewind-2".*?data-body="\{&#34;to&#34;: &#34;draft&#34;\}"', page.text)
    assert "Run 1" in text
    assert re.search(r'id="n-tab-resting">1<', listed.text)
    assert "sleeping (cool-off)" in plain(listed)
    assert "sleeping (cool-off)" in plain(delayed)
    assert "Waiting for approval, ends in" in plain(one)
    assert f"/queues/q/jobs/{waits}/signals/approval" in one.text
    assert rewound.status_code == 200


async def test_a_step_that_failed_or_timed_out_says_so() -> None:
    async def runs(ctx: JobContext[Any]) -> None:
        await ctx.wait_for("never", timeout="1ms")
        await ctx.step("charge", broken, retry=Retry(3, Fixed(3600)))

    async with served() as here, browser(here) as client:
        queue = here.app.queue("q", {"runs": runs})
        job = await queue.add("runs")
        await drain(here.app)
        page = await client.get(f"/queues/q/jobs/{job.id}")
        plain_job = await queue.add("runs", delay=60)
        without = await client.get(f"/queues/q/jobs/{plain_job.id}")

    text = plain(page)
    assert "timed out, no signal came" in text
    assert "failed 1\u00a0time, tries again in".replace("\u00a0", " ") in text.replace("\u00a0", " ")
    assert "Waiting to retry charge, ends in" in text
    assert 'id="steps"' not in without.text


async def test_values_are_shown_as_the_application_redacts_them() -> None:
    def hide(value: Any, context: Any) -> Any:
        return f"({context.part})" if context.part in ("step", "signal") else value

    async with waiting(redact=hide) as here, browser(here) as client:
        job = await here.app.queue("q").add("all_kinds")
        await job.signal("early", {"note": "private"})
        await drain(here.app)
        page = await client.get(f"/queues/q/jobs/{job.id}")

    assert "private" not in page.text
    assert "ada@example.org" not in page.text
    assert "(signal)" in plain(page)


async def test_a_job_that_ran_before_it_rested_says_which_runs_it_had(here: Served) -> None:
    async def twice(ctx: JobContext[Any]) -> int:
        await ctx.sleep("a moment", "1ms")
        return 1

    queue = here.app.queue("q", {"twice": twice}, keep_completed=True)
    job = await queue.add("twice")
    await drain(here.app)
    while await job.state() != "completed":
        await drain(here.app)
    async with browser(here) as client:
        page = await client.get(f"/queues/q/jobs/{job.id}")

    assert "Run 2" in plain(page)
    assert "over" in plain(page)


async def test_more_than_a_hundred_are_counted_as_that() -> None:
    async with waiting() as here, browser(here) as client:
        await here.app.queue("q").add_many([("pay", None)] * 101)
        await drain(here.app)
        start = await client.get("/")
        page = await client.get("/people")

    assert re.search(r'id="n-nav-people">100\+<', start.text)
    assert "101\u00a0jobs, oldest first" in html.unescape(page.text)
