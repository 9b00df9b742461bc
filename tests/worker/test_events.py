"""What a worker tells: events for programs, one log line for people, both with the same fields."""

import asyncio
import logging
import subprocess
import sys
from pathlib import Path
from typing import Any, get_args

import pytest

from tests.worker.conftest import Seen, working
from toril import App, JobContext, PermanentError, Retry, Snooze
from toril.events import EventName, JobEvent
from toril.policy.retry import Fixed
from toril.runtime.logs import JobFields

LIFE: tuple[EventName, ...] = ("added", "active", "progress", "completed", "failed", "retrying", "snoozed", "cancelled")


async def act(ctx: JobContext[str]) -> str:
    match ctx.data, ctx.attempt:
        case "fail", _:
            raise PermanentError("no good")
        case "flaky", 1:
            raise ValueError("try again")
        case "snooze", _ if ctx.last_checkpoint is None:
            await ctx.checkpoint("slept")
            raise Snooze(0.01)
        case "cancelled", _:
            await ctx.signal.wait()
            ctx.raise_if_cancelled()
        case "progress", _:
            await ctx.update_progress(40)
        case _:
            pass
    return "done"


def declare(app: App, name: str = "q") -> Any:
    return app.queue(name, {"act": act}, concurrency=3, retry=Retry(attempts=2, backoff=Fixed(0.01)))


@pytest.mark.covers("R020", "R034")
async def test_every_queue_tells_the_same_life(app: App) -> None:
    queues = [declare(app, name) for name in ("one", "two")]
    seen = Seen(app, *LIFE)
    async with working(app):
        for queue in queues:
            for what in ("plain", "progress", "fail", "flaky", "snooze"):
                await queue.add("act", what)
        await seen.until("completed", 8)
        await seen.until("failed", 2)

    for queue in queues:
        told = sorted(name for name, event in seen.events if event.queue == queue.name)
        assert told == sorted(
            ["added"] * 5 + ["active"] * 7 + ["completed"] * 4 + ["progress", "failed", "retrying", "snoozed"]
        )


async def test_a_finished_job_is_told_of_with_its_facts(app: App) -> None:
    queue = declare(app)
    seen = Seen(app, "completed", "retrying")
    async with working(app):
        job = await queue.add("act", "flaky")
        retried, completed = await seen.until("retrying"), await seen.until("completed")

    assert (retried.job_id, retried.attempt, retried.error, retried.kind) == (job.id, 1, "try again", "ValueError")
    assert (completed.queue, completed.job_name, completed.attempt) == ("q", "act", 2)
    assert completed.duration >= 0
    assert completed.worker.startswith("worker-")


async def test_a_queue_says_when_it_is_drained_paused_and_resumed(app: App) -> None:
    queue = declare(app)
    seen = Seen(app, "drained", "paused", "resumed")
    async with working(app):
        await queue.add("act", "plain")
        await seen.until("drained")
        await queue.pause()
        await queue.add("act", "plain")
        await queue.resume()
        await seen.until("drained", 2)

    assert seen.names() == ["drained", "paused", "resumed", "drained"]


@pytest.mark.covers("R021", "R022", "R097")
async def test_each_ending_has_one_log_line_with_the_same_fields(app: App, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "toril")
    queue = declare(app)
    seen = Seen(app, "completed", "failed", "retrying", "cancelled", "active")
    async with working(app):
        jobs = {what: await queue.add("act", what) for what in ("flaky", "fail", "cancelled")}
        await seen.until("active", 3)
        await jobs["cancelled"].cancel("enough")
        await seen.until("cancelled")
        await seen.until("completed")

    told = [record for record in caplog.records if hasattr(record, "job_id")]
    lines = {(each.levelname, each.getMessage().split(" queue=")[0], getattr(each, "job_id", "")) for each in told}
    assert lines == {
        ("WARNING", "job first failure, will be retried", jobs["flaky"].id),
        ("INFO", "job completed", jobs["flaky"].id),
        ("ERROR", "job first failure, will not be retried", jobs["fail"].id),
        ("INFO", "job cancelled", jobs["cancelled"].id),
    }
    for each in told:
        fields = vars(each)
        assert (fields["queue"], fields["job_name"]) == ("q", "act")
        assert fields["duration"] >= 0


