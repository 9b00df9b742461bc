"""Worker processes that die, hang and are paused under `toril run`."""

import asyncio
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from contextlib import closing
from functools import partial
from pathlib import Path
from statistics import median

import pytest

from tests.faults.fleet import SLOW, Fleet, fleet
from tests.faults.nursery import until
from tests.proof import prove
from toril import App, Explanation, JobContext, NotFound
from toril.model import Counts, JobRow
from toril.records import JobStack, WorkerRecord
from toril.supervisor.child import OomCounter, exit_text


@pytest.fixture
def url(database: Path) -> str:
    return f"sqlite:///{database}"


@pytest.fixture(scope="session")
def some() -> int:
    """Rounds of what takes seconds each; `TORIL_FAULT_ROUNDS` asks for more."""
    return int(os.environ.get("TORIL_FAULT_ROUNDS", "2"))


def add(url: str, name: str, data: object, count: int = 1, **options: object) -> list[str]:
    async def added() -> list[str]:
        async with App(url) as app:
            jobs = await app.queue("q").add_many([(name, data, options)] * count)
            return [job.id for job in jobs]

    return asyncio.run(added())


def counts(url: str) -> Counts:
    async def counted() -> Counts:
        async with App(url) as app:
            return await app.queue("q").counts()

    return asyncio.run(counted())


def records(url: str, ids: list[str]) -> list[JobRow | None]:
    async def read() -> list[JobRow | None]:
        async with App(url) as app:
            return await app.store.jobs("q", ids)

    return asyncio.run(read())


def pids(url: str) -> list[int]:
    """Of the workers that count as alive."""

    async def read() -> list[int]:
        async with App(url) as app:
            return [worker.pid for worker in await app.store.workers()]

    return asyncio.run(read())


@pytest.mark.covers("F04", "F16", "R125")
def test_the_jobs_of_a_killed_child_run_elsewhere_at_once(url: str, tmp_path: Path, some: int) -> None:
    took: list[float] = []
    while len(took) < 2 * some:
        with fleet(url, tmp_path, "--processes", "4", ALIVE_CONCURRENCY="1") as run:
            run.until_up(4)
            for number in range(4):
                until(partial(run.said, "worker started", 4 + number), "all are up", timeout=SLOW)
                (job,) = add(url, "once", 600)
                first = run.until_noted(job, "start")
                os.kill(first.pid, signal.SIGKILL)
                killed = time.monotonic()
                took.append(run.until_noted(job, "start", 2).at - killed)
                run.until_noted(job, "end")
            assert run.stop() == 0

    took.sort()
    print(f"{len(took)} kills: median {median(took) * 1000:.0f} ms, "
          f"p99 {took[int(len(took) * 0.99)] * 1000:.0f} ms, worst {took[-1] * 1000:.0f} ms")  # fmt: skip
    assert took[-1] < 20  # the lease is 30 s: it was not waited for


@pytest.mark.parametrize("words", [(), ("--name", "web")])
def test_a_killed_worker_is_listed_no_more(url: str, tmp_path: Path, words: tuple[str, ...]) -> None:
    """Its last sign of life would keep it on the list for 45 s, with the jobs that it ran."""
    with fleet(url, tmp_path, "--processes", "2", *words) as run:
        run.until_up(2)
        (job,) = add(url, "once", 600)
        killed = run.until_noted(job, "start").pid
        assert killed in pids(url)
        os.kill(killed, signal.SIGKILL)
        since = time.monotonic()
        until(lambda: killed not in pids(url), "it is gone from the list", timeout=SLOW)
        assert time.monotonic() - since < 30
        run.until_noted(job, "end")
        assert run.stop() == 0


def test_a_worker_killed_while_the_run_ends_is_listed_no_more(url: str, tmp_path: Path) -> None:
    with fleet(url, tmp_path, "--grace", "60") as run:
        run.until_up()
        (job,) = add(url, "busy", 600)
        started = run.until_noted(job, "start")
        assert pids(url) == [started.pid]
        run.send(signal.SIGTERM)
        until(lambda: run.said("stopping: "), "it has begun to stop", timeout=SLOW)
        run.kill(started.pid)

        assert run.ended() == 1

    assert pids(url) == []


