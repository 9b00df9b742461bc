"""A worker process: what starts in which order, what ends in which, and what is there in between."""

import asyncio
import logging
import os
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.fundamentals.apps import drained, working
from toril import App, Closed, JobContext, SyncJobContext


async def ok(ctx: JobContext[Any]) -> Any:
    return ctx.data


@pytest.mark.covers("R002")
async def test_a_worker_boots_and_shuts_down_in_order() -> None:
    story: list[str] = []

    @asynccontextmanager
    async def lifespan(app: App) -> AsyncIterator[dict[str, str]]:
        story.append("lifespan begins")
        yield {"db": "a pool"}
        story.append("lifespan ends")

    app = App("memory://", lifespan=lifespan)

    async def work(ctx: JobContext[Any]) -> None:
        story.append(f"job with {ctx.state['db']}")

    queue = app.queue("q", [work])
    for name in ("first", "second"):
        app.on_start(lambda name=name: story.append(f"start {name}"))
        app.on_flush(lambda name=name: story.append(f"flush {name}"))
        app.on_stop(lambda name=name: story.append(f"stop {name}"))

    @app.on_start
    async def add() -> None:
        await queue.add(work, None)

    @app.on_flush
    async def last_words() -> None:
        story.append(f"{len(await queue.runs())} run")

    @app.on_stop
    async def afterwards() -> None:
        with pytest.raises(Closed):
            await queue.add(work, None)

    app.on("worker_started", lambda _: story.append("worker started"))
    app.on("worker_stopped", lambda _: story.append("worker stopped"))
    assert await app.run(burst=True) == 0

    assert story == [
        "lifespan begins", "start first", "start second", "worker started", "job with a pool", "worker stopped",
        "flush first", "flush second", "1 run", "lifespan ends", "stop first", "stop second",
    ]  # fmt: skip


@pytest.mark.covers("R002")
async def test_a_step_that_fails_ends_the_boot_and_nothing_later_begins(tmp_path: Path) -> None:
    story: list[str] = []
    app = App(f"sqlite:///{tmp_path}/jobs.db")
    queue = app.queue("q", [ok])

    @app.on_start
    async def bad() -> None:
        raise RuntimeError("the index is missing")

    app.on_start(lambda: story.append("later"))
    app.on("worker_started", lambda _: story.append("worker"))
    app.on_flush(lambda: story.append("flush"))
    app.on_stop(lambda: story.append("stop"))
    with pytest.raises(RuntimeError, match="the index is missing"):
        await app.run()

    assert story == ["flush", "stop"]
    with pytest.raises(Closed):
        await queue.counts()


@pytest.mark.covers("R002")
async def test_a_lifespan_that_fails_ends_the_boot_too() -> None:
    @asynccontextmanager
    async def lifespan(app: App) -> AsyncIterator[None]:
        raise RuntimeError("no database")
        yield

    app = App("memory://", lifespan=lifespan)
    story: list[str] = []
    app.queue("q", [ok])
    app.on_start(lambda: story.append("start"))
    with pytest.raises(RuntimeError, match="no database"):
        await app.run()

    assert story == []


async def test_a_hook_that_fails_at_the_end_does_not_keep_the_others_from_running(
    caplog: pytest.LogCaptureFixture,
) -> None:
    story: list[str] = []
    app = App("memory://")
    app.queue("q", [ok])

    @app.on_flush
    def bad() -> None:
        raise RuntimeError("a bad hook")

    app.on_flush(lambda: story.append("flush"))
    app.on_stop(lambda: story.append("stop"))
    assert await app.run(burst=True) == 0

    assert story == ["flush", "stop"]
    assert "on_flush failed" in caplog.text


async def test_the_state_of_the_lifespan_reaches_plain_functions_too() -> None:
    @asynccontextmanager
    async def lifespan(app: App) -> AsyncIterator[list[str]]:
        yield seen

    seen: list[str] = []
    app = App("memory://", lifespan=lifespan)

    def plain(ctx: SyncJobContext[str]) -> None:
        ctx.state.append(ctx.data)

    queue = app.queue("q", [plain])
    async with app:
        await queue.add(plain, "here")
        await drained(app)

    assert seen == ["here"]


@pytest.mark.covers("R004")
async def test_a_poller_runs_beside_the_workers_and_ends_with_them(app: App) -> None:
    story: list[str] = []
    polled = asyncio.Event()

    @app.poller
    async def poll() -> None:
        try:
            polled.set()
            await asyncio.Event().wait()
        finally:
            story.append("ended")

    queue = app.queue("q", [ok])
    async with working(app):
        await polled.wait()
        assert await queue.add_and_wait(ok, 1) == 1
        assert story == []

    assert story == ["ended"]


