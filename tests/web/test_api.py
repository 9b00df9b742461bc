"""What can be asked for over HTTP is what the app can do."""

import asyncio
import json
from dataclasses import replace
from typing import Any

import httpx
import pytest

from tests.declared import declared
from tests.web.conftest import TOKEN, Served, served
from toril import App, Fixed, Flow, JobContext, PermanentError, Retry
from toril.model import Backoff, HandlerDeclaration, Heartbeat, JobOptions, Keep, RateLimit
from toril.runtime.clock import SYSTEM
from toril.testing import drain
from toril.web import Role, Tokens
from toril.web.api import ENDPOINTS


async def ask(client: httpx.AsyncClient, method: str, path: str, body: Any = None) -> Any:
    found = await client.request(method, path, **({} if body is None else {"json": body}))
    assert found.status_code in (200, 201), found.text
    return found.json()


async def test_a_job_whose_name_looks_like_a_slip_is_refused(here: Served) -> None:
    beat = Heartbeat(worker="w", queues=["email"], slots=1, running=0, declares={"email": declared("greet")})
    await here.app.store.heartbeat(beat, ttl=600_000)
    body = {"name": "gret", "attempts": 1}
    async with here.client() as client:
        refused = await client.post("/queues/email/jobs", json=body)
        added = await ask(client, "POST", "/queues/email/jobs", {**body, "any_name": True})

    assert (refused.status_code, refused.json()["error"]["field"]) == (422, "name")
    assert "did you mean 'greet'?" in refused.json()["error"]["message"]
    assert added["added"]


async def test_the_first_job_of_a_queue_that_a_worker_serves_is_added(here: Served) -> None:
    beat = Heartbeat(worker="w", queues=["orders"], slots=1, running=0, declares={"orders": declared("pack")})
    async with here.client() as client:
        unknown = await client.post("/queues/orders/jobs", json={"name": "pack"})
        await here.app.store.heartbeat(beat, ttl=600_000)
        listed = [each["name"] for each in (await ask(client, "GET", "/queues"))["items"]]
        added = await ask(client, "POST", "/queues/orders/jobs", {"name": "pack"})

    assert (unknown.status_code, added["added"], "orders" in listed) == (404, True, True)


async def test_a_job_gets_what_the_workers_of_its_queue_declare(here: Served) -> None:
    waits = Backoff(kind="fixed", delay=7000)
    own = HandlerDeclaration(max_attempts=1, backoff=waits)
    said = declared(
        max_attempts=3, backoff=waits, keep_failed=Keep(9), subject="tenant", handlers={"greet": None, "charge": own}
    )
    async with here.client() as client:
        refused = await client.post("/queues/email/jobs", json={"name": "greet"})
        beat = Heartbeat(worker="w", queues=["email"], slots=1, running=0, declares={"email": said})
        await here.app.store.heartbeat(beat, ttl=600_000)
        bodies: list[dict[str, Any]] = [
            {"name": "greet", "data": {"tenant": "acme"}}, {"name": "charge", "data": {"tenant": "acme"}},
            {"name": "greet", "data": {"tenant": "acme"}, "attempts": 8},
        ]  # fmt: skip
        ids = [(await ask(client, "POST", "/queues/email/jobs", body))["id"] for body in bodies]
        schedule = {"job": "charge", "every": 60, "data": {"tenant": "acme"}}
        await ask(client, "PUT", "/queues/email/schedules/daily", schedule)
        no_subject = await client.post("/queues/email/jobs", json={"name": "greet", "data": {}})

    assert (refused.status_code, refused.json()["error"]["field"]) == (422, "attempts")
    assert "no live worker declares" in refused.json()["error"]["message"]
    jobs = await here.app.store.jobs("email", ids)
    options = JobOptions(backoff=waits, keep_failed=Keep(9), subject="acme")
    assert [job and (job.max_attempts, job.options) for job in jobs] == [(3, options), (1, options), (8, options)]
    look = await here.app.store.schedules.get("email", "daily")
    assert look.view is not None
    assert (look.view.schedule.job.attempts, look.view.schedule.job.options.subject) == (1, "acme")
    assert (no_subject.status_code, "subject" in no_subject.json()["error"]["message"]) == (422, True)


