"""Jobs are looked for over HTTP, and what was found is acted upon, in bounded steps."""

from typing import Any

import httpx
import pytest
from pydantic import BaseModel

from tests.conformance.jobs import claim
from tests.web.conftest import Served, served
from tests.web.test_api import ask
from toril import JobContext, PermanentError
from toril.model import Claim, Failed, Failure, JobOptions, Keep, NewJob, RunStatus, Settlement
from toril.runtime.redaction import RedactionContext
from toril.testing import drain
from toril.web.templates import iso


async def breaks(ctx: JobContext[Any]) -> None:
    raise PermanentError(f"no user {ctx.data['n']}")


async def test_of_many_jobs_is_told_which_were_only_asked_to_stop(here: Served) -> None:
    jobs = await here.app.queue("email").add_many([("greet", {"n": n}) for n in range(3)])
    await claim(here.app.store, 2, queue="email")
    async with here.client() as client:
        answer = await ask(client, "POST", "/queues/email/cancel", {"ids": [job.id for job in jobs]})

    assert (answer["done"], answer["requested"]) == (3, 2)


async def test_jobs_are_cancelled_by_what_they_have_in_common(here: Served) -> None:
    queue = here.app.queue("email")
    await queue.add_many([("greet", {"org": n % 2}) for n in range(30)])
    async with here.client() as client:
        counted = await ask(client, "GET", "/queues/email/count?state=waiting&key=org=1")
        meant = {"state": "waiting", "key": "org=1", "asked_at": counted["asked_at"], "limit": 10, "reason": "gone"}
        first = await ask(client, "POST", "/queues/email/cancel", meant)
        second = await ask(client, "POST", "/queues/email/cancel", {**meant, "cursor": first["cursor"]})
        ended = await client.post("/queues/email/cancel", json={"state": "failed"})
        running = await ask(client, "POST", "/queues/email/cancel", {"state": "active"})

    assert (counted["count"], first["done"], second["done"], second["cursor"]) == (15, 10, 5, None)
    assert (ended.status_code, ended.json()["error"]["field"]) == (422, "state")
    assert running["done"] == 0
    assert (await queue.counts()).waiting == 15
    assert {run.text for run in (await queue.runs("cancelled")).items} == {"gone"}


@pytest.mark.covers("B104")
async def test_all_that_match_are_counted_then_acted_upon_as_of_the_asking(here: Served) -> None:
    queue = here.app.queue("kept", {"breaks": breaks}, keep_failed=True)
    await queue.add_many([("breaks", {"n": n, "shop": n % 2}) for n in range(40)])
    await drain(here.app)
    async with here.client() as client:
        counted = await ask(client, "GET", "/queues/kept/count?state=failed&key=shop=1")
        await queue.add("breaks", {"n": 41, "shop": 1})
        await drain(here.app)
        page = await ask(client, "GET", "/queues/kept/jobs?state=failed&error=NO%20USER%203&limit=5")
        rest = await ask(client, "GET", f"/queues/kept/jobs?state=failed&error=no+user+3&after={page['cursor']}")
        meant = {"state": "failed", "key": "shop=1", "asked_at": counted["asked_at"] - 1, "limit": 15}
        first = await ask(client, "POST", "/queues/kept/retry", meant)
        second = await ask(client, "POST", "/queues/kept/retry", {**meant, "cursor": first["cursor"]})
        both = await client.post("/queues/kept/retry", json={"ids": ["1"], "q": "x"})

    assert (counted["count"], counted["looked"], counted["cursor"]) == (20, 40, None)
    assert (len(page["items"]), len(rest["items"]), rest["cursor"]) == (5, 6, None)
    assert rest["looked"] + page["looked"] == 41
    assert (first["done"], second["done"], second["cursor"]) == (15, 5, None)
    assert (await queue.counts()).failed == 21
    assert both.status_code == 422


async def test_jobs_are_found_by_their_worker(here: Served) -> None:
    queue = here.app.queue("mine")
    await queue.add_many([("x", n) for n in range(2)])
    for token, worker in (("t1", "one"), ("t2", "two")):
        await here.app.store.exchange("mine", [], Claim(want=1, token=token, lease=30_000, worker=worker))
    async with here.client() as client:
        found = await ask(client, "GET", "/queues/mine/jobs?state=active&worker=two")
        counted = await ask(client, "GET", "/queues/mine/count?state=active&worker=nobody")

    assert [job["worker"] for job in found["items"]] == ["two"]
    assert counted["count"] == 0