@pytest.mark.covers("F04", "R126", "G4")
def test_when_a_whole_group_is_killed_another_takes_over_after_the_lease(url: str, tmp_path: Path, some: int) -> None:
    took: list[float] = []
    for _ in range(some):
        with fleet(url, tmp_path, ALIVE_LEASE="2") as victim:
            (job,) = add(url, "once", 600)
            victim.until_noted(job, "start")
            with fleet(url, tmp_path, ALIVE_LEASE="2") as rescuer:
                rescuer.until_up()
                victim.send_all(signal.SIGKILL)
                killed = time.monotonic()
                took.append(rescuer.until_noted(job, "start", 2).at - killed)
                rescuer.until_noted(job, "end")
                assert rescuer.stop() == 0

    prove("T10", kills=len(took), longest=max(took))
    print(f"{len(took)} groups killed: worst {max(took):.2f} s, with a lease of 2 s")
    assert max(took) < 2 + 1 + 10  # what a busy machine adds is no fault


def pause(run: Fleet, url: str) -> None:
    """Stop a group, but not within a transaction: nobody else could write then."""
    while True:
        run.send_all(signal.SIGSTOP)
        connection = sqlite3.connect(url.removeprefix("sqlite:///"), timeout=2, isolation_level=None)
        with closing(connection):
            try:
                connection.execute("BEGIN IMMEDIATE")
            except sqlite3.OperationalError:  # it is locked
                run.send_all(signal.SIGCONT)
            else:
                return


@pytest.mark.covers("R107", "F27", "G2", "R125")
def test_a_group_that_was_paused_past_its_lease_finishes_nothing_twice(url: str, tmp_path: Path, some: int) -> None:
    late = 0
    with fleet(url, tmp_path, ALIVE_LEASE="1") as one, fleet(url, tmp_path, ALIVE_LEASE="1") as other:
        one.until_up(), other.until_up()
        for _ in range(some):
            jobs = add(url, "hold", 0.3, count=4, keep_completed=10_000)
            started = {job: one.until_noted(job, "start").pid for job in jobs}
            paused = one if set(started.values()) & set(one.children) else other
            pause(paused, url)
            until(lambda: counts(url).active + counts(url).waiting == 0, "the other does it", timeout=SLOW)
            paused.send_all(signal.SIGCONT)
        assert (one.stop(), other.stop()) == (0, 0)
        late = sum(
            log.read_text().count("lease_lost") + log.read_text().count("job lost") for log in (one.log, other.log)
        )
        completed = Counter(
            line.split("job_id=")[1].split()[0]
            for log in (one.log, other.log) for line in log.read_text().splitlines() if "job completed" in line
        )  # fmt: skip

    print(f"{some} pauses: {len(completed)} jobs completed, {late} late results refused")
    assert completed == dict.fromkeys(map(str, range(1, 4 * some + 1)), 1)


@pytest.mark.covers("F21", "F22", "R143", "R255")
@pytest.mark.parametrize("kind", ["busy", "deaf"])
def test_a_handler_that_blocks_everything_keeps_its_job(url: str, tmp_path: Path, kind: str) -> None:
    with fleet(url, tmp_path, "--processes", "2", ALIVE_LEASE="2", ALIVE_CONCURRENCY="1") as run:
        run.until_up(2)
        jobs = add(url, kind, 6, count=2)
        for job in jobs:
            run.until_noted(job, "end")
        assert run.stop() == 0

    prove("T11", jobs=len(jobs), executions=len(run.noted("start")))
    print(f"{len(run.noted('start')) / len(jobs):.2f} executions a job")
    assert len(run.noted("start")) == len(jobs)


@pytest.mark.covers("R146", "P26")
def test_a_worker_alone_finds_its_own_orphan_after_a_restart(url: str, tmp_path: Path) -> None:
    with fleet(url, tmp_path, ALIVE_LEASE="1") as first:
        (job,) = add(url, "once", 600)
        first.until_noted(job, "start")
        first.send_all(signal.SIGKILL)
    with fleet(url, tmp_path, ALIVE_LEASE="1") as second:
        second.until_noted(job, "end")
        assert second.stop() == 0


