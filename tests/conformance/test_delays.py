"""Delayed jobs come by their time, and those of one time in the order in which they were delayed."""

import sqlite3
from pathlib import Path

import pytest

from tests.conformance.jobs import claim, claim_one, settle
from tests.conftest import opened
from toril.model import Failure, NewJob, Retried, SetDelay
from toril.store.engine import Store
from toril.testing import ManualClock

WRAP = 2**20


async def test_those_of_one_millisecond_come_in_the_order_in_which_they_were_delayed(
    engine: Store, clock: ManualClock
) -> None:
    await engine.add("q", [NewJob(name="early", data="{}", attempts=2), NewJob(name="late", data="{}", delay=2000)])
    early = await claim_one(engine)
    await engine.add("q", [NewJob(name=name, data="{}", delay=1000) for name in "ab"])
    await settle(engine, early.lease, Retried(Failure("no", "Error"), 1000))
    await engine.add("q", [NewJob(name=name, data="{}", delay=1000) for name in "cd"])
    await engine.update("q", [SetDelay("2", 1000)])
    clock.advance(1000)

    jobs = (await claim(engine)).jobs

    assert [job.name for job in jobs] == ["a", "b", "early", "c", "d", "late"]


@pytest.mark.parametrize("moves", [WRAP - 3, 5 * WRAP - 1, 7 * WRAP])
async def test_the_order_holds_however_much_has_moved_before(tmp_path: Path, clock: ManualClock, moves: int) -> None:
    async with opened("sqlite", clock, tmp_path) as engine:
        await engine.add("q", [NewJob(name="first", data="{}", delay=1000)])
        with sqlite3.connect(tmp_path / "jobs.db") as file:
            file.execute("UPDATE queues SET moves = ?", (moves,))
        file.close()
        for name in ("second", "third", "fourth"):
            await engine.add("q", [NewJob(name=name, data="{}", delay=1000)])
        clock.advance(1000)

        jobs = (await claim(engine)).jobs

    assert [job.name for job in jobs] == ["first", "second", "third", "fourth"]