async def test_a_queue_tells_what_is_declared_and_what_is_set(here: Served) -> None:
    async with here.client() as client:
        alone = await ask(client, "GET", "/queues/email")
        said = declared("greet", concurrency=10, rate=RateLimit(50, per=1), timeout=5000, keep_failed=Keep(age=60))
        newer = replace(said, concurrency=20, handlers={"greet": None, "wave": None})
        for worker, what in (("old", said), ("new", newer)):
            beat = Heartbeat(worker=worker, queues=["email"], slots=1, running=0, declares={"email": what})
            await here.app.store.heartbeat(
                beat, ttl=600_000, now=(await here.app.store.health()).now + (worker == "new")
            )
        await ask(client, "PUT", "/queues/email/limits", {"rate": {"max": 5, "per": "10s"}})
        found = await ask(client, "GET", "/queues/email")
        (listed,) = (await ask(client, "GET", "/queues"))["items"]

    assert (alone["declared"], alone["limits"]) == (None, {"concurrency": None, "rate": None})
    assert found == listed
    assert found["limits"] == {"concurrency": None, "rate": {"max": 5, "per": 10.0, "window": "sliding"}}
    code = found["declared"]
    assert (code["workers"], code["slots"], code["concurrency"]) == (2, 30, 20)
    assert code["differs"] == ["concurrency", "handlers"]
    assert code["rate"] == {"max": 50, "per": 1.0, "window": "sliding"}
    assert (code["max_attempts"], code["timeout_ms"], code["lease_ms"]) == (5, 5000, 30_000)
    assert (code["keep_failed"], code["handlers"]) == ({"count": None, "age_ms": 60_000}, ["greet", "wave"])
    assert code["backoff"] == {"kind": "exponential", "delay_ms": 1000, "cap_ms": None, "jitter": 0.0, "strategy": None}


async def test_a_job_is_added_looked_at_changed_and_removed(here: Served) -> None:
    async with here.client() as client:
        added = await ask(
            client, "POST", "/queues/email/jobs", {"name": "greet", "data": {"n": 1}, "delay": 60, "attempts": 1}
        )
        one = f"/queues/email/jobs/{added['id']}"
        delayed = await ask(client, "GET", "/queues/email/jobs?state=delayed")
        changed = await ask(client, "PATCH", one, {"data": {"n": 2}, "delay": 30})
        why = await ask(client, "GET", one + "/why")
        promoted = await ask(client, "POST", one + "/promote")
        urgent = await ask(client, "PATCH", one, {"priority": 3})
        logs = await ask(client, "GET", one + "/logs")
        removed = await ask(client, "DELETE", one)
        gone = await client.get(one)

    assert (added["added"], added["outcome"]) == (True, "added")
    assert [job["id"] for job in delayed["items"]] == [added["id"]]
    assert changed["data"] == {"n": 2}
    assert why["reason"] == "not_due"
    assert (promoted["state"], urgent["state"], urgent["priority"]) == ("waiting", "prioritized", 3)
    assert logs == {"items": [], "cursor": None}
    assert removed["removed"] is True
    assert gone.status_code == 404


