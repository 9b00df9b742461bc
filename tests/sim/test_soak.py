"""The soak leaves nothing behind, however it ends."""

import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest

from tests import servers

ROOT = Path(__file__).parents[2]
PATIENCE = 120.0  # seconds: the machine may be busy

# The part of the soak that uses a pool, without the minutes of torture before it.
SEEDS_ONLY = """
import sys, time
from tools import soak
soak._soaked = lambda: soak._simulated(0, time.monotonic() + 3600)
sys.exit(soak.main())
"""


def test_a_process_of_a_pool_ends_its_server() -> None:
    with ProcessPoolExecutor(1) as pool:
        server = pool.submit(_start_server).result()

    with pytest.raises(ProcessLookupError):
        os.kill(server, 0)


def _start_server() -> int:
    servers.running.cache_clear()  # the one of the process that this one was forked from is not ours
    process = servers.running()._process
    assert process is not None
    return process.pid


@pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc")
@pytest.mark.parametrize("way", ["ctrl-c", "sigint", "sigterm"])
def test_a_soak_that_is_interrupted_leaves_nothing(way: str, tmp_path: Path) -> None:
    """Nor a file. Ctrl-C in a terminal reaches the whole group, a signal of `kill` only the first process."""
    files = tmp_path / "files"
    files.mkdir()
    with subprocess.Popen(
        [sys.executable, "-c", SEEDS_ONLY], cwd=ROOT, stdout=subprocess.PIPE, text=True, start_new_session=True,
        env={**os.environ, "TORIL_PROOF": str(tmp_path), "PYTHONPATH": str(ROOT), "TMPDIR": str(files)},
    ) as soak:  # fmt: skip
        try:
            _wait_for_server_of(soak.pid)
            if way == "ctrl-c":
                os.killpg(soak.pid, signal.SIGINT)
            else:
                soak.send_signal(getattr(signal, way.upper()))
            said, _ = soak.communicate(timeout=PATIENCE)

            assert soak.returncode == 130
            assert said == "Stopped before its time was over\n"
            assert _names_of(soak.pid) == []
            assert list(files.iterdir()) == []
        finally:
            with suppress(ProcessLookupError):
                os.killpg(soak.pid, signal.SIGKILL)


def _wait_for_server_of(session: int) -> None:
    until = time.monotonic() + PATIENCE
    while "redis-server" not in _names_of(session):
        assert time.monotonic() < until
        time.sleep(0.05)


def _names_of(session: int) -> list[str]:
    """Of the processes of a session, by the kernel's table."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            name, _, rest = path.read_text("utf-8").partition("(")[2].rpartition(")")
            if int(rest.split()[3]) == session:
                found.append(name)
    return found
