"""One transaction: its connection, its time, and the rows of the queues that it touches."""

import json
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

from toril.engines.sql.driver import SqlConnection, SqlDialect
from toril.engines.sql.options import load_rate
from toril.engines.sql.schema import STATE_OF, Place, job_key, priority_rank
from toril.engines.sql.statements import Query, check_columns, statement
from toril.model import GroupLimits, RunStatus, Settings, Verdict

if TYPE_CHECKING:
    from toril.engines.sql.changes import QueueChanges

__all__ = ["COUNTERS", "Op", "QueueRow", "Steps", "Transaction", "exists", "keys_of", "refusal", "settings_of"]

T = TypeVar("T")
R = TypeVar("R", bound=NamedTuple)

_FIND = statement("queues", "find")
_CREATE = statement("queues", "create")
_SAVE = statement("queues", "save")
_KEYS = statement("settle", "keys")
_EXISTS = statement("settle", "exists")


@dataclass(slots=True)
class QueueRow:
    """A queue's counters and settings, read at the start of a step and saved at its end."""

    key: int
    name: str
    last_number: int
    moves: int
    fronts: int
    arrivals: int
    claims: int
    waiting: int
    suspects: int
    prioritized: int
    active: int
    delayed: int
    waiting_children: int
    completed: int
    failed: int
    completed_total: int
    failed_total: int
    cancelled_total: int
    events: int
    paused: int
    concurrency: int | None
    max_waiting: int | None
    rate: str | None
    window_till: int
    window_starts: int
    held_till: int
    flows: int
    parked: int
    grouped: int
    orders: int
    turns: int
    groups_set: str | None
    groups_declared: str | None
    figures: str | None
    resting: int
    resting_for_children: int
    stepping: int

    @property
    def jobs(self) -> int:
        """How many jobs it has, ended ones that are kept among them."""
        in_line = self.waiting + self.suspects + self.prioritized + self.delayed + self.waiting_children
        return in_line + self.parked + self.active + self.completed + self.failed

    @property
    def ended_total(self) -> int:
        """How many jobs have ever ended, in whatever way."""
        return self.completed_total + self.failed_total + self.cancelled_total

    def total(self, ending: RunStatus) -> int:
        """How many jobs have ended so, ever."""
        match ending:
            case RunStatus.COMPLETED:
                return self.completed_total
            case RunStatus.FAILED:
                return self.failed_total
            case RunStatus.CANCELLED:
                return self.cancelled_total

    def count(self, place: int, change: int) -> None:
        """Keep the count of a place in step with what enters or leaves it."""
        if place == Place.WAITING:
            self.waiting += change
            return
        name = COUNTERS[place]
        setattr(self, name, getattr(self, name) + change)

    def back(self, priority: int) -> tuple[int, int]:
        """Place and rank behind all jobs that are ready now."""
        if priority:
            return Place.PRIORITIZED, priority_rank(priority, self.moves + 1)
        return Place.WAITING, self.moves + 1

    def front(self, priority: int) -> tuple[int, int]:
        """Place and rank in front of all jobs that are ready now (of the same priority)."""
        self.fronts += 1
        if priority:
            return Place.PRIORITIZED, priority_rank(priority, -self.fronts)
        return Place.WAITING, -self.fronts


# place -> the column that counts it
COUNTERS = {place: state.value for place, state in STATE_OF.items()} | {
    Place.SUSPECT: "suspects",
    Place.PARKED_SUSPECT: "parked",
    Place.PARKED: "parked",
}
_SAVED = attrgetter(*(name for name in QueueRow.__slots__ if name not in {"key", "name"}), "key")
check_columns(_FIND, QueueRow.__slots__)