async def test_a_duration_may_be_sent_as_a_text(here: Served) -> None:
    async with here.client() as client:
        body = {"name": "greet", "delay": "10m", "timeout": "30s", "expires": "1h", "attempts": 1}
        added = await ask(client, "POST", "/queues/email/jobs", body)
        rate = await ask(client, "PUT", "/queues/email/limits", {"rate": {"max": 5, "per": "10m"}})
        schedule = await ask(client, "PUT", "/queues/email/schedules/often", {"job": "greet", "every": "5m"})
        odd = [
            (await client.post("/queues/email/jobs", json={"name": "greet", "attempts": 1, "delay": delay})).json()
            for delay in ("soon", "5", "-1s")
        ]
    job = await here.app.queue("email").job(added["id"])

    assert job is not None
    assert job.record is not None
    assert (job.record.delay, job.record.timeout) == (600, 30)
    assert rate["limits"]["rate"]["per"] == 600
    assert schedule["every_ms"] == 300_000
    assert {each["error"]["field"] for each in odd} == {"delay"}
    assert 'expected seconds, or a duration like "90s", "10m" or "2h"' in odd[0]["error"]["message"]


async def test_an_id_with_any_signs_in_it_can_be_asked_for(here: Served) -> None:
    odd = "a/b c?d#e%2F&ü"
    await here.app.queue("email").add("x", job_id=odd)
    async with here.client() as client:
        found = await ask(client, "GET", "/queues/email/jobs/a%2Fb%20c%3Fd%23e%252F&%C3%BC")
        cancelled = await ask(client, "POST", "/queues/email/jobs/a%2Fb%20c%3Fd%23e%252F&%C3%BC/cancel", {})

    assert (found["id"], cancelled["outcome"]) == (odd, "cancelled")


async def test_a_failed_job_is_retried_or_replayed() -> None:
    async def breaks(_: JobContext[Any]) -> None:
        raise PermanentError("no such user")

    async with served() as here, here.client() as client:
        kept = here.app.queue("kept", {"breaks": breaks}, keep_failed=True)
        buried = here.app.queue("buried", {"breaks": breaks})
        job = await kept.add("breaks", {"password": "x"})
        other = await buried.add("breaks", {"user": 7, "token": "x"})
        await drain(here.app)
        failed = await ask(client, "GET", f"/queues/kept/jobs/{job.id}")
        retried = await ask(client, "POST", f"/queues/kept/jobs/{job.id}/retry")
        letters = await ask(client, "GET", "/dead-letters?error=SUCH&queue=buried")
        letter = await ask(client, "GET", "/dead-letters/" + letters["items"][0]["id"].replace("/", "%2F"))
        runs = await ask(client, "GET", "/queues/buried/runs?status=failed")
        meant = {"ids": [letter["id"]], "data": {"user": 8}, "attempts": 2, "backoff": {"type": "fixed", "seconds": 1}}
        replayed = await ask(client, "POST", "/dead-letters/replay", meant)
        again = await ask(client, "GET", f"/queues/buried/jobs/{other.id}")
        nothing = await ask(client, "POST", "/dead-letters/discard", {"where": {"queue": "buried"}})
        both = await client.post("/dead-letters/discard", json={"ids": ["a"], "where": {}})

    assert (failed["state"], failed["error"], failed["data"]) == ("failed", "no such user", {"password": "***"})
    assert retried["state"] == "waiting"
    assert (letter["job_id"], letter["data"]) == (other.id, {"user": 7, "token": "***"})
    assert runs["items"][0]["text"] == "no such user"
    assert replayed == {"done": 1, "refused": [], "invalid": {}, "cursor": None}
    assert (again["data"], again["max_attempts"]) == ({"user": 8}, 2)
    assert nothing["done"] == 0
    assert both.status_code == 422


