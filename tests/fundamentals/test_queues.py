"""Named queues: declared once, apart from each other, each with its own settings."""

import asyncio
import time
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from tests.fundamentals.apps import drained, working
from toril import (
    App,
    Exponential,
    Fixed,
    Job,
    JobContext,
    Keep,
    Queue,
    QueueFull,
    RateLimit,
    Retry,
    State,
    SyncJobContext,
    UnknownQueue,
    UsageError,
    handler,
)
from toril.records import RetryDelay


async def ok(ctx: JobContext[Any]) -> Any:
    return ctx.data


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


@pytest.mark.covers("R010")
async def test_a_queue_is_one_object_however_often_it_is_asked_for(tmp_path: Path) -> None:
    async with App(f"sqlite:///{tmp_path}/jobs.db") as app:
        queue = app.queue("email", [ok], concurrency=5)
        await queue.add(ok, 1)
        before = descriptors()

        assert all(app.queue("email") is queue for _ in range(1_000))
        assert app.queues["email"] is queue
        await queue.add(ok, 2)
        assert descriptors() <= before


@pytest.mark.parametrize("how", ["add", "add_many", "new", "sync"])
async def test_a_job_for_a_queue_that_looks_like_a_slip_warns_once(how: str, app: App) -> None:
    queue = app.queue("emial")  # before the other is declared, as may be
    app.queue("email", [ok])

    async def add() -> None:
        match how:
            case "add":
                await queue.add("ok", 1)
            case "add_many":
                await queue.add_many([("ok", 1), ("ok", 2)])
            case "new":
                queue.new("ok", 1)
            case _:
                await asyncio.to_thread(queue.sync.add, "ok", 1)

    with pytest.warns(UserWarning, match="added a job to queue 'emial'.*did you mean 'email'") as told:
        await add()
    await add()

    if how != "sync":  # that is done in another thread, which does not know who asked
        assert told[0].filename == __file__, "the line of the program is shown"


async def test_a_queue_that_others_work_does_not_warn(app: App) -> None:
    app.queue("email", [ok])
    app.queue("shard-1", [ok])
    emails = app.queue("emails")  # which gets its handler by the decorator
    emails.handler(ok)

    for queue in (emails, app.queue("emial", []), app.queue("orders"), app.queue("shard-2")):
        await queue.add("ok", 1)


async def test_a_name_that_is_not_declared_can_be_asked_for_and_declares_nothing(app: App) -> None:
    app.queue("email", [ok])

    with pytest.raises(UnknownQueue, match="there is no queue 'emial' in this app; its queues are 'email'"):
        app.queues["emial"]
    assert list(app.queues) == ["email"]


@pytest.mark.covers("R007", "R010")
async def test_a_queue_is_declared_once_with_all_its_options(app: App) -> None:
    app.queue("email", concurrency=5)

    says = "queue 'email' is already declared; declare it once, with all its options"
    with pytest.raises(UsageError, match=says):
        app.queue("email", concurrency=6)
    with pytest.raises(UsageError, match=says):
        app.queue("email", [ok])
    assert app.queue("email").options.concurrency == 5
    assert list(app.queues) == ["email"]


@pytest.mark.covers("R012")
async def test_a_job_without_options_has_the_documented_defaults(queue: Queue) -> None:
    record = (await (await queue.add("send")).refresh()).record

    assert record is not None
    assert (record.max_attempts, record.backoff) == (5, RetryDelay(kind="exponential", delay=1))
    assert (record.keep_completed, record.keep_failed) == (Keep(0), Keep(0))
    assert (record.delay, record.priority, record.timeout, record.expires_at, record.metadata) == (
        0,
        0,
        None,
        None,
        {},
    )


@pytest.mark.covers("R009", "R013")
async def test_what_a_job_asks_for_wins_over_its_handler_and_that_over_the_queue(app: App) -> None:
    handlers = {"ok": ok, "own": handler(ok, retry=Retry(7, Fixed(7)))}
    queue = app.queue("q", handlers, retry=Retry(2, Fixed(2)), keep_failed=9)

    async def retry_of(name: str, **options: Any) -> Any:
        record = (await (await queue.add(name, **options)).refresh()).record
        assert record is not None
        assert record.keep_failed == Keep(9)
        return record.max_attempts, record.backoff

    two, seven = (RetryDelay(kind="fixed", delay=n) for n in (2, 7))
    exponential = RetryDelay(kind="exponential", delay=0.5)
    assert await retry_of("ok") == (2, two)
    assert await retry_of("ok", attempts=3) == (3, two)
    assert await retry_of("own") == (7, seven)
    assert await retry_of("own", backoff=Exponential(0.5)) == (7, exponential)
    assert await retry_of("own", retry=Retry(1, Exponential(0.5))) == (1, exponential)


