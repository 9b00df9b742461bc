"""A job that kills its process, and those who happen to run beside it."""

import asyncio
import os
import signal
from functools import partial
from pathlib import Path

import pytest

from tests.faults.fleet import SLOW, fleet
from tests.faults.nursery import until
from tests.faults.test_supervisor import add, counts, records
from toril import App
from toril.model import Claim, JobRow, Lease
from toril.model.states import State


@pytest.fixture
def url(database: Path) -> str:
    return f"sqlite:///{database}"


@pytest.mark.covers("F17", "F116", "F117", "R117", "G6")
def test_a_job_that_kills_its_process_fails_alone(url: str, tmp_path: Path) -> None:
    rounds = int(os.environ.get("TORIL_FAULT_ROUNDS", "1"))
    with fleet(url, tmp_path, "--processes", "2", ALIVE_CONCURRENCY="10") as run:
        run.until_up(2)
        for _ in range(rounds):
            innocent = add(url, "hold", 0.4, count=9, keep_completed=100_000)
            (guilty,) = add(url, "deadly", None, keep_failed=1000)
            until(lambda: counts(url).failed > 0 and counts(url).active == 0, "it fails", timeout=SLOW)
            until(partial(all_ended, url, innocent), "the others complete", timeout=SLOW)
            (record,) = records(url, [guilty])
            assert record is not None
            assert record.failure is not None
            assert "its process was killed by SIGSEGV" in record.failure.reason
            assert record.attempts_made == 0
            assert len(run.of(guilty, "start")) == 2
            assert failed(url) == [guilty]
            remove(url, guilty)
            told = f"ERROR   job failed: its worker was lost too often queue=q job_id={guilty} "
            until(lambda: told in run.log.read_text(), "the log tells of it", timeout=SLOW)  # noqa: B023 - at once
        run.stop()

    print(f"{rounds} rounds: the guilty one failed each time, of {9 * rounds} innocent ones none")


def all_ended(url: str, ids: list[str]) -> bool:
    return all(record is not None and record.state is State.COMPLETED for record in records(url, ids))


def failed(url: str) -> list[str]:
    async def read() -> tuple[JobRow, ...]:
        async with App(url) as app:
            return (await app.store.page("q", State.FAILED, limit=100)).items

    return [record.id for record in asyncio.run(read())]


def remove(url: str, job: str) -> None:
    async def removed() -> None:
        async with App(url) as app:
            await app.store.remove("q", [job])

    asyncio.run(removed())


def hold(url: str, data: object) -> Lease:
    """A job that a worker, which is gone, still holds."""

    async def held() -> Lease:
        async with App(url) as app:
            await app.queue("stage").add("hold", data)
            claim = Claim(want=1, token="gone", lease=60_000, worker="gone")
            (taken,) = (await app.store.exchange("stage", [], claim)).jobs
            return taken.lease

    return asyncio.run(held())


def stall(url: str, lease: Lease) -> None:
    async def stalled() -> None:
        async with App(url) as app:
            await app.store.recover("stage", dead=[lease], cause="a crash")

    asyncio.run(stalled())


@pytest.mark.covers("F117")
def test_a_spare_process_runs_a_suspect_while_all_others_go_on(url: str, tmp_path: Path) -> None:
    """Nobody makes way for it, and nobody is in its company."""
    lease = hold(url, 1.5)  # before a worker of the fleet could take the job
    with fleet(url, tmp_path, ALIVE_CONCURRENCY="2", ALIVE_SECOND="stage") as run:
        run.until_up()
        (long,) = add(url, "hold", 600)
        worker = run.until_noted(long, "start").pid

        stall(url, lease)
        spare = run.until_noted(f"stage:{lease.id}", "start").pid
        (beside,) = add(url, "hold", 0)
        assert run.until_noted(beside, "end").pid == worker

        run.until_noted(f"stage:{lease.id}", "end")
        assert spare != worker
        assert run.of(long, "end") == []
        run.send_all(signal.SIGKILL)


@pytest.mark.covers("F117")
def test_jobs_of_a_killed_process_run_at_the_same_time_each_in_a_process_of_its_own(url: str, tmp_path: Path) -> None:
    with fleet(url, tmp_path, "--spares", "3", ALIVE_CONCURRENCY="20") as run:
        run.until_up()
        jobs = add(url, "hold", 600, count=5)
        (worker,) = {run.until_noted(job, "start").pid for job in jobs}

        os.kill(worker, signal.SIGKILL)

        def again() -> list[int]:
            return [each.pid for each in run.noted("start") if each.pid != worker]

        until(lambda: len(again()) >= 3, "three run again", timeout=SLOW)
        (beside,) = add(url, "hold", 0)
        assert run.until_noted(beside, "end").pid not in again()[:3], "nobody makes way for them"
        assert len(set(again()[:3])) == 3, "each is alone in its process"
        waiting = [record.id for record in records(url, jobs) if record is not None and record.state is State.WAITING]
        assert len(waiting) == 2, "there are as many spare processes as was said"
        assert run.noted("end")[0].job == beside
        run.send_all(signal.SIGKILL)
