"""Killed at any moment of failing and replaying, each job is in one place: in its queue, or among the dead letters."""

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests import servers
from toril.model import NewJob, Replay
from toril.store.engine import connect

JOBS, KILLS = 20, 8

# Fails and replays the same jobs again and again, until it is killed; says when it has begun.
CHILD = """
import asyncio, sys
from toril.store.engine import connect
from toril.model import Claim, Failed, Failure, Replay, Settlement

async def main(url):
    store, turn = connect(url), 0
    await store.open()
    print("begun", flush=True)
    while True:
        turn += 1
        claim = Claim(want=7, token=f"{sys.argv[2]}-{turn}", lease=60_000, worker="w")
        jobs = (await store.exchange("q", [], claim)).jobs
        batch = [Settlement(job.lease, Failed(Failure("no"))) for job in jobs]
        await store.exchange("q", batch, Claim(want=0, token=f"{sys.argv[2]}-n{turn}", lease=1, worker="w"))
        letters = (await store.dead_letters.page(order="oldest", limit=7)).items
        await store.dead_letters.replay("q", [Replay(letter.id) for letter in letters])

asyncio.run(main(sys.argv[1]))
"""


@pytest.mark.covers("R074", "R079")
@pytest.mark.parametrize("kind", ["sqlite", "redis"])
async def test_a_job_is_in_one_place_whenever_its_process_dies(kind: str, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'jobs.db'}?synchronous=normal"
    if kind == "redis":
        server = servers.running()
        server.tell("FLUSHALL")
        url = server.url
    store = connect(url)
    await store.open()
    ids = [f"j{n}" for n in range(JOBS)]
    await store.add("q", [NewJob(name="n", id=each, attempts=3) for each in ids])
    turns = 0
    for kill in range(KILLS):
        await _run_and_kill(url, kill)
        held = {each for each, record in zip(ids, await store.jobs("q", ids), strict=True) if record is not None}
        letters = [letter.job_id for letter in (await store.dead_letters.page(limit=100)).items]
        assert sorted([*held, *letters]) == sorted(ids)
        turns = max(turns, (await store.queue("q")).failed_total)
        running = [
            record for record in await store.jobs("q", ids) if record is not None and record.deadline is not None
        ]
        await store.recover("q", now=max((record.deadline or 0 for record in running), default=0) + 1)
        for each in [letter for letter in (await store.dead_letters.page(limit=100)).items if letter.stalls]:
            await store.dead_letters.replay(each.queue, [Replay(each.id)])
    await store.close()

    assert turns > JOBS, "it was at it when it was killed"


async def _run_and_kill(url: str, kill: int) -> None:
    child = subprocess.Popen(  # noqa: ASYNC220 - it is killed, not awaited
        [sys.executable, "-c", CHILD, url, f"k{kill}"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    assert child.stdout is not None
    await asyncio.get_running_loop().run_in_executor(None, child.stdout.readline)
    await asyncio.sleep(0.1 + 0.037 * kill)
    os.kill(child.pid, signal.SIGKILL)
    child.wait()
    child.stdout.close()
