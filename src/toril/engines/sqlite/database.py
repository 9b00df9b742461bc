"""`SqliteDatabase`: opens, checks and migrates the file, and notices if it disappears or its disk is full."""

import os
import sqlite3
import threading
from collections.abc import Callable
from contextlib import closing, suppress
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Final, Literal, TypeVar

from toril.engines.sql.driver import ConnectionHolder, ProcessNotifier, SqlConnection, SqlDialect
from toril.engines.sqlite import forks
from toril.engines.sqlite.dialect import SqliteDialect
from toril.engines.sqlite.disk_space import PLENTY_BYTES, Ballast, size_of, spare_bytes
from toril.engines.sqlite.errors import COMPLAINTS, damaged, is_io_error, patiently, translated
from toril.engines.sqlite.socket_notifier import SocketNotifier, has_sockets
from toril.engines.sqlite.url import OWNER_ONLY, FileAddress, check_file, named
from toril.errors import EngineUnavailable, EngineUnusable, TorilError
from toril.runtime.clock import Clock

__all__ = ["SqliteDatabase", "migrations"]

T = TypeVar("T")

APPLICATION_ID: Final = 0x546F_726C  # "Torl", so that another program's database is not mistaken for ours
OLDEST_SQLITE: Final = (3, 38, 0)  # strict tables, json_each
_WAL_BYTES: Final = 64 * 1024 * 1024
_LOG_TRIES: Final = 20
_LOG_REST: Final = 0.05  # seconds between them
_CHECK_SECONDS: Final = 0.25
_ROOMY_SECONDS: Final = 0.1
# Seconds between checks for what other processes committed, while someone waits. Where they notify us, we can only miss
# a process that was killed between its commit and the notification.
_CHECK_EVERY: Final = 0.05
_CHECK_NOTIFIED_EVERY: Final = 0.25
_UNSEEN: Final = -1  # not a version of any connection; versions of two connections cannot be compared


@cache
def migrations() -> list[str]:
    """All migrations, in order; the store's `user_version` says how many have been applied."""
    found = sorted((files(__package__) / "migrations").iterdir(), key=lambda path: path.name)
    return [path.read_text("utf-8") for path in found if path.name.endswith(".sql")]


