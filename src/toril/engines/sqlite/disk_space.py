"""Reserves disk space, so that jobs can still be finished when the disk is full."""

import errno
import os
from pathlib import Path
from typing import Final

__all__ = ["BALLAST_BYTES", "PLENTY_BYTES", "Ballast", "free_bytes", "is_short", "size_of", "spare_bytes"]

BALLAST_BYTES: Final = 1024 * 1024
PLENTY_BYTES: Final = 64 * 1024 * 1024  # spare space that is not used up within a moment
_COMMIT_BYTES: Final = 256 * 1024  # what a commit may need
_NO_ROOM = {errno.ENOSPC, errno.EDQUOT}


class Ballast:
    """A file beside the store's that occupies space, and is deleted when the disk is full. Processes share it."""

    def __init__(self, path: Path | None) -> None:
        self._path = path

    @property
    def kept(self) -> bool:
        return self._path is None or size_of(self._path) == BALLAST_BYTES

    def keep(self) -> bool:
        """Reserve the space. False: there is none."""
        if self._path is None or self.kept:
            return True
        try:
            handle = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        except OSError as error:
            return error.errno not in _NO_ROOM
        try:
            os.posix_fallocate(handle, 0, BALLAST_BYTES)
        except OSError as error:
            self.drop()
            return error.errno not in _NO_ROOM
        finally:
            os.close(handle)
        return True

    def keep_again(self) -> bool:
        """Reserve the space again, if enough remains to work in. False: the disk is still full."""
        if self._path is None:
            return True
        wanted = _COMMIT_BYTES if self.kept else _COMMIT_BYTES + BALLAST_BYTES
        return free_bytes(self._path) >= wanted and self.keep()

    def drop(self) -> None:
        if self._path is not None:
            self._path.unlink(missing_ok=True)


def is_short(path: Path | None) -> bool:
    """Whether this file's disk has less space than a commit may need."""
    return path is not None and spare_bytes(path) < 0


def spare_bytes(path: Path) -> int:
    """The space on this file's disk beyond what a commit may need. Negative if it has less."""
    return free_bytes(path) - _COMMIT_BYTES


def size_of(path: Path) -> int:
    """The size of a file in bytes; 0 if it does not exist."""
    try:
        return path.stat().st_size
    except OSError:
        return 0


def free_bytes(path: Path) -> int:
    """The free space on this file's disk that we may use."""
    found = os.statvfs(path.parent)
    return found.f_bavail * found.f_frsize
