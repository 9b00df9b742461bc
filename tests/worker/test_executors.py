"""Plain functions in threads and in processes: the same context, and what ends one ends only it."""

import asyncio
import json
import os
import signal
import threading
import time
from dataclasses import replace
from typing import Any

import pytest

from tests.conformance.jobs import EVERY_OPTION
from tests.worker import handlers_for_processes as in_processes
from tests.worker.conftest import Seen, working
from toril import App, JobCancelled, JobFailed, Queue, Retry, State, SyncJobContext, handler
from toril.codec.new_jobs import said
from toril.handlers import RegisteredHandler
from toril.model import NewJob
from toril.worker.process_pool import ProcessPool

ONCE = Retry(attempts=1)


async def line_of(queue: Queue, job_id: str) -> str:
    """The first log line of a job, as soon as there is one."""
    async with asyncio.timeout(30):
        while not (lines := (await queue.store.logs(queue.name, job_id)).items):  # noqa: ASYNC110 - from elsewhere
            await asyncio.sleep(0.01)
    return lines[0]


@pytest.mark.covers("R027")
@pytest.mark.parametrize("executor", ["thread", "process"])
async def test_a_plain_function_reports_as_a_coroutine_does(app: App, executor: str) -> None:
    queue = app.queue("q", {"talk": handler(in_processes.talk, executor=executor)}, keep_completed=10)  # type: ignore[arg-type]
    async with working(app):
        job = await queue.add("talk", "bulls", result_ttl=60)

        assert await job.result(30) == "BULLS"
        await job.refresh()
        assert job.progress == 50
        assert await job.logs() == ["about bulls"]


@pytest.mark.parametrize("executor", ["thread", "process"])
async def test_a_plain_function_that_hears_of_its_cancellation_ends_as_cancelled(app: App, executor: str) -> None:
    queue = app.queue("q", {"wait": handler(in_processes.until_cancelled, executor=executor)})  # type: ignore[arg-type]
    async with working(app):
        job = await queue.add("wait", result_ttl=60)
        await line_of(queue, job.id)

        assert await job.cancel("changed my mind") == "requested"
        with pytest.raises(JobCancelled, match="changed my mind"):
            await job.result(30)


@pytest.mark.covers("F24", "X30")
@pytest.mark.parametrize("executor", ["thread", "process"])
async def test_a_plain_function_that_overruns_its_timeout_fails(app: App, executor: str) -> None:
    made = handler(in_processes.until_cancelled, executor=executor, timeout=0.2)  # type: ignore[arg-type]
    queue = app.queue("q", {"wait": made}, retry=ONCE)
    async with working(app):
        job = await queue.add("wait", result_ttl=60)

        with pytest.raises(JobFailed, match=r"timeout of 0\.2 s") as failed:
            await job.result(30)
        assert failed.value.job_id == job.id


