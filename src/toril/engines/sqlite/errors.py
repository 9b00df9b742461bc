"""Translates SQLite's errors, and waits while other processes hold locks."""

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar

from toril.engines.sqlite.disk_space import is_short
from toril.engines.sqlite.url import named
from toril.errors import EngineFull, EngineUnavailable, EngineUnusable, TorilError, preview
from toril.runtime.clock import Clock

__all__ = ["COMPLAINTS", "damaged", "is_io_error", "patiently", "translated"]

T = TypeVar("T")

# The errors of a failed call to SQLite. A message that quotes a damaged file cannot always be decoded.
COMPLAINTS: Final = (sqlite3.Error, UnicodeDecodeError)

_PATIENCE: Final = 10.0  # seconds to wait for other processes' transactions
_FIRST_REST: Final = 0.0005
_LONGEST_REST: Final = 0.01

_UNREADABLE = ("Could not decode to UTF-8", "unsupported file format")  # SQLite has no code for these
_BUSY = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_PROTOCOL}
_NOT_WRITABLE = {sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM, sqlite3.SQLITE_AUTH}
_SYNC_FAILED = {sqlite3.SQLITE_IOERR_FSYNC, sqlite3.SQLITE_IOERR_DIR_FSYNC}


def patiently(clock: Clock, path: Path | None, attempt: Callable[[], T]) -> T:
    """The result of `attempt`, repeated until other processes' transactions let it succeed."""
    until, rest = clock.monotonic() + _PATIENCE, _FIRST_REST
    while True:
        try:
            return attempt()
        except sqlite3.OperationalError as error:
            if _code(error) not in _BUSY:
                raise
            if clock.monotonic() > until:
                raise EngineUnavailable(
                    f"{named(path)} was locked by other processes for {_PATIENCE:.0f} s; try again"
                ) from None
        clock.pause(rest * clock.random())
        rest = min(rest * 1.5, _LONGEST_REST)


def translated(error: Exception, path: Path | None) -> TorilError:
    """SQLite's error as one of ours, by what the caller should do."""
    code = _code(error)
    if code == sqlite3.SQLITE_NOTADB:
        return EngineUnusable(
            f"{named(path)} is not a SQLite database, or its header is damaged. Nothing was changed; "
            "choose another file, or restore a backup"
        )
    if code == sqlite3.SQLITE_CORRUPT or isinstance(error, UnicodeDecodeError) or str(error).startswith(_UNREADABLE):
        return damaged(path, str(error))
    if code == sqlite3.SQLITE_FULL or (code == sqlite3.SQLITE_IOERR and not _is_sync(error) and is_short(path)):
        return EngineFull(f"the disk that holds {named(path)} is full: {error}")
    if code == sqlite3.SQLITE_CONSTRAINT:  # repeating the step would fail in the same way
        return EngineUnusable(
            f"{named(path)} is inconsistent ({preview(str(error))}). Nothing was changed; "
            "keep a copy of the file and restore a backup"
        )
    if code in _NOT_WRITABLE:
        return EngineUnavailable(f"{named(path)} is not writable: {error}")
    return EngineUnavailable(f"SQLite could not complete the operation on {named(path)}: {error}")


def is_io_error(error: Exception) -> bool:
    """Whether the disk failed, so that what the connection remembers may differ from the file."""
    return _code(error) == sqlite3.SQLITE_IOERR


def _is_sync(error: Exception) -> bool:
    """Whether a sync failed. Then it is unknown what was written, even if the disk was full."""
    return getattr(error, "sqlite_errorcode", 0) in _SYNC_FAILED


def _code(error: Exception) -> int:
    """The kind of error, without its details."""
    return int(getattr(error, "sqlite_errorcode", 0)) & 0xFF


def damaged(path: Path | None, found: str) -> EngineUnusable:
    return EngineUnusable(
        f"{named(path)} is damaged ({preview(found)}). Nothing was changed; keep a copy of the file and restore a "
        "backup"
    )
