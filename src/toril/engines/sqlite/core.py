"""The synchronous heart of the engine: several steps in one transaction, each failing for itself alone.

It knows no event loop and no thread; `runners.py` puts it into one, and the simulator drives it by hand.
"""

import sqlite3
from collections.abc import Callable, Sequence
from typing import Any, Final, Generic, TypeVar

from toril.clock import Clock
from toril.engines.sqlite.bell import Bell
from toril.engines.sqlite.file import File, translated
from toril.engines.sqlite.place import Address
from toril.engines.sqlite.tx import Tx
from toril.errors import Closed, EngineFull, EngineUnavailable, TorilError
from toril.model import Health

__all__ = ["Core", "Op", "Work"]

T = TypeVar("T")
Op = Callable[[Tx], T]

_PATIENCE: Final = 10.0  # seconds to wait for other processes' transactions
_FIRST_REST: Final = 0.0005
_LONGEST_REST: Final = 0.01
_SICK: Final = 2  # failed commits in a row after which no work is handed out before a probe succeeds


class Work(Generic[T]):
    """One step to make: what, when, and what became of it. `grows` marks steps that a full disk refuses first."""

    __slots__ = ("answer", "error", "grows", "now", "op")

    def __init__(self, op: Op[T], now: int | None, *, grows: bool = False) -> None:
        self.op = op
        self.now = now
        self.grows = grows
        self.answer: T | None = None
        self.error: BaseException | None = None


class Core:
    """One connection that writes."""

    def __init__(self, address: Address, clock: Clock, bell: Bell) -> None:
        self._file = File(address, clock)
        self._clock = clock
        self._bell = bell
        self._connection: sqlite3.Connection | None = None
        self._full = False
        self._failures = 0
        self._version = 0

    @property
    def file(self) -> File:
        return self._file

    def open(self) -> None:
        self._connection = self._file.open()
        self._file.keep_ballast()
        self.changed()

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
            self._file.drop_ballast()

    def perform(self, works: Sequence[Work[Any]]) -> None:
        """Make these steps, in order, in one commit. Afterwards each has its answer or its error."""
        try:
            self._ready_to_write()
        except (TorilError, sqlite3.Error) as error:
            self._fail(works, error)
            return
        willing = [work for work in works if not self._refuses(work)]
        if len(willing) > 1 and not self._together(willing):
            for work in willing:
                self._together([work])
        elif len(willing) == 1:
            self._together(willing)

    def read(self, op: Op[T], now: int | None) -> T:
        """Read on the writing connection, outside any transaction."""
        tx = Tx(self._open_connection())
        tx.now = self._clock.now() if now is None else now
        try:
            return op(tx)
        except sqlite3.Error as error:
            raise translated(error, self._file.path) from error

    def changed(self) -> bool:
        """Whether another connection has committed since the last look."""
        (version,) = self._open_connection().execute("PRAGMA data_version").fetchone()
        before, self._version = self._version, version
        return bool(version != before)

    def health(self) -> Health:
        now = self._clock.now()
        try:
            self._file.check_still_there()
            self._open_connection().execute("SELECT count(*) FROM leaders").fetchone()
        except (TorilError, sqlite3.Error) as error:
            return Health(ok=False, detail=str(error), now=now)
        if self._failures >= _SICK:
            return Health(ok=False, detail=f"{self._failures} commits in a row have failed", now=now)
        if self._full:
            return Health(ok=False, detail="the disk is full: adds are refused", now=now)
        return Health(ok=True, now=now)

    def rest(self) -> None:
        """Nothing is going on: write the log back into the file, and hold some room again."""
        self._file.keep_ballast()
        if self._file.path is not None:
            self._open_connection().execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def _open_connection(self) -> sqlite3.Connection:
        if self._connection is None:
            raise Closed("the store is not open; open it first, or it was closed")
        return self._connection

    def _ready_to_write(self) -> None:
        if self._connection is None and self._failures:
            self._connection = self._file.open()  # it was closed after a failed commit
        self._open_connection()
        self._file.check_still_there()
        if self._failures >= _SICK:
            self._probe()

    def _probe(self) -> None:
        """Commit something of no weight, before jobs are entrusted to a disk that has failed repeatedly."""
        work: Work[int] = Work(lambda tx: tx.run("DELETE FROM onces WHERE key = ''"), None)
        self._together([work])
        if work.error is not None:
            raise work.error

    def _refuses(self, work: Work[Any]) -> bool:
        if work.grows and self._full:
            self._full = not self._file.keep_ballast()
            if self._full:
                work.error = EngineFull(f"the disk of {self._file.path} is full; nothing was written")
        return work.error is not None

    def _together(self, works: Sequence[Work[Any]]) -> bool:
        """One transaction for all. False: it was rolled back because of one of several, and none has an answer yet."""
        connection = self._open_connection()
        tx = Tx(connection)
        try:
            self._begin(connection)
            for work in works:
                self._step(connection, tx, work)
            connection.execute("COMMIT")
        except sqlite3.Error as error:
            return self._broken(connection, works, error)
        except EngineUnavailable as error:
            self._fail(works, error)
            return True
        self._failures = 0
        self._bell.ring(tx.rung)
        return True

    def _begin(self, connection: sqlite3.Connection) -> None:
        until, rest = self._clock.monotonic() + _PATIENCE, _FIRST_REST
        while True:
            try:
                connection.execute("BEGIN IMMEDIATE")
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY:
                    raise
                if self._clock.monotonic() > until:
                    raise EngineUnavailable(
                        f"other processes kept {self._file.path} locked for {_PATIENCE:.0f} s; try again"
                    ) from None
                self._clock.pause(rest * self._clock.random())
                rest = min(rest * 1.5, _LONGEST_REST)
            else:
                return

    def _step(self, connection: sqlite3.Connection, tx: Tx, work: Work[Any]) -> None:
        """One step. What it raises is its own; only SQLite's errors concern the whole transaction."""
        tx.now = self._clock.now() if work.now is None else work.now
        connection.execute("SAVEPOINT step")
        try:
            answer = work.op(tx)
            tx.save()
        except sqlite3.Error:
            raise
        except Exception as error:
            tx.rollback()
            connection.execute("ROLLBACK TO step")
            connection.execute("RELEASE step")
            work.error = error
        else:
            connection.execute("RELEASE step")
            work.answer, work.error = answer, None

    def _broken(self, connection: sqlite3.Connection, works: Sequence[Work[Any]], error: sqlite3.Error) -> bool:
        """SQLite gave up on the transaction. Nothing of it is known to have happened."""
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        full = code == sqlite3.SQLITE_FULL or (code == sqlite3.SQLITE_IOERR and self._file.is_disk_full())
        if code == sqlite3.SQLITE_IOERR and not full:
            self._failures += 1
            self._drop(connection)
            self._fail(works, translated(error, self._file.path))
            return True
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        if len(works) > 1:
            return False
        if full and not self._full:
            self._full = True
            self._file.drop_ballast()
            if not works[0].grows:
                return self._together(works)
        self._fail(
            works, EngineFull(str(translated(error, self._file.path))) if full else translated(error, self._file.path)
        )
        return True

    def _drop(self, connection: sqlite3.Connection) -> None:
        """After a failed sync the connection's view of the log cannot be trusted: read it anew from the file."""
        self._connection = None
        if self._file.path is not None:
            connection.close()

    def _fail(self, works: Sequence[Work[Any]], error: BaseException) -> None:
        reason = translated(error, self._file.path) if isinstance(error, sqlite3.Error) else error
        for work in works:
            work.error = reason
