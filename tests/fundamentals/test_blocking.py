"""Queues for code without an event loop."""

import asyncio
import gc
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from toril import App, Closed, EngineUnavailable, JobContext, JobFailed, NotFound, PermanentError, State, UsageError


async def double(ctx: JobContext[int]) -> int:
    if ctx.data < 0:
        raise PermanentError("too small")
    return 2 * ctx.data


@pytest.fixture
def app(tmp_path: Path) -> App:
    app = App(f"sqlite:///{tmp_path / 'jobs.db'}")
    app.queue("sums", [double], concurrency=10)
    return app


@pytest.fixture(autouse=True)
def _close(app: App) -> object:
    yield
    asyncio.run(closed(app))


async def closed(app: App) -> None:
    async with app:
        pass


def test_a_script_adds_jobs_and_reads_their_results(app: App) -> None:
    queue = app.queues["sums"].sync
    jobs = [queue.add(double, number, result_ttl=60) for number in range(5)]
    failing = queue.add("double", -1, result_ttl=60)
    assert queue.counts().waiting == 6

    asyncio.run(app.run(burst=True))

    assert [job.result(10) for job in jobs] == [0, 2, 4, 6, 8]
    with pytest.raises(JobFailed, match="too small"):
        failing.result(10)


def test_every_control_has_its_blocking_twin(app: App) -> None:
    queue = app.queues["sums"].sync
    later = queue.add(double, 1, delay=3600)
    many = queue.add_many([(double, 2), (double, 3)])

    later.promote()
    assert later.state() is State.WAITING
    many[0].set_priority(3)
    assert [job.id for job in queue.jobs("prioritized").items] == [many[0].id]
    found = queue.job(many[1].id)
    assert found is not None
    assert found.refresh().data == 3
    found.remove()
    with pytest.raises(NotFound):
        found.refresh()
    assert later.cancel() == "cancelled"
    assert queue.drain() == 1


def test_threads_share_one_way_in(app: App) -> None:
    before, queue = set(threading.enumerate()), app.queues["sums"].sync
    ids: list[str] = []
    threads = [threading.Thread(target=lambda: ids.append(queue.add(double, 1).id)) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(set(ids)) == 20
    assert [thread.name for thread in threading.enumerate() if thread not in before].count("toril-portal") == 1


async def test_it_refuses_to_block_a_running_loop(app: App) -> None:
    with pytest.raises(UsageError, match="await"):
        await asyncio.to_thread(asyncio.run, in_a_loop(app))


async def in_a_loop(app: App) -> None:
    app.queues["sums"].sync.add(double, 1)


def test_a_forked_child_finds_its_own_way(app: App) -> None:
    queue = app.queues["sums"].sync
    queue.add(double, 1)
    child = os.fork()
    if child == 0:
        status = 1
        try:
            queue.add(double, 2)
            status = 0
        finally:
            os._exit(status)
    _, ended = os.waitpid(child, 0)

    assert ended == 0
    assert queue.counts().waiting == 2


def test_a_handle_outlives_a_close(app: App) -> None:
    queue = app.queues["sums"].sync
    job = queue.add(double, 1)
    asyncio.run(closed(app))

    assert job.state() is State.WAITING


def test_scopes_travel_with_blocking_adds_too(app: App) -> None:
    job = app.queues["sums"].sync.scoped(actor="ada").add(double, 1)

    assert job.refresh().metadata == {"actor": "ada"}


def test_a_call_that_waits_while_the_app_is_closed_is_told_so(app: App) -> None:
    portal, told = app.portal(), []
    begun = threading.Event()

    async def forever() -> None:
        begun.set()
        await asyncio.Event().wait()

    def wait() -> None:
        try:
            portal.run(forever())
        except Closed as error:
            told.append(str(error))

    waiting = threading.Thread(target=wait, daemon=True)
    waiting.start()
    begun.wait(10)
    portal.close()
    waiting.join(10)

    assert told == ["the app was closed while this call was waiting"]


def test_a_script_that_has_read_ends_in_silence(tmp_path: Path) -> None:
    script = f"from toril import App; print(App('sqlite:///{tmp_path}/jobs.db').queue('q').sync.counts().waiting)"
    done = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True, timeout=60)

    assert (done.stdout, done.stderr) == ("0\n", "")


@pytest.mark.filterwarnings("error")
def test_a_store_that_does_not_answer_leaves_no_call_that_nobody_awaited(recwarn: pytest.WarningsRecorder) -> None:
    queue = App("redis://127.0.0.1:1/0").queue("q")

    with pytest.raises(EngineUnavailable):
        queue.sync.add("job", 1)
    gc.collect()

    assert [str(each.message) for each in recwarn if "never awaited" in str(each.message)] == []
