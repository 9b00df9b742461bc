"""A task is a handler bound to its queue: it adds, makes ready, schedules and blocks without naming either again."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from toril import (
    App,
    InvalidName,
    InvalidOption,
    InvalidPayload,
    Job,
    JobContext,
    SyncJob,
    SyncJobContext,
    Task,
    UsageError,
    chain,
    handler,
)
from toril.testing import memory


@dataclass
class Email:
    to: str


async def send_email(ctx: JobContext[Email]) -> str:
    return f"sent to {ctx.data.to}"


async def tick(ctx: JobContext[None]) -> int:
    return ctx.attempt


def resize(ctx: SyncJobContext[int]) -> float:
    return ctx.data / 2


async def test_a_task_adds_jobs_under_the_name_that_its_queue_has_for_the_handler() -> None:
    app = App("memory://")
    emails = app.queue("emails", {"send": handler(send_email, aliases=["old"]), "tick": tick})
    send, ticking = emails.task(send_email), emails.task(tick)
    async with memory(app) as test:
        job = await send.add(Email("ada"), delay="1m", result_ttl="1h")
        one, two = await send.add_many([Email("bob"), Email("eve")], result_ttl="1h")
        again = await ticking.add(result_ttl="1h")
        test.assert_added(send, {"to": "ada"}, delay="1m")
        test.assert_added(send, times=3)
        await test.after("2m")
        results = [await each.result("1s") for each in (job, one, two, again)]

    assert (send.name, send.queue, repr(send)) == ("send", emails, "<Task 'send' of 'emails'>")
    assert (job.name, job.data, job.queue.name) == ("send", Email("ada"), "emails")
    assert results == ["sent to ada", "sent to bob", "sent to eve", 1]


async def test_what_a_task_makes_ready_goes_into_flows_and_batches() -> None:
    app, seen = App("memory://"), list[float]()

    async def total(ctx: JobContext[None]) -> float:
        seen.extend((await ctx.children_values()).values())
        return sum(seen)

    images = app.queue("images", [resize, total])
    shrink, summing = images.task(resize), images.task(total)
    async with memory(app) as test:
        flow = await app.flow(summing.new(result_ttl="1h"), [shrink.new(4), shrink.new(6)])
        await test.drain()
        assert await flow.result("1s") == 5.0
        other = await app.flow(chain(shrink.new(2), summing.new(result_ttl="1h")))
        mixed = await images.add_many([shrink.new(1), shrink.new(2, priority=3)])
        await test.drain()
        assert await other.result("1s") == 6.0

    assert [job.data for job in mixed] == [1, 2]


async def test_a_task_declares_schedules() -> None:
    app, ran = App("memory://"), list[str]()

    async def report(ctx: JobContext[str]) -> None:
        ran.append(ctx.data)

    queue = app.queue("reports", [report])
    queue.task(report).schedule("hourly", "all", every="1h")
    async with memory(app) as test:
        await test.after("2h")
        record = await queue.schedules.get("hourly")

    assert (record.name, record.data, record.every) == ("report", "all", 3600)
    assert ran == ["all"] * 3


def test_a_task_blocks_where_there_is_no_event_loop(tmp_path: Path) -> None:
    app = App(f"sqlite:///{tmp_path}/jobs.db")
    emails = app.queue("emails", [send_email, tick])
    send = emails.task(send_email).sync
    job = send.add(Email("ada"), priority=3)
    many = emails.sync.task(send_email).add_many([Email("bob"), Email("eve")])
    ticking = emails.task(tick).sync.add()

    assert all(isinstance(each, SyncJob) for each in (job, *many, ticking))
    assert [each.data for each in (job, *many, ticking)] == [Email("ada"), Email("bob"), Email("eve"), None]
    assert emails.sync.add_many([send.new(Email("zoe"), job_id="z")])[0].id == "z"
    assert (send.name, repr(send)) == ("send_email", "<Task 'send_email' of 'emails'>")
    assert emails.sync.counts().waiting == 4


def test_a_task_waits_for_its_result_where_it_blocks(tmp_path: Path) -> None:
    app = App(f"sqlite:///{tmp_path}/jobs.db")
    emails = app.queue("emails", [send_email])

    with pytest.raises(TimeoutError, match=r"did not end within 0\.01 s"):
        emails.task(send_email).sync.add_and_wait(Email("ada"), timeout="10ms")


async def test_a_task_of_a_scoped_queue_adds_with_its_metadata() -> None:
    app = App("memory://")
    emails = app.queue("emails", [send_email])
    async with memory(app):
        job = await emails.scoped(actor="me").task(send_email).add(Email("ada"))
        assert (await job.refresh()).metadata == {"actor": "me"}


async def test_a_raw_handler_makes_a_task_of_any_payload() -> None:
    app, seen = App("memory://"), list[str]()

    async def raw(job: Job[Any]) -> None:
        seen.append(job.data)

    queue = app.queue("q", [handler(raw, raw=True)])
    async with memory(app) as test:
        await queue.task(raw).add("anything")
        await test.drain()

    assert seen == ["anything"]


WRONG: dict[str, Callable[[App], Any]] = {
    "task": lambda app: app.queue("images").task(send_email),
    "sync task": lambda app: app.queue("images").sync.task(send_email),
    "add": lambda app: app.queue("images").add(send_email, Email("ada")),
    "new": lambda app: app.queue("images").new(send_email, Email("ada")),
    "add_and_wait": lambda app: app.queue("images").add_and_wait(send_email, Email("ada")),
    "add_many": lambda app: app.queue("images").add_many([(send_email, Email("ada"))]),
    "put": lambda app: app.queue("images").schedules.put("s", send_email, Email("ada"), every=60),
}


@pytest.mark.parametrize("call", WRONG.values(), ids=WRONG)
async def test_a_handler_of_another_queue_is_refused(call: Callable[[App], Any]) -> None:
    app = App("memory://")
    app.queue("emails", [send_email])
    app.queue("images", [resize])
    async with memory(app) as test:
        with pytest.raises(UsageError, match="'send_email' is not a handler of queue 'images'; register it"):
            await call(app)
        assert test.added == []


def test_a_task_of_a_name_is_refused() -> None:
    emails: Any = App("memory://").queue("emails", [send_email])
    for queue in (emails, emails.sync):
        with pytest.raises(InvalidOption, match="expected a handler of queue 'emails', not 'send_email'"):
            queue.task("send_email")


async def test_what_another_queue_made_ready_is_refused() -> None:
    app = App("memory://")
    send = app.queue("emails", [send_email]).task(send_email)
    images = app.queue("images", [resize])
    wrong: Any = send
    async with memory(app):
        with pytest.raises(UsageError, match="a job prepared by queue 'emails' cannot be added to queue 'images'"):
            await images.add_many([send.new(Email("ada"))])
        with pytest.raises(InvalidName, match="job must be a handler or the name of one, not <Task"):
            await images.add(wrong, Email("ada"))


async def test_a_schedule_of_another_queues_handler_is_refused_when_workers_start() -> None:
    app = App("memory://")
    app.queue("emails", [send_email])
    app.queue("images", [resize]).schedule("s", send_email, Email("ada"), every=60)
    async with memory(app) as test:
        with pytest.raises(UsageError, match="'send_email' is not a handler of queue 'images'"):
            await test.drain()


async def test_a_payload_of_another_type_is_refused_at_run_time_too() -> None:
    app = App("memory://")
    send: Task[Any, str] = app.queue("emails", [send_email]).task(send_email)
    async with memory(app) as test:
        for call in (lambda: send.add({"to": 5}), lambda: send.add_many([{"to": 5}])):
            with pytest.raises(InvalidPayload, match=r"data\.to: "):
                await call()
        with pytest.raises(InvalidPayload, match=r"data\.to: "):
            send.new({"to": 5})
        assert test.added == []