@pytest.mark.covers("B104")
async def test_many_jobs_are_meant_by_ids_or_by_a_search(here: Served) -> None:
    queue = here.app.queue("email")
    jobs = await queue.add_many([("even" if n % 2 == 0 else "odd", {"n": n}, {"delay": 60}) for n in range(1100)])
    async with here.client() as client:
        promoted = await ask(client, "POST", "/queues/email/promote", {"ids": [jobs[0].id, "none", jobs[0].id]})
        first = await ask(client, "POST", "/queues/email/remove", {"state": "delayed", "name": "odd", "limit": 300})
        rest = {"state": "delayed", "name": "odd", "cursor": first["cursor"]}
        second = await ask(client, "POST", "/queues/email/remove", rest)
        cancelled = await ask(client, "POST", "/queues/email/cancel", {"state": "waiting"})
        too_many = await client.post("/queues/email/retry", json={"ids": ["x"] * 1001})
        neither = await client.post("/queues/email/retry", json={})

    assert (promoted["done"], promoted["refused"]) == (1, [{"id": "none", "state": None}])
    assert (first["done"], second["done"], second["cursor"]) == (300, 250, None)
    assert (cancelled["done"], cancelled["requested"]) == (1, 0)
    assert (too_many.status_code, neither.status_code) == (422, 422)
    assert (await queue.counts()).delayed == 549


async def test_a_queue_is_paused_limited_cleaned_and_obliterated(here: Served) -> None:
    await here.app.queue("email").add_many([("x", None)] * 3)
    async with here.client() as client:
        paused = await ask(client, "POST", "/queues/email/pause")
        resumed = await ask(client, "POST", "/queues/email/resume")
        limits = {"concurrency": 4, "rate": {"max": 10, "per": 1.5, "window": "fixed"}}
        limited = await ask(client, "PUT", "/queues/email/limits", limits)
        kept = await ask(client, "PUT", "/queues/email/limits", {"concurrency": None})
        cleaned = await ask(client, "POST", "/queues/email/clean", {"state": "waiting", "limit": 1})
        drained = await ask(client, "POST", "/queues/email/drain", {})
        nothing = await ask(client, "POST", "/queues/email/retry-failed")
        gone = await ask(client, "POST", "/queues/email/obliterate", {})
        unknown = await client.get("/queues/none")

    assert (paused["paused"], resumed["paused"]) == (True, False)
    assert limited["limits"] == limits
    assert kept["limits"] == {**limits, "concurrency": None}
    assert (cleaned["removed"], drained["removed"], nothing["retried"], gone["removed"]) == (1, 2, 0, 0)
    assert unknown.status_code == 404


async def test_a_queue_is_seen_in_figures(here: Served) -> None:
    await here.app.queue("email").add("x")
    async with here.client() as client:
        found = await ask(client, "GET", "/queues/email/metrics?range=7d")
        wrong = await client.get("/queues/email/metrics?range=2h")

    assert (found["counts"]["waiting"], found["failure_rate"], found["workers"]) == (1, 0.0, 0)
    charts = [(series["id"], len(series["data"])) for series in found["charts"]]
    assert charts == [("Completed", 240), ("Failed", 240), ("Cancelled", 240)]
    assert set(found["charts"][0]["data"][0]) == {"x", "y"}
    lines = {name: [len(line) for line in lines] for name, lines in found["series"].items()}
    assert lines == {"completed": [240], "failed": [240], "cancelled": [240], "wait": [240] * 3, "run": [240] * 3}
    assert (found["step"], found["start"]) == (42 * 60, found["charts"][0]["data"][0]["x"])
    assert wrong.status_code == 422


async def test_all_queues_are_seen_at_once(here: Served) -> None:
    await here.app.queue("email").add("x")
    await here.app.queue("sync", target_wait=5).pause()
    async with here.client() as client:
        found = await ask(client, "GET", "/overview")

    assert [(each["queue"], each["paused"], each["target_wait"]) for each in found["queues"]] == [
        ("email", False, 120.0), ("sync", True, 5.0),
    ]  # fmt: skip
    email = found["queues"][0]
    assert (email["counts"]["waiting"], len(email["completed"]), len(email["failed"])) == (1, 60, 60)
    assert (email["wait_p95"], email["rate"], email["waits_too_long"]) == (None, 0.0, False)
    assert email["oldest"] >= 0


