"""What the API says of the whole app at once: schedules, running jobs, groups, flows, the audit log."""

import asyncio
from typing import Any

from tests.web.conftest import Served, served
from tests.web.test_api import ask
from toril import Flow, GroupLimits, JobContext
from toril.model import Audited


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


async def test_the_audit_log_can_be_searched_and_paged(here: Served) -> None:
    for n in range(30):
        who = "maya" if n % 3 else "jonas"
        await here.app.store.note(
            Audited(who=who, address="::1", action="pause queue", target=f"q{n}", detail="", ended="done")
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