@pytest.mark.covers("R009")
async def test_queues_of_one_process_keep_their_own_concurrency_and_retries(app: App) -> None:
    running: dict[str, int] = {}
    most: dict[str, int] = {}
    tries: dict[str, int] = {}

    async def work(ctx: JobContext[Any]) -> None:
        name = ctx.queue_name
        running[name] = running.get(name, 0) + 1
        most[name] = max(most.get(name, 0), running[name])
        await asyncio.sleep(0.02)
        running[name] -= 1

    async def fail(ctx: JobContext[Any]) -> None:
        tries[ctx.queue_name] = tries.get(ctx.queue_name, 0) + 1
        raise ValueError("no")

    for name, concurrency, attempts in (("narrow", 1, 2), ("wide", 4, 3)):
        queue = app.queue(name, [work, fail], concurrency=concurrency, retry=Retry(attempts, Fixed(0)))
        await queue.add_many([(work, None)] * 12)
        await queue.add(fail, None)
    await drained(app)

    assert most == {"narrow": 1, "wide": 4}
    assert tries == {"narrow": 2, "wide": 3}


@pytest.mark.covers("R009")
async def test_a_run_may_choose_queues_and_their_concurrency(app: App) -> None:
    most = 0
    running = 0

    async def work(ctx: JobContext[Any]) -> None:
        nonlocal most, running
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.02)
        running -= 1

    chosen, left = app.queue("chosen", [work]), app.queue("left", [work])
    await chosen.add_many([(work, None)] * 9)
    await left.add(work, None)
    assert await app.run(queues={"chosen": 3}, burst=True) == 0

    assert most == 3
    assert (await left.counts()).waiting == 1


@pytest.mark.covers("R009")
async def test_a_rate_belongs_to_its_queue(app: App) -> None:
    limited = app.queue("limited", {"ok": ok}, concurrency=10, rate_limit=RateLimit(3, per=3600))
    free = app.queue("free", {"ok": ok}, concurrency=10)
    for queue in (limited, free):
        await queue.add_many([("ok", n) for n in range(10)])
    ended = asyncio.Event()
    app.on("completed", lambda event: ended.set() if event.queue == "free" and event.job_id == "10" else None)
    async with working(app):
        await ended.wait()

    assert (len(await limited.runs()), (await limited.counts()).waiting) == (3, 7)


@pytest.mark.covers("R008")
async def test_a_backlog_in_one_queue_does_not_delay_another(app: App) -> None:
    release = asyncio.Event()

    async def slow(ctx: JobContext[Any]) -> None:
        await release.wait()

    async def rested(times: int) -> float:
        """Seconds from an add to its result, in the median."""
        took = []
        for n in range(times):
            began = time.monotonic()
            assert await urgent.add_and_wait(ok, n, timeout=60) == n
            took.append(time.monotonic() - began)
        return median(took)

    backlog, urgent = app.queue("backlog", [slow]), app.queue("urgent", [ok])
    async with working(app, grace=0):
        idle = await rested(20)
        await backlog.add_many((slow, None) for _ in range(10_000))
        beside = await rested(20)
        counts = await backlog.counts()

    assert (counts.waiting, counts.active) == (9_999, 1)
    assert beside < 5 * idle + 0.2, "seconds; a busy machine is not to blame for more"


@pytest.mark.covers("R014")
async def test_a_paused_queue_finishes_what_runs_and_holds_the_rest(app: App) -> None:
    started, go_on = asyncio.Event(), asyncio.Event()
    ran: list[int] = []

    async def work(ctx: JobContext[int]) -> None:
        started.set()
        await go_on.wait()
        ran.append(ctx.data)

    queue = app.queue("q", [work])
    done = asyncio.Event()
    app.on("completed", lambda _: done.set())
    await queue.add(work, 0)
    async with working(app):
        await started.wait()
        await queue.pause()
        held = [await queue.add(work, n, result_ttl=60) for n in (1, 2, 3)]
        go_on.set()
        await done.wait()
        assert ran == [0]
        assert ((await queue.counts()).waiting, (await queue.counts()).paused) == (3, True)

        await queue.resume()
        for job in held:
            await job.result(10)
    assert ran == [0, 1, 2, 3]


@pytest.mark.covers("R015")
async def test_a_queue_with_a_bound_refuses_what_is_beyond_it(app: App) -> None:
    """A producer alone keeps to it: no worker has ever started."""
    queue = app.queue("q", [ok], max_waiting=3)
    await queue.add_many([(ok, n) for n in range(3)])

    with pytest.raises(QueueFull, match="3"):
        await queue.add(ok, 3)
    with pytest.raises(QueueFull):
        await queue.add_many([(ok, 3), (ok, 4)])
    with pytest.raises(QueueFull):
        await asyncio.to_thread(lambda: queue.sync.add("ok", 3))
    assert (await queue.settings()).max_waiting == 3
    assert (await queue.counts()).waiting == 3


