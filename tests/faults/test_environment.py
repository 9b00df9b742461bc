"""What surrounds `toril run` fails it: the log, the terminal, the application's own code."""

import signal
from pathlib import Path

import pytest

from tests.faults.fleet import SLOW, fleet
from tests.faults.nursery import until
from tests.faults.test_supervisor import add, counts
from toril.model import Counts


@pytest.fixture
def url(database: Path) -> str:
    return f"sqlite:///{database}"


@pytest.mark.covers("F40")
def test_a_process_that_cannot_start_is_tried_again_until_it_can(url: str, tmp_path: Path) -> None:
    """Nobody has to do anything but mend the application."""
    broken = tmp_path / "broken"
    with fleet(url, tmp_path, ALIVE_BROKEN=str(broken)) as run:
        (job,) = add(url, "once", 600)
        pid = run.until_noted(job, "start").pid
        until(lambda: run.said("ready: "), "it is up: what cannot boot at first ends the run", timeout=SLOW)
        broken.touch()
        run.kill(pid)
        until(
            lambda: run.said("could not start") and run.said("restarting a worker process in"),
            "it is tried",
            timeout=SLOW,
        )

        broken.unlink()
        run.until_noted(job, "end")
        assert run.stop() == 0
    assert counts(url) == Counts()


@pytest.mark.covers("F38")
def test_a_log_that_takes_nothing_stops_no_job_and_no_exit(url: str, tmp_path: Path) -> None:
    full = ["sh", "-c", 'exec "$@" 2>/dev/full', "sh"]
    with fleet(url, tmp_path, "--grace", "1", before=full) as run:
        jobs = add(url, "hold", 0, count=50)
        for job in jobs:
            run.until_noted(job, "end")
        (stuck,) = add(url, "busy", 600)
        run.until_noted(stuck, "start")

        assert run.stop() == 1  # by force, which is said in the log too

    assert counts(url) == Counts(waiting=1)
    assert len(run.noted("end")) == len(jobs)


@pytest.mark.covers("F42")
def test_a_terminal_may_close_and_quit_gives_back_at_once(url: str, tmp_path: Path) -> None:
    with fleet(url, tmp_path, "--grace", "600") as run:
        run.until_up()
        (job,) = add(url, "hold", 600)
        run.until_noted(job, "start")

        run.send_all(signal.SIGHUP)
        run.send(signal.SIGUSR1)
        told = "it says where it is"
        until(lambda: run.said("is running 1 jobs") and run.said("asyncio/runners.py"), told, timeout=SLOW)
        assert run.process.poll() is None

        run.send_all(signal.SIGQUIT)
        assert run.ended() == 1

    assert counts(url) == Counts(waiting=1)
    assert len(run.of(job, "start")) == 1