async def test_what_happened_is_told(here: Served) -> None:
    job = await here.app.queue("email").add("x")
    async with here.client() as client:
        events = await ask(client, "GET", "/queues/email/events?limit=1")
        rest = await ask(client, "GET", f"/queues/email/events?after={events['last']}")
        history = await ask(client, "GET", f"/queues/email/jobs/{job.id}/history")
        odd = await client.get("/queues/email/events?after=x")

    assert [each["kind"] for each in events["items"] + rest["items"]] == ["added", "waiting"]
    assert history["items"] == events["items"] + rest["items"]
    assert (events["gap"], odd.status_code) == (False, 422)


async def test_a_store_is_looked_over(here: Served) -> None:
    await here.app.queue("email").add("x")
    async with here.client() as client:
        found = await ask(client, "GET", "/doctor")
        repaired = await ask(client, "POST", "/doctor/repair", {})
        odd = await client.get("/doctor?cursor=x")

    assert [(each["code"], each["severity"]) for each in found["items"]] == [("unread", "notice")]
    assert repaired["items"] == []
    assert (odd.status_code, odd.json()["error"]["code"]) == (422, "invalid")


async def test_a_large_store_is_looked_over_and_mended_in_parts(here: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toril.web.api.doctor.SOON", 0.0)  # so each look is a part
    store: Any = here.app.store
    for number in range(3):
        await here.app.queue("email").add("x", job_id=f"lost-{number}")
    await store._write(lambda tx: tx.run("DELETE FROM line"), None)
    found, cursor, parts = [], None, 0
    async with here.client() as client:
        while parts == 0 or cursor is not None:
            part = await ask(client, "GET", "/doctor" + (f"?cursor={cursor}" if cursor else ""))
            found += [each["code"] for each in part["items"]]
            cursor, parts = part["cursor"], parts + 1
        repaired = await ask(client, "POST", "/doctor/repair", {"queues": ["email"]})
    rest = await here.app.doctor()

    assert sorted(found) == ["orphan"] * 3 + ["unread"]
    assert parts > 3
    assert [each["code"] for each in repaired["items"] if each["outcome"] == "repaired"] == ["orphan"] * 3
    assert (repaired["cursor"], rest) == (None, [])


async def test_schedules_are_made_run_paused_and_removed(here: Served) -> None:
    one = "/queues/email/schedules/nightly"
    async with here.client() as client:
        made = await ask(client, "PUT", one, {"job": "x", "cron": "0 2 * * *", "tz": "Europe/Berlin"})
        shown = await ask(client, "GET", one)
        listed = await ask(client, "GET", "/queues/email/schedules")
        paused = await ask(client, "POST", one + "/pause")
        resumed = await ask(client, "POST", one + "/resume")
        run = await ask(client, "POST", one + "/run")
        removed = await ask(client, "DELETE", one)
        twice = await client.delete(one)
        wrong = await client.put(one, json={"job": "x", "cron": "no"})
        whole = {"job": "x", "every": 60, "jitter": 5, "attempts": 7, "start": "2030-01-01T00:00:00Z", "data": [1]}
        every = await ask(client, "PUT", one, whole)

    assert (made["cron"], made["tz"], len(shown["upcoming"])) == ("0 2 * * *", "Europe/Berlin", 10)
    assert len(listed["items"]) == 1
    assert (paused["state"], resumed["state"], removed["removed"]) == ("paused", "on", True)
    assert await here.app.queue("email").job(run["id"]) is not None
    assert (twice.status_code, wrong.status_code) == (404, 422)
    assert (every["jitter_ms"], every["start_at"], every["data"]) == (5000, 1_893_456_000_000, [1])


async def test_groups_are_listed_paused_and_limited(here: Served) -> None:
    await here.app.queue("email").add("send", {}, group="tenant:42")
    async with here.client() as client:
        paused = await ask(client, "POST", "/queues/email/groups/tenant:42/pause")
        limited = await ask(
            client, "POST", "/queues/email/groups/tenant:42/limits", {"concurrency": 2, "rate_max": 5, "rate_per": 60}
        )
        listed = await ask(client, "GET", "/queues/email/groups")
        resumed = await ask(client, "POST", "/queues/email/groups/tenant:42/resume")
        wrong = await client.post("/queues/email/groups/tenant:42/limits", json={"weight": 0})

    assert (paused["paused"], paused["waiting"], resumed["paused"]) == (True, 1, False)
    assert (limited["concurrency"], limited["rate_max"], limited["rate_per_ms"]) == (2, 5, 60_000)
    assert [each["group"] for each in listed["items"]] == ["tenant:42"]
    assert wrong.status_code == 422


async def test_breakers_and_workers_are_seen_and_told(here: Served) -> None:
    async with here.client() as client:
        tripped = await ask(client, "POST", "/breakers/api.example.org/trip", {"seconds": 30})
        listed = await ask(client, "GET", "/breakers")
        reset = await ask(client, "POST", "/breakers/api.example.org/reset")
        unknown = await client.post("/breakers/other/reset")
        workers = await ask(client, "GET", "/workers")
        nobody = await client.post("/workers/w1/stop")

    assert (tripped["state"], [each["key"] for each in listed["items"]]) == ("open", ["api.example.org"])
    assert listed["states"] == {"closed": 0, "open": 1, "half-open": 0}
    assert reset["reset"] is True
    assert workers == {"items": []}
    assert (unknown.status_code, nobody.status_code) == (404, 404)


async def test_every_change_is_in_the_audit_log_and_no_secret_is() -> None:
    known = {"authorization": f"Bearer {TOKEN}"}
    async with served(access=Tokens({TOKEN: Role.ADMIN})) as here, here.client(**known) as client:
        await client.post("/queues/email/jobs", json={"name": "x", "attempts": 1, "data": {"api_key": "hunter2"}})
        await client.delete("/queues/email/jobs/99")
        page = await ask(client, "GET", "/audit?limit=1")
        rest = await ask(client, "GET", f"/audit?cursor={page['cursor']}")

    entries = page["items"] + rest["items"]
    assert [(each["action"], each["target"], each["ended"][:7]) for each in entries] == [
        ("remove job", "email/99", "refused"), ("add job", "email", "done"),
    ]  # fmt: skip
    assert all(each["who"].startswith("token ") and TOKEN not in each["who"] for each in entries)
    assert "hunter2" not in json.dumps(entries)
    assert page["cursor"] is not None
    assert rest["cursor"] is None


@pytest.mark.covers("B105")
async def test_no_way_of_looking_shows_a_secret() -> None:
    async def answer(_: JobContext[Any]) -> dict[str, str]:
        return {"token": "hunter2"}

    async with served() as here, here.client() as client:
        queue = here.app.queue("secrets", {"answer": answer}, keep_completed=True)
        await queue.add("answer", {"password": "hunter2"})
        await queue.schedules.put("daily", "answer", {"password": "hunter2"}, every=86_400, offset=3600)
        await drain(here.app)
        paths = (
            "/queues/secrets/jobs?state=completed", "/queues/secrets/jobs?state=delayed", "/queues/secrets/runs",
            "/queues/secrets/events?limit=1000", "/queues/secrets/schedules", "/queues/secrets/schedules/daily",
        )  # fmt: skip
        shown = [json.dumps(await ask(client, "GET", path)) for path in paths]
        guess = await ask(client, "GET", "/queues/secrets/jobs?state=completed&q=hunter")

    assert [path for path, text in zip(paths, shown, strict=True) if "hunter2" in text] == []
    assert all("***" in text for text in (shown[0], shown[2], shown[4]))
    assert guess["items"] == []


async def test_to_look_at_a_queue_does_not_declare_it(here: Served) -> None:
    other = App("memory://")
    with other.using(here.app.store, SYSTEM):
        async with other:
            await other.queue("elsewhere").add("x")
            async with here.client() as client:
                await ask(client, "GET", "/queues/elsewhere")

    assert "elsewhere" not in here.app.queues


@pytest.mark.covers("B105")
async def test_a_long_payload_is_cut(here: Served) -> None:
    job = await here.app.queue("email").add("x", {"text": "y" * 100_000})
    async with here.client() as client:
        found = await ask(client, "GET", f"/queues/email/jobs/{job.id}")

    assert (found["cut"], len(found["data"])) == (["data"], 64 * 1024)


async def test_the_document_names_every_endpoint(here: Served) -> None:
    async with here.client() as client:
        document = await ask(client, "GET", "/openapi.json")

    named = {(method.upper(), path) for path, methods in document["paths"].items() for method in methods}
    assert named == {(endpoint.method, endpoint.path) for endpoint in ENDPOINTS}
    ids = [operation["operationId"] for methods in document["paths"].values() for operation in methods.values()]
    assert len(set(ids)) == len(ids)


async def test_an_app_can_be_mounted_in_another() -> None:
    from starlette.applications import Starlette
    from starlette.routing import Mount

    from toril.web import Open, site

    app = App("memory://")
    app.queue("email")
    host = Starlette(routes=[Mount("/admin/jobs", site(app, access=Open()))])
    async with app, httpx.AsyncClient(transport=httpx.ASGITransport(host), base_url="http://localhost") as client:
        found = await ask(client, "GET", "/admin/jobs/api/v1/queues")

    assert [queue["name"] for queue in found["items"]] == ["email"]


async def test_a_flow_is_told_from_its_top(here: Served) -> None:
    queue = here.app.queue("email")
    inner = Flow(queue.new("x", job_id="inner"), [queue.new("x", job_id="leaf")])
    await here.app.flow(queue.new("x", job_id="top"), [inner, queue.new("x", job_id="other")])
    async with here.client() as client:
        found = await ask(client, "GET", "/queues/email/jobs/leaf/flow?depth=1")
        refused = await client.get("/queues/email/jobs/leaf/flow?depth=-1")

    assert (found["id"], found["state"], found["children"]["open"]) == ("top", "waiting_children", 2)
    assert [(child["id"], child["tree"]) for child in found["tree"]] == [("inner", []), ("other", [])]
    assert refused.status_code == 422


async def test_the_bytes_of_a_queue_are_estimated(here: Served) -> None:
    await here.app.queue("email").add("x", "y" * 50_000)
    async with here.client() as client:
        found = (await client.get("/queues/email/usage")).json()
        unknown = await client.get("/queues/nothing/usage")

    assert 50_000 <= found["bytes"] <= 100_000
    assert (found["jobs"], found["sampled"]) == (1, 1)
    assert unknown.status_code == 404


async def test_a_dead_letter_is_a_job_to_whoever_knows_its_id(here: Served) -> None:
    secret = "password=hunter2"

    async def talk(ctx: JobContext[Any]) -> None:
        await ctx.log(f"try {ctx.attempt}, {secret}")
        await ctx.update_progress({"done": 1, "token": "t"})
        raise ValueError(f"bad try {ctx.attempt}, {secret}")

    queue = here.app.queue("talks", {"talk": talk}, retry=Retry(2, Fixed(0)))
    job = await queue.add("talk", {"n": 1})
    await drain(here.app)
    one = f"/queues/talks/jobs/{job.id}"
    async with here.client() as client:
        letter = await ask(client, "GET", f"/dead-letters/talks%2F{job.id}")
        logs = await ask(client, "GET", f"/dead-letters/talks%2F{job.id}/logs?limit=1")
        found = await ask(client, "GET", one)
        lines = await ask(client, "GET", one + "/logs")
        why = await ask(client, "GET", one + "/why")
        flow = await ask(client, "GET", one + "/flow")
        retried = await ask(client, "POST", one + "/retry")
        await drain(here.app)
        many = await ask(client, "POST", "/queues/talks/retry", {"ids": [job.id, "nobody"]})
        await drain(here.app)
        failed = await ask(client, "POST", "/queues/talks/retry-failed")
        await drain(here.app)
        cancelled = await client.post(one + "/cancel", json={})
        removed = await ask(client, "DELETE", one)
        gone = await client.get(one)

    assert [(each["attempt"], each["error_kind"]) for each in letter["errors"]] == [
        (1, "ValueError"),
        (2, "ValueError"),
    ]
    assert letter["errors"][0]["error"].startswith("bad try 1, password=***")
    assert "hunter2" not in json.dumps([letter, logs, found, lines, why])
    assert letter["progress"] == {"done": 1, "token": "***"}
    assert logs["items"] == ["try 1, password=***"]
    assert logs["cursor"] is not None
    assert (found["state"], found["dead_letter"], found["errors"]) == ("failed", letter["id"], letter["errors"])
    assert len(lines["items"]) == 2
    assert (why["reason"], flow["dead_letter"]) == ("dead_letter", letter["id"])
    assert (retried["state"], retried["dead_letter"]) == ("waiting", None)
    assert (many["done"], many["refused"]) == (1, [{"id": "nobody", "state": None}])
    assert failed == {"retried": 1}
    assert cancelled.status_code == 409
    assert "is a dead letter and cannot be cancelled; retry it first" in cancelled.text
    assert (removed["removed"], gone.status_code) == (True, 404)


async def test_a_dead_parent_names_the_child_that_failed(here: Served) -> None:
    async def child(ctx: JobContext[Any]) -> None:
        raise PermanentError("no such file")

    async def parent(ctx: JobContext[Any]) -> None: ...

    queue = here.app.queue("flows", {"child": child, "parent": parent})
    await here.app.flow(queue.new("parent", job_id="top"), [queue.new("child", job_id="bad")])
    await drain(here.app)
    async with here.client() as client:
        top = await ask(client, "GET", "/dead-letters/flows%2Ftop")
        bad = await ask(client, "GET", "/queues/flows/jobs/bad")

    assert top["children"]["not_completed"] == [{"queue": "flows", "id": "bad", "name": "child", "state": "failed"}]
    assert (top["children"]["failed"], bad["parent"]) == (1, {"queue": "flows", "id": "top"})


async def test_where_a_running_job_is_is_asked_of_its_worker() -> None:
    begun = asyncio.Event()

    async def stays(ctx: JobContext[Any]) -> None:
        begun.set()
        await ctx.signal.wait()

    access = Tokens({TOKEN: Role.OPERATE, "reader" * 4: Role.READ})
    async with served(access=access) as here, here.client() as client:
        client.headers["authorization"] = f"Bearer {TOKEN}"
        queue = here.app.queue("slow", {"stays": stays})
        waits = await queue.add("stays", delay=900)
        work = asyncio.create_task(here.app.run(grace=0.1, signals="leave"))
        job = await queue.add("stays")
        await begun.wait()
        found = await ask(client, "POST", f"/queues/slow/jobs/{job.id}/stack")
        refused = await client.post(f"/queues/slow/jobs/{waits.id}/stack")
        read_only = {"authorization": f"Bearer {'reader' * 4}"}
        forbidden = await client.post(f"/queues/slow/jobs/{job.id}/stack", headers=read_only)
        notes = (await here.app.store.audit.page()).items
        here.app.stop()
        await work

    own = [line["text"] for line in found["lines"] if not line["kind"]]
    assert [text.strip() for text in own if "await" in text] == ["await ctx.signal.wait()"]
    assert any("frames in toril" in line["text"] for line in found["lines"])
    assert (found["worker"].startswith("worker-"), found["silent"]) == (True, 0)
    assert (refused.status_code, forbidden.status_code) == (409, 403)
    assert "is not running" in refused.json()["error"]["message"]
    assert [note.action for note in notes] == ["job stack", "job stack"]