async def test_a_process_that_overruns_its_timeout_is_killed(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    start, children = ProcessPool._start, []

    def noted(pool: ProcessPool, entry: RegisteredHandler) -> Any:
        children.append(start(pool, entry))
        return children[-1]

    monkeypatch.setattr(ProcessPool, "_start", noted)
    queue = app.queue("q", {"forever": handler(in_processes.forever, executor="process", timeout=2)}, retry=ONCE)
    async with working(app):
        job = await queue.add("forever", result_ttl=60)
        with pytest.raises(JobFailed, match="timeout"):
            await job.result(30)
    (child,) = children
    with pytest.raises(ProcessLookupError):
        os.kill(child._process.pid, 0)


async def test_a_process_is_told_every_option_of_its_job(app: App) -> None:
    queue = app.queue("q", {"options": handler(in_processes.options, executor="process")})
    every = replace(EVERY_OPTION, timeout=60_000, result_ttl=60_000)
    async with working(app):
        await app.store.add("q", [NewJob(name="options", data="null", id="mine", options=every)])
        job = await queue.job("mine")

        assert job is not None
        assert await job.result(30) == json.loads(json.dumps(said(every)))


async def test_functions_in_processes_are_elsewhere(app: App) -> None:
    queue = app.queue("q", {"whoami": handler(in_processes.whoami, executor="process")})
    async with working(app):
        first = await queue.add_and_wait("whoami")

        assert first != os.getpid()
        assert await queue.add_and_wait("whoami") == first, "a child that is well serves the next job too"


@pytest.mark.covers("F16", "F18")
async def test_a_process_that_exits_fails_only_its_own_job(app: App) -> None:
    queue = app.queue(
        "q",
        {
            "vanish": handler(in_processes.vanish, executor="process"),
            "killed": handler(in_processes.killed, executor="process"),
            "talk": handler(in_processes.talk, executor="process"),
        },
        concurrency=4,
        retry=ONCE,
    )
    async with working(app):
        gone = await queue.add("vanish", 3, result_ttl=60)
        dead = await queue.add("killed", result_ttl=60)
        well = [await queue.add("talk", word, result_ttl=60) for word in ("a", "b", "c")]

        with pytest.raises(JobFailed, match="exited with code 3"):
            await gone.result(30)
        with pytest.raises(JobFailed, match="killed by signal 9"):
            await dead.result(30)
        assert [await job.result(30) for job in well] == ["A", "B", "C"]


async def test_a_process_leaves_it_to_its_worker_when_to_stop(app: App) -> None:
    """A service manager may signal every process that it finds."""
    queue = app.queue("q", {"work": handler(in_processes.signalled, executor="process")}, retry=ONCE)
    async with working(app):
        job = await queue.add("work", result_ttl=60)
        pid = int(await line_of(queue, job.id))
        for number in (signal.SIGTERM, signal.SIGINT):
            os.kill(pid, number)

        assert await job.result(30) == "done"


async def test_what_a_process_starts_heeds_signals(app: App) -> None:
    queue = app.queue("q", {"work": handler(in_processes.terminate_others, executor="process")}, retry=ONCE)
    async with working(app):
        job = await queue.add("work", result_ttl=60)

        assert await job.result(60) == [-signal.SIGTERM, -signal.SIGTERM]


async def test_what_a_process_raises_says_what_becomes_of_its_job(app: App) -> None:
    queue = app.queue("q", {
        "refuse": handler(in_processes.refuse, executor="process"),
        "later": handler(in_processes.later, executor="process"),
    })  # fmt: skip
    seen = Seen(app, "retrying", "snoozed")
    async with working(app):
        refused = await queue.add("refuse", result_ttl=60)
        snoozed = await queue.add("later", result_ttl=60)

        with pytest.raises(JobFailed, match="never"):
            await refused.result(30)
        assert await snoozed.result(30) == "rested"
    assert seen.names() == ["snoozed"]


@pytest.mark.covers("F20")
async def test_a_thread_that_never_ends_gives_up_its_slot(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toril.worker.worker.STUCK_GRACE", 0.1)
    let_go = threading.Event()

    def deaf(ctx: SyncJobContext[None]) -> None:
        let_go.wait(60)

    def hear(ctx: SyncJobContext[None]) -> str:
        return "heard"

    queue = app.queue("q", {"deaf": handler(deaf, timeout=0.1), "hear": hear}, retry=ONCE)
    seen = Seen(app, "stuck")
    async with working(app):
        stuck = await queue.add("deaf", result_ttl=60)
        after = await queue.add("hear", result_ttl=60)

        with pytest.raises(JobFailed, match="timeout"):
            await stuck.result(30)
        assert await after.result(30) == "heard"
        told = await seen.until("stuck")
        let_go.set()
    assert "let_go.wait(60)" in told.detail, "where it is"


async def test_threads_run_side_by_side(app: App) -> None:
    together = threading.Barrier(3, timeout=30)

    def meet(ctx: SyncJobContext[None]) -> int:
        return together.wait()

    queue = app.queue("q", {"meet": meet}, concurrency=3)
    async with working(app):
        jobs = [await queue.add("meet", result_ttl=60) for _ in range(3)]

        assert sorted([await job.result(30) for job in jobs]) == [0, 1, 2]


async def test_the_loop_goes_on_while_a_thread_works(app: App) -> None:
    started, answered = threading.Event(), threading.Event()

    def slow(ctx: SyncJobContext[None]) -> bool:
        started.set()
        return answered.wait(30)

    queue = app.queue("q", {"slow": slow})
    async with working(app):
        job = await queue.add("slow", result_ttl=60)
        await asyncio.to_thread(started.wait, 30)
        assert await job.state() is State.ACTIVE
        answered.set()

        assert await job.result(30) is True


def test_a_blocking_rest_is_woken_by_a_cancellation() -> None:
    from toril.context import Signal, StopReason

    signal = Signal()
    event = signal.event()
    threading.Timer(0.05, signal.fire, (StopReason.CANCELLED, "stop")).start()
    began = time.monotonic()

    assert event.wait(30)
    assert time.monotonic() - began < 20
