"""The whole example under fire: its processes are killed and frozen, its outside world fails, and nothing is lost.

`TORIL_EXAMPLE_SIZE=100` makes it large: some ten thousand jobs, and a hundred faults.
"""

import asyncio
import os
import random
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from helpdesk import database
from helpdesk.fake_api import FakeApi
from helpdesk.tables import QUEUES
from helpdesk.workload import Workload
from tests import servers
from tests.example.crew import Crew
from toril import App, DeadLetterFilter

SIZE = int(os.environ.get("TORIL_EXAMPLE_SIZE", "2"))
FAULTS = max(3, SIZE)
BETWEEN = 10  # calls of the outside world from one fault to the next
WORKERS = 3
FROZEN = 3.0  # seconds: longer than a lease
PATIENCE = 240.0 + 30 * SIZE
REPLAYED = [DeadLetterFilter(queue=name) for name in QUEUES if name != "oauth2-refresh"]  # which scanners ask for again


class Chaos:
    """What is done to the crew while it works."""

    def __init__(self, crew: Crew, api: FakeApi) -> None:
        self._crew, self._api = crew, api
        self._chance = random.Random(SIZE)
        self._frozen: set[int] = set()
        self.kills = self.freezes = 0

    async def reign(self) -> None:
        """One fault after the other, each after some work was done."""
        for number in range(FAULTS):
            enough = self._api.asked() + BETWEEN
            await until(lambda enough=enough: self._api.asked() >= enough)  # type: ignore[misc]
            victim = self._chance.choice([pid for pid in self._crew.alive if pid not in self._frozen])
            if number % 3 == 1:
                await self._freeze(victim)
            else:
                self._crew.end(victim, signal.SIGKILL)
                self._crew.start()
                self.kills += 1

    async def _freeze(self, victim: int) -> None:
        """Long enough for its leases to run out: then it goes on, and must not be believed."""
        self._frozen.add(victim)
        os.kill(victim, signal.SIGSTOP)
        try:
            await asyncio.sleep(FROZEN)
        finally:
            os.kill(victim, signal.SIGCONT)
            self._frozen.remove(victim)
        self.freezes += 1


async def until(so: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not so():  # noqa: ASYNC110 - it happens in other processes
            await asyncio.sleep(0.05)


@pytest.mark.covers("G1", "G7", "R112", "R250")
@pytest.mark.parametrize("kind", ["sqlite", "redis"])
async def test_processes_die_the_world_fails_and_nothing_is_lost(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"sqlite:///{tmp_path / 'jobs.db'}"
    if kind == "redis":
        servers.running().tell("FLUSHALL")
        url = servers.running().url
    workload = Workload(SIZE)
    monkeypatch.setenv("HELPDESK_DATABASE", str(tmp_path / "helpdesk.db"))
    database.prepare()
    with (
        FakeApi(trouble=0.2) as api,
        Crew(
            tmp_path / "log", TORIL_URL=url, HELPDESK_API=api.url, HELPDESK_PACE="0.005", TORIL_EXAMPLE_SIZE=str(SIZE)
        ) as crew,
    ):
        for _ in range(WORKERS):
            crew.start()
        assert crew.end(crew.start("produce")) == 0, crew.log()
        chaos = Chaos(crew, api)
        async with App(url) as app:
            reign = asyncio.create_task(chaos.reign())
            try:
                await _all_there(app, workload, api)
                await reign
                await _all_there(app, workload, api)
            except TimeoutError:
                raise AssertionError(f"missing: {workload.missing(api)}\n{crew.log()}") from None
            finally:
                reign.cancel()
                await asyncio.gather(reign, return_exceptions=True)
            codes = [crew.end(pid, signal.SIGTERM) for pid in list(crew.alive)]
            doubles = await workload.doubles(app)
            faults = [finding for finding in await app.doctor() if finding.fault is not None]

    assert chaos.kills + chaos.freezes == FAULTS
    assert codes == [0] * WORKERS, crew.log()
    assert doubles == {}
    assert faults == []


async def _all_there(app: App, workload: Workload, api: FakeApi) -> None:
    """Wait for it. Meanwhile an operator replays what has failed for good, as one would the morning after."""
    async with asyncio.timeout(PATIENCE):
        while await asyncio.to_thread(workload.missing, api):
            for which in REPLAYED:
                await app.dead_letters.replay(which)
            await asyncio.sleep(0.3)
