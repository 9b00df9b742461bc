"""A worker process boots in order and shuts down in order, whatever fails on the way."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests import servers
from tests.worker.conftest import Seen, working
from toril import App, Closed, JobContext
from toril.model import Counts

BLOCKED = """
import asyncio, sys, time
from toril import App, JobContext

app = App(sys.argv[1])

async def block(ctx: JobContext[float]) -> None:
    print("blocking", flush=True)
    until = time.monotonic() + ctx.data
    while time.monotonic() < until:
        pass

app.queue("q", [block], lease=2)

async def main() -> int:
    async with app:
        await app.queues["q"].add("block", float(sys.argv[2]))
    return await app.run(grace=float(sys.argv[3]))

sys.exit(asyncio.run(main()))
"""


@pytest.mark.covers("R002", "R004")
async def test_the_boot_takes_its_steps_in_order(app: App) -> None:
    seen = Seen(app, "booted", "worker_started")
    app.queue("q", {"n": nothing})
    app.poller(asyncio.Event().wait)

    async with working(app):
        await seen.until("booted", 4)

    assert [event.detail for event in seen.of("booted")] == ["configuration", "hooks", "workers", "pollers"]


@pytest.mark.covers("R002")
async def test_a_step_that_fails_ends_the_boot(app: App) -> None:
    seen = Seen(app, "booted", "worker_started")
    app.queue("q", {"n": nothing})

    @app.on_start
    def no_database() -> None:
        raise RuntimeError("no database")

    with pytest.raises(RuntimeError, match="no database"):
        await app.run()
    await app.events.settle(30)

    assert [event.detail for event in seen.of("booted")] == ["configuration"]
    assert seen.of("worker_started") == []


@pytest.mark.covers("R246", "R248")
async def test_the_shutdown_has_its_order_and_a_failing_step_skips_none(tmp_path: Path) -> None:
    steps: list[str] = []

    @asynccontextmanager
    async def database(app: App) -> AsyncIterator[str]:
        yield "pool"
        with pytest.raises(Closed):
            await app.queues["q"].counts()
        steps.append("resources, after the queues")

    app = App(f"sqlite:///{tmp_path / 'jobs.db'}", lifespan=database)
    app.queue("q", {"n": nothing})
    app.on("worker_stopped", lambda _: steps.append("workers"))

    @app.poller
    async def poll() -> None:
        try:
            app.stop()
            await asyncio.Event().wait()
        finally:
            steps.append("poller")

    @app.on_flush
    async def flush() -> None:
        steps.append(f"flush, {(await app.queues['q'].counts()).active} active")
        raise RuntimeError("a step that fails")

    @app.on_stop
    def last() -> None:
        steps.append("stop")

    @app.on_flush
    def leave() -> None:
        sys.exit("this is no reason to skip a step either")

    @app.on_flush
    def flush_the_rest() -> None:
        steps.append("flush the rest")

    @app.on_stop
    def failing() -> None:
        raise RuntimeError("another")

    assert await app.run() == 0

    assert steps == ["poller", "workers", "flush, 0 active", "flush the rest", "resources, after the queues", "stop"]


@pytest.mark.covers("R245", "F36", "R249")
@pytest.mark.parametrize(("signals", "within"), [(1, 1.5), (3, 0.5)], ids=["one signal", "three signals"])
def test_a_blocked_loop_does_not_keep_a_signal_from_being_heard(tmp_path: Path, signals: int, within: float) -> None:
    grace = 1.0 if signals == 1 else 30.0
    (tmp_path / "blocked.py").write_text(BLOCKED)
    command = [sys.executable, "blocked.py", f"sqlite:///{tmp_path / 'jobs.db'}", "60", str(grace)]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, env=os.environ, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "blocking\n"

            began = time.monotonic()
            process.send_signal(signal.SIGTERM)
            while signals > 1 and process.poll() is None and time.monotonic() < began + 30:  # two may be heard as one
                time.sleep(0.05)
                process.send_signal(signal.SIGTERM)
            code = process.wait(30)
            took = time.monotonic() - began
        finally:
            process.kill()  # or whichever test comes next is told of it

    print(f"{signals} signals, exit after {took:.2f} s")
    assert code == 1
    assert took < (grace if signals == 1 else 0) + within + 5  # what a busy machine adds is no fault


async def nothing(ctx: object) -> None:
    return None


async def test_a_run_that_is_cancelled_gives_its_jobs_back(app: App) -> None:
    started = asyncio.Event()

    async def work(ctx: object) -> None:
        started.set()
        await asyncio.Event().wait()

    queue = app.queue("q", {"n": work})
    async with app:
        await queue.add("n")
        run = asyncio.create_task(app.run())
        await started.wait()
        run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run

        assert await queue.counts() == Counts(waiting=1)


async def test_signals_can_be_left_to_the_program_around(app: App) -> None:
    before = signal.getsignal(signal.SIGTERM)
    seen = Seen(app, "booted")
    app.queue("q", {"n": nothing})

    async with working(app, signals="leave"):
        await seen.until("booted", 4)
        assert signal.getsignal(signal.SIGTERM) is before
    async with working(app):
        await seen.until("booted", 8)
        assert signal.getsignal(signal.SIGTERM) is not before


async def test_a_burst_ends_when_queues_that_feed_each_other_are_done() -> None:
    server = servers.running()
    server.tell("FLUSHALL")
    app, played = App(server.url), 0

    async def play(ctx: JobContext[int]) -> None:
        nonlocal played
        played += 1
        if ctx.data:
            await app.queues["pong" if played % 2 else "ping"].add("play", ctx.data - 1)

    for name in ("ping", "pong"):
        app.queue(name, {"play": play})
    async with app:
        await app.queues["ping"].add("play", 30)
        await app.run(burst=True)

    assert played == 31