async def test_a_new_queue_in_which_all_jobs_fail_needs_attention() -> None:
    async with served() as here:
        queue = here.app.queue("new", {"breaks": breaks})
        await queue.add_many([("breaks", {"n": n}) for n in range(30)])
        await drain(here.app)
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{here.port}") as client:
            page = await client.get("/", headers={"accept": "text/html"})
        failed = (await here.app.store.runs("new", RunStatus.FAILED, limit=100)).items

    assert "100.0\u00a0% of jobs in <a" in page.text
    first = min(run.finished_at for run in failed)
    assert f'for <time datetime="{iso(first)}"' in page.text, "since the first failure, not since its minute"
    assert "30 in the last 30 minutes; nothing earlier this week to compare with" in page.text


async def test_failures_are_shown_by_their_error() -> None:
    async with served() as here, here.client() as client:
        kept = here.app.queue("kept", {"breaks": breaks}, keep_failed=True)
        buried = here.app.queue("buried", {"breaks": breaks})
        for queue in (kept, buried):
            await queue.add_many([("breaks", {"n": n}) for n in range(10_000, 10_003)])
        await drain(here.app)
        failures = await ask(client, "GET", "/queues/kept/failures")
        letters = await ask(client, "GET", "/dead-letters/failures?queue=buried")
        counted = await ask(client, "GET", "/dead-letters/count?key=n=10002")
        found = await ask(client, "GET", "/dead-letters?q=user%2010002")
        every = {"where": {"queue": "buried"}, "asked_at": counted["asked_at"], "limit": 2}
        first = await ask(client, "POST", "/dead-letters/discard", every)
        second = await ask(client, "POST", "/dead-letters/discard", {**every, "cursor": first["cursor"]})

    for grouped in (failures, letters):
        assert [(each["error"], each["kind"], each["count"]) for each in grouped["items"]] == [
            ("no user #", "PermanentError", 3)
        ]
        assert (grouped["looked"], grouped["of"]) == (3, 3)
    assert (counted["count"], len(found["items"])) == (1, 1)
    assert (first["done"], second["done"], second["cursor"]) == (2, 1, None)


class Card(BaseModel):
    """A payload with something in it that is nobody's business."""

    iban: str
    shop: int


async def pay(ctx: JobContext[Card]) -> dict[str, str]:
    if ctx.data.shop:
        raise PermanentError(f"refused {ctx.data.iban}")
    await ctx.log(f"paid from {ctx.data.iban}")
    await ctx.update_progress({"iban": ctx.data.iban})
    return {"iban": ctx.data.iban}


def without_iban(value: Any, sight: RedactionContext) -> Any:
    if isinstance(value, dict):
        return {key: "(an account)" if key == "iban" else part for key, part in value.items()}
    return value.replace("DE89", "(an account)") if isinstance(value, str) else value


