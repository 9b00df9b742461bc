"""The synchronous heart of the engine: several steps in one transaction, each failing for itself alone.

It knows no event loop and no thread; `runners.py` puts it into one, and the simulator drives it by hand.
"""

import sqlite3
from collections.abc import Sequence
from typing import Any, Final, Generic, TypeVar

from toril.engines.sql.effects import transaction
from toril.engines.sql.notifier import LocalNotifier
from toril.engines.sql.transaction import Op, Transaction
from toril.engines.sqlite.database import SqliteDatabase
from toril.engines.sqlite.errors import COMPLAINTS, SqliteFault, is_io_error, patiently, translated
from toril.engines.sqlite.url import FileAddress, named
from toril.errors import Closed, EngineFull, EngineUnavailable, TorilError
from toril.model import Health
from toril.runtime.clock import Clock

__all__ = ["PendingStep", "Writer"]

T = TypeVar("T")

_SICK: Final = 2  # failed commits in a row after which no work is handed out before a probe succeeds
_UNSEEN: Final = -1  # no connection's version: those of two connections cannot be compared
_UNFINISHED: Final = (
    "SELECT coalesce(sum(waiting + suspects + parked + prioritized + active + delayed + waiting_children), 0) "
    "FROM queues"
)


class PendingStep(Generic[T]):
    """One step to make: what, when, and what became of it. `grows` marks steps that a full disk refuses first."""

    __slots__ = ("answer", "error", "grows", "now", "op")

    def __init__(self, op: Op[T], now: int | None, *, grows: bool = False) -> None:
        self.op = op
        self.now = now
        self.grows = grows
        self.answer: T | None = None
        self.error: BaseException | None = None


