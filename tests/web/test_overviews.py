"""What the API says of the whole app at once: schedules, running jobs, groups, flows, the audit log."""

import asyncio
import re
from typing import Any

import pytest

from tests.web.conftest import Served, served
from tests.web.test_api import ask
from toril import Flow, GroupLimits, JobContext, PermanentError
from toril.model import AuditEntry
from toril.testing import drain


async def test_schedules_of_all_queues_are_put_into_words(here: Served) -> None:
    email, other = here.app.queue("email"), here.app.queue("other")
    await email.schedules.put("nightly", "x", {"password": "p"}, cron="0 2 * * *", tz="Europe/Berlin")
    await other.schedules.put("odd", "y", cron="*/7 * * * *")
    await other.schedules.put("often", "y", every=300)
    async with here.client() as client:
        found = await ask(client, "GET", "/schedules")
        less = await ask(client, "GET", "/schedules?limit=1")

    assert [(each["queue"], each["schedule"], each["words"]) for each in found["items"]] == [
        ("email", "nightly", "Every day at 02:00"), ("other", "odd", None), ("other", "often", "Every 5 minutes"),
    ]  # fmt: skip
    assert found["items"][0]["data"] == {"password": "***"}
    assert (found["more"], less["more"]) == ([], ["other"])


async def test_running_jobs_of_all_queues_come_the_longest_first() -> None:
    started: asyncio.Queue[str] = asyncio.Queue()

    async def stays(ctx: JobContext[Any]) -> None:
        started.put_nowait(ctx.job_id)
        await ctx.signal.wait()

    async with served() as here, here.client() as client:
        one, two = (here.app.queue(name, {"stays": stays}) for name in ("one", "two"))
        work = asyncio.create_task(here.app.run(grace=0.1, signals="leave"))
        jobs = [await one.add("stays", {"token": "t"})]
        await started.get()
        jobs.append(await two.add("stays"))
        await started.get()
        found = await ask(client, "GET", "/running")
        (worker,) = (await ask(client, "GET", "/workers"))["items"]
        elsewhere = await ask(client, "GET", "/running?worker=nobody")
        here_only = await ask(client, "GET", f"/running?limit=1&worker={worker['worker']}")
        here.app.stop()
        await work

    assert [(each["queue"], each["id"]) for each in found["items"]] == [(job.queue.name, job.id) for job in jobs]
    assert (found["running"], found["items"][0]["data"]) == (2, {"token": "***"})
    assert elsewhere == {"items": [], "running": 0}
    assert (len(here_only["items"]), here_only["running"]) == (1, 2)
    assert worker["loop_lag_ms"] >= 0


async def test_slots_are_counted_for_each_queue_and_not_for_the_process() -> None:
    started: asyncio.Queue[str] = asyncio.Queue()

    async def stays(ctx: JobContext[Any]) -> None:
        started.put_nowait(ctx.job_id)
        await ctx.signal.wait()

    async with served() as here, here.client() as client:
        busy = here.app.queue("busy", {"stays": stays}, concurrency=2)
        here.app.queue("idle", {"stays": stays}, concurrency=20)
        work = asyncio.create_task(here.app.run(grace=0.1, signals="leave"))
        await busy.add_many([("stays", None)] * 3)
        await started.get()
        await started.get()
        async with asyncio.timeout(30):
            while (found := (await ask(client, "GET", "/workers"))["items"]) and found[0]["running"] != 2:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        site = f"http://127.0.0.1:{here.port}"
        waiting = (await busy.jobs("waiting")).items[0]
        page = await client.get(f"{site}/queues/busy/jobs/{waiting.id}", headers={"accept": "text/html"})
        queue = await client.get(f"{site}/queues/busy", headers={"accept": "text/html"})
        here.app.stop()
        await work

    (worker,) = found
    assert worker["queue_slots"] == {"busy": {"slots": 2, "running": 2}, "idle": {"slots": 20, "running": 0}}
    assert (worker["slots"], worker["running"]) == (22, 2)
    assert "1\u00a0worker, 0 of 2\u00a0slots free" in page.text
    assert re.search(r'id="n-slots">2 of 2<', queue.text)


async def test_groups_of_all_queues_come_with_the_most_waiting_first(here: Served) -> None:
    queue = here.app.queue("q", groups=GroupLimits(concurrency=2))
    for group, many in (("a", 1), ("b", 3), ("c", 2)):
        await queue.add_many([("x", None, {"group": group}) for _ in range(many)])
    await here.app.queue("email").add("x", group="a")
    await queue.groups.pause("c")
    async with here.client() as client:
        found = await ask(client, "GET", "/groups")
        paused = await ask(client, "GET", "/groups?only=paused")
        named = await ask(client, "GET", "/groups?q=A&queue=q&limit=1")
        full = await ask(client, "GET", "/groups?only=limit")

    assert [(each["queue"], each["group"], each["waiting"]) for each in found["items"]] == [
        ("q", "b", 3), ("q", "c", 2), ("email", "a", 1), ("q", "a", 1),
    ]  # fmt: skip
    assert (found["groups"], found["match"], found["full"]) == (4, 4, 0)
    assert [each["group"] for each in paused["items"]] == ["c"]
    assert [(each["queue"], each["group"]) for each in named["items"]] == [("q", "a")]
    assert full["items"] == []


