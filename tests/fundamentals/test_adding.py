"""Adding jobs, scoped enqueuers, and waiting for results."""

import asyncio
import sqlite3
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.fundamentals.apps import drained, unchanged, working
from toril import (
    App,
    Fixed,
    InvalidOption,
    InvalidPayload,
    JobCancelled,
    JobContext,
    JobFailed,
    PermanentError,
    Queue,
    ResultGone,
    Retry,
    Snooze,
    handler,
)
from toril.client.options import AddOptions

AT_ONCE = Retry(attempts=3, backoff=Fixed(0))


async def echo(ctx: JobContext[Any]) -> Any:
    return ctx.data


@pytest.mark.covers("R038")
async def test_an_added_job_can_be_fetched_at_once_from_another_connection(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/jobs.db"
    async with App(url) as producer, App(url) as other:
        job = await producer.queue("q").add("send", {"n": 1}, priority=3)
        found = await other.queue("q").job(job.id)

    assert (job.added, job.name, job.data) == (True, "send", {"n": 1})
    assert found is not None
    assert (found.id, found.name, found.data) == (job.id, "send", {"n": 1})


@pytest.mark.covers("R038", "B71")
async def test_many_jobs_are_what_each_would_be_if_added_alone(app: App) -> None:
    async def once(ctx: JobContext[int]) -> None: ...

    queue = app.queue("kinds", {"once": handler(once, retry=Retry(attempts=1))})
    heard: list[str] = []
    app.on("added", lambda event: heard.append(event.job_id))
    options: AddOptions = {}

    def items() -> Iterator[Any]:
        for n in range(1_100):
            yield ("send", n, {}) if n % 3 else (once, n)
        for priority in range(3):
            options["priority"] = priority  # one mapping, changed in place
            yield ("send", -1 - priority, options)
        yield queue.new("last", None)

    jobs = await queue.add_many(items())
    found = [await queue.job(job.id) for job in jobs[995:]]

    assert [job.data for job in jobs] == [*range(1_100), -1, -2, -3, None]
    assert [job.name for job in jobs] == [*("send" if n % 3 else "once" for n in range(1_100)), *["send"] * 3, "last"]
    assert heard == [job.id for job in jobs] == [str(number) for number in range(1, 1_105)]
    assert [(each.name, each.data) for each in found if each] == [(job.name, job.data) for job in jobs[995:]]
    records = [each.record for each in found if each and each.record]
    assert [record.max_attempts for record in records] == [1 if record.name == "once" else 5 for record in records]
    assert [record.priority for record in records[-4:]] == [0, 1, 2, 0]


@pytest.mark.covers("B71")
async def test_data_that_a_handler_does_not_take_are_named_with_their_job_and_item(app: App) -> None:
    async def count(ctx: JobContext[int]) -> None: ...

    queue = app.queue("typed", [count])
    async with unchanged(app):
        with pytest.raises(InvalidPayload, match="job 'count': data: ") as caught:
            await queue.add_many([(count, 1), (count, 2), (count, "many")])
    assert caught.value.__notes__ == ["in item 2 of add_many"]


@pytest.mark.covers("R041")
async def test_a_worker_never_sees_a_job_whose_record_is_not_whole(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/jobs.db"
    seen: set[int] = set()

    async def work(ctx: JobContext[int]) -> None:
        record = (await ctx.job.refresh()).record
        assert record is not None
        assert (record.data, record.metadata) == (ctx.data, {"n": ctx.data})
        seen.add(ctx.data)

    async def produce(first: int) -> None:
        async with App(url) as producer:
            queue = producer.queue("q")
            await asyncio.gather(*(queue.add("work", n, metadata={"n": n}) for n in range(first, first + 100)))

    app = App(url)
    queue = app.queue("q", [work], concurrency=20)
    async with app:
        async with working(app):
            await asyncio.gather(*(produce(first) for first in range(0, 500, 100)))
        await drained(app)
        failed = await queue.runs("failed")

    assert len(failed) == 0
    assert seen == set(range(500))


@pytest.mark.covers("R042")
async def test_every_added_job_has_one_event(app: App, queue: Queue) -> None:
    jobs = [await queue.add("send"), *(await queue.add_many([("send", 1), ("send", 2)]))]
    await queue.add("send", job_id="mine")
    await queue.add("send", job_id="mine")

    events = await app.store.events("jobs", limit=1000)
    added = [event.job_id for event in events.items if event.kind == "added"]
    assert added == [*(job.id for job in jobs), "mine"]


@pytest.mark.covers("R043")
async def test_a_payload_is_stored_once_with_the_job(tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"
    async with App(f"sqlite:///{path}") as app:
        queue = app.queue("q")
        await queue.add_many([("send", "needle"), ("send", "needle", {"delay": 60})])

        with sqlite3.connect(path) as file:
            tables = [name for (name,) in file.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]
            holding = {
                name: text.count("needle")
                for name in tables
                if "needle" in (text := repr(file.execute(f"SELECT * FROM {name}").fetchall()))
            }
        file.close()
    assert holding == {"jobs": 2}


@pytest.mark.covers("R001", "R040")
def test_a_producer_needs_no_code_of_a_worker(tmp_path: Path) -> None:
    code = """
        import asyncio, sys, toril

        async def main():
            async with toril.App(sys.argv[1]) as app:
                await app.queue("email").add("send_welcome", {"user_id": 1})

        asyncio.run(main())
        print([name for name in sys.modules if name.startswith("toril.worker")], "pydantic" in sys.modules)
    """
    url = f"sqlite:///{tmp_path}/jobs.db"
    command = [sys.executable, "-c", textwrap.dedent(code), url]
    assert subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip() == "[] False"

    async def work() -> list[Any]:
        async with App(url) as app:
            seen: list[Any] = []

            async def send_welcome(ctx: JobContext[Any]) -> None:
                seen.append(ctx.data)

            app.queue("email", [send_welcome])
            await drained(app)
            return seen

    assert asyncio.run(work()) == [{"user_id": 1}]


# scoped enqueuers


@pytest.mark.covers("R039")
async def test_a_scoped_queue_sends_its_fields_beside_every_payload(app: App) -> None:
    seen: list[Any] = []

    async def note(ctx: JobContext[Any]) -> None:
        seen.append((ctx.data, dict(ctx.metadata)))

    queue = app.queue("q", [note])
    mine = queue.scoped(actor="ann", organization=7)
    within = mine.scoped(request_id="r1", actor="bob")
    await mine.add(note, 1)
    await within.add(note, 2, metadata={"source": "api", "organization": 8})
    await within.add_many([(note, 3), within.new(note, 4)])
    await queue.add(note, 5)
    job = await mine.add(note, 6, delay=60)
    await drained(app)

    bob = {"actor": "bob", "organization": 7, "request_id": "r1"}
    assert seen == [
        (1, {"actor": "ann", "organization": 7}),
        (2, {**bob, "organization": 8, "source": "api"}),
        (3, bob),
        (4, bob),
        (5, {}),
    ]
    assert (await job.refresh()).metadata == {"actor": "ann", "organization": 7}


@pytest.mark.covers("R039")
async def test_a_scoped_queue_is_the_same_queue_otherwise(app: App) -> None:
    queue = app.queue("q", [echo])
    scoped = queue.scoped(actor="ann")

    @scoped.handler
    async def other(ctx: JobContext[Any]) -> None: ...

    assert (scoped.name, scoped.handlers) == (queue.name, queue.handlers)
    assert app.queue("q") is queue
    job = await scoped.add(other, 1, job_id="order-1")
    assert await queue.job("order-1") is not None
    assert (await scoped.counts()).waiting == 1
    await job.remove()


# results


@pytest.mark.covers("X01")
async def test_add_and_wait_gives_what_the_handler_returns(app: App) -> None:
    queue = app.queue("q", [echo], concurrency=10)
    async with working(app):
        assert await queue.add_and_wait(echo, {"a": [1]}) == {"a": [1]}
        assert await queue.add_and_wait("echo", None) is None
        assert await asyncio.gather(*(queue.add_and_wait(echo, n) for n in range(50))) == list(range(50))


async def test_add_and_wait_of_a_job_that_fails_raises_its_reason(app: App) -> None:
    async def fail(ctx: JobContext[Any]) -> None:
        raise PermanentError("the card was refused")

    queue = app.queue("q", [fail])
    async with working(app):
        with pytest.raises(JobFailed, match="failed: the card was refused"):
            await queue.add_and_wait(fail, None)


async def test_a_wait_that_takes_too_long_ends_and_the_job_goes_on(app: App, queue: Queue) -> None:
    job = await queue.add("send")

    with pytest.raises(TimeoutError, match=rf"job {job.id} did not end within 0\.05 s"):
        await job.result(0.05)
    with pytest.raises(TimeoutError, match=r"did not end within 0\.05 s"):
        await queue.add_and_wait("send", timeout=0.05)
    assert (await queue.counts()).waiting == 2


@pytest.mark.parametrize("timeout", [-1, float("nan"), "5"])
async def test_a_wait_of_an_odd_length_is_refused_before_the_job_is_added(app: App, queue: Queue, timeout: Any) -> None:
    async with unchanged(app):
        with pytest.raises(InvalidOption, match="timeout must be "):
            await queue.add_and_wait("send", timeout=timeout)


@pytest.mark.covers("X01", "S24", "P8")
@pytest.mark.parametrize("value", [None, 0, "x", {"rows": [1] * 2000}], ids=["None", "0", "x", "long"])
async def test_any_number_of_waiters_get_the_result_before_and_after_the_end(app: App, value: Any) -> None:
    queue = app.queue("q", [echo])
    job = await queue.add(echo, value, result_ttl=60)
    waiters = [asyncio.create_task(job.result(10)) for _ in range(20)]
    await asyncio.sleep(0)
    await drained(app)

    assert [await waiter for waiter in waiters] == [value] * 20
    assert [await job.result(0), await job.result(0)] == [value] * 2


@pytest.mark.covers("S24")
async def test_without_a_lifetime_a_short_result_is_told_by_the_run_record_and_a_long_one_is_gone(app: App) -> None:
    queue = app.queue("q", [echo])
    short, nothing, long = [await queue.add(echo, data) for data in ("short", None, "x" * 5_000)]
    await drained(app)

    assert (await short.result(5), await nothing.result(5)) == ("short", None)
    with pytest.raises(
        ResultGone, match=f"job {long.id} has ended, but its result was not kept; add the job with result_ttl"
    ):
        await long.result(5)


@pytest.mark.covers("S24")
async def test_a_result_that_nobody_has_is_gone_at_once(queue: Queue) -> None:
    job = await queue.add("send")
    await job.remove()

    with pytest.raises(ResultGone):
        await job.result(30)


@pytest.mark.covers("S24")
async def test_a_result_lives_as_long_as_was_asked_for(app: App) -> None:
    queue = app.queue("q", [echo])
    job = await queue.add(echo, "x" * 5_000, result_ttl=0.2)
    kept = await queue.add(echo, "y" * 5_000, result_ttl=60)
    await drained(app)
    await asyncio.sleep(0.3)

    with pytest.raises(ResultGone):
        await job.result(0)
    assert await kept.result(0) == "y" * 5_000


async def test_a_cancelled_job_tells_its_waiters_why(app: App, queue: Queue) -> None:
    job = await queue.add("send", result_ttl=60)
    waiter = asyncio.create_task(job.result(10))
    await asyncio.sleep(0)

    assert await job.cancel("the customer left") == "cancelled"
    with pytest.raises(JobCancelled, match="the customer left"):
        await waiter


async def test_a_handler_may_add_to_its_own_queue_and_wait_for_another(app: App) -> None:
    async def outer(ctx: JobContext[int]) -> Any:
        return await inner.add_and_wait(echo, ctx.data + 1)

    queue, inner = app.queue("outer", [outer]), app.queue("inner", [echo])
    async with working(app):
        assert await queue.add_and_wait(outer, 1) == 2


# running more than once


@pytest.mark.covers("R083", "R085")
async def test_a_jobs_id_is_the_same_on_every_attempt(app: App) -> None:
    seen: list[tuple[str, int, int]] = []

    async def charge(ctx: JobContext[Any]) -> None:
        seen.append((f"charge-{ctx.job_id}", ctx.attempt, ctx.fence))
        if len(seen) == 1:
            raise Snooze(0)
        if len(seen) < 4:
            raise ConnectionError("try again")

    queue = app.queue("q", [charge], retry=AT_ONCE)
    job = await queue.add(charge, None)
    await drained(app)

    assert [(key, attempt) for key, attempt, _ in seen] == [(f"charge-{job.id}", n) for n in (1, 1, 2, 3)]
    assert [fence for _, _, fence in seen] == sorted({fence for _, _, fence in seen})


@pytest.mark.covers("R084")
async def test_work_that_is_keyed_by_the_jobs_id_is_done_once(app: App) -> None:
    ledger = sqlite3.connect(":memory:", check_same_thread=False)
    ledger.execute("CREATE TABLE charges (key TEXT PRIMARY KEY, amount INT)")
    runs = 0

    async def charge(ctx: JobContext[int]) -> None:
        nonlocal runs
        runs += 1
        ledger.execute("INSERT INTO charges VALUES (?, ?) ON CONFLICT DO NOTHING", (f"charge-{ctx.job_id}", ctx.data))
        if ctx.attempt == 1:
            raise ConnectionError("it was charged, but we never heard")

    queue = app.queue("q", [charge], retry=AT_ONCE)
    job = await queue.add(charge, 100)
    await drained(app)

    assert runs == 2
    assert ledger.execute("SELECT * FROM charges").fetchall() == [(f"charge-{job.id}", 100)]
    ledger.close()


@pytest.mark.covers("R087")
async def test_a_checkpoint_lets_a_retry_go_on_where_it_was(app: App) -> None:
    done: list[int] = []

    async def work(ctx: JobContext[int]) -> None:
        for number in range(ctx.last_checkpoint or 0, ctx.data):
            if number == 3 and ctx.attempt == 1:
                raise ConnectionError("in the middle")
            done.append(number)
            await ctx.checkpoint(number + 1)

    queue = app.queue("q", [work], retry=AT_ONCE)
    await queue.add(work, 6)
    await drained(app)

    assert done == [0, 1, 2, 3, 4, 5]


@pytest.mark.covers("R087")
async def test_a_handler_may_change_the_payload_that_a_retry_gets(app: App) -> None:
    seen: list[Any] = []

    async def work(ctx: JobContext[Any]) -> None:
        seen.append(ctx.data)
        if ctx.attempt == 1:
            await ctx.update_data({"left": 1})
            raise ConnectionError("again")

    queue = app.queue("q", [work], retry=AT_ONCE)
    await queue.add(work, {"left": 2})
    await drained(app)

    assert seen == [{"left": 2}, {"left": 1}]