class Writer:
    """One connection that writes."""

    def __init__(self, address: FileAddress, clock: Clock, bell: LocalNotifier) -> None:
        self._file = SqliteDatabase(address, clock)
        self._clock = clock
        self._bell = bell
        self._opened = False
        self._connection: sqlite3.Connection | None = None
        self._full = False
        self._squeezing = False
        self._failures = 0
        self._version = _UNSEEN

    @property
    def file(self) -> SqliteDatabase:
        return self._file

    def open(self) -> None:
        if not self._opened:
            self._connection = self._file.open()
            self._opened = True
            self._full, self._failures, self._version = False, 0, _UNSEEN
            self._file.ballast.keep()

    def close(self) -> None:
        if self._opened:
            self._opened = False
            connection, self._connection = self._connection, None
            try:
                if connection is not None:
                    connection.close()
            finally:
                self._file.leave()

    def let_go(self) -> None:
        """Close the connection until it is needed again. What is only in memory stays."""
        connection = self._connection
        if connection is not None and self._file.path is not None:
            self._connection = None
            self._file.let_go()
            connection.close()

    def perform(self, works: Sequence[PendingStep[Any]]) -> None:
        """Make these steps, in order, in one commit. Afterwards each has its answer or its error."""
        if not self._ready_to_write(works):
            return
        if (self._full or any(work.grows for work in works)) and self._file.is_tight():
            self._shorten_log()
            self._full = self._full or self._file.is_tight()
        willing = [work for work in works if not self._refuses(work)]
        if willing and not self._together(willing):
            for work in willing:
                self._alone(work)

    def read(self, op: Op[T], now: int | None) -> T:
        """Read on the writing connection, outside any transaction."""
        self._check_file()
        connection = self._open_connection()

        def look() -> T:
            tx = transaction(connection)
            tx.now = self._clock.now() if now is None else now
            return op(tx)

        try:
            return patiently(self._clock, self._file.path, look)
        except COMPLAINTS as error:
            if is_io_error(error):
                self.let_go()
            raise translated(error, self._file.path) from error

    def changed(self) -> bool:
        """Whether another connection has committed since the last look."""
        (version,) = self._open_connection().execute("PRAGMA data_version").fetchone()
        before, self._version = self._version, version
        return bool(version != before)

    def health(self) -> Health:
        now = self._clock.now()
        try:
            self.read(lambda tx: tx.one("SELECT count(*) FROM leaders"), now)
            if self._failures >= _SICK:
                self._probe()
        except TorilError as error:
            failed = f"{self._failures} commits in a row have failed: " if self._failures >= _SICK else ""
            return Health(ok=False, detail=f"{failed}{error}", now=now)
        if self._is_full():
            return Health(ok=False, detail="the disk is full: adds are refused", now=now)
        return Health(ok=True, now=now)

    def rest(self) -> bool:
        """Nothing is going on: write the log back into the file, and hold some room again. False: someone still reads
        from the log, so come again."""
        if not self._is_full():
            self._file.ballast.keep()
        return self._shorten_log()

    def unfinished(self) -> int:
        """How many jobs have not ended."""
        return int(self.read(lambda tx: tx.one(_UNFINISHED)[0], None))

    def _open_connection(self) -> sqlite3.Connection:
        if not self._opened:
            raise Closed("the store is not open; open it first, or it was closed")
        if self._connection is None:
            self._connection = self._file.reopen()
            self._version = _UNSEEN
        return self._connection

    def _ready_to_write(self, works: Sequence[PendingStep[Any]]) -> bool:
        try:
            self._open_connection()
            self._check_file()
            if self._failures >= _SICK:
                self._probe()
        except TorilError as error:
            self._fail(works, error)
            return False
        return True

    def _check_file(self) -> None:
        if self._file.check_still_there() and not self._file.ballast.kept:
            self._full = True  # another process needed it to finish jobs: do not fill that room with new ones

    def _probe(self) -> None:
        """Commit something of no weight, before jobs are entrusted to a disk that has failed repeatedly."""
        # Inserted and deleted: a transaction that changes nothing would not be synced, and prove nothing.
        work: PendingStep[int] = PendingStep(
            lambda tx: (
                tx.run("INSERT OR REPLACE INTO leaders (role, owner, till) VALUES (':probe', '', 0)")
                + tx.run("DELETE FROM leaders WHERE role = ':probe'")
            ),
            None,
        )
        self._together([work])
        if work.error is not None:
            raise work.error

    def _refuses(self, work: PendingStep[Any]) -> bool:
        refused = work.grows and self._is_full()
        if refused:
            work.error = EngineFull(f"the disk of {named(self._file.path)} is full; nothing was written")
        return refused

    def _is_full(self) -> bool:
        """Whether the disk was full, and still has no room for what we hold back."""
        if self._full:
            self._full = not self._file.ballast.keep_again() or self._file.is_tight()
        return self._full

    def _together(self, works: Sequence[PendingStep[Any]]) -> bool:
        """One transaction for all. False: it was rolled back because of one of several, and none has an answer yet."""
        connection = self._open_connection()
        tx = transaction(connection)
        try:
            patiently(self._clock, self._file.path, lambda: connection.execute("BEGIN IMMEDIATE"))
            for work in works:
                self._step(connection, tx, work)
            connection.execute("COMMIT")
        except COMPLAINTS as error:
            return self._broken(works, error)
        except EngineUnavailable as error:
            self._fail(works, error)
            return True
        except BaseException:
            self._undo()
            raise
        self._failures = 0
        self._bell.ring(tx.rung)
        return True

    def _alone(self, work: PendingStep[Any]) -> None:
        """One step in a transaction of its own, after the one it shared came to nothing."""
        work.error = None
        if self._ready_to_write([work]) and not self._refuses(work):
            self._together([work])

    def _step(self, connection: sqlite3.Connection, tx: Transaction, work: PendingStep[Any]) -> None:
        """One step. What it raises is its own; only SQLite's errors concern the whole transaction."""
        tx.now = self._clock.now() if work.now is None else work.now
        connection.execute("SAVEPOINT step")
        try:
            answer = work.op(tx)
            tx.save()
        except COMPLAINTS:
            raise
        except Exception as error:
            tx.rollback()
            connection.execute("ROLLBACK TO step")
            connection.execute("RELEASE step")
            work.error = error
        else:
            connection.execute("RELEASE step")
            work.answer, work.error = answer, None

    def _broken(self, works: Sequence[PendingStep[Any]], error: SqliteFault) -> bool:
        """SQLite gave up on the transaction. Nothing of it is known to have happened."""
        reason = translated(error, self._file.path)
        self._undo()
        if is_io_error(error) and not isinstance(reason, EngineFull):
            # What the connection knows of the log cannot be trusted after this: read it anew from the file.
            self._failures += 1
            self.let_go()
            self._fail(works, reason)
            return True
        if len(works) > 1:
            return False
        if isinstance(reason, EngineFull):
            self._make_room(works[0], reason)
        else:
            self._fail(works, reason)
        return True

    def _undo(self) -> None:
        """Leave no transaction behind, whatever has become of it."""
        connection = self._connection
        try:
            if connection is not None and connection.in_transaction:
                connection.execute("ROLLBACK")
        except COMPLAINTS:
            self.let_go()

    def _make_room(self, work: PendingStep[Any], reason: EngineFull) -> None:
        """The disk is full. What makes the store smaller gets the room that was held back, and another try."""
        self._full = True
        if self._squeezing:
            self._fail([work], reason)
            return
        self._file.ballast.drop()
        self._shorten_log()  # at once: what is appended to it first may be what it lacks to be written back
        if work.grows:
            self._fail([work], reason)
            return
        self._squeezing = True
        try:
            self._together([work])
        finally:
            self._squeezing = False

    def _shorten_log(self) -> bool:
        """Write the log back into the file and cut it off. False: others read from it, or it could not be written."""
        if self._file.path is None:
            return True
        try:
            busy, _, _ = self._open_connection().execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        except (TorilError, *COMPLAINTS):
            return False
        return not busy

    def _fail(self, works: Sequence[PendingStep[Any]], error: TorilError) -> None:
        for work in works:
            work.error = error