@pytest.mark.covers("R088", "R089")
async def test_the_log_tells_the_first_failure_of_a_job_and_that_it_exhausted_its_retries(
    app: App, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "toril")

    async def fail(ctx: JobContext[int]) -> None:
        raise ValueError("no good")

    queue = app.queue("q", [fail], retry=Retry(attempts=3, backoff=Fixed(0.01)))
    seen = Seen(app, "failed")
    async with working(app):
        thrice, once = await queue.add(fail, 1), await queue.add(fail, 2, attempts=1)
        await seen.until("failed", 2)

    lines = [(vars(each)["job_id"], each.getMessage().split(" queue=")[0])
             for each in caplog.records if each.levelno >= logging.WARNING and hasattr(each, "job_id")]  # fmt: skip
    assert [line for job, line in lines if job == thrice.id] == [
        "job first failure, will be retried", "job failed, will be retried", "job failed, exhausted retries",
    ]  # fmt: skip
    assert [line for job, line in lines if job == once.id] == ["job first failure, exhausted retries"]


@pytest.mark.covers("R024")
async def test_a_queue_can_have_a_log_level_of_its_own(app: App, caplog: pytest.LogCaptureFixture) -> None:
    """Quieter or louder than the process, which is at INFO."""
    caplog.set_level(logging.INFO, "toril")
    caplog.handler.setLevel(logging.NOTSET)
    levels = {"quiet": "warning", "usual": None, "loud": "debug"}
    retry = Retry(attempts=2, backoff=Fixed(0.01))
    queues = [app.queue(name, {"act": act}, retry=retry, log_level=level) for name, level in levels.items()]  # type: ignore[arg-type]
    seen = Seen(app, "completed")
    async with working(app):
        for queue in queues:
            await queue.add("act", "flaky")
        await seen.until("completed", 3)

    told = [(vars(each)["queue"], each.getMessage().split(" queue=")[0])
            for each in caplog.records if hasattr(each, "job_id")]  # fmt: skip
    failed, done = "job first failure, will be retried", "job completed"
    assert [line for queue, line in told if queue == "quiet"] == [failed]
    assert [line for queue, line in told if queue == "usual"] == [failed, done]
    loud = [line for queue, line in told if queue == "loud" and line != "job added"]
    assert loud == ["job started", failed, "job started", done]


def test_it_is_silent_unless_logging_is_configured(tmp_path: Path) -> None:
    script = """
import asyncio
from toril import App, JobContext, PermanentError

async def fail(ctx: JobContext[None]) -> None:
    raise PermanentError("no")

app = App("memory://")
app.queue("q", [fail]).sync.add("fail")
asyncio.run(app.run(burst=True))
"""
    ran = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, check=False)

    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")


async def test_a_line_that_a_handler_logs_carries_its_job(app: App, caplog: pytest.LogCaptureFixture) -> None:
    own = logging.getLogger("mine")
    caplog.handler.addFilter(JobFields())
    caplog.set_level(logging.INFO, "mine")

    async def chat(ctx: JobContext[None]) -> None:
        own.info("hello")

    queue = app.queue("q", {"chat": chat})
    async with working(app):
        job = await queue.add("chat")
        await queue.add_and_wait("chat")

    first = next(record for record in caplog.records if record.name == "mine")
    fields = [vars(first)[name] for name in ("queue", "job_id", "job_name", "attempt")]
    assert fields == ["q", job.id, "chat", 1]


async def test_an_error_cannot_forge_a_second_line(app: App, caplog: pytest.LogCaptureFixture) -> None:
    async def lie(ctx: JobContext[None]) -> None:
        raise PermanentError("oops\nERROR all is lost \x1b[31m")

    queue = app.queue("q", {"lie": lie})
    seen = Seen(app, "failed")
    async with working(app):
        await queue.add("lie")
        await seen.until("failed")

    (line,) = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    assert "\n" not in line
    assert "\x1b" not in line


