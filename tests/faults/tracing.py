"""Faults in system calls, by strace where it is installed."""

import json
import shutil
import subprocess
import sys

import pytest

from tests.faults.nursery import DEADLINE, ROOT


def _can_trace() -> bool:
    if shutil.which("strace") is None:
        return False
    done = subprocess.run(["strace", "-o", "/dev/null", "true"], capture_output=True, timeout=30, check=False)
    return done.returncode == 0


needs_strace = pytest.mark.skipif(
    not _can_trace(), reason="NOT TESTED: strace is not installed or not allowed, so no system call can be made to fail"
)


def under_strace(inject: str, role: str, arguments: dict[str, object]) -> int:
    """Play a role in a process some of whose system calls go wrong; its exit code, or minus the signal."""
    calls = inject.partition(":")[0]
    command = ["strace", "-f", "-qq", "-o", "/dev/null", "-e", f"trace={calls}", "-e", f"inject={inject}"]
    child = [sys.executable, "-m", "tests.faults.nursery", role, json.dumps(arguments)]
    return subprocess.run([*command, *child], cwd=ROOT, timeout=DEADLINE, check=False).returncode
