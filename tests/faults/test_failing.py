"""Failing, breaking and cancelling over real processes."""

import asyncio
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import servers
from toril import App, Fixed, JobCancelled


class Fleet:
    """Two worker processes on one store, which write down in a folder what they do."""

    def __init__(self, url: str, folder: Path) -> None:
        self.url = url
        self.folder = folder
        self.children: list[subprocess.Popen[bytes]] = []

    def be_two(self) -> None:
        """Start as many as are missing."""
        alive = sum(child.poll() is None for child in self.children)
        command = [sys.executable, "-m", "tests.faults.failing_app", self.url, str(self.folder)]
        self.children += [subprocess.Popen(command, stderr=subprocess.DEVNULL) for _ in range(2 - alive)]

    def end(self) -> None:
        for child in self.children:
            child.kill()
            child.wait()


@pytest.fixture(scope="module", params=["sqlite", "redis"])
def shared(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """One for all tests: most of their time is that of processes that start."""
    folder = tmp_path_factory.mktemp("fleet")
    url = f"sqlite:///{folder / 'jobs.db'}?synchronous=normal"
    if request.param == "redis":
        server = servers.running()
        server.tell("FLUSHALL")
        url = server.url
    fleet = Fleet(url, folder)
    yield fleet
    fleet.end()


@pytest.fixture
def fleet(shared: Fleet) -> Fleet:
    shared.be_two()
    return shared


async def lines(path: Path, count: int = 0) -> list[str]:
    """What a file says, once it has so many lines."""
    until = time.monotonic() + 60
    while len(found := path.read_text().splitlines() if path.exists() else []) < count:  # noqa: ASYNC240
        assert time.monotonic() < until, f"{path.name} has {found}, not {count} lines"
        await asyncio.sleep(0.02)
    return found


@pytest.mark.covers("R225", "R226")
async def test_two_processes_open_a_circuit_once_and_send_two_probes(fleet: Fleet) -> None:
    folder = fleet.folder
    async with App(fleet.url) as app:
        queue = app.queue("calls")
        await queue.add_many([("call", {"host": "a"}, {"backoff": Fixed(600)})] * 5)
        assert len(set(await lines(folder / "failing", 5))) == 2, "both processes have seen it fail"
        await lines(folder / "breaker", 1)

        (folder / "probing").touch()
        calls = await queue.add_many([("call", {"host": "a"}, {"result_ttl": 60})] * 20)
        for job in await queue.add_many([("call", {"host": "b"}, {"result_ttl": 60})] * 3):
            await job.result(60)

        await lines(folder / "probes", 2)
        late = len(await lines(folder / "put-off"))
        await lines(folder / "put-off", late + 18)  # the others come back, and find that two are trying already
        assert len(await lines(folder / "probes")) == 2
        assert await lines(folder / "breaker") == ["a open", "a half-open"]
        (circuit,) = await app.breakers.list()
        assert (circuit.state, circuit.probes, circuit.passed) == ("half-open", 2, 0)

        (folder / "up").touch()
        for job in calls:
            await job.result(60)
        runs = await queue.runs("completed", limit=100)

    assert await lines(folder / "breaker") == ["a open", "a half-open", "a closed"]
    assert len(runs.items) == 23
    assert {run.attempts_made for run in runs.items} == {1}, "to be put off spends no attempt"


@pytest.mark.covers("R094", "R096")
async def test_a_running_job_is_cancelled_from_another_process(fleet: Fleet) -> None:
    async with App(fleet.url) as app:
        job = await app.queue("waits").add("wait", attempts=5)
        await lines(fleet.folder / "started", 1)
        asked = time.time()
        assert await job.cancel("not wanted any more") == "requested"
        with pytest.raises(JobCancelled, match="not wanted any more"):
            await job.result(60)
        (heard,) = await lines(fleet.folder / "heard", 1)
        assert await app.dead_letters.count() == 0

    when, kind, reason = heard.split(maxsplit=2)
    assert (kind, reason) == ("cancelled", "not wanted any more")
    assert float(when) - asked < 5, "a second, where nothing else wants the machine"
    assert len(await lines(fleet.folder / "started")) == 1


@pytest.mark.covers("R087")
async def test_a_checkpoint_outlives_the_process_that_made_it(fleet: Fleet) -> None:
    async with App(fleet.url) as app:
        job = await app.queue("deaths").add("dies", result_ttl=60)
        await job.result(60)

    assert sum(child.poll() is None for child in fleet.children) == 1, "one has died of it"
    (first, fence), (second, later) = [line.rsplit(" ", 1) for line in await lines(fleet.folder / "dies", 2)]
    assert (first, second) == ("None", "{'done': 3}")
    assert int(later) > int(fence)