class SqliteDatabase:
    """A process's access to a store's file. Implements `SqlDatabase` for SQLite."""

    kind = "sqlite"
    dialect: SqlDialect = SqliteDialect()
    faults: tuple[type[Exception], ...] = COMPLAINTS

    def __init__(self, address: FileAddress, clock: Clock) -> None:
        self.address = address
        self.path: Final = None if address.path is None else address.path.absolute()
        self.ballast: Final = Ballast(_beside(self.path, "-ballast"))
        self._log: Final = _beside(self.path, "-wal")
        self._clock = clock
        self._identity: tuple[tuple[int, int] | None, ...] | None = None
        self._seen = 0.0
        self._version = _UNSEEN
        self._full = False
        self._roomy_till = 0.0

    @property
    def in_memory(self) -> bool:
        return self.path is None

    @property
    def name(self) -> str:
        return named(self.path)

    def process_notifier(self) -> ProcessNotifier | None:
        if self.path is None or not has_sockets():
            return None
        return SocketNotifier(self.path, self.address.permissions, self._clock)

    def open(self) -> sqlite3.Connection:
        """A connection to a sound, up-to-date file. Otherwise it raises, and changes nothing."""
        if sqlite3.sqlite_version_info < OLDEST_SQLITE:
            wanted = ".".join(map(str, OLDEST_SQLITE))
            raise EngineUnusable(f"SQLite {sqlite3.sqlite_version} is too old; Toril needs {wanted} or newer")
        check_file(self.address)
        connection = self._kept(self._open)
        self._full, self._version = False, _UNSEEN
        self.ballast.keep()
        return connection

    def reopen(self) -> sqlite3.Connection:
        """The same file again after its connection was closed; never another one, nor a new one."""
        self._compare(self._identify())
        connection = self._kept(lambda: self._prepared(self._connect("rw")))
        self._version = _UNSEEN
        return connection

    def now(self) -> int:
        return self._clock.now()

    def may_repeat(self, error: Exception) -> bool:  # noqa: ARG002 - who has to wait here does so before it begins
        return False

    def open_reader(self) -> sqlite3.Connection:
        """A second connection, for reading beside the writer."""
        connection = self._connect("rw")
        connection.execute("PRAGMA query_only = ON")
        return connection

    def _kept(self, connect: Callable[[], sqlite3.Connection]) -> sqlite3.Connection:
        try:
            connection = self._connected(connect)
        except COMPLAINTS as error:
            raise translated(error, self.path) from error
        self._identity, self._seen = self._identify(), self._clock.monotonic()
        return connection

    def _connected(self, connect: Callable[[], sqlite3.Connection]) -> sqlite3.Connection:
        """Connect to the file. Another user of the group may be creating the log at this moment: SQLite creates it with
        what the umask leaves, and then gives it the file's permissions. In between it cannot be written."""
        for _ in range(_LOG_TRIES if self.address.permissions != OWNER_ONLY else 0):
            try:
                return patiently(self._clock, self.path, connect)
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_READONLY:
                    raise
            self._clock.pause(_LOG_REST)
        return patiently(self._clock, self.path, connect)

    def _connect(self, mode: Literal["ro", "rw", "rwc"]) -> sqlite3.Connection:
        name = ":memory:" if self.path is None else f"{self.path.as_uri()}?mode={mode}"
        return sqlite3.connect(
            name, uri=True, timeout=5.0, isolation_level=None, check_same_thread=False, cached_statements=256
        )

    def _open(self) -> sqlite3.Connection:
        if self._has_log():
            # With a connection that cannot write: one that can would write the log back into the file on close.
            with closing(self._connect("ro")) as looking:
                self._check(looking)
            return self._prepared(self._connect("rw"))
        if self.path is not None and size_of(self.path) == 1:
            raise damaged(self.path, "a single byte")
        self._make()
        connection = self._connect("rwc")
        try:
            self._check(connection)
        except BaseException:
            connection.close()
            raise
        return self._prepared(connection)

    def _make(self) -> None:
        """Create the file if it does not exist, with its permissions, because SQLite would let everyone read it. SQLite
        gives its own files the same permissions."""
        if self.path is None or self.path.exists():
            return
        real = os.path.realpath(self.path)
        with suppress(OSError):  # it exists by now, or SQLite will report why it cannot
            if self.address.permissions == OWNER_ONLY:
                _create(real, OWNER_ONLY)
                return
            # Under another name first, so that another user of the group never finds it inaccessible.
            fresh = f"{real}-{self._clock.unique()}"
            _create(fresh, self.address.permissions)
            try:
                os.link(fresh, real)
            except FileExistsError:
                pass
            except OSError:  # a file system without links
                _create(real, self.address.permissions)
            finally:
                Path(fresh).unlink()

    def _has_log(self) -> bool:
        """Whether there are commits in a log. The log is checked first: it never exists before the file."""
        if self.path is None or self._log is None or not size_of(self._log):
            return False
        if size_of(self.path) <= 1:  # SQLite treats one byte as none, and deletes the log of an empty file
            raise EngineUnusable(
                f"{named(self.path)} is empty or missing, but its write-ahead log {named(self._log)} exists. Nothing "
                "was "
                "changed; restore the file, or remove the log"
            )
        return True

    def _check(self, connection: sqlite3.Connection) -> None:
        # The tables first: another process may be creating them at this moment, together with our mark.
        (tables,) = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
        (application,) = connection.execute("PRAGMA application_id").fetchone()
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        if application != APPLICATION_ID and (tables or application):
            raise EngineUnusable(f"{named(self.path)} belongs to another program; choose another file")
        self._check_version(version)
        self._quick_check(connection)

    def _check_version(self, version: int) -> None:
        newest = len(migrations())
        if version > newest:
            raise EngineUnusable(
                f"{named(self.path)} has layout version {version}; this Toril supports up to {newest}. Upgrade Toril"
            )

    def _quick_check(self, connection: sqlite3.Connection) -> None:
        """Look for damage, for a bounded time: a large file is checked in part."""
        # A thread, since SQLite calls no progress handler while it checks the pages of a tree.
        watch = threading.Timer(_CHECK_SECONDS, connection.interrupt)
        watch.start()
        try:
            found = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
        except sqlite3.OperationalError as error:
            if getattr(error, "sqlite_errorcode", 0) != sqlite3.SQLITE_INTERRUPT:
                raise
            return
        finally:
            watch.cancel()
            watch.join()
        if found != "ok":
            raise damaged(self.path, found)

    def _prepared(self, connection: sqlite3.Connection) -> sqlite3.Connection:
        try:
            self._use_log(connection)
            self._migrate(connection)
            self._settle(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def _use_log(self, connection: sqlite3.Connection) -> None:
        if self.path is not None:
            (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
            if mode != "wal":
                raise EngineUnusable(
                    f"SQLite cannot use a write-ahead log for {named(self.path)} (journal mode {mode}); use another "
                    "disk"
                )

    def _migrate(self, connection: sqlite3.Connection) -> None:
        """Bring the layout up to date in one transaction: the file has the old layout or the new one, nothing in
        between."""
        steps = migrations()
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        if version == len(steps):
            return
        connection.execute("BEGIN IMMEDIATE")
        try:
            (version,) = connection.execute("PRAGMA user_version").fetchone()
            self._check_version(version)
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
        # SQLite waits for another process briefly, by the real clock; `patiently` waits longer, with random pauses.
        connection.execute("PRAGMA busy_timeout = 5")

    def _identify(self) -> tuple[tuple[int, int] | None, ...]:
        return tuple(_inode(path) for path in (self.path, self._log))

    def watch(self, holder: ConnectionHolder) -> None:
        forks.watch(holder)

    def begin(self, connection: SqlConnection) -> None:
        self.patiently(lambda: connection.execute("BEGIN IMMEDIATE"))

    def begin_at_once(self, connection: SqlConnection) -> bool:
        """Begin a transaction that writes. False: another process is writing, or something is wrong."""
        with suppress(*COMPLAINTS):
            connection.execute("BEGIN IMMEDIATE")
        return connection.in_transaction

    def patiently(self, attempt: Callable[[], T]) -> T:
        return patiently(self._clock, self.path, attempt)

    def check_every(self, *, notified: bool) -> float:
        return _CHECK_NOTIFIED_EVERY if notified else _CHECK_EVERY

    def changed(self, connection: SqlConnection) -> bool:
        (version,) = connection.execute("PRAGMA data_version").fetchone()
        before, self._version = self._version, version
        return bool(version != before)

    def translated(self, error: Exception) -> TorilError:
        return translated(error, self.path)

    def is_distrusted(self, error: Exception) -> bool:
        return is_io_error(error)

    def check_room(self, connection: SqlConnection, *, grows: bool) -> None:
        if (self._full or grows) and self._is_tight():
            self._shorten_log(connection)
            self._full = self._full or self._is_tight()

    def is_full(self) -> bool:
        """Whether the disk was full, and still has no room for the reserve."""
        if self._full:
            self._full = not self.ballast.keep_again() or self._is_tight()
        return self._full

    def make_room(self, connection: SqlConnection | None) -> None:
        self._full, self._roomy_till = True, 0.0
        self.ballast.drop()
        if connection is not None:
            # At once: the first bytes appended to the log may be the ones missing to write it back.
            self._shorten_log(connection)

    def tidy_up(self, connection: SqlConnection) -> bool:
        """Write the log back into the file, and reserve space again. False: someone is still reading from the log."""
        if not self.is_full():
            self.ballast.keep()
        return self._shorten_log(connection)

    def _shorten_log(self, connection: SqlConnection) -> bool:
        """Write the log back into the file and truncate it. False: others read from it, or it could not be written."""
        if self.path is None:
            return True
        try:
            busy, _, _ = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        except COMPLAINTS:
            return False
        return not busy

    def _is_tight(self) -> bool:
        """Whether the disk could soon be too full even to write the log back into the file, which makes the file
        longer. If there is plenty of space, this is not checked again for a moment."""
        if self._log is None or self._clock.monotonic() < self._roomy_till:
            return False
        spare = spare_bytes(self._log) - size_of(self._log)
        if spare >= PLENTY_BYTES:
            self._roomy_till = self._clock.monotonic() + _ROOMY_SECONDS
        return spare < 0

    def check(self) -> None:
        """Raise if the file was removed or replaced. Checks once a second."""
        if self.path is None or self._identity is None or self._clock.monotonic() - self._seen < 1.0:
            return
        self._compare(self._identify())
        self._seen = self._clock.monotonic()
        if not self.ballast.kept:
            self._full = True  # another process used the reserve to finish jobs: do not fill that space with new ones

    def _compare(self, found: tuple[tuple[int, int] | None, ...]) -> None:
        expected = self._identity or ()
        if self.path is None or all(before == now for before, now in zip(expected, found, strict=False)):
            return
        if found[0] is None:
            raise EngineUnavailable(
                f"{named(self.path)} was removed while in use; put it back, or restart this program to create a new one"
            )
        if found[0] != expected[0]:
            raise EngineUnavailable(
                f"{named(self.path)} was replaced by another file; restart this program to use the new one"
            )
        raise EngineUnavailable(
            f"the write-ahead log {named(self._log)} was removed or replaced while in use; restart this program"
        )

    def let_go(self) -> None:
        """The writer's connection was closed for a while; when the last one of the machine closes, SQLite removes the
        log."""
        self._identity = self._identity and self._identity[:1]

    def leave(self) -> None:
        """The connection was closed for good. The last process removes the reserve, as SQLite removes the log."""
        self._identity = None
        if self._log is not None and not self._log.exists():
            self.ballast.drop()


def _beside(path: Path | None, suffix: str) -> Path | None:
    """The path beside the real file: SQLite puts its files there, and not beside a link."""
    return None if path is None else Path(os.path.realpath(path) + suffix)


def _create(path: str, permissions: int) -> None:
    """Create an empty file with these permissions, whatever the umask is."""
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, OWNER_ONLY)
    try:
        os.fchmod(handle, permissions)
    finally:
        os.close(handle)


def _inode(path: Path | None) -> tuple[int, int] | None:
    if path is None:
        return None
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _statements(script: str) -> list[str]:
    """The statements of a migration, one by one: `executescript` would commit before it begins."""
    found, part = [], ""
    for line in script.splitlines(keepends=True):
        part += line
        if sqlite3.complete_statement(part):
            found.append(part)
            part = ""
    return found
