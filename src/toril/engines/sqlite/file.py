"""The file itself: open it with care, and turn SQLite's complaints into ours."""

import os
import sqlite3
from pathlib import Path
from typing import Final

from toril.clock import Clock
from toril.engines.sqlite.place import Address, check_file
from toril.engines.sqlite.statements import migrations
from toril.errors import EngineFull, EngineUnavailable, EngineUnusable, TorilError, shown

__all__ = ["BALLAST_BYTES", "File", "translated"]

APPLICATION_ID: Final = 0x546F_7269  # "Tori": so that another program's database is not taken for ours
OLDEST_SQLITE: Final = (3, 38, 0)  # strict tables, json_each
BALLAST_BYTES: Final = 1024 * 1024
_WAL_BYTES: Final = 64 * 1024 * 1024
_CHECK_SECONDS: Final = 0.25

_CORRUPT = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}


class File:
    """One process's hold on a store's file: opens connections to it, and knows whether it is still there."""

    def __init__(self, address: Address, clock: Clock) -> None:
        self.address = address
        self._clock = clock
        self._inode: tuple[int, int] | None = None
        self._seen = 0.0

    @property
    def path(self) -> Path | None:
        return self.address.path

    def open(self) -> sqlite3.Connection:
        """A connection to a sound, current file. Refuses, and changes nothing, otherwise."""
        if sqlite3.sqlite_version_info < OLDEST_SQLITE:
            wanted = ".".join(map(str, OLDEST_SQLITE))
            raise EngineUnusable(f"SQLite {sqlite3.sqlite_version} is too old; {wanted} or newer is needed")
        check_file(self.address)
        try:
            connection = self._connect()
        except sqlite3.Error as error:
            raise translated(error, self.path) from error
        try:
            self._check(connection)
            self._migrate(connection)
            self._settle(connection)
        except sqlite3.Error as error:
            connection.close()
            raise translated(error, self.path) from error
        except BaseException:
            connection.close()
            raise
        self._remember()
        return connection

    def open_reader(self) -> sqlite3.Connection:
        """A second connection, for reading beside the writer."""
        connection = self._connect()
        connection.execute("PRAGMA query_only = ON")
        connection.execute("PRAGMA busy_timeout = 5000")
        return connection

    def _connect(self) -> sqlite3.Connection:
        name = ":memory:" if self.path is None else str(self.path)
        return sqlite3.connect(name, isolation_level=None, check_same_thread=False, cached_statements=256)

    def _check(self, connection: sqlite3.Connection) -> None:
        connection.execute("PRAGMA busy_timeout = 5000")
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        (application,) = connection.execute("PRAGMA application_id").fetchone()
        (tables,) = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
        if tables and application != APPLICATION_ID:
            raise EngineUnusable(f"{_named(self.path)} is a database of another program; choose another file")
        newest = len(migrations())
        if version > newest:
            raise EngineUnusable(
                f"{_named(self.path)} has layout {version} and this Toril knows up to {newest}: upgrade Toril"
            )
        self._quick_check(connection)

    def _quick_check(self, connection: sqlite3.Connection) -> None:
        """Look for damage, for a bounded time: a large file is checked in part."""
        until = self._clock.monotonic() + _CHECK_SECONDS
        connection.set_progress_handler(lambda: int(self._clock.monotonic() > until), 10_000)
        try:
            found = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_INTERRUPT:
                raise
            return
        finally:
            connection.set_progress_handler(None, 0)
        if found != "ok":
            raise _corrupt(self.path, found)

    def _migrate(self, connection: sqlite3.Connection) -> None:
        """Bring the layout up to date, in one transaction: it is the old one or the new one, never between."""
        steps = migrations()
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        if version == len(steps):
            return
        if self.path is not None:
            connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("BEGIN IMMEDIATE")
        try:
            (version,) = connection.execute("PRAGMA user_version").fetchone()
            for step in steps[version:]:
                for statement in _statements(step):
                    connection.execute(statement)
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            connection.execute(f"PRAGMA user_version = {len(steps)}")
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise

    def _settle(self, connection: sqlite3.Connection) -> None:
        connection.execute(f"PRAGMA synchronous = {self.address.synchronous}")
        connection.execute(f"PRAGMA journal_size_limit = {_WAL_BYTES}")
        connection.execute("PRAGMA temp_store = MEMORY")
        connection.execute("PRAGMA cache_size = -16384")
        # The writer waits for its turn itself, in finer steps than SQLite would.
        connection.execute("PRAGMA busy_timeout = 0")

    def _remember(self) -> None:
        if self.path is not None:
            found = self.path.stat()
            self._inode = (found.st_dev, found.st_ino)
            self._seen = self._clock.monotonic()

    def check_still_there(self) -> None:
        """Refuse to go on with a file that was removed or replaced under us. Looks at most once a second."""
        if self.path is None or self._clock.monotonic() - self._seen < 1.0:
            return
        try:
            found = self.path.stat()
        except OSError:
            raise EngineUnavailable(f"{_named(self.path)} is gone; put it back, or start anew") from None
        if (found.st_dev, found.st_ino) != self._inode:
            raise EngineUnavailable(f"{_named(self.path)} was replaced by another file; restart to use that one")
        self._seen = self._clock.monotonic()

    @property
    def ballast(self) -> Path | None:
        return None if self.path is None else self.path.with_name(self.path.name + "-ballast")

    def keep_ballast(self) -> bool:
        """Hold some room back, so that finishing jobs stays possible on a full disk. False: there is no room for it."""
        if self.ballast is None or (self.ballast.exists() and self.ballast.stat().st_size == BALLAST_BYTES):
            return True
        flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW
        try:
            handle = os.open(self.ballast, flags, 0o600)
        except OSError:
            return False
        try:
            os.posix_fallocate(handle, 0, BALLAST_BYTES)
        except OSError:
            self.drop_ballast()
            return False
        finally:
            os.close(handle)
        return True

    def drop_ballast(self) -> None:
        if self.ballast is not None:
            self.ballast.unlink(missing_ok=True)

    def is_disk_full(self) -> bool:
        """Whether the disk has less room than a commit may need."""
        if self.path is None:
            return False
        free = os.statvfs(self.path.absolute().parent)
        return free.f_bavail * free.f_frsize < 256 * 1024


def translated(error: sqlite3.Error, path: Path | None) -> TorilError:
    """SQLite's complaint as one of our errors, named by what the caller should do."""
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code in _CORRUPT:
        return _corrupt(path, str(error))
    if code == sqlite3.SQLITE_FULL:
        return EngineFull(f"the disk of {_named(path)} is full: {error}")
    if code in {sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM, sqlite3.SQLITE_AUTH}:
        return EngineUnavailable(f"{_named(path)} cannot be written: {error}")
    return EngineUnavailable(f"{_named(path)} did not take the step: {error}")


def _corrupt(path: Path | None, found: str) -> EngineUnusable:
    return EngineUnusable(
        f"{_named(path)} is damaged ({shown(found)}): nothing was changed; keep a copy and restore a backup"
    )


def _named(path: Path | None) -> str:
    return "the store in memory" if path is None else shown(str(path))


def _statements(script: str) -> list[str]:
    """The statements of a migration, one by one: `executescript` would commit before it begins."""
    found, part = [], ""
    for line in script.splitlines(keepends=True):
        part += line
        if sqlite3.complete_statement(part):
            found.append(part)
            part = ""
    return found
