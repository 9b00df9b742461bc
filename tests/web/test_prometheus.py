"""`/metrics`, and what an autoscaler asks for."""

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.web.conftest import TOKEN, Served, served
from toril import App
from toril.model import Cancelled, Claim, Completed, Failed, Failure, NewJob, Retried, Settlement
from toril.web import Role, Tokens, prometheus

Samples = dict[tuple[str, ...], float]
_ORDER = ("queue", "outcome", "name", "state", "le")


async def scrape(here: Served, **headers: str) -> httpx.Response:
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{here.port}", headers=headers) as client:
        return await client.get("/metrics")


async def samples(here: Served) -> Samples:
    answer = await scrape(here)
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    return {
        (sample.name, *(sample.labels[name] for name in sorted(sample.labels, key=_ORDER.index))): sample.value
        for family in text_string_to_metric_families(answer.text)
        for sample in family.samples
    }


async def ended(app: App, outcomes: dict[str, Any]) -> None:
    """A job of each name ends so."""
    await app.store.add("email", [NewJob(name=name, attempts=3) for name in outcomes])
    jobs = (await app.store.exchange("email", [], Claim(want=9, token="t", lease=30_000, worker="w"))).jobs
    batch = [Settlement(job.lease, outcomes[job.name]) for job in jobs]
    await app.store.exchange("email", batch, Claim(want=0, token="u", lease=30_000, worker="w"))


@pytest.mark.covers("R139")
@pytest.mark.parametrize("seconds", [6, 24])
async def test_run_times_are_told_as_a_share_of_the_lease(here: Served, seconds: int) -> None:
    store, now = here.app.store, (await here.app.store.health()).now
    await store.add("email", [NewJob(name="n") for _ in range(10)], now=now)
    jobs = (await store.exchange("email", [], Claim(want=10, token="t", lease=30_000, worker="w"), now=now)).jobs
    batch = [Settlement(job.lease, Completed()) for job in jobs]
    nothing = Claim(want=0, token="u", lease=30_000, worker="w")
    await store.exchange("email", batch, nothing, now=now + seconds * 1000)

    found = await samples(here)

    assert here.app.queues["email"].options.lease == 30_000
    assert found["toril_run_p95_lease_ratio", "email"] == pytest.approx(seconds / 30, rel=0.1)


@pytest.mark.covers("R240", "R241")
async def test_prometheus_reads_what_was_tried_again_and_what_stalled(here: Served) -> None:
    retried = Retried(Failure("busy", "E"), 0)
    await ended(here.app, {"a": retried, "b": retried, "c": Completed()})
    claim = Claim(want=1, token="v", lease=30_000, worker="w")
    (taken,) = (await here.app.store.exchange("email", [], claim)).jobs
    await here.app.store.recover("email", dead=[taken.lease], cause="SIGKILL")

    found = await samples(here)

    assert found["toril_job_retries_total", "email"] == 2
    assert found["toril_stalled_total", "email"] == 1
    assert found["toril_jobs_total", "email", "completed"] == 1


@pytest.mark.covers("R240")
async def test_prometheus_reads_what_happened(here: Served) -> None:
    await ended(here.app, {"a": Completed(), "b": Failed(Failure("no", "E")), "c": Completed(), "d": Cancelled("no")})
    unwanted = await here.app.queue("email").add("e")
    await unwanted.cancel("not wanted")
    await here.app.queue("email").add("x")
    await here.app.queue("sync").pause()

    found = await samples(here)

    assert found["toril_jobs_total", "email", "completed"] == 2
    assert found["toril_jobs_total", "email", "failed"] == 1
    assert found["toril_jobs_total", "email", "cancelled"] == 2
    failures = {key[1:]: count for key, count in found.items() if key[0] == "toril_job_failures_total"}
    assert failures == {("email", "b"): 1}
    assert found["toril_job_run_seconds_count", "email"] == found["toril_job_wait_seconds_count", "email"] == 4
    assert found["toril_job_run_seconds_bucket", "email", "+Inf"] == 4
    assert found["toril_queue_jobs", "email", "waiting"] == 1
    assert (found["toril_queue_paused", "email"], found["toril_queue_paused", "sync"]) == (0, 1)
    assert found["toril_queue_oldest_seconds", "sync"] == 0
    assert found["toril_lease_losses_total", "email"] == 0
    for name in ("toril_workers", "toril_slots", "toril_slots_used", "toril_loop_lag_seconds", "toril_leader"):
        assert found[name,] == 0


