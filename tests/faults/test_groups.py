"""Groups of one over three processes that are killed: no two of a group overlap, they keep their order and their share.

The long form: `TORIL_GROUP_JOBS=5000 pytest tests/faults/test_groups.py`
"""

import os
import subprocess
import sys
import time
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import pytest

from tests import servers
from tests.faults.nursery import ROOT
from toril.model import GroupLimits, NewJob, SetGroups
from toril.store.engine import connect

JOBS = int(os.environ.get("TORIL_GROUP_JOBS", "0")) or 400
GROUPS = 50 if JOBS >= 2000 else 20
KILLS = max(2, JOBS // 500)
LONG = JOBS >= 2000


class Noted(NamedTuple):
    word: str
    group: int
    number: int
    fence: int
    at: float


def started(url: str, ledger: Path) -> "subprocess.Popen[bytes]":
    return subprocess.Popen([sys.executable, "-m", "tests.faults.grouping", url, str(ledger)], cwd=ROOT)


def noted(ledger: Path) -> list[Noted]:
    lines = [line.split() for line in ledger.read_text().splitlines()] if ledger.exists() else []
    return [Noted(word, *divmod(int(job), 100_000), int(fence), float(at)) for word, job, fence, at in lines]


def work_with_kills(url: str, ledger: Path) -> None:
    """Three processes; each kill comes after a part of the work, and another takes the place."""
    fleet = [started(url, ledger) for _ in range(3)]
    try:
        for kill in range(KILLS):
            wanted = JOBS * (kill + 1) // (KILLS + 2)
            until = time.monotonic() + 120
            while len([each for each in noted(ledger) if each.word == "end"]) < wanted and time.monotonic() < until:
                time.sleep(0.02)
            fleet[kill % 3].kill()
            fleet[kill % 3].wait()
            fleet[kill % 3] = started(url, ledger)
        for process in fleet:
            assert process.wait(300) == 0
    finally:
        for process in fleet:
            process.kill()
            process.wait()


@pytest.mark.covers("R257", "R256")
@pytest.mark.parametrize("kind", ["sqlite", "redis"])
async def test_groups_of_one_keep_their_order_and_their_share(kind: str, tmp_path: Path) -> None:
    server = servers.RedisServer().start() if kind == "redis" else None
    url = server.url if server else f"sqlite:///{tmp_path / 'jobs.db'}"
    ledger = tmp_path / "ledger"
    engine = connect(url)
    await engine.open()
    await engine.configure("q", [SetGroups(GroupLimits(concurrency=1))])
    jobs = [(n % GROUPS) * 100_000 + n // GROUPS for n in range(JOBS)]
    for first in range(0, JOBS, 1000):
        await engine.add(
            "q", [NewJob(name="n", data=str(j), group=f"g{j // 100_000}") for j in jobs[first : first + 1000]]
        )
    try:
        work_with_kills(url, ledger)
    finally:
        await engine.close()
        if server:
            server.stop()
    lines = noted(ledger)
    starts = sorted((each for each in lines if each.word == "start"), key=lambda each: each.fence)
    ends = {(each.group, each.number): each.at for each in lines if each.word == "end"}

    assert len(ends) == JOBS
    for group in range(GROUPS):
        mine = [each for each in starts if each.group == group]
        assert [each.number for each in mine] == sorted(each.number for each in mine)
        for before, after in pairwise(mine):
            assert before.number == after.number or ends[group, before.number] <= after.at
    half = Counter(each.group for each in starts[: len(starts) // 2])
    slowest, fair = min(half[group] for group in range(GROUPS)), len(starts) / 2 / GROUPS
    print(f"{kind}: {len(starts) - JOBS} ran again; of the first half the slowest group had {slowest}, fair is {fair}")
    assert slowest >= (0.8 if LONG else 0.4) * fair  # in the short form a lease that runs out is a large part of it
