"""What operators see of durable steps over HTTP, and what they can do."""

from dataclasses import dataclass
from typing import Any

import httpx

from tests.conformance.stepping import resting, running, wait
from tests.declared import declared
from tests.web.conftest import TOKEN, Served, served
from tests.web.test_api import ask
from tests.web.test_prometheus import samples
from toril import App, Job, JobContext, SignalKind
from toril.model import Heartbeat, NewSignal
from toril.runtime.redaction import RedactionContext
from toril.testing import drain
from toril.web import Role, Tokens


@dataclass
class Approval:
    ok: bool
    by: str = "ada"


APPROVAL = SignalKind("approval", Approval)


async def pay(ctx: JobContext[int]) -> str:
    await ctx.step("book", lambda: {"amount": ctx.data, "password": "hunter2"})
    answer = await ctx.wait_for(APPROVAL, timeout="3d")
    return "over" if answer is None else f"{answer.ok} by {answer.by}"


async def collect(ctx: JobContext[None]) -> int:
    return int((await ctx.wait_for("paid", key="invoice:7"))["amount"])


async def waiting(app: App) -> Job[str]:
    """A job that waits for an approval."""
    queue = app.queue("people", [pay, collect], keep_completed=True)
    job = await queue.add(pay, 5)
    await drain(app)
    return job


async def test_a_job_that_waits_is_answered_over_http(here: Served) -> None:
    job = await waiting(here.app)
    path = f"/queues/people/jobs/{job.id}"
    async with here.client() as client:
        listed = (await ask(client, "GET", "/waiting-for?name=approval"))["items"]
        shown = await ask(client, "GET", path)
        asked = await ask(client, "GET", f"{path}/signals")
        body = {"data": {"ok": True, "by": "grace"}, "id": "click-17", "unless_waiting": "refuse"}
        sent = await ask(client, "POST", f"{path}/signals/approval", body)
        again = await client.post(f"{path}/signals/approval", json={**body, "id": "click-18"})
        twice = await ask(client, "POST", f"{path}/signals/approval", body)
        await drain(here.app)
        ended = await client.post(f"{path}/signals/approval")
        nobody = await ask(client, "GET", "/waiting-for")

    assert await job.result() == "True by grace"
    (found,) = listed
    assert (found["queue"], found["id"], found["name"]) == ("people", job.id, "pay")
    assert (found["signals"], found["steps"]) == ([{"name": "approval", "key": None}], ["approval"])
    assert found["until"] - found["since"] == 3 * 86_400_000
    assert (shown["rest"]["since"], shown["rest"]["until"]) == (found["since"], found["until"])
    assert [each["kind"] for each in shown["rest"]["for"]] == ["wait"]
    assert (asked["waiting_for"], asked["since"], asked["items"]) == (found["signals"], found["since"], [])
    assert sent == {"queue": "people", "id": job.id, "outcome": "woken"}
    assert (again.status_code, again.json()["error"]["code"]) == (409, "not_waiting")
    assert twice["outcome"] == "duplicate"
    assert (ended.status_code, ended.json()["error"]["code"]) == (409, "wrong_state")
    assert nobody == {"items": [], "cursor": None, "looked": 0}


async def test_the_steps_of_a_job_are_paged_and_their_secrets_hidden(here: Served) -> None:
    job = await waiting(here.app)
    path = f"/queues/people/jobs/{job.id}/steps"
    async with here.client() as client:
        await ask(client, "POST", f"/queues/people/jobs/{job.id}/signals/approval", {"data": {"ok": False}})
        await drain(here.app)
        first = await ask(client, "GET", f"{path}?limit=1")
        rest = await ask(client, "GET", f"{path}?limit=1&cursor={first['cursor']}")
        wrong = await client.get(f"{path}?cursor=x")

    (book,), (answer,) = first["items"], rest["items"]
    assert (book["key"], book["kind"], book["value"]) == ("book", "step", {"amount": 5, "password": "***"})
    assert (answer["key"], answer["kind"], answer["value"], rest["cursor"]) == (
        "approval",
        "signal",
        {"ok": False},
        None,
    )
    assert [each["attempt"] for each in (book, answer)] == [1, 1]
    assert book["at"] <= answer["at"]
    assert wrong.status_code == 422


