"""`Writer`: several steps in one commit, each of which can fail alone.

It knows no event loop and no thread: `threads` runs it in one, and the simulator drives it by hand.
"""

from collections.abc import Sequence
from typing import Any, Final, Generic, TypeVar

from toril.engines.sql.driver import SqlConnection, SqlDatabase
from toril.engines.sql.effects import transaction
from toril.engines.sql.maintenance import lead, resign
from toril.engines.sql.notifier import LocalNotifier
from toril.engines.sql.statements import statement
from toril.engines.sql.transaction import Op, Transaction
from toril.errors import Closed, EngineFull, EngineUnavailable, TorilError
from toril.model import Health
from toril.runtime.clock import Clock

__all__ = ["PendingStep", "Writer"]

T = TypeVar("T")

_AGAIN: Final = 3  # times that a transaction is made anew which gave way to another
_SICK: Final = 2  # failed commits in a row, after which a probe must succeed before jobs are claimed
_UNFINISHED: Final = statement("inspector", "unfinished")


class PendingStep(Generic[T]):
    """A step to execute: what, when, and its outcome. `grows` marks steps that a full disk refuses first."""

    __slots__ = ("answer", "error", "grows", "now", "op")

    def __init__(self, op: Op[T], now: int | None, *, grows: bool = False) -> None:
        self.op = op
        self.now = now
        self.grows = grows
        self.answer: T | None = None
        self.error: BaseException | None = None