async def test_what_waits_in_the_outbox_is_told(here: Served, tmp_path: Path) -> None:
    assert not [name for name, *_ in await samples(here) if name.startswith("toril_outbox")]
    with closing(sqlite3.connect(tmp_path / "app.db")) as connection:
        outbox = here.app.outbox(connection)
        outbox.create()
        outbox.add("x", queue=here.app.queue("email"))
        outbox.add("y", queue=here.app.queue("email"))
        connection.execute("UPDATE toril_outbox SET created_at = created_at - 90000")
        connection.execute("UPDATE toril_outbox SET error = 'no' WHERE id = 2")
        connection.commit()
    async with served() as other:
        other.app._outbox.url = f"sqlite:///{tmp_path / 'app.db'}"
        found = await samples(other)

    assert (found["toril_outbox_rows", "waiting"], found["toril_outbox_rows", "refused"]) == (1, 1)
    assert found["toril_outbox_oldest_seconds",] >= 90


async def test_scrapes_of_many_are_one_question(here: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    figures = here.app.store.metrics.snapshot

    async def counted(*given: Any, **more: Any) -> Any:
        asked.append(given)
        return await figures(*given, **more)

    monkeypatch.setattr(here.app.store.metrics, "snapshot", counted)
    monkeypatch.setattr(prometheus, "_FRESH", 600.0)  # so that no machine is too slow for five of them

    texts = {(await scrape(here)).text for _ in range(5)}

    assert len(asked) == 1
    assert len(texts) == 1


async def test_only_those_who_may_look_are_told() -> None:
    async with served(access=Tokens({TOKEN: Role.READ})) as here:
        stranger, reader = await scrape(here), await scrape(here, authorization=f"Bearer {TOKEN}")

    assert (stranger.status_code, reader.status_code) == (401, 200)


async def test_an_autoscaler_is_told_how_much_waits(here: Served) -> None:
    for _ in range(3):
        await here.app.queue("email").add("x")
    async with here.client() as client:
        found = (await client.get("/scale/email")).json()
        unknown = await client.get("/scale/nothing")

    assert (found["depth"], found["running"], found["wait_p95"], found["target_wait"]) == (3, 0, 0.0, 120.0)
    assert found["oldest"] >= 0
    assert unknown.status_code == 404


async def test_many_scrapes_at_once_cost_one_and_a_job_may_be_named_like_the_rest(here: Served) -> None:
    await ended(here.app, {"(other)": Failed(Failure("no", "E")), "x" * 200: Failed(Failure("no", "E"))})
    asked = 0
    figures = here.app.store.metrics.snapshot

    async def counted(*given: Any, **named: Any) -> Any:
        nonlocal asked
        asked += 1
        return await figures(*given, **named)

    vars(here.app.store.metrics)["snapshot"] = counted
    answers = await asyncio.gather(*(scrape(here) for _ in range(8)))

    assert asked == 1
    lines = [line for line in answers[0].text.splitlines() if line.startswith("toril_job_failures_total{")]
    assert lines == ['toril_job_failures_total{name="(other)",queue="email"} 2.0']


@pytest.mark.covers("B106")
async def test_many_queues_of_odd_names_give_a_bounded_and_readable_answer(here: Served) -> None:
    odd = ['a"b', "a=b", "größe", "le=1"]
    for number in range(520):
        await here.app.store.add(f"q{number:04}", [NewJob(name="n")])
    for name in odd:
        await here.app.store.add(name, [NewJob(name="n")])

    found = await samples(here)

    queues = {key[1] for key in found if key[0] == "toril_queue_paused"}
    assert len(queues) == 500
    assert set(here.app.queues) <= queues
    assert {"a=b", 'a"b'} <= queues
    assert found[("toril_queues_left_out",)] == len(here.app.queues) + 520 + len(set(odd)) - 500
