"""The topology of deploy/compose.yaml as processes of this machine: workers and leaders die, and all jobs are done."""

import asyncio
import os
import random
import re
import runpy
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]

from tests.servers import RedisServer
from toril import App

DEPLOY = Path(__file__).parents[2] / "deploy"
COMPOSE: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]
JOBS = int(os.environ.get("TORIL_TOPOLOGY_JOBS", "1200"))


class Topology:
    """Each service with its own command and as many replicas as the file says."""

    def __init__(self, server: RedisServer, folder: Path) -> None:
        self._server = server
        self._folder = folder
        self.processes: dict[str, list[subprocess.Popen[bytes]]] = {}

    def up(self, name: str) -> None:
        service = COMPOSE[name]
        for _ in range(service.get("deploy", {}).get("replicas", 1)):
            self.start(name, service)

    def start(self, name: str, service: dict[str, Any]) -> None:
        place = os.environ | {"REDIS_URL": self._server.url, "GREET_SECONDS": "0.02", "MAIL_LEASE": "2"}
        place |= {"TORIL_NO_HTTP": "1"}  # containers have a port 8484 each, these processes have one together
        words = shlex.split(service["command"].replace("--lease 30s", "--lease 1s"))
        env = {key: _filled(str(value), place) for key, value in service["environment"].items()}
        command = [sys.executable, "-m", *words]
        with (self._folder / f"{name}-{time.monotonic_ns()}.log").open("wb") as log:
            run = subprocess.Popen(command, cwd=DEPLOY, env=place | env, stderr=log, stdout=log, start_new_session=True)
        self.processes.setdefault(name, []).append(run)

    def kill(self, name: str, index: int) -> None:
        """As the orchestrator's machine would: the whole container at once. Another takes its place."""
        run = self.processes[name].pop(index)
        with suppress(ProcessLookupError):
            os.killpg(run.pid, signal.SIGKILL)
        run.wait()
        self.start(name, COMPOSE[name])

    def down(self) -> None:
        for run in (each for runs in self.processes.values() for each in runs):
            with suppress(ProcessLookupError):
                os.killpg(run.pid, signal.SIGKILL)
            run.wait()


def _filled(text: str, env: dict[str, str]) -> str:
    """`${NAME:-default}` as Compose fills it."""
    return re.sub(r"\$\{(\w+):-([^}]*)\}", lambda found: env.get(found[1], found[2]), text)


@pytest.fixture
def server() -> Iterator[RedisServer]:
    server = RedisServer().start()
    yield server
    server.stop()


@pytest.fixture
def topology(server: RedisServer, tmp_path: Path) -> Iterator[Topology]:
    topology = Topology(server, tmp_path)
    yield topology
    topology.down()


@pytest.mark.covers("R261")
def test_the_app_of_these_files_has_a_lease_of_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MAIL_LEASE", raising=False)

    jobs = runpy.run_path(str(DEPLOY / "jobs.py"))

    assert jobs["app"].queues["mail"].options.lease == 60_000


@pytest.mark.covers("R259", "R260", "R170", "R162")
async def test_all_jobs_are_done_though_workers_and_the_leader_die(topology: Topology, server: RedisServer) -> None:
    app, chance = App(server.url), random.Random(259)
    mail = app.queue("mail")
    async with app:
        topology.up("worker")
        topology.up("reaper")
        assert len(topology.processes["reaper"]) == 2
        async with asyncio.timeout(180):
            for turn in range(3):
                numbers = range(turn, JOBS, 3)
                await mail.add_many([mail.new("greet", str(number), keep_completed=True) for number in numbers])
                while not (counts := await mail.counts()).active and counts.waiting:  # noqa: ASYNC110 - counts have no event
                    await asyncio.sleep(0.005)
                topology.kill("worker", chance.randrange(3))
                topology.kill("reaper", 0)  # one of both led
                topology.kill("reaper", 0)
            while (counts := await mail.counts()).waiting + counts.active + counts.delayed:  # noqa: ASYNC110
                await asyncio.sleep(0.1)
        figures, kept = await mail.metrics("1h"), await mail.counts()
    assert (kept.completed, kept.failed) == (JOBS, 0)
    assert (figures.completed, figures.failed) == (JOBS, 0), "each ending is counted: none came twice"
