"""Calls at the wrong time, or in the wrong place: rows B64 to B76, as users meet them."""

import asyncio
import contextlib
import os
import subprocess
import sys
import textwrap
from collections.abc import Awaitable, Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.fundamentals.apps import drained, unchanged, working
from toril import (
    App,
    Closed,
    InvalidName,
    InvalidOption,
    Job,
    JobContext,
    NotFound,
    PartialAdd,
    Queue,
    RateLimit,
    UsageError,
    WrongState,
)


async def ok(ctx: JobContext[Any]) -> Any:
    return ctx.data


async def fail(ctx: JobContext[Any]) -> None:
    raise ValueError("no")


# closing

CLOSED: dict[str, Callable[[Queue], Awaitable[Any]]] = {
    "add": lambda queue: queue.add("send"),
    "add_many": lambda queue: queue.add_many([("send", 1)]),
    "add_and_wait": lambda queue: queue.add_and_wait("send"),
    "counts": lambda queue: queue.counts(),
    "job": lambda queue: queue.job("x"),
    "jobs": lambda queue: queue.jobs("waiting"),
    "runs": lambda queue: queue.runs(),
    "pause": lambda queue: queue.pause(),
    "drain": lambda queue: queue.drain(),
    "obliterate": lambda queue: queue.obliterate(),
    "result": lambda queue: Job(queue, "x", "send").result(1),
}


@pytest.mark.covers("B64")
@pytest.mark.parametrize("call", CLOSED.values(), ids=CLOSED)
async def test_a_closed_app_says_so(call: Callable[[Queue], Awaitable[Any]]) -> None:
    app = App("memory://")
    queue = app.queue("jobs")

    with pytest.raises(Closed, match="the app is not open: use `async with app:`"):
        await call(queue)
    async with app:
        await queue.add("send")
    with pytest.raises(Closed, match="the app is not open"):
        await call(queue)


@pytest.mark.covers("B64", "R011")
async def test_closing_twice_is_fine_and_so_is_opening_again(tmp_path: Path) -> None:
    app = App(f"sqlite:///{tmp_path}/jobs.db")
    queue = app.queue("jobs")
    await app.close()
    async with app:
        await queue.add("send", 1)
    await app.close()
    await app.close()

    async with app, app:
        await queue.add("send", 2)
    with pytest.raises(Closed):
        await queue.add("send", 3)
    async with app:
        assert [job.data for job in await queue.jobs("waiting")] == [1, 2]


@pytest.mark.covers("B64")
@pytest.mark.parametrize("times", [1, 3])
async def test_a_handler_that_closes_the_app_stops_it_after_the_running_jobs(tmp_path: Path, times: int) -> None:
    app = App(f"sqlite:///{tmp_path}/jobs.db")
    closed = asyncio.Event()
    ended = []

    async def close(ctx: JobContext[Any]) -> None:
        for _ in range(times):
            await app.close()
        closed.set()
        ended.append("close")

    async def other(ctx: JobContext[Any]) -> None:
        await closed.wait()
        await asyncio.sleep(0)
        await ctx.log("still at it")
        ended.append("other")

    queue = app.queue("q", [close, other], concurrency=2)
    async with app:
        await queue.add_many([("other", None), ("close", None)])
    async with asyncio.timeout(10):
        assert await app.run() == 0

    assert sorted(ended) == ["close", "other"]
    async with app:
        assert len(await queue.runs()) == 2


@pytest.mark.covers("B64", "X12")
async def test_an_app_runs_once_at_a_time_and_again_afterwards(app: App) -> None:
    queue = app.queue("q", [ok])

    async with working(app):
        with pytest.raises(UsageError, match="this app is already running"):
            await app.run()
        assert await queue.add_and_wait(ok, 1) == 1
    await queue.add(ok, 2)
    await drained(app)

    assert len(await queue.runs()) == 2


# jobs that are not there, or not in that state


@pytest.mark.covers("B65")
@pytest.mark.parametrize("job_id", ["", None, 5, b"1", "x" * 257, "x" * 1_000_000], ids=lambda job_id: f"{job_id!r:.9}")
async def test_what_can_be_no_id_is_refused(app: App, queue: Queue, job_id: Any) -> None:
    async with unchanged(app):
        with pytest.raises(InvalidName, match="a job id must have 1 to 256 characters") as caught:
            await queue.job(job_id)

    assert len(str(caught.value)) < 300


