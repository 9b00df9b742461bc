"""Sentry hears once of a job that failed for good, with its error, and sees nothing of its payload."""

import asyncio
import json
import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import sentry_sdk
from sentry_sdk.envelope import Envelope
from sentry_sdk.integrations.logging import LoggingIntegration
from sentry_sdk.transport import Transport

from tests.worker.handlers_for_processes import misbehave
from toril import App, Fixed, JobContext, PermanentError, Retry, Snooze, SyncJobContext, handler
from toril.integrations.sentry import instrument
from toril.testing import memory

SECRET = "4242-4242-4242"


class Kept(Transport):
    """What would have been sent."""

    def __init__(self) -> None:
        super().__init__()
        self.events: list[dict[str, Any]] = []

    def capture_envelope(self, envelope: Envelope) -> None:
        event = envelope.get_event()
        if event is not None:
            self.events.append(json.loads(json.dumps(event, default=str)))


@pytest.fixture
def sent() -> Iterator[list[dict[str, Any]]]:
    """A client of this test's own: nothing is set for the process."""
    kept = Kept()
    client = sentry_sdk.Client(
        dsn="https://key@localhost/1", transport=kept, default_integrations=False, auto_enabling_integrations=False,
        integrations=[LoggingIntegration(level=None)],
    )  # fmt: skip
    with sentry_sdk.new_scope() as scope:
        scope.set_client(client)
        yield kept.events
    client.close()


async def charge(ctx: JobContext[str]) -> None:
    card = ctx.data
    if ctx.attempt == 1:
        raise ConnectionError("no answer")
    raise ValueError(f"refused, password=hunter2 for {len(card)} digits")


async def calm(ctx: JobContext[str]) -> None:
    if ctx.metadata == {} and ctx.job.stalls == 0 and ctx.last_checkpoint is None:
        await ctx.checkpoint("seen")
        raise Snooze(1)


def shop(**options: Any) -> App:
    app = App("memory://")
    instrument(app, **options)
    app.queue("shop", [charge, calm], retry=Retry(2, Fixed(1)))
    return app


def errors(sent: list[dict[str, Any]]) -> list[tuple[str, str]]:
    return [(value["type"], value["value"]) for event in sent for value in event["exception"]["values"][-1:]]


async def test_a_failure_is_reported_once_when_it_is_final(sent: list[dict[str, Any]]) -> None:
    app = shop()

    async with memory(app) as test:
        job = await app.queues["shop"].add(charge, SECRET)
        await test.drain()
        assert sent == []
        await test.after("10s")

    (event,) = sent
    assert errors(sent) == [("ValueError", "refused, password=*** for 14 digits")]
    assert {name: value for name, value in event["tags"].items() if name.startswith("toril.")} == {
        "toril.queue": "shop", "toril.job_id": job.id, "toril.job_name": "charge", "toril.attempt": 2,
    }  # fmt: skip
    assert event["transaction"] == "shop/charge"
    functions = [frame["function"] for frame in event["exception"]["values"][-1]["stacktrace"]["frames"]]
    assert functions[-1] == "charge"


async def test_nothing_of_the_payload_is_sent_unless_asked_for(sent: list[dict[str, Any]]) -> None:
    for options in ({}, {"payload": True}):
        app = shop(**options)
        async with memory(app) as test:
            await app.queues["shop"].add(charge, SECRET)
            await test.after("10s")

    quiet, open_ = map(json.dumps, sent)
    assert SECRET not in quiet
    assert '"vars"' not in quiet
    assert sent[1]["extra"]["payload"] == SECRET
    assert '"vars"' in open_


async def test_every_attempt_is_reported_if_one_wants_that(sent: list[dict[str, Any]]) -> None:
    app = shop(every="attempt")

    async with memory(app) as test:
        await app.queues["shop"].add(charge, SECRET)
        await test.after("10s")

    assert [kind for kind, _ in errors(sent)] == ["ConnectionError", "ValueError"]
    assert [event["tags"]["toril.attempt"] for event in sent] == [1, 2]


async def test_what_is_put_off_or_cancelled_is_no_error(sent: list[dict[str, Any]]) -> None:
    app = shop(every="attempt")

    async with memory(app) as test:
        await app.queues["shop"].add(calm, "")
        job = await app.queues["shop"].add(calm, "", delay=5)
        await job.cancel()
        await test.after("10s")

    assert sent == []


async def test_what_a_handler_sends_itself_has_the_tags_and_the_log_line_is_no_second_report(
    sent: list[dict[str, Any]],
) -> None:
    app = App("memory://")
    instrument(app)

    def fail(ctx: SyncJobContext[None]) -> None:
        logging.getLogger("shop").error("the till is empty")
        raise PermanentError("no change")

    app.queue("till", [fail])
    async with memory(app) as test:
        await app.queues["till"].add(fail)
        await test.drain()

    line, failure = sent
    assert line["logentry"]["message"] == "the till is empty"
    assert errors([failure]) == [("PermanentError", "no change")]
    assert [event["tags"]["toril.queue"] for event in sent] == ["till", "till"]


async def test_what_no_handler_raised_is_reported_in_its_words(sent: list[dict[str, Any]]) -> None:
    app = App("memory://")
    instrument(app)

    async def endless(ctx: JobContext[None]) -> None:
        await asyncio.Event().wait()

    handlers: dict[str, Callable[..., Any]] = {
        "misbehave": handler(misbehave, executor="process"),
        "endless": handler(endless, timeout=0.05),
    }
    app.queue("apart", handlers, retry=Retry(1))

    async with app:
        for name, data in (("misbehave", "nested"), ("endless", None), ("nobody knows this one", None)):
            await app.queues["apart"].add(name, data)
        await app.run(burst=True)

    assert {kind for kind, _ in errors(sent)} == {"UnknownJob", "TimeoutError", "URLError"}
    (apart,) = (event for event in sent if event["exception"]["values"][0]["type"] == "URLError")
    assert "misbehave" in apart["extra"]["traceback"]
    assert apart["tags"]["toril.job_name"] == "misbehave"


async def test_a_job_whose_workers_died_too_often_is_reported(sent: list[dict[str, Any]]) -> None:
    app = App("memory://")
    instrument(app)
    queue = app.queue("shop", [calm], max_stalls=0)

    async with memory(app) as test:
        job = await queue.add(calm, "")
        test.kill("claimed", job)
        await test.after("10m")

    (event,) = sent
    assert errors(sent) == [("JobFailed", "stalled too often, so it failed")]
    assert event["transaction"] == "shop"
    assert {**event["tags"]} == {"toril.queue": "shop", "toril.job_id": job.id}, "no more is known of it"