async def test_the_app_hides_the_values_of_steps_and_signals() -> None:
    def redact(value: Any, context: RedactionContext) -> Any:
        return f"({context.part} of {context.name})" if context.part in ("step", "signal") else value

    async with served(redact=redact) as here:
        job = await waiting(here.app)
        await job.signal("other", {"iban": "1"})
        async with here.client() as client:
            await ask(client, "POST", f"/queues/people/jobs/{job.id}/signals/approval", {"data": {"ok": True}})
            unread = await ask(client, "GET", f"/queues/people/jobs/{job.id}/signals")
            await drain(here.app)
            found = await ask(client, "GET", f"/queues/people/jobs/{job.id}/steps")
            notes = await ask(client, "GET", "/audit")

    assert [each["data"] for each in unread["items"]] == ["(signal of pay)"] * 2
    assert [each["value"] for each in found["items"]] == ["(step of pay)", "(signal of pay)"]
    assert '"data": "(signal of )"' in notes["items"][0]["detail"]


async def test_a_long_value_is_cut(here: Served) -> None:
    async def long(ctx: JobContext[None]) -> int:
        return len(await ctx.step("long", lambda: "y" * 100_000))

    queue = here.app.queue("long", [long], keep_completed=True)
    job = await queue.add(long)
    await drain(here.app)
    async with here.client() as client:
        (step,) = (await ask(client, "GET", f"/queues/long/jobs/{job.id}/steps"))["items"]

    assert (step["cut"], len(step["value"])) == (["value"], 64 * 1024)


async def test_a_signal_by_key_finds_its_job_or_is_kept(here: Served) -> None:
    queue = here.app.queue("people", [pay, collect], keep_completed=True)
    body = {"key": "invoice:7", "data": {"amount": 5}, "ttl": "10m", "id": "a"}
    async with here.client() as client:
        unknown = await client.post("/queues/nobody/signals/paid", json=body)
        kept = await ask(client, "POST", "/queues/email/signals/paid", body)
        job = await queue.add(collect)
        await drain(here.app)
        woken = await ask(client, "POST", "/queues/people/signals/paid", body)
        await drain(here.app)
        keyless = await client.post("/queues/people/signals/paid", json={"data": 1})

    assert unknown.status_code == 404
    assert kept == {"queue": "email", "id": None, "outcome": "kept"}
    assert woken == {"queue": "people", "id": job.id, "outcome": "woken"}
    assert await job.result() == 5
    assert (keyless.status_code, keyless.json()["error"]["field"]) == (422, "key")


async def test_a_job_is_rewound_to_a_step(here: Served) -> None:
    job = await waiting(here.app)
    path = f"/queues/people/jobs/{job.id}"
    async with here.client() as client:
        unclear = await client.post(f"{path}/rewind", json={})
        unknown = await client.post(f"{path}/rewind", json={"to": "nothing"})
        back = await ask(client, "POST", f"{path}/rewind", {"to": "approval"})
        kept = await ask(client, "GET", f"{path}/steps")
        whole = await ask(client, "POST", f"{path}/rewind", {"to": None})
        none = await ask(client, "GET", f"{path}/steps")
        notes = [each["text"] for each in (await ask(client, "GET", "/audit"))["items"]]

    assert (unclear.status_code, unclear.json()["error"]["field"]) == (422, "to")
    assert (unknown.status_code, unknown.json()["error"]["code"]) == (404, "not_found")
    assert (back["state"], back["rest"], [each["key"] for each in kept["items"]]) == ("waiting", None, ["book"])
    assert (whole["state"], none["items"]) == ("waiting", [])
    assert notes[:3] == [
        f"Rewound job {job.id} in people to the beginning", f"Rewound job {job.id} in people to the step approval",
        f"Tried to rewind job {job.id} in people to the step nothing",
    ]  # fmt: skip