@pytest.mark.covers("B65")
@pytest.mark.parametrize("job_id", ["unknown", "1", "0", "meta", "x" * 256, "\x00", "a:b"], ids=ascii)
async def test_an_id_that_nobody_has_finds_nothing(app: App, queue: Queue, job_id: str) -> None:
    async with unchanged(app):
        assert await queue.job(job_id) is None

        gone = Job[Any](queue, job_id, "send")
        assert await gone.state() is None
        assert await gone.logs() == []
        for call in (gone.refresh, gone.retry, gone.remove, gone.promote, gone.cancel):
            with pytest.raises(NotFound, match="there is no job "):
                await call()


async def in_state(app: App, state: str) -> Job[Any]:
    """A job in this state, in a queue that nobody works any more."""
    queue = app.queue("q", {"ok": ok, "fail": fail}, keep_completed=True, keep_failed=True)
    options: Any = {"delayed": {"delay": 3600}, "prioritized": {"priority": 5}, "failed": {"attempts": 1}}
    job = await queue.add("fail" if state == "failed" else "ok", 1, **options.get(state, {}))
    if state in {"completed", "failed"}:
        await drained(app)
    assert await job.state() == state
    return job


REFUSED: dict[str, tuple[Callable[[Job[Any]], Awaitable[Any]], list[str]]] = {
    "retry": (lambda job: job.retry(), ["waiting", "delayed", "prioritized"]),
    "promote": (lambda job: job.promote(), ["waiting", "prioritized", "completed", "failed"]),
    "set_delay": (lambda job: job.set_delay(5), ["waiting", "prioritized", "completed", "failed"]),
    "set_priority": (lambda job: job.set_priority(5), ["completed", "failed"]),
    "cancel": (lambda job: job.cancel(), ["completed", "failed"]),
}


@pytest.mark.covers("B66")
@pytest.mark.parametrize(
    ("call", "state"),
    [pytest.param(call, state, id=f"{name}-{state}") for name, (call, states) in REFUSED.items() for state in states],
)
async def test_what_a_state_does_not_allow_is_refused(
    app: App, call: Callable[[Job[Any]], Awaitable[Any]], state: str
) -> None:
    job = await in_state(app, state)

    async with unchanged(app):
        with pytest.raises(WrongState, match=f"job '1' is {state} and cannot be "):
            await call(job)


@pytest.mark.covers("B66")
async def test_a_running_job_can_be_neither_retried_nor_removed_nor_moved(app: App) -> None:
    refused = []

    async def work(ctx: JobContext[Any]) -> None:
        job = ctx.job
        for call in (job.retry, job.remove, job.promote, lambda: job.set_delay(5), lambda: job.set_priority(5)):
            with pytest.raises(WrongState, match="is active and cannot be ") as caught:
                await call()
            refused.append(str(caught.value))

    queue = app.queue("q", [work])
    await queue.add(work, None)
    await drained(app)

    assert len(refused) == 5
    assert len(await queue.runs()) == 1


@pytest.mark.covers("B67")
async def test_of_two_who_retry_one_job_one_wins(app: App) -> None:
    job = await in_state(app, "failed")
    other = await job.queue.job(job.id)
    assert other is not None

    answers = await asyncio.gather(job.retry(), other.retry(), return_exceptions=True)

    assert sorted(type(answer).__name__ for answer in answers) == ["NoneType", "WrongState"]
    await drained(app)
    assert len(await job.queue.runs("failed")) == 2


@pytest.mark.covers("B42", "B46", "B69")
async def test_a_change_of_a_job_is_checked_like_an_add(app: App) -> None:
    job = await in_state(app, "delayed")

    async with unchanged(app):
        for delay in (-1, float("nan"), "5", 10**12):
            with pytest.raises(InvalidOption, match="delay must be "):
                await job.set_delay(delay)
        for priority in (-1, 2**21, 1.5, True):
            with pytest.raises(InvalidOption, match="priority must be a whole number"):
                await job.set_priority(priority)  # type: ignore[arg-type]
        with pytest.raises(UsageError, match="data is nan"):
            await job.update_data(float("nan"))
        for timeout in (-1, float("nan"), "5"):
            with pytest.raises(InvalidOption, match="timeout must be "):
                await job.result(timeout)