async def test_flows_under_way_are_listed_by_their_tops(here: Served) -> None:
    queue = here.app.queue("q")
    inner = Flow(queue.new("inner"), [queue.new("leaf")])
    first = await here.app.flow(queue.new("first", {"secret": "s"}), [inner, queue.new("other")])
    second = await here.app.flow(queue.new("second"), [queue.new("leaf")])
    async with here.client() as client:
        found = await ask(client, "GET", "/flows")
        one = await ask(client, "GET", "/flows?limit=1")

    assert {each["id"] for each in found["items"]} == {first.id, second.id}
    shown = next(each for each in found["items"] if each["id"] == first.id)
    assert (shown["children"]["open"], shown["data"], shown["held"]) == (2, {"secret": "***"}, None)
    assert shown["waits_for"]["name"] in {"inner", "other"}
    assert (len(one["items"]), one["flows"]) == (1, 2)


async def test_what_ended_is_told_by_job_name(here: Served) -> None:
    async def send(ctx: JobContext[Any]) -> None:
        if ctx.data:
            raise PermanentError("no")

    queue = here.app.queue("mail", {"send": send, "bulk send": send})
    await queue.add_many([("send", n < 2) for n in range(10)] + [("bulk send", False)])
    (late,) = await queue.add_many([("send", None, {"delay": 900})])
    await late.cancel()
    await drain(here.app)
    async with here.client() as client:
        found = await ask(client, "GET", "/queues/mail/names")
        nobody = await client.get("/queues/nothing/names")
        page = await client.get(f"http://127.0.0.1:{here.port}/queues/mail", headers={"accept": "text/html"})

    told = [(each["name"], each["completed"], each["failed"], each["cancelled"]) for each in found["items"]]
    assert told == [("send", 8, 2, 1), ("bulk send", 1, 0, 0)]
    assert found["items"][0]["failure_rate"] == 20.0
    assert all(each["p95"] >= each["p50"] >= 0 for each in found["items"])
    assert nobody.status_code == 404
    assert "q=name%3Asend&amp;" in page.text
    assert "q=name%3A%22bulk+send%22" in page.text or "q=name%3A%22bulk%20send%22" in page.text


async def test_the_audit_log_can_be_searched_and_paged(here: Served) -> None:
    for n in range(30):
        who = "maya" if n % 3 else "jonas"
        await here.app.store.audit.append(
            AuditEntry(who=who, address="::1", action="pause queue", target=f"q{n}", detail="", ended="done")
        )
    async with here.client() as client:
        everything = await ask(client, "GET", "/audit?limit=100")
        pages: list[dict[str, Any]] = []
        cursor = ""
        while True:
            page = await ask(client, "GET", f"/audit?q=JONAS&limit=4{cursor}")
            pages.append(page)
            if page["cursor"] is None:
                break
            cursor = f"&cursor={page['cursor']}"
        future = await ask(client, "GET", "/audit?since=2100-01-01T00:00:00Z")

    assert len(everything["items"]) == 30
    found = [each["target"] for page in pages for each in page["items"]]
    assert found == [f"q{n}" for n in range(27, -1, -3)]
    assert [len(page["items"]) for page in pages][:2] == [4, 4]
    assert future["items"] == []


async def test_the_audit_log_says_in_words_what_was_done_and_to_how_many(here: Served) -> None:
    queue = here.app.queue("email")
    jobs = await queue.add_many([("greet", {"n": n}, {"delay": 900}) for n in range(3)])
    async with here.client() as client:
        await ask(client, "POST", "/queues/email/cancel", {"state": "delayed", "key": "n=1"})
        await ask(client, "POST", "/queues/email/promote", {"ids": [jobs[0].id, jobs[2].id, "nobody"]})
        await client.delete("/queues/email/jobs/nobody")
        found = await ask(client, "GET", "/audit")
        promoted = await ask(client, "GET", "/audit?q=promoted+2+jobs")

    assert [each["text"] for each in found["items"]] == [
        "Tried to remove job nobody in email",
        f"Promoted 2 jobs in email: {jobs[0].id}, {jobs[2].id}, nobody; 1 refused",
        "Cancelled 1 delayed job in email, data n=1",
    ]
    assert [(each["done"], each["refused"]) for each in found["items"]] == [(None, None), (2, 1), (1, 0)]
    assert [each["action"] for each in promoted["items"]] == ["promote jobs"]


async def test_a_look_through_a_long_audit_log_goes_on_where_it_stopped(
    here: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    for n in range(1200):
        who = "jonas" if n == 3 else "maya"
        await here.app.store.audit.append(
            AuditEntry(who=who, address="::1", action="pause queue", target=f"q{n}", detail="", ended="done")
        )
    monkeypatch.setattr("toril.web.api.audit.SOON", 0.0)
    async with here.client() as client:
        first = await ask(client, "GET", "/audit?q=jonas")
        second = await ask(client, "GET", f"/audit?q=jonas&cursor={first['cursor']}")
        third = await ask(client, "GET", f"/audit?q=jonas&cursor={second['cursor']}")

    assert (first["items"], second["items"]) == ([], [])
    assert [each["target"] for each in third["items"]] == ["q3"]
    assert third["cursor"] is None