class Transaction:
    """What an operation works with. All of its writes are committed together, or none."""

    __slots__ = ("_connection", "_dialect", "_rows", "commit", "notified", "now")

    def __init__(
        self, connection: SqlConnection, dialect: SqlDialect, commit: "Callable[[QueueChanges], None]"
    ) -> None:
        self._connection = connection
        self._dialect = dialect
        self.commit = commit  # `effects.commit`, which applies the effects of one queue's changes
        self._rows: dict[str, tuple[QueueRow, tuple[Any, ...]]] = {}
        self.now = 0
        self.notified: dict[str, None] = {}

    def knows(self, name: str) -> bool:
        """Whether the queue's row was read, so that it will be saved."""
        return name in self._rows

    def find(self, name: str) -> QueueRow | None:
        """The queue's row, if the queue was ever used."""
        if name in self._rows:
            return self._rows[name][0]
        found = self._connection.execute(_FIND, (name,)).fetchone()
        if found is None:
            return None
        row = QueueRow(*found)
        self._rows[name] = (row, _SAVED(row))
        return row

    def queue(self, name: str) -> QueueRow:
        """The queue's row, created if needed."""
        row = self.find(name)
        if row is None:
            self._connection.execute(_CREATE, (name,))
            row = self.find(name)
            assert row is not None  # noqa: S101 - it was inserted one line above
        return row

    def forget(self, name: str) -> None:
        """The queue is being deleted: do not save its row."""
        self._rows.pop(name, None)

    def save(self) -> None:
        """Write back the queues that changed."""
        for name, (row, before) in self._rows.items():
            after = _SAVED(row)
            if after != before:
                self._connection.execute(_SAVE, after)
                self._rows[name] = (row, after)

    def rollback(self) -> None:
        """A step failed: what is remembered of the queues is no longer valid. An unnecessary notification does no
        harm."""
        self._rows.clear()

    def notify(self, *names: str) -> None:
        """After the commit, wake those who wait for these."""
        for name in names:
            self.notified[name] = None

    def one(self, sql: str, parameters: Sequence[Any] = ()) -> Any:
        """The first row, or None."""
        return self._connection.execute(sql, parameters).fetchone()

    def value(self, sql: str, parameters: Sequence[Any] = ()) -> Any:
        """The one column of the first row, or None."""
        found = self._connection.execute(sql, parameters).fetchone()
        return None if found is None else found[0]

    def all(self, sql: str, parameters: Sequence[Any] = ()) -> list[Any]:
        return self._connection.execute(sql, parameters).fetchall()

    def run(self, sql: str, parameters: Sequence[Any] = ()) -> int:
        """Execute, and return how many rows changed."""
        return self._connection.execute(sql, parameters).rowcount

    def run_all(self, sql: str, rows: Sequence[Sequence[Any]], *before: Any) -> int:
        """Execute for many rows, and return how many rows changed. `before` are the values that precede the rows in the
        statement."""
        return self._dialect.run_all(self._connection, sql, rows, before) if rows else 0

    def row(self, query: Query[R], parameters: Sequence[Any] = ()) -> R | None:
        """The first row with named columns, or None."""
        found = self._connection.execute(query.sql, parameters).fetchone()
        return None if found is None else query.make(found)

    def rows(self, query: Query[R], parameters: Sequence[Any] = ()) -> list[R]:
        return list(map(query.make, self._connection.execute(query.sql, parameters)))

    def each(self, query: Query[R], parameters: Sequence[Any] = ()) -> Iterator[R]:
        """Row after row, for rows so large that not all of them are wanted."""
        rows = self._connection.execute(query.sql, parameters)
        try:
            yield from map(query.make, rows)
        finally:
            rows.close()

    def gather(self, query: Query[R], parameters: Sequence[Any] = ()) -> list[R]:
        """All rows at once: the interpreter lock is not released for each row."""
        found = self._dialect.gather(self._connection, query.sql, query.columns, parameters)
        return list(map(query.make, found))


def keys_of(tx: Transaction, row: QueueRow, ids: Iterable[str]) -> dict[str, int]:
    """The keys of these ids, if there are any. A number's key is known without a query; the row found there may have an
    id that its producer chose, and is then another job."""
    keys: dict[str, int] = {}
    chosen = []
    for identity in ids:
        key = job_key(row.key, identity)
        if key is None:
            chosen.append(identity)
        else:
            keys[identity] = key
    if chosen:
        keys.update(tx.all(_KEYS, (json.dumps(chosen), row.key)))
    return keys


def exists(tx: Transaction, key: int, identity: str) -> bool:
    """Whether the job with this key has this id."""
    return tx.one(_EXISTS, (key, identity, identity)) is not None


def refusal(tx: Transaction, key: int, identity: str) -> Verdict:
    """The verdict for a caller that does not hold the lease."""
    return Verdict.LOST if exists(tx, key, identity) else Verdict.MISSING


def settings_of(row: QueueRow, now: int) -> Settings:
    return Settings(
        paused=bool(row.paused),
        concurrency=row.concurrency,
        rate=load_rate(row.rate),
        max_waiting=row.max_waiting,
        held_till=row.held_till if row.held_till > now else None,
        groups=GroupLimits.load(row.groups_set or row.groups_declared),
    )


Op = Callable[[Transaction], T]  # one step of an engine


class Write(Protocol):
    """Executes a step that changes the store. A step that `grows` it is refused first when the disk is full."""

    def __call__(self, op: Op[T], now: int | None, *, grows: bool = False) -> Awaitable[T]: ...


class Read(Protocol):
    """Executes a step that only reads."""

    def __call__(self, op: Op[T], now: int | None = None) -> Awaitable[T]: ...


@dataclass(frozen=True, slots=True)
class Steps:
    """How the parts of an engine execute steps: `read` on a view of its own, `read_now` on the writing connection,
    which certainly sees what this process has committed."""

    write: Write
    read: Read
    read_now: Read