@pytest.mark.covers("R004")
async def test_a_poller_that_dies_is_started_again_and_the_workers_go_on(
    app: App, caplog: pytest.LogCaptureFixture
) -> None:
    starts: list[str] = []
    errors: list[str] = []
    again = asyncio.Event()
    app.on("error", lambda event: errors.append(event.error))

    @app.poller
    async def inbox() -> None:
        starts.append("start")
        if len(starts) == 1:
            raise RuntimeError("out of luck")
        again.set()
        await asyncio.Event().wait()

    queue = app.queue("q", [ok])
    async with working(app):
        async with asyncio.timeout(60):
            await again.wait()
        assert await queue.add_and_wait(ok, 1) == 1

    assert starts == ["start", "start"]
    assert errors == ["poller inbox died: RuntimeError: out of luck"]
    assert "poller inbox died; restarting it in" in caplog.text


@pytest.mark.covers("R005")
async def test_an_error_in_a_stray_task_or_thread_is_logged_and_the_worker_goes_on(
    app: App, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(threading, "excepthook", threading.__excepthook__)  # pytest has its own

    async def stray() -> None:
        raise RuntimeError("a stray task")

    def loose() -> None:
        raise RuntimeError("a loose thread")

    async def careless(ctx: JobContext[Any]) -> None:
        asyncio.get_running_loop().create_task(stray()).add_done_callback(lambda _: None)
        thread = threading.Thread(target=loose)
        thread.start()
        thread.join()
        await asyncio.sleep(0)

    queue = app.queue("q", [careless, ok])
    async with working(app):
        await queue.add_and_wait(careless, None)
        assert await queue.add_and_wait(ok, 1) == 1

    assert threading.excepthook is threading.__excepthook__
    assert "a stray task" in caplog.text
    assert "a loose thread" in caplog.text
    assert caplog.text.count("Traceback") >= 2


@pytest.mark.covers("R009")
async def test_only_queues_with_handlers_are_worked(app: App) -> None:
    mine, others = app.queue("mine", [ok]), app.queue("others")
    await others.add("send", 1)
    await mine.add(ok, 1)
    await drained(app)

    assert ((await others.counts()).waiting, (await mine.counts()).waiting) == (1, 0)


SCRIPT = """
    import asyncio, sys, toril

    app = toril.App(sys.argv[1])
    queue = app.queue("q")

    @queue.handler
    async def forever(ctx):
        print("started", flush=True)
        await ctx.signal.wait() if sys.argv[2] == "stubborn" else await asyncio.sleep(0.3)
        print("ended", flush=True)

    async def main():
        async with app:
            await queue.add(forever, None)
        return await app.run(grace=0.2 if sys.argv[2] == "stubborn" else 10)

    sys.exit(asyncio.run(main()))
"""


@pytest.mark.covers("R001")
@pytest.mark.parametrize(("kind", "code"), [("quick", 0), ("stubborn", 1)])
def test_a_worker_process_stops_at_a_signal_and_its_job_is_not_lost(tmp_path: Path, kind: str, code: int) -> None:
    url = f"sqlite:///{tmp_path}/jobs.db"
    command = [sys.executable, "-c", textwrap.dedent(SCRIPT), url, kind]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "started\n"
        os.kill(process.pid, signal.SIGTERM)
        assert process.wait(30) == code

    async def left() -> tuple[int, int]:
        async with App(url) as app:
            queue = app.queue("q")
            return (await queue.counts()).waiting, len(await queue.runs())

    assert asyncio.run(left()) == ((0, 1) if kind == "quick" else (1, 0))


@pytest.mark.covers("R167")
async def test_a_worker_is_silent_unless_logging_is_configured(tmp_path: Path) -> None:
    code = """
        import asyncio, sys, toril

        app = toril.App(sys.argv[1])
        queue = app.queue("q")

        @queue.handler
        async def good(ctx): ...

        async def main():
            async with app:
                await queue.add(good, None)
                await app.run(burst=True)

        asyncio.run(main())
    """
    command = [sys.executable, "-c", textwrap.dedent(code), f"sqlite:///{tmp_path}/jobs.db"]
    done = await asyncio.to_thread(subprocess.run, command, check=True, capture_output=True, text=True)

    assert (done.stdout, done.stderr) == ("", "")


async def test_a_second_run_does_not_write_every_line_twice(app: App, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "toril")
    queue = app.queue("q", [ok])
    for number in range(3):
        await queue.add(ok, number)
        await drained(app)

    assert caplog.text.count("job completed") == 3