@pytest.mark.covers("F39")
def test_children_drain_when_their_supervisor_is_killed(url: str, tmp_path: Path) -> None:
    with fleet(url, tmp_path, "--processes", "2", ALIVE_LEASE="1") as run:
        run.until_up(2)
        children = run.children
        (job,) = add(url, "hold", 3)
        run.until_noted(job, "start")
        run.send(signal.SIGKILL)

        run.until_noted(job, "end")
        until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in children), "the children are gone", timeout=SLOW)

    assert len(run.of(job, "start")) == 1
    assert counts(url).active == 0


@pytest.mark.thorough
def test_a_worker_killed_before_the_run_is_asked_to_stop_leaves_the_stop_clean(database: Path, tmp_path: Path) -> None:
    url = f"sqlite:///{database}"
    with fleet(url, tmp_path, "--grace", "60") as run:
        run.until_up()
        (job,) = add(url, "hold", 600)
        started = run.until_noted(job, "start")
        with closing(sqlite3.connect(database, isolation_level=None)) as connection:
            connection.execute("BEGIN IMMEDIATE")  # so its job cannot be given back yet
            run.kill(started.pid)
            until(
                lambda: run.said("was killed by SIGKILL; jobs returned to their queues"), "it is noticed", timeout=SLOW
            )
            run.send(signal.SIGTERM)
            until(lambda: run.said("stopping: "), "it has begun to stop", timeout=SLOW)
            connection.execute("ROLLBACK")

        assert run.ended() == 0, run.log.read_text()

    assert counts(url) == Counts(waiting=1)


@pytest.mark.thorough
@pytest.mark.covers("F39", "F26")
def test_jobs_keep_their_leases_while_the_supervisor_is_frozen(url: str, tmp_path: Path) -> None:
    with fleet(url, tmp_path, ALIVE_LEASE="2") as run:
        run.until_up()
        (job,) = add(url, "hold", 6)
        run.until_noted(job, "start")
        run.send(signal.SIGSTOP)
        (young,) = add(url, "hold", 4)  # claimed while nobody else keeps leases
        run.until_noted(young, "end")
        run.until_noted(job, "end")
        run.send(signal.SIGCONT)
        (later,) = add(url, "hold", 3)
        run.until_noted(later, "end")
        assert run.stop() == 0

    assert [len(run.of(each, "start")) for each in (job, young, later)] == [1, 1, 1]
    assert counts(url) == Counts()
    log = run.log.read_text()
    assert "stalled" not in log
    assert "this process now renews its leases itself" in log
    assert "the supervisor is renewing leases again" in log


def large_application(folder: Path, modules: int = 700) -> str:
    """More source files than fit into one short message; the path by which they are imported."""
    package = folder / "an_application_with_a_rather_long_name"
    package.mkdir()
    for number in range(modules):
        (package / f"module_{number:04}.py").write_text("")
    names = ", ".join(f"module_{number:04}" for number in range(modules))
    (package / "__init__.py").write_text("")
    (folder / "large.py").write_text(f"from {package.name} import {names}\nfrom tests.faults.alive_app import app\n")
    return os.pathsep.join((str(folder), os.environ.get("PYTHONPATH", "")))


@pytest.mark.covers("R255")
def test_a_large_application_has_its_leases_kept(url: str, tmp_path: Path) -> None:
    path = large_application(tmp_path)
    with fleet(url, tmp_path, app="large:app", PYTHONPATH=path, ALIVE_LEASE="2") as run:
        run.until_up()
        (job,) = add(url, "deaf", 3)
        run.until_noted(job, "end")
        assert run.stop() == 0

    assert len(run.of(job, "start")) == 1
    assert "stalled" not in run.log.read_text()


