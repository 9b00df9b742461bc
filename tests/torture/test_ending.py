"""`toril torture` that is ended early leaves nothing running, and no files if it was asked to end."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

# Starts a server as a torture does, and is killed while that stands still.
DRIVER = """
import asyncio, signal, sys
from pathlib import Path
from toril.torture.faults import OwnRedis

async def main():
    server = OwnRedis(Path(sys.argv[1]))
    await server.start()
    server.signal(signal.SIGSTOP)
    print("frozen", flush=True)
    await asyncio.sleep(3600)

asyncio.run(main())
"""
_PATIENCE = 120.0  # seconds


def within(folder: Path) -> list[int]:
    """The processes whose working directory is there, as that of all processes of a run is."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdecimal() and (entry / "cwd").readlink().is_relative_to(folder):
                found.append(int(entry.name))
        except OSError:
            continue  # it has ended, or is not ours
    return found


def until(done: Callable[[], object]) -> None:
    deadline = time.monotonic() + _PATIENCE
    while not done():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def booted(folder: Path) -> bool:
    """Whether both workers and the server are there."""
    said = [path for path in folder.glob("toril-torture-*/w*.log") if "hello" in path.read_text()]
    return len(said) >= 2 and any(folder.glob("toril-torture-*/redis/log"))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_a_torture_that_is_ended_leaves_nothing_running(number: signal.Signals, tmp_path: Path) -> None:
    command = ["-m", "toril", "torture", "--seed", "7", "--url", "redis", "--jobs", "5000", "--minutes", "30"]
    run = subprocess.Popen(
        [sys.executable, *command, "--workers", "2", "--every", "600"],
        cwd=tmp_path, env=os.environ | {"TMPDIR": str(tmp_path)}, start_new_session=True,
    )  # fmt: skip
    try:
        until(lambda: booted(tmp_path))
        assert len(within(tmp_path)) >= 7  # itself, a supervisor with two, a worker, two producers, the server
        run.send_signal(number)
        code = run.wait(_PATIENCE)
        until(lambda: not within(tmp_path))
    finally:
        run.kill()
        run.wait()
        for pid in within(tmp_path):
            os.kill(pid, signal.SIGKILL)

    if number is signal.SIGKILL:
        assert code == -signal.SIGKILL
    else:
        assert code == 128 + number
        assert list(tmp_path.iterdir()) == []


def still(pid: int) -> bool:
    """Whether a process was stopped, by its state after the name in brackets."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


def test_a_server_that_stands_still_does_not_outlive_its_driver(tmp_path: Path) -> None:
    driver = subprocess.Popen(
        [sys.executable, "-c", DRIVER, str(tmp_path / "redis")], cwd=tmp_path, stdout=subprocess.PIPE,
        start_new_session=True,
    )  # fmt: skip
    try:
        assert driver.stdout is not None
        assert driver.stdout.readline() == b"frozen\n"
        until(lambda: sum(still(pid) for pid in within(tmp_path)) == 1)
        assert len(within(tmp_path)) == 3  # the driver, the server and its guard
        driver.kill()
        until(lambda: within(tmp_path) == [])
    finally:
        driver.kill()
        driver.communicate()
        for pid in within(tmp_path):
            os.kill(pid, signal.SIGKILL)
