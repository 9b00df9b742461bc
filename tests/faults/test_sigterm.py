"""SIGTERM at any moment: nothing is lost, nothing is left running, and the exit is in time."""

import os
import random
import signal
import time
from collections import Counter
from pathlib import Path

import pytest

from tests.faults.fleet import SLOW, fleet
from tests.faults.nursery import until
from tests.faults.test_supervisor import add, counts
from toril.model import Counts


@pytest.fixture
def url(database: Path) -> str:
    return f"sqlite:///{database}"


@pytest.mark.covers("F31", "F32", "R247", "R250", "R252", "G1")
def test_a_stop_at_any_moment_loses_nothing(url: str, tmp_path: Path) -> None:
    rounds, chance = int(os.environ.get("TORIL_FAULT_ROUNDS", "3")), random.Random(31)
    slowest, codes = 0.0, Counter[int]()
    jobs = add(url, "hold", 0.1, count=20 * rounds)
    for _ in range(rounds):
        with fleet(url, tmp_path, "--processes", "2") as run:
            until(lambda: run.log.stat().st_size > 0, "it begins to boot", timeout=SLOW)
            time.sleep(chance.uniform(0, 3))
            began = time.monotonic()
            codes[run.stop()] += 1
            slowest = max(slowest, time.monotonic() - began)
        assert counts(url).active == 0
    with fleet(url, tmp_path, "--burst", ALIVE_CONCURRENCY="100") as run:
        assert run.ended() == 0

    print(f"{rounds} stops, exit codes {dict(codes)}, slowest {slowest:.2f} s")
    assert set(codes) <= {0, -signal.SIGTERM}  # the latter before there was anyone to hear it
    assert slowest < 10 + 1 + 10  # the grace, and what a busy machine adds
    assert counts(url) == Counts()
    assert Counter(each.job for each in run.noted("end")) == dict.fromkeys(jobs, 1)
    assert len(run.noted("start")) == len(jobs)


@pytest.mark.covers("F34", "R249", "R250")
def test_what_does_not_end_goes_back_to_the_front(url: str, tmp_path: Path) -> None:
    with fleet(url, tmp_path, "--grace", "1", ALIVE_CONCURRENCY="1") as run:
        run.until_up()
        kept, waiting = add(url, "busy", 600, count=2)
        run.until_noted(kept, "start")
        began = time.monotonic()
        code = run.stop()
        took = time.monotonic() - began

    print(f"a blocked loop with a grace of 1 s: exit after {took:.2f} s")
    assert code == 1
    assert took < 2 + 10
    assert counts(url) == Counts(waiting=2)
    with fleet(url, tmp_path, ALIVE_CONCURRENCY="1") as run:
        run.until_noted(kept, "start", 2)
    assert run.of(waiting, "start") == []


@pytest.mark.covers("F35", "R245")
@pytest.mark.parametrize("signals", [2, 3])
def test_more_signals_hurry(url: str, tmp_path: Path, signals: int) -> None:
    with fleet(url, tmp_path, "--grace", "600") as run:
        run.until_up()
        (job,) = add(url, "hold" if signals == 2 else "busy", 600)
        run.until_noted(job, "start")
        for _ in range(signals):
            run.send(signal.SIGTERM)
            time.sleep(0.5)  # what comes together counts as one
        began = time.monotonic()
        code = run.process.wait(SLOW)
        took = time.monotonic() - began

    print(f"{signals} signals: exit {took:.2f} s after the last")
    assert code == 1
    assert signals == 3 or counts(url) == Counts(waiting=1)


def is_child(pid: int) -> bool:
    """Whether it is a worker process: until it is, its parent stands still with it."""
    return b"toril.cli.worker_process" in Path(f"/proc/{pid}/cmdline").read_bytes()


@pytest.mark.covers("F31")
def test_a_process_that_is_still_starting_does_not_hold_up_the_stop(url: str, tmp_path: Path) -> None:
    """It stands still, as one does that gets no processor; signals are blocked in it until Python has started."""
    with fleet(url, tmp_path, "--grace", "600") as run:
        until(lambda: any(map(is_child, run.children)), "it is started", timeout=SLOW)
        os.kill(run.children[0], signal.SIGSTOP)
        time.sleep(0.2)  # what it has said by then is read
        assert not run.said(" on sqlite:"), "it has started already"

        assert run.stop() == 0, run.log.read_text()


@pytest.mark.covers("F34")
def test_the_log_names_who_does_not_end_in_time_and_what_it_runs(url: str, tmp_path: Path) -> None:
    with fleet(url, tmp_path, "--grace", "1") as run:
        run.until_up()
        (job,) = add(url, "hold", 600)
        child = run.until_noted(job, "start").pid
        os.kill(child, signal.SIGSTOP)

        assert run.stop() == 1

    log = run.log.read_text()
    assert f"worker process {child} did not stop in time and is killed; jobs returned to their queues: q/{job}" in log


@pytest.mark.covers("F34")
def test_the_log_says_what_is_left_when_the_grace_is_over(url: str, tmp_path: Path) -> None:
    with fleet(url, tmp_path, "--grace", "1") as run:
        run.until_up()
        (job,) = add(url, "hold", 600)
        run.until_noted(job, "start")

        assert run.stop() == 1

    left = f"queue 'q': 1 running ({job}), 0 ended but not settled"
    assert f"the grace period of 1 s is over: {left}" in run.log.read_text()
