"""Reserves disk space, so that jobs can still be finished when the disk is full."""

import errno
import os
from pathlib import Path
from typing import Final

__all__ = ["BALLAST_BYTES", "Ballast", "free_bytes", "is_short", "size_of"]

BALLAST_BYTES: Final = 1024 * 1024
_COMMIT_BYTES: Final = 256 * 1024  # what a commit may need
_NO_ROOM = {errno.ENOSPC, errno.EDQUOT}


class Ballast:
    """A file beside the store's that takes up room, to be dropped when there is none left. Processes share it."""

    def __init__(self, path: Path | None) -> None:
        self._path = path

    @property
    def kept(self) -> bool:
        return self._path is None or size_of(self._path) == BALLAST_BYTES

    def keep(self) -> bool:
        """Take up the room. False: there is none."""
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
        """Take up the room once more, if that leaves enough to work in. False: the disk is still full."""
        if self._path is None:
            return True
        wanted = _COMMIT_BYTES if self.kept else _COMMIT_BYTES + BALLAST_BYTES
        return free_bytes(self._path) >= wanted and self.keep()

    def drop(self) -> None:
        if self._path is not None:
            self._path.unlink(missing_ok=True)


def is_short(path: Path | None, beside: int = 0) -> bool:
    """Whether the disk of this file has less room than a commit may need, beside so many bytes."""
    return path is not None and free_bytes(path) < _COMMIT_BYTES + beside


def size_of(path: Path) -> int:
    """Its bytes; none where there is no such file."""
    try:
        return path.stat().st_size
    except OSError:
        return 0


def free_bytes(path: Path) -> int:
    """What is left for us on the disk of this file."""
    found = os.statvfs(path.parent)
    return found.f_bavail * found.f_frsize