@pytest.mark.covers("F126")
async def test_a_listener_that_fails_changes_nothing(app: App) -> None:
    def broken(event: object) -> None:
        raise RuntimeError("listener")

    async def broken_later(event: object) -> None:
        await asyncio.sleep(0)
        raise RuntimeError("listener")

    queue = declare(app)
    app.on("completed", broken)
    app.on("completed", broken_later)
    async with working(app):
        assert await queue.add_and_wait("act", "plain") == "done"

    assert app.events.failures == 2


@pytest.mark.parametrize("name", get_args(EventName))
def test_every_event_can_be_listened_for(app: App, name: EventName) -> None:
    app.on(name, print)

    assert app.events.wanted(name)


@pytest.mark.covers("R024")
@pytest.mark.parametrize("level", [logging.DEBUG, logging.INFO], ids=logging.getLevelName)
async def test_progress_is_logged_at_the_level_debug_only(
    app: App, caplog: pytest.LogCaptureFixture, level: int
) -> None:
    caplog.set_level(level, "toril")

    async def count(ctx: JobContext[None]) -> None:
        await ctx.update_progress(40)

    queue = app.queue("q", {"count": count})
    seen = Seen(app, "completed")
    async with working(app):
        await queue.add("count")
        await seen.until("completed")

    told = [record.levelname for record in caplog.records if record.getMessage().startswith("job progress")]
    assert told == (["DEBUG"] if level == logging.DEBUG else [])


async def test_fast_progress_is_written_seldom_and_its_last_value_soon(app: App) -> None:
    held = asyncio.Event()

    async def count(ctx: JobContext[None]) -> None:
        for step in range(1, 1001):
            await ctx.update_progress(step)
        await held.wait()

    queue = app.queue("q", {"count": count})
    seen = Seen(app, "progress")
    async with working(app):
        job = await queue.add("count")
        while (await seen.until("progress", len(seen.events) + 1)).detail != 1000:
            pass
        await job.refresh()
        held.set()

    assert job.progress == 1000
    assert len(seen.events) < 100, "far fewer than it reported"


async def test_a_listener_that_is_still_at_it_may_end_before_the_worker_does(app: App) -> None:
    story: list[str] = []

    async def slow(event: JobEvent) -> None:
        await asyncio.sleep(0.05)
        story.append(f"heard of {event.job_name}")

    async def work(ctx: JobContext[None]) -> None: ...

    app.on("completed", slow)
    app.on_stop(lambda: story.append("stopped"))
    queue = app.queue("q", [work])
    async with app:
        await queue.add(work)
        await app.run(burst=True)

    assert story == ["heard of work", "stopped"]


async def test_a_listener_that_never_ends_does_not_keep_the_worker_from_ending(app: App) -> None:
    async def stuck(_: JobEvent) -> None:
        await asyncio.Event().wait()

    async def work(ctx: JobContext[None]) -> None: ...

    app.on("completed", stuck)
    queue = app.queue("q", [work])
    async with app:
        await queue.add(work)
        async with asyncio.timeout(20):
            assert await app.run(burst=True, grace=0.1) == 0
    for task in asyncio.all_tasks() - {asyncio.current_task()}:
        task.cancel()


async def test_a_job_that_never_starts_is_told_of_too(app: App, caplog: pytest.LogCaptureFixture) -> None:
    queue = declare(app)
    seen = Seen(app, "cancelled", "expired", "failed", "active")
    with caplog.at_level(logging.INFO, "toril"):
        async with app:
            late = await queue.add("act", "plain", expires=0.001)
            early = await queue.add("act", "plain", delay=3600)
            await asyncio.sleep(0.005)
            async with working(app):
                await seen.until("expired", 1)
                await early.cancel("not needed")

    told = [(name, event.job_id, event.job_name, event.attempt) for name, event in seen.events]
    assert told == [("expired", late.id, "act", 0), ("cancelled", early.id, "act", 0)]
    assert seen.events[1][1].error == "not needed"
    assert seen.events[0][1].error.startswith("expired: not started by")
    levels = {record.message.partition(" queue=")[0]: record.levelname for record in caplog.records}
    assert levels["job cancelled"] == "INFO"
    assert levels["job expired before it started"] == "WARNING"