async def test_a_running_job_is_not_rewound_and_a_full_inbox_refuses(here: Served) -> None:
    store = here.app.store
    lease = (await running(store, queue="email")).lease
    path = f"/queues/email/jobs/{lease.id}"
    async with here.client() as client:
        active = await client.post(f"{path}/rewind", json={"to": None})
        await resting(store, lease, wait("approval"))
        await store.steps.deliver("email", [NewSignal(name="other", job_id=lease.id) for _ in range(100)])
        full = await client.post(f"{path}/signals/other", json={"data": 1})
        wrong = await client.post(f"{path}/signals/a:b", json={"data": 1})
        large = await client.post(f"{path}/signals/other", json={"data": "x" * 300_000})
        gone = await client.post("/queues/email/jobs/none/signals/other")
        notes = (await ask(client, "GET", "/audit"))["items"]

    assert (active.status_code, active.json()["error"]["code"]) == (409, "wrong_state")
    assert (full.status_code, full.json()["error"]["code"]) == (409, "inbox_full")
    assert (wrong.status_code, large.status_code, gone.status_code) == (422, 413, 404)
    assert [each["text"].partition(" signal")[0] for each in notes[:4]] == ["Tried to send the"] * 4


async def test_readers_see_and_do_not_signal() -> None:
    reader, operator = TOKEN, TOKEN[::-1]
    async with served(access=Tokens({reader: Role.READ, operator: Role.OPERATE})) as here:
        job = await waiting(here.app)
        path = f"/queues/people/jobs/{job.id}"
        acts: list[tuple[str, Any]] = [
            (f"{path}/signals/approval", {"data": {"ok": True}}), ("/queues/people/signals/paid", {"key": "k"}),
            (f"{path}/rewind", {"to": None}),
        ]  # fmt: skip

        async def statuses(client: httpx.AsyncClient) -> list[int]:
            looks = [await client.get(each) for each in (f"{path}/steps", f"{path}/signals", "/waiting-for")]
            return [each.status_code for each in looks + [await client.post(to, json=body) for to, body in acts]]

        async with here.client(authorization=f"Bearer {reader}") as client:
            read = await statuses(client)
        async with here.client(authorization=f"Bearer {operator}") as client:
            acted = await statuses(client)

    assert read == [200, 200, 200, 403, 403, 403]
    assert acted == [200] * 6


async def test_a_queue_with_a_serializer_gets_its_signals_from_the_application(here: Served) -> None:
    lease = (await running(here.app.store, queue="coded")).lease
    said = declared(serializer=True)
    beat = Heartbeat(worker="w", queues=["coded"], slots=1, running=0, declares={"coded": said})
    await here.app.store.heartbeat(beat, ttl=600_000)
    async with here.client() as client:
        found = [
            await client.post(f"/queues/coded/jobs/{lease.id}/signals/approval", json={"data": 1}),
            await client.post("/queues/coded/signals/approval", json={"data": 1, "key": "k"}),
        ]

    assert [(each.status_code, "serializer" in each.json()["error"]["message"]) for each in found] == [(400, True)] * 2


async def test_jobs_that_rest_are_counted(here: Served) -> None:
    await waiting(here.app)
    await here.app.queues["people"].add(pay, 1, delay=60)
    async with here.client() as client:
        shown = await ask(client, "GET", "/queues/people")
        (seen,) = [each for each in (await ask(client, "GET", "/overview"))["queues"] if each["queue"] == "people"]
        metrics = await ask(client, "GET", "/queues/people/metrics")
    await here.app.queues["people"].signal("paid", key="invoice:8")
    found = await samples(here)

    assert (found["toril_rests_total", "people"], found["toril_steps_total", "people"]) == (1, 2)
    assert found["toril_signals_total", "people", "kept"] == 1
    assert [each["counts"]["resting"] for each in (shown, seen, metrics)] == [1, 1, 1]
    assert [each["counts"]["delayed"] for each in (shown, seen, metrics)] == [2, 2, 2]
    assert (found["toril_queue_resting_jobs", "people"], found["toril_queue_jobs", "people", "delayed"]) == (1, 2)