@pytest.mark.thorough
def test_a_large_application_is_reloaded_when_its_last_module_changes(url: str, tmp_path: Path) -> None:
    path = large_application(tmp_path)
    with fleet(url, tmp_path, "--reload", app="large:app", PYTHONPATH=path) as run:
        run.until_up()
        last = tmp_path / "an_application_with_a_rather_long_name" / "module_0699.py"

        def replaced() -> bool:
            last.write_text(f"# {time.monotonic()}\n")
            return run.said("module_0699.py changed: replacing the worker processes")

        until(replaced, "it is replaced", timeout=SLOW)
        until(lambda: run.said("worker started", 2), "another has started", timeout=SLOW)
        assert run.stop() == 0


@pytest.mark.covers("F39")
def test_a_worker_that_is_heard_no_more_ends_the_run_with_an_error(url: str, tmp_path: Path) -> None:
    with fleet(url, tmp_path, ALIVE_LEASE="2") as run:
        run.until_up()
        (job,) = add(url, "mute", 5)
        run.until_noted(job, "start")

        assert run.ended() == 1

    assert "the supervisor lost contact with worker process" in run.log.read_text()
    assert len(run.of(job, "start")) == len(run.of(job, "end")) == 1, "it was drained, and nothing lost"


def test_a_supervisor_says_where_a_job_is_whose_loop_stands_still(url: str, tmp_path: Path) -> None:
    with fleet(url, tmp_path) as run:
        run.until_up()
        (job,) = add(url, "busy", 600)
        run.until_noted(job, "start")

        async def asked() -> tuple[JobStack, list[WorkerRecord], Explanation]:
            async with App(url) as app:
                other = await app.queue("q").add("hold", 0)
                async with asyncio.timeout(SLOW):
                    while not (worker := (await app.workers())[0]).silent:  # noqa: ASYNC110 - of another process
                        await asyncio.sleep(0.1)
                first = await app.queue("q").stack(job)
                again = await app.queue("q").stack(job)
                assert again.silent > first.silent
                assert again.text.count("has been blocked") == again.text.count("in busy") == 1
                assert worker.lag >= worker.silent
                return first, await app.workers(), await app.queue("q").why(other.id)

        found, (worker,), why = asyncio.run(asked())
        os.killpg(run.process.pid, signal.SIGKILL)

    assert 'alive_app.py", line' in found.text
    assert f"process {worker.pid} has been blocked" in found.text
    assert found.worker == worker.id
    assert why.reason == "no_worker", "one that stands still takes nothing"


@pytest.mark.covers("R243")
def test_a_loop_that_stands_still_is_replaced_and_told_with_its_stack(url: str, tmp_path: Path) -> None:
    with fleet(url, tmp_path, "--hang-timeout", "2", ALIVE_STALLS="0") as run:
        run.until_up()
        (job,) = add(url, "busy", 600, keep_failed=10)
        run.until_noted(job, "start")
        until(lambda: run.log.read_text().count("worker started") == 2, "it is started anew", timeout=SLOW)
        assert run.stop() == 0

    log = run.log.read_text()
    assert "is hung: its event loop has been blocked" in log
    assert 'alive_app.py", line' in log
    (record,) = records(url, [job])
    assert record is not None
    assert record.failure is not None
    assert "its process hung" in record.failure.reason


@pytest.mark.covers("R125")
def test_the_job_of_a_loop_that_stands_still_runs_again(url: str, tmp_path: Path) -> None:
    with fleet(url, tmp_path, "--hang-timeout", "2") as run:
        run.until_up()
        (job,) = add(url, "hang", 600)
        run.until_noted(job, "end")
        assert run.stop() == 0

    first, second = run.of(job, "start")
    assert first.pid != second.pid
    assert counts(url) == Counts()


@pytest.mark.covers("F25")
def test_a_child_is_replaced_after_its_share_of_jobs(url: str, tmp_path: Path) -> None:
    with fleet(url, tmp_path, "--max-jobs", "5") as run:
        run.until_up()
        jobs = add(url, "hold", 0.3, count=12)
        for job in jobs:
            run.until_noted(job, "end")
        assert run.stop() == 0

    assert len({each.pid for each in run.noted("start")}) >= 2
    assert len(run.noted("start")) == 12
    assert counts(url) == Counts()