@pytest.mark.covers("B69")
@pytest.mark.parametrize("state", ["gone", "", None, 5, "WAITING", "waiting,active", ["waiting"]], ids=ascii)
async def test_a_state_that_there_is_not_is_refused(app: App, queue: Queue, state: Any) -> None:
    async with unchanged(app):
        with pytest.raises(InvalidOption, match="a state must be one of waiting, prioritized, active, "):
            await queue.jobs(state)
        with pytest.raises(InvalidOption, match="a state must be one of "):
            await queue.clean(state)
        with pytest.raises(InvalidOption, match="status must be 'completed', 'failed' or 'cancelled', not "):
            await queue.runs(state)


@pytest.mark.covers("B69")
@pytest.mark.parametrize("limit", [0, -5, 1.5, "5", True, None], ids=ascii)
async def test_a_page_of_nothing_is_refused(app: App, queue: Queue, limit: Any) -> None:
    async with unchanged(app):
        for call in (lambda: queue.jobs("waiting", limit=limit), lambda: queue.runs(limit=limit)):
            with pytest.raises(InvalidOption, match="must be a whole number from 1 to "):
                await call()


@pytest.mark.covers("B69")
async def test_a_page_has_a_thousand_at_most_and_says_where_to_go_on(queue: Queue) -> None:
    await queue.add_many(("send", n) for n in range(1_500))

    first = await queue.jobs("waiting", limit=10**9)
    second = await queue.jobs("waiting", cursor=first.cursor, limit=10**9)

    assert (len(first), len(second), second.cursor) == (1_000, 500, None)
    assert [job.data for job in (*first, *second)] == list(range(1_500))
    for cursor in ("", "abc", 5):
        with pytest.raises(InvalidOption, match=r"cursor .* is not from a page|unknown cursor "):
            await queue.jobs("waiting", cursor=cursor)  # type: ignore[arg-type]


@pytest.mark.covers("B70")
async def test_a_sweep_of_odd_numbers_is_refused(app: App, queue: Queue) -> None:
    async with unchanged(app):
        for age in (-1, float("nan"), "5"):
            with pytest.raises(InvalidOption, match="older_than must be "):
                await queue.clean("completed", older_than=age)
        for limit in (0, -1, 1.5, "5", True):
            with pytest.raises(InvalidOption, match="limit must be a whole number of at least 1, not "):
                await queue.clean("completed", limit=limit)  # type: ignore[arg-type]
        with pytest.raises(InvalidOption, match=r"clean removes .* not active jobs"):
            await queue.clean("active")
        with pytest.raises(InvalidOption, match="delayed must be 'keep' or 'remove', not 'remov'"):
            await queue.drain(delayed="remov")  # type: ignore[arg-type]
        with pytest.raises(InvalidOption, match="force must be True or False, not 'no'"):
            await queue.obliterate(force="no")  # type: ignore[arg-type]


@pytest.mark.covers("B70")
async def test_cleaning_stops_at_its_limit(queue: Queue) -> None:
    await queue.add_many(("send", n) for n in range(2_500))

    assert await queue.clean("waiting", limit=1_500) == 1_500
    assert await queue.clean("waiting", limit=1) == 1
    assert await queue.clean("waiting") == 999


@pytest.mark.covers("B70", "R014")
async def test_a_paused_queue_can_be_drained(queue: Queue) -> None:
    await queue.pause()
    await queue.add_many([("send", 1), ("send", 2, {"delay": 60}), ("send", 3, {"priority": 1})])

    assert await queue.drain() == 2
    assert await queue.drain(delayed="remove") == 1


@pytest.mark.covers("B70")
async def test_a_queue_with_running_jobs_is_obliterated_only_by_force(app: App) -> None:
    removed: list[int] = []

    async def work(ctx: JobContext[Any]) -> None:
        with pytest.raises(WrongState, match="queue 'q' has 1 running jobs; stop them first"):
            await queue.obliterate()
        removed.append(await queue.obliterate(force=True))

    queue = app.queue("q", [work])
    await queue.add_many([(work, None), ("other", None, {"delay": 60})])
    await drained(app)

    assert removed == [2]
    assert sum((await queue.counts()).values()) == 0


# many at once


@pytest.mark.covers("B71")
async def test_adding_nothing_is_fine(app: App, queue: Queue) -> None:
    async with unchanged(app):
        assert await queue.add_many([]) == []
        assert await queue.add_many(iter(())) == []