@pytest.mark.covers("R237", "B105")
async def test_the_apps_own_rule_covers_what_is_shown_and_what_can_be_found() -> None:
    async with served(redact=without_iban) as here, here.client() as client:
        kept = here.app.queue("kept", {"pay": pay}, keep_failed=True, keep_completed=True)
        buried = here.app.queue("buried", {"pay": pay})
        for queue in (kept, buried):
            await queue.add_many([("pay", {"iban": "DE89", "shop": shop}) for shop in (0, 1)])
        await drain(here.app)
        done = (await kept.jobs("completed")).items[0]
        letter = (await here.app.dead_letters.page()).items[0].id.replace("/", "%2F")
        paths = (
            "/queues/kept/jobs?state=completed", "/queues/kept/jobs?state=failed", f"/queues/kept/jobs/{done.id}",
            f"/queues/kept/jobs/{done.id}/logs", f"/queues/kept/jobs/{done.id}/history", "/queues/kept/failures",
            "/queues/kept/runs", "/queues/kept/runs?status=failed", "/queues/kept/events", "/dead-letters",
            f"/dead-letters/{letter}", "/dead-letters/failures",
        )  # fmt: skip
        shown = {path: (await client.get(path)) for path in paths}
        guesses = [
            await ask(client, "GET", path)
            for path in (
                "/queues/kept/jobs?state=completed&q=DE89", "/queues/kept/jobs?state=completed&key=iban=DE89",
                "/queues/kept/runs?status=failed&error=DE89", "/dead-letters?key=iban=DE89",
                "/dead-letters?error=DE89", "/dead-letters?q=DE89",
            )
        ]  # fmt: skip
        await ask(client, "POST", "/queues/kept/jobs", {"name": "pay", "data": {"iban": "DE89", "shop": 1}})
        refused = await client.post("/queues/kept/retry", json={})
        noted = await client.get("/audit")
        page = await client.get(f"http://127.0.0.1:{here.port}/dead/{letter}")

    assert {path: found.status_code for path, found in shown.items() if found.status_code != 200} == {}
    assert [path for path, found in shown.items() if "DE89" in found.text] == []
    assert [path for path, found in shown.items() if "(an account)" not in found.text] == []
    assert [found["items"] for found in guesses] == [[]] * 6
    assert "DE89" not in noted.text
    assert "(an account)" in noted.text
    assert refused.status_code == 422
    assert [each["ended"][:7] for each in noted.json()["items"]] == ["refused", "done"]
    assert "it cannot be edited here" in page.text  # or what is shown in its place would be stored


async def test_what_a_rule_fails_on_is_not_shown() -> None:
    def broken(value: Any, sight: RedactionContext) -> Any:
        raise ZeroDivisionError(value)

    async with served(redact=broken) as here, here.client() as client:
        job = await here.app.queue("email").add("x", {"iban": "DE89"})
        found = await ask(client, "GET", f"/queues/email/jobs/{job.id}")

    assert found["data"] == "***"


async def test_a_list_of_large_jobs_is_short_enough_to_send(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("jobs", "dead_letters"):  # a busy machine may take longer than a request should
        monkeypatch.setattr(f"toril.web.api.{module}.SOON", 60.0)
    async with served() as here, here.client() as client:
        queue = here.app.queue("kept", {"breaks": breaks})
        await queue.add_many([("breaks", {"n": n, "page": "x" * 60_000}) for n in range(100)])
        waiting = await client.get("/queues/kept/jobs?limit=100")
        table = await client.get("/queues/kept/jobs.csv")
        await drain(here.app)
        letters = await client.get("/dead-letters?limit=100")

    for answer in (waiting, letters):
        items = answer.json()["items"]
        assert len(items) == 100
        assert len(answer.content) < 5_000_000
        assert items[0]["cut"] == []
        assert (items[-1]["cut"], len(items[-1]["data"])) == (["data"], 1024)
    assert len(table.content) < 5_000_000


async def test_an_error_from_elsewhere_is_shown_and_found_without_its_secrets() -> None:
    async with served() as here, here.client() as client:
        for queue in ("kept", "buried"):
            keep = Keep(1) if queue == "kept" else Keep(0)
            await here.app.store.add(queue, [NewJob(name="n", attempts=1, options=JobOptions(keep_failed=keep))])
            (job,) = (await here.app.store.exchange(queue, [], Claim(want=1, token="t", lease=30_000, worker="w"))).jobs
            failure = Failure("no login with password=hunter2", "E", "at db: password=hunter2")
            batch = [Settlement(job.lease, Failed(failure))]
            await here.app.store.exchange(queue, batch, Claim(want=0, token="u", lease=30_000, worker="w"))
        shown = [
            await client.get(path)
            for path in (
                "/queues/kept/jobs?state=failed", "/queues/kept/failures", "/dead-letters", "/dead-letters/failures",
                "/queues/kept/jobs.csv?state=failed",
            )
        ]  # fmt: skip
        guesses = [
            await ask(client, "GET", path)
            for path in ("/queues/kept/jobs?state=failed&error=hunter", "/queues/kept/runs?status=failed&q=hunter",
                         "/dead-letters?error=hunter")
        ]  # fmt: skip

    assert [answer.url.path for answer in shown if "hunter2" in answer.text or "no login" not in answer.text] == []
    assert [found["items"] for found in guesses] == [[], [], []]
