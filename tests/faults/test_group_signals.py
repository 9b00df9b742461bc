"""Signals to the whole group of a `toril run`, as a terminal, systemd, `timeout` and foreman send them."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.faults.fleet import SLOW, Fleet, fleet
from tests.faults.nursery import ROOT, until
from tests.faults.test_supervisor import add, counts
from toril.model import Counts

TERM, INT = signal.SIGTERM, signal.SIGINT


@pytest.fixture
def url(database: Path) -> str:
    return f"sqlite:///{database}"


def to_the_group(number: signal.Signals, run: Fleet) -> None:
    run.send_all(number)


def to_the_worker_first(number: signal.Signals, run: Fleet) -> None:
    for pid in run.children:
        os.kill(pid, number)
    time.sleep(0.3)  # it has heard that before its supervisor does
    run.send(number)


def to_the_supervisor_first(number: signal.Signals, run: Fleet) -> None:
    run.send(number)
    until(lambda: run.said("stopping: "), "it has begun to stop", timeout=SLOW)
    for _ in range(2):
        time.sleep(0.3)  # it has heard its supervisor's request, and each of these
        for pid in run.children:
            os.kill(pid, number)


def passed_on(number: signal.Signals, run: Fleet) -> None:
    """A process manager in the group of a terminal: SIGINT from the one, SIGTERM from the other."""
    run.send_all(number)
    until(lambda: run.said("stopping: "), "it has begun to stop", timeout=SLOW)
    run.send(TERM)


@pytest.mark.covers("R245", "F31")
@pytest.mark.parametrize(
    ("send", "number"),
    [
        (to_the_group, INT), (to_the_group, TERM),
        pytest.param(to_the_worker_first, TERM, marks=pytest.mark.thorough),
        pytest.param(to_the_supervisor_first, TERM, marks=pytest.mark.thorough),
        pytest.param(passed_on, INT, marks=pytest.mark.thorough),
    ],
)  # fmt: skip
def test_running_jobs_end_when_the_group_is_told_to_stop(
    url: str, tmp_path: Path, send: object, number: signal.Signals
) -> None:
    with fleet(url, tmp_path, "--processes", "2", "--grace", "60") as run:
        run.until_up(2)
        jobs = add(url, "hold", 1.5, count=4)
        for job in jobs:
            run.until_noted(job, "start")
        assert callable(send)
        send(number, run)

        assert run.ended() == 0, run.log.read_text()

    assert sorted(each.job for each in run.noted("end")) == sorted(jobs)
    assert counts(url) == Counts()


@pytest.mark.covers("R245", "F35")
def test_a_second_interrupt_from_the_terminal_gives_jobs_back(url: str, tmp_path: Path) -> None:
    with fleet(url, tmp_path, "--grace", "600") as run:
        run.until_up()
        (job,) = add(url, "hold", 600)
        run.until_noted(job, "start")
        run.send_all(INT)
        until(lambda: run.said("stopping: "), "it has begun to stop", timeout=SLOW)
        time.sleep(0.3)
        assert run.process.poll() is None
        assert counts(url) == Counts(active=1)
        run.send_all(INT)

        assert run.ended() == 1

    assert counts(url) == Counts(waiting=1)


@pytest.mark.thorough
@pytest.mark.covers("F31")
def test_timeout_which_signals_twice_lets_running_jobs_end(url: str, tmp_path: Path) -> None:
    """It signals its child, and then the group that the child is in."""
    with fleet(url, tmp_path, "--grace", "60", before=["timeout", "600"]) as run:
        until(lambda: run.said("ready: "), "it boots", timeout=SLOW)
        (job,) = add(url, "hold", 1.5)
        run.until_noted(job, "start")

        assert run.stop() == 0, run.log.read_text()

    assert [each.job for each in run.noted("end")] == [job]


@pytest.mark.thorough
@pytest.mark.covers("F31")
def test_an_interrupt_while_processes_start_ends_all_of_them_in_order(url: str, tmp_path: Path) -> None:
    with fleet(url, tmp_path, "--processes", "4") as run:
        until(lambda: len(run.children) == 4, "they are started", timeout=SLOW)
        run.send_all(INT)

        assert run.ended() == 0, run.log.read_text()

    assert "Traceback" not in run.log.read_text()


EMBEDDED = """
import asyncio, sys
from toril import App, JobContext

app = App()

async def hold(ctx: JobContext[float]) -> None:
    print("start", flush=True)
    await asyncio.sleep(ctx.data)
    print("end", flush=True)

app.queue("q", [hold])
sys.exit(asyncio.run(app.run(grace=60)))
"""


@pytest.mark.covers("F31")
def test_an_embedded_worker_takes_signals_that_come_together_for_one(url: str, tmp_path: Path) -> None:
    add(url, "hold", 1.5)
    script = tmp_path / "embedded.py"
    script.write_text(EMBEDDED)
    env = os.environ | {"TORIL_URL": url}
    command = [sys.executable, str(script)]
    with subprocess.Popen(command, cwd=ROOT, env=env, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "start\n"
        process.send_signal(INT)
        time.sleep(0.3)
        process.send_signal(TERM)

        assert process.wait(SLOW) == 0
        assert process.stdout.read() == "end\n"


def test_a_reaper_ends_in_order_however_often_it_is_signalled(url: str) -> None:
    add(url, "hold", 0)
    command = [sys.executable, "-m", "toril", "reaper", "--url", url]
    with subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True, start_new_session=True) as process:
        assert process.stderr is not None
        assert any("became recovery leader" in line for line in process.stderr)
        os.killpg(process.pid, INT)
        process.send_signal(TERM)

        assert process.wait(SLOW) == 0, process.stderr.read()
