"""Failing, breaking and cancelling over real processes."""

import asyncio
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests import servers
from toril import App, JobCancelled

Start = Callable[[], "subprocess.Popen[bytes]"]


@pytest.fixture(params=["sqlite", "redis"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'jobs.db'}?synchronous=normal"
    server = servers.running()
    server.tell("FLUSHALL")
    return server.url


@pytest.fixture
def start(url: str, tmp_path: Path) -> Iterator[Start]:
    children: list[subprocess.Popen[bytes]] = []

    def one() -> "subprocess.Popen[bytes]":
        command = [sys.executable, "-m", "tests.faults.failing_app", url, str(tmp_path)]
        children.append(subprocess.Popen(command, stderr=subprocess.DEVNULL))
        return children[-1]

    yield one
    for child in children:
        child.kill()
        child.wait()


async def lines(path: Path, count: int = 0) -> list[str]:
    """What a file says, once it has so many lines."""
    until = time.monotonic() + 60
    while len(found := path.read_text().splitlines() if path.exists() else []) < count:  # noqa: ASYNC240
        assert time.monotonic() < until, f"{path.name} has {found}, not {count} lines"
        await asyncio.sleep(0.02)
    return found


@pytest.mark.covers("R225", "R226")
async def test_two_processes_open_a_circuit_once_and_send_two_probes(url: str, start: Start, tmp_path: Path) -> None:
    async with App(url) as app:
        queue = app.queue("calls")
        calls = await queue.add_many([("call", {"host": "a"}, {"attempts": 5, "result_ttl": 60}) for _ in range(30)])
        start(), start()
        await lines(tmp_path / "breaker", 1)
        (tmp_path / "probing").touch()
        jobs = await queue.add_many([("call", {"host": "b"}, {"result_ttl": 60}) for _ in range(3)])
        for job in jobs:
            await job.result(60)
        failed = await lines(tmp_path / "ran-a", 5)
        assert len(failed) <= 5 + 8, "more than those that were under way"

        await lines(tmp_path / "probes", 2)
        await asyncio.sleep(2.5)  # others come back meanwhile, and find that two are trying already
        probes = await lines(tmp_path / "probes")
        assert len(probes) == 2
        assert await lines(tmp_path / "breaker") == ["a open", "a half-open"]

        (tmp_path / "up").touch()
        for job in calls:
            await job.result(60)
        runs = await queue.runs("completed", limit=100)

    assert await lines(tmp_path / "breaker") == ["a open", "a half-open", "a closed"]
    assert len(runs.items) == 33
    spent = {line.split()[0] for line in failed}
    assert {run.attempts_made for run in runs.items if run.id not in spent} == {1}, "to be put off spends no attempt"


@pytest.mark.covers("R094", "R096")
async def test_a_running_job_is_cancelled_from_another_process(url: str, start: Start, tmp_path: Path) -> None:
    async with App(url) as app:
        job = await app.queue("waits").add("wait", attempts=5)
        start()
        await lines(tmp_path / "started", 1)
        asked = time.time()
        assert await job.cancel("not wanted any more") is False
        with pytest.raises(JobCancelled, match="not wanted any more"):
            await job.result(60)
        (heard,) = await lines(tmp_path / "heard", 1)
        assert await app.dead_letters.count() == 0

    when, kind, reason = heard.split(maxsplit=2)
    assert (kind, reason) == ("cancelled", "not wanted any more")
    assert float(when) - asked < 5, "a second, where nothing else wants the machine"
    assert len(await lines(tmp_path / "started")) == 1


@pytest.mark.covers("R087")
async def test_a_checkpoint_outlives_the_process_that_made_it(url: str, start: Start, tmp_path: Path) -> None:
    async with App(url) as app:
        job = await app.queue("deaths").add("dies", result_ttl=60)
        assert start().wait(60) != 0
        start()
        await job.result(60)

    (first, fence), (second, later) = [line.rsplit(" ", 1) for line in await lines(tmp_path / "dies", 2)]
    assert (first, second) == ("None", "{'done': 3}")
    assert int(later) > int(fence)