@pytest.mark.covers("B71")
@pytest.mark.parametrize(
    "bad",
    [
        5, None, "send", ("send",), ("send", 1, {}, 4), ["send", 1], ("send", float("nan")), ("", 1), (5, 1),
        ("send", 1, {"delay": -1}), ("send", 1, {"dealy": 1}), ("send", 1, 5), ("send", 1, None), ("send", 1, {5: 5}),
        ("send", 1, {"data": 2}),
    ],
    ids=lambda bad: f"{bad!a:.30}",
)  # fmt: skip
async def test_one_bad_job_of_a_thousand_refuses_all_and_is_named(app: App, queue: Queue, bad: Any) -> None:
    jobs: list[Any] = [("send", n) for n in range(1_000)]
    jobs[700] = bad

    async with unchanged(app):
        with pytest.raises((UsageError, TypeError)) as caught:
            await queue.add_many(jobs)
    assert caught.value.__notes__ == ["in item 700 of add_many"]


@pytest.mark.covers("B71")
async def test_a_job_made_by_another_queue_is_refused(app: App, queue: Queue) -> None:
    other = app.queue("other")

    async with unchanged(app):
        with pytest.raises(UsageError, match="a job prepared by queue 'other' cannot be added to queue 'jobs'"):
            await queue.add_many([other.new("send", 1)])
    assert [job.added for job in await queue.add_many([queue.scoped(actor="me").new("send", 1)])] == [True]


@pytest.mark.covers("B71")
async def test_what_follows_a_stored_chunk_may_fail_and_the_error_says_what_is_stored(queue: Queue) -> None:
    def jobs(error: Exception | None) -> Iterator[Any]:
        for n in range(2_300):
            yield ("send", n)
        if error is not None:
            raise error
        yield ("send", float("nan"))

    for error in (None, OSError("the file ends here")):
        before = (await queue.counts()).waiting
        with pytest.raises(PartialAdd, match="2000 jobs were stored, the others were not: ") as caught:
            await queue.add_many(jobs(error))

        assert len(set(caught.value.stored)) == 2_000
        assert (await queue.counts()).waiting == before + 2_000


@pytest.mark.covers("B71")
async def test_a_generator_that_fails_in_the_first_chunk_stores_nothing(app: App, queue: Queue) -> None:
    def jobs() -> Iterator[Any]:
        yield ("send", 1)
        raise OSError("the file ends here")

    async with unchanged(app):
        with pytest.raises(OSError, match="the file ends here"):
            await queue.add_many(jobs())


@pytest.mark.covers("B71")
@pytest.mark.parametrize("jobs", [None, 5], ids=ascii)
async def test_what_is_no_list_of_jobs_is_a_type_error(app: App, queue: Queue, jobs: Any) -> None:
    async with unchanged(app):
        with pytest.raises(TypeError):
            await queue.add_many(jobs)


# elsewhere


@pytest.mark.covers("B73")
def test_an_app_serves_one_event_loop_after_another(tmp_path: Path) -> None:
    app = App(f"sqlite:///{tmp_path}/jobs.db")
    queue = app.queue("q", [ok])

    async def round_trip(number: int) -> Any:
        async with app:
            job = await queue.add(ok, number, result_ttl=60)
            await app.run(burst=True)
            return await job.result(5)

    assert [asyncio.run(round_trip(number)) for number in range(3)] == [0, 1, 2]


@pytest.mark.covers("B73")
async def test_an_open_app_can_be_used_from_another_threads_loop(app: App) -> None:
    queue = app.queue("q")

    def elsewhere() -> str:
        return asyncio.run(_added(queue))

    ids = await asyncio.gather(*(asyncio.to_thread(elsewhere) for _ in range(5)), *(_added(queue) for _ in range(5)))

    assert len(set(ids)) == 10
    assert (await queue.counts()).waiting == 10


async def _added(queue: Queue) -> str:
    return (await queue.add("send")).id


FORK = """
    import asyncio, os, sys
    import toril

    app = toril.App(sys.argv[1])
    queue = app.queue("q")

    async def add(who, count):
        async with app:
            for number in range(count):
                await queue.add("send", [who, number])

    if sys.argv[2] == "after a use":
        asyncio.run(add("before", 3))
    children = []
    for child in range(3):
        pid = os.fork()
        if not pid:
            asyncio.run(add(f"child {child}", 20))
            os._exit(0)
        children.append(pid)
    asyncio.run(add("parent", 20))
    for pid in children:
        assert os.waitpid(pid, 0)[1] == 0
"""