class Writer:
    """The connection that writes."""

    def __init__(self, database: SqlDatabase, clock: Clock, notifier: LocalNotifier) -> None:
        self.database = database
        self._clock = clock
        self._notifier = notifier
        self._opened = False
        self._connection: SqlConnection | None = None
        self._making_room = False
        self._failures = 0

    def open(self) -> None:
        if not self._opened:
            self._connection = self.database.open()
            self._opened, self._failures = True, 0

    def close(self) -> None:
        if self._opened:
            self._opened = False
            connection, self._connection = self._connection, None
            try:
                if connection is not None:
                    connection.close()
            finally:
                self.database.leave()

    def let_go(self) -> None:
        """Close the connection until it is needed again. A store in memory stays open."""
        connection = self._connection
        if connection is not None and not self.database.in_memory:
            self._connection = None
            self.database.let_go()
            connection.close()

    def perform(self, steps: Sequence[PendingStep[Any]]) -> None:
        """Execute these steps in order, in one commit. Afterwards each has its answer or its error."""
        if not self._ready_to_write(steps):
            return
        self.database.check_room(self._open_connection(), grows=any(step.grows for step in steps))
        willing = [step for step in steps if not self._refuses(step)]
        if willing and not self._together(willing):
            for step in willing:
                self._alone(step)

    def perform_at_once(self, step: PendingStep[Any]) -> bool:
        """Execute this step in a commit of its own, if nothing keeps it from being committed at once. False: it was not
        executed."""
        connection = self._connection
        if connection is None or self._failures or not self._ready_to_write([step]):
            return False
        self.database.check_room(connection, grows=step.grows)
        if self._refuses(step):
            return True
        return self.database.begin_at_once(connection) and self._together([step], begun=True)

    def read(self, op: Op[T], now: int | None) -> T:
        """Read on the writing connection, outside any transaction."""
        self.database.check()
        connection = self._open_connection()

        def read_once() -> T:
            tx = transaction(connection, self.database.dialect)
            tx.now = self.database.now() if now is None else now
            return op(tx)

        try:
            return self.database.patiently(read_once)
        except self.database.faults as error:
            if self.database.is_distrusted(error):
                self.let_go()
            raise self.database.translated(error) from error

    def changed(self) -> bool:
        """Whether another connection has committed since the last call."""
        return self.database.changed(self._open_connection())

    def health(self) -> Health:
        now = self._clock.now()
        try:
            self.read(lambda tx: tx.one("SELECT count(*) FROM leaders"), now)
            if self._failures >= _SICK:
                self._probe()
        except TorilError as error:
            failed = f"the last {self._failures} commits failed: " if self._failures >= _SICK else ""
            return Health(ok=False, detail=f"{failed}{error}", now=now)
        if self.database.is_full():
            return Health(ok=False, detail="the disk is full, so adds are refused", now=now)
        return Health(ok=True, now=now)

    def tidy_up(self) -> bool:
        """Tidy up while idle. False: not finished, so call again."""
        return self.database.tidy_up(self._open_connection())

    def unfinished(self) -> int:
        """How many jobs have not ended."""
        return int(self.read(lambda tx: tx.value(_UNFINISHED), None))

    def _open_connection(self) -> SqlConnection:
        if not self._opened:
            raise Closed("the store is not open; open it with `async with app:`")
        if self._connection is None:
            self._connection = self.database.reopen()
        return self._connection

    def _ready_to_write(self, steps: Sequence[PendingStep[Any]]) -> bool:
        try:
            self._open_connection()
            self.database.check()
            if self._failures >= _SICK:
                self._probe()
        except TorilError as error:
            self._fail(steps, error)
            return False
        return True

    def _probe(self) -> None:
        """Commit something unimportant before entrusting jobs to a disk that has failed repeatedly."""
        # Insert and delete: a transaction that changes nothing would not be synced, and prove nothing.
        step = PendingStep(lambda tx: lead(tx, ":probe", "", 0) and resign(tx, ":probe", ""), None)
        self._together([step])
        if step.error is not None:
            raise step.error

    def _refuses(self, step: PendingStep[Any]) -> bool:
        refused = step.grows and self.database.is_full()
        if refused:
            step.error = EngineFull(f"the disk that holds {self.database.name} is full; nothing was written")
        return refused

    def _together(self, steps: Sequence[PendingStep[Any]], again: int = _AGAIN, *, begun: bool = False) -> bool:
        """One transaction for all. False: it was rolled back because of one of several, and none has an answer yet."""
        connection = self._open_connection()
        tx = transaction(connection, self.database.dialect)
        try:
            if not begun:
                self.database.begin(connection)
            for step in steps:
                self._step(connection, tx, step, alone=len(steps) == 1)
            if connection.in_transaction:  # not if a step that was alone has failed
                connection.execute("COMMIT")
        except self.database.faults as error:
            return self._broken(steps, error, again)
        except EngineUnavailable as error:
            self._fail(steps, error)
            return True
        except BaseException:
            self._undo()
            raise
        self._failures = 0
        self._notifier.committed(tx.notified)
        return True

    def _alone(self, step: PendingStep[Any]) -> None:
        """One step in a transaction of its own, after the shared one was rolled back."""
        step.error = None
        if self._ready_to_write([step]) and not self._refuses(step):
            self._together([step])

    def _step(self, connection: SqlConnection, tx: Transaction, step: PendingStep[Any], *, alone: bool) -> None:
        """One step. Its own exceptions concern only itself; the driver's errors concern the whole transaction. A step
        that is `alone` in it needs no savepoint."""
        tx.now = self.database.now() if step.now is None else step.now
        if not alone:
            connection.execute("SAVEPOINT step")
        try:
            answer = step.op(tx)
            tx.save()
        except self.database.faults:
            raise
        except Exception as error:
            tx.rollback()
            if alone:
                connection.execute("ROLLBACK")
            else:
                connection.execute("ROLLBACK TO step")
                connection.execute("RELEASE step")
            step.error = error
        else:
            if not alone:
                connection.execute("RELEASE step")
            step.answer, step.error = answer, None

    def _broken(self, steps: Sequence[PendingStep[Any]], error: Exception, again: int) -> bool:
        """The database rolled back the transaction. None of its effects can be assumed."""
        reason = self.database.translated(error)
        self._undo()
        if again and self.database.may_repeat(error):
            return self._together(steps, again - 1)
        if self.database.is_distrusted(error) and not isinstance(reason, EngineFull):
            # The connection's cache cannot be trusted after this: read again.
            self._failures += 1
            self.let_go()
            self._fail(steps, reason)
            return True
        if len(steps) > 1:
            return False
        if isinstance(reason, EngineFull):
            self._make_room(steps[0], reason)
        else:
            self._fail(steps, reason)
        return True

    def _undo(self) -> None:
        """Leave no transaction behind, whatever state it is in."""
        connection = self._connection
        try:
            if connection is not None and connection.in_transaction:
                connection.execute("ROLLBACK")
        except self.database.faults:
            self.let_go()

    def _make_room(self, step: PendingStep[Any], reason: EngineFull) -> None:
        """The disk is full. Steps that shrink the store get the reserved space, and another try."""
        if self._making_room:
            self._fail([step], reason)
            return
        self.database.make_room(self._connection)
        if step.grows:
            self._fail([step], reason)
            return
        self._making_room = True
        try:
            self._together([step])
        finally:
            self._making_room = False

    def _fail(self, steps: Sequence[PendingStep[Any]], error: TorilError) -> None:
        for step in steps:
            step.error = error
