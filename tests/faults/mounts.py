"""Filesystems of our own, for what no ordinary one would do. They need root; without it the tests say so."""

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def mounted(point: Path, *arguments: str) -> Iterator[Path]:
    """A filesystem at this place, for as long as the block lasts."""
    point.mkdir(exist_ok=True)
    done = subprocess.run(["mount", *arguments, str(point)], capture_output=True, text=True, timeout=30, check=False)
    if done.returncode:
        pytest.skip(f"NOT TESTED: this needs the right to mount: {done.stderr.strip()}")
    try:
        yield point
    finally:
        subprocess.run(["umount", "--lazy", str(point)], timeout=30, check=True)


def resize(point: Path, size: str) -> None:
    subprocess.run(["mount", "-o", f"remount,size={size}", str(point)], timeout=30, check=True)


def make_image(path: Path, megabytes: int) -> None:
    """An ext4 filesystem in a file."""
    if shutil.which("mkfs.ext4") is None:
        pytest.skip("NOT TESTED: mkfs.ext4 is not installed")
    with path.open("wb") as file:
        file.truncate(megabytes * 1024 * 1024)
    subprocess.run(["mkfs.ext4", "-q", "-F", str(path)], timeout=30, check=True)