@pytest.mark.covers("F25")
def test_a_child_that_has_grown_is_replaced_after_it_has_drained(url: str, tmp_path: Path) -> None:
    with fleet(url, tmp_path, "--max-rss", "90M", ALIVE_CONCURRENCY="1") as run:
        run.until_up()
        (leaky, after) = (*add(url, "leak", 80), *add(url, "hold", 0))
        run.until_noted(after, "end")
        until(lambda: run.said("it has grown to"), "it is replaced", timeout=SLOW)
        assert run.stop() == 0

    assert len(run.of(leaky, "start")) == len(run.of(leaky, "end")) == 1
    assert counts(url) == Counts()


@pytest.mark.covers("F16", "F17")
def test_the_cause_of_a_death_is_told(tmp_path: Path) -> None:
    """The counter of the control group grows when the kernel kills for want of memory."""
    events = tmp_path / "memory.events"
    events.write_text("low 0\noom 1\noom_kill 1\n")
    counter = OomCounter(events)
    assert not counter.grew()
    events.write_text("low 0\noom 2\noom_kill 2\n")

    assert (
        exit_text(-9, out_of_memory=counter.grew()) == "its process was killed by SIGKILL: the memory limit was reached"
    )
    assert exit_text(-11, out_of_memory=counter.grew()) == "its process was killed by SIGSEGV"
    assert exit_text(3) == "its process exited with code 3"


@pytest.mark.covers("F37")
def test_as_process_1_it_hears_signals_and_leaves_no_zombie(url: str, tmp_path: Path) -> None:
    """In a namespace of process ids of its own, where the system lets us make one."""
    apart = ["unshare", "--user", "--map-root-user", "--pid", "--fork", "--mount-proc", "--kill-child"]
    able = subprocess.run([*apart, "true"], check=False, capture_output=True).returncode == 0
    if not able:
        pytest.skip("this system allows no namespaces")
    with fleet(url, tmp_path, before=apart) as run:
        until(lambda: run.said("ready: ") or run.process.poll() is not None, "it boots", timeout=SLOW)
        (job,) = add(url, "orphans", 5)
        run.until_noted(job, "end")
        (first,) = run.children
        until(lambda: zombies(first) == 0, "the orphans are reaped", timeout=SLOW)
        os.kill(first, signal.SIGTERM)
        assert run.ended() == 0


def zombies(parent: int) -> int:
    children = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
    return sum(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z" for pid in children)


@pytest.mark.covers("R149")
async def test_a_worker_is_told_to_be_quiet_and_to_stop_by_its_name() -> None:
    app = App("memory://")

    async def work(ctx: JobContext[None]) -> None: ...

    queue = app.queue("q", {"n": work})
    running = asyncio.create_task(app.run())
    async with app, asyncio.timeout(SLOW):
        while not await app.workers():  # noqa: ASYNC110 - another process might not tell either
            await asyncio.sleep(0.01)
        (worker,) = await app.workers()
        await app.quiet_worker(worker.id)
        while not (await queue.counts()).waiting:  # until it has heard
            await queue.add("n")
            await asyncio.sleep(0.01)
        with pytest.raises(NotFound, match="there is no live worker 'nobody'"):
            await app.stop_worker("nobody")
        await app.stop_worker(worker.id)
        assert await running == 0
        assert (await queue.counts()).waiting
        await queue.drain()


def test_a_worker_can_be_stopped_from_afar_and_is_not_started_anew(url: str, tmp_path: Path) -> None:
    with fleet(url, tmp_path, "--processes", "2") as run:
        run.until_up(2)
        until(lambda: len(workers(url)) == 2, "both are known", timeout=SLOW)
        for name in workers(url):
            command = [sys.executable, "-m", "toril", "workers", "stop", name, "--url", url]
            assert subprocess.run(command, check=False).returncode == 0
        assert run.ended() == 0  # with its last worker


def workers(url: str) -> list[str]:
    async def read() -> list[str]:
        async with App(url) as app:
            return [worker.id for worker in await app.store.workers()]

    return asyncio.run(read())