@pytest.mark.covers("R015")
async def test_a_worker_that_starts_sets_the_bound_for_producers_that_declare_none(app: App, tmp_path: Path) -> None:
    app.queue("q", [ok], max_waiting=3)
    async with working(app):
        pass

    assert (await app.queues["q"].settings()).max_waiting == 3


@pytest.mark.covers("R016", "P24")
async def test_ids_are_unique_and_increasing_with_many_producers(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/jobs.db"

    async def produce() -> list[int]:
        async with App(url) as app:
            return [int((await app.queue("q").add("send")).id) for _ in range(20)]

    ids = await asyncio.gather(*(produce() for _ in range(10)))

    assert all(mine == sorted(mine) for mine in ids)
    assert sorted(number for mine in ids for number in mine) == list(range(1, 201))


@pytest.mark.covers("R017")
async def test_a_thousand_jobs_run_in_the_order_in_which_they_were_added(app: App) -> None:
    order: list[int] = []

    async def note(ctx: JobContext[int]) -> None:
        order.append(ctx.data)

    queue = app.queue("q", [note])
    await queue.add_many((note, n) for n in range(1_000))
    await drained(app)

    assert order == list(range(1_000))


# looking at a queue


async def test_counts_are_a_mapping_too(queue: Queue) -> None:
    await queue.add_many([("send", 1), ("send", 2, {"delay": 60}), ("send", 3, {"priority": 1}), ("send", 4)])
    counts = await queue.counts()

    assert (counts.waiting, counts["waiting"], counts["delayed"], counts["paused"]) == (2, 2, 1, False)
    assert dict(counts) == {
        "waiting": 2, "prioritized": 1, "active": 0, "delayed": 1, "waiting_children": 0, "completed": 0, "failed": 0,
    }  # fmt: skip
    assert sum(counts.values()) == 4
    assert counts.get("gone") is None
    with pytest.raises(KeyError, match="gone"):
        counts["gone"]


async def test_a_page_can_be_walked_and_measured(queue: Queue) -> None:
    await queue.add_many([("send", n) for n in range(5)])
    page = await queue.jobs("waiting", limit=3)

    assert [job.data for job in page] == [0, 1, 2]
    assert (len(page), page[0].data, bool(page.cursor)) == (3, 0, True)
    assert not await queue.jobs("failed")


@pytest.mark.covers("R044")
async def test_jobs_of_every_state_can_be_paged_through(app: App) -> None:
    async def work(ctx: JobContext[str]) -> None:
        if ctx.data == "fails":
            raise ValueError("no")
        if ctx.data == "looks":
            pages["active"] = [job.data for job in await queue.jobs("active")]

    pages: dict[str, list[Any]] = {}
    queue = app.queue("q", [work], keep_completed=True, keep_failed=True, retry=Retry(1))
    await queue.add_many([(work, "fails"), (work, "looks")])
    await drained(app)
    await queue.add_many([(work, "waits"), (work, "later", {"delay": 60}), (work, "first", {"priority": 1})])
    for state in (State.WAITING, State.DELAYED, State.PRIORITIZED, State.COMPLETED, State.FAILED):
        pages[state] = [job.data for job in await queue.jobs(state)]

    assert pages == {
        "active": ["looks"], "waiting": ["waits"], "delayed": ["later"], "prioritized": ["first"],
        "completed": ["looks"], "failed": ["fails"],
    }  # fmt: skip


@pytest.mark.covers("R044")
@pytest.mark.parametrize("state", ["waiting", "delayed", "prioritized", "completed", "failed"])
async def test_a_removed_job_leaves_nothing_behind(app: App, state: str) -> None:
    def work(ctx: SyncJobContext[Any]) -> None:
        ctx.log("a line")
        if state == "failed":
            raise ValueError("no")

    queue = app.queue("q", [work], keep_completed=True, keep_failed=True, retry=Retry(1))
    options: Any = {"delayed": {"delay": 60}, "prioritized": {"priority": 1}}.get(state, {})
    job: Job[Any] = await queue.add("work", 1, job_id="mine", **options)
    if state in {"completed", "failed"}:
        await drained(app)
    assert await job.state() == state

    await job.remove()

    assert (await job.state(), await queue.job("mine"), await job.logs()) == (None, None, [])
    assert sum((await queue.counts()).values()) == 0
    assert (await queue.add("work", 2, job_id="mine")).added