@pytest.mark.covers("B73")
@pytest.mark.parametrize("when", ["before any use", "after a use"])
async def test_every_job_that_a_fork_adds_is_stored(tmp_path: Path, when: str) -> None:
    url = f"sqlite:///{tmp_path}/jobs.db"
    command = [sys.executable, "-c", textwrap.dedent(FORK), url, when]
    subprocess.run(command, check=True, timeout=60)  # noqa: ASYNC221 - nothing else is to be done here

    async with App(url) as app:
        jobs = await app.queue("q").jobs("waiting", limit=1000)
    assert len({tuple(job.data) for job in jobs}) == len(jobs) == 80 + (3 if when == "after a use" else 0)


@pytest.mark.covers("B74")
async def test_an_add_that_is_cancelled_anywhere_leaves_the_queue_usable(app: App) -> None:
    queue = app.queue("q", [ok])
    for step in range(40):
        task = asyncio.create_task(queue.add(ok, step, job_id=f"job-{step}"))
        for _ in range(step % 10):
            await asyncio.sleep(0)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        assert (await queue.add(ok, step, job_id=f"job-{step}")).id == f"job-{step}"
    await drained(app)

    assert sorted(run.id for run in await queue.runs(limit=100)) == sorted(f"job-{step}" for step in range(40))


@pytest.mark.covers("B75")
async def test_a_listener_that_fails_changes_nothing(app: App, caplog: pytest.LogCaptureFixture) -> None:
    heard: list[Any] = []

    def bad(event: Any) -> None:
        raise RuntimeError("a bad listener")

    async def worse(event: Any) -> None:
        raise RuntimeError("a worse listener")

    queue = app.queue("q", [ok])
    for listener in (bad, worse, heard.append):
        app.on("completed", listener)
    await queue.add(ok, 1)
    await drained(app)

    assert len(heard) == 1
    assert len(await queue.runs()) == 1
    assert "a listener failed" in caplog.text


@pytest.mark.covers("B75")
@pytest.mark.parametrize(("event", "listener"), [("complete", print), ("", print), (None, print), ("completed", 5)])
def test_an_event_that_there_is_not_is_refused(event: Any, listener: Any) -> None:
    with pytest.raises((InvalidOption, TypeError), match=r"unknown event|a listener must be callable, not 5"):
        App("memory://").on(event, listener)


@pytest.mark.covers("B76", "R014")
async def test_pausing_twice_and_resuming_what_runs_change_nothing(app: App) -> None:
    queue = app.queue("q", [ok])
    await queue.resume()
    assert not (await queue.counts()).paused

    await queue.pause()
    await queue.pause()
    assert (await queue.counts())["paused"]

    await queue.resume()
    await queue.resume()
    await queue.add(ok, 1)
    await drained(app)
    assert len(await queue.runs()) == 1


@pytest.mark.covers("B56", "B76")
async def test_a_setting_out_of_its_range_is_refused(app: App, queue: Queue) -> None:
    async with unchanged(app):
        for limit in (-1, 5, "5/s"):
            with pytest.raises(InvalidOption, match=r"a rate limit must be a RateLimit\(max, per\) or None, not "):
                await queue.set_rate_limit(limit)  # type: ignore[arg-type]
        for concurrency in (0, -1, 1.5, True):
            with pytest.raises(InvalidOption, match="concurrency must be a whole number from 1 to "):
                await queue.set_concurrency(concurrency)  # type: ignore[arg-type]

    await queue.set_rate_limit(RateLimit(5))
    await queue.set_concurrency(3)
    assert ((await queue.settings()).rate, (await queue.settings()).concurrency) == (RateLimit(5), 3)


@pytest.mark.covers("B124")
def test_python_can_be_told_to_drop_assertions(tmp_path: Path) -> None:
    code = """
        import asyncio, sys, toril
        assert False
        app = toril.App(sys.argv[1])
        queue = app.queue("q")

        @queue.handler
        async def ok(ctx): return ctx.data

        async def main():
            async with app:
                job = await queue.add(ok, 5, result_ttl=60)
                await app.run(burst=True)
                print(await job.result(5))

        asyncio.run(main())
    """
    command = [sys.executable, "-O", "-c", textwrap.dedent(code), f"sqlite:///{tmp_path}/jobs.db"]

    assert subprocess.run(command, check=True, capture_output=True, text=True, env=os.environ).stdout == "5\n"


@pytest.mark.parametrize("timeout", [0.02, timedelta(milliseconds=20)])
async def test_a_result_that_is_not_there_in_time_says_for_how_long_it_was_awaited(timeout: Any) -> None:
    async with App("memory://") as app:
        job = await app.queue("q").add("n")
        with pytest.raises(TimeoutError, match=r"^job 1 did not end within 0\.02 s$"):
            await job.result(timeout)
