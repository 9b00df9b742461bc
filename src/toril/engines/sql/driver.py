"""What a database driver implements, so that the rest of the SQL engine does not depend on it."""

import asyncio
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import Enum
from typing import Any, Protocol, TypeVar

from toril.errors import TorilError

__all__ = ["ConnectionHolder", "ProcessNotifier", "SqlConnection", "SqlCursor", "SqlDatabase", "SqlDialect", "Topic"]

T = TypeVar("T")


class SqlCursor(Protocol):
    """The result of a statement."""

    @property
    def rowcount(self) -> int: ...

    def __iter__(self) -> Iterator[Any]: ...

    def fetchone(self) -> Any: ...

    def fetchall(self) -> list[Any]: ...

    def close(self) -> None: ...


class SqlConnection(Protocol):
    """A connection that begins and ends no transaction by itself."""

    @property
    def in_transaction(self) -> bool: ...

    def execute(self, sql: str, parameters: Sequence[Any] = ..., /) -> SqlCursor: ...

    def close(self) -> None: ...


class SqlDialect(Protocol):
    """How the SQL of a database differs from that in `queries`."""

    def gather(
        self, connection: SqlConnection, sql: str, columns: tuple[str, ...], parameters: Sequence[Any]
    ) -> Iterable[Sequence[Any]]:
        """All rows of a SELECT at once."""

    def run_all(self, connection: SqlConnection, sql: str, rows: Sequence[Sequence[Any]], before: Sequence[Any]) -> int:
        """Execute a statement with one group of VALUES for many rows, and return how many rows changed. `before` are
        the values that precede the rows."""


class ConnectionHolder(Protocol):
    """Has a connection open, and holds `turn` while it uses it."""

    turn: threading.RLock  # a signal handler may fork in the middle of a step

    def let_go(self) -> None:
        """Close the connection until it is needed again."""

    def abandon(self) -> None:
        """This is the child of a fork, in which the thread that served here does not exist."""


class Topic(Enum):
    """What a notification is about. Workers listen for jobs and requests; callers listen for results."""

    JOBS = "-jobs"
    RESULTS = "-results"

    @classmethod
    def of(cls, name: str) -> "Topic":
        """The topic of a notified name."""
        return cls.RESULTS if name.startswith("=") else cls.JOBS


class ProcessNotifier(Protocol):
    """Notifies the other processes that have the store open. A notification may get lost, so a waiting process also
    checks the store now and then."""

    def listen(self, topics: Iterable[Topic], heard: Callable[[list[str]], None]) -> None:
        """Call `heard` on the running loop with the names that others notify, or without any if it may be any."""

    def forget(self, topics: Iterable[Topic], loop: asyncio.AbstractEventLoop) -> None:
        """Undo one `listen`."""

    def hears(self) -> bool:
        """Whether every listener has a channel to be notified on."""

    def notify(self, names: Iterable[str]) -> None:
        """Notify the other processes that wait for these names. Called by the thread that commits."""

    def close(self) -> None: ...


class SqlDatabase(Protocol):
    """A process's access to a store: opens connections, and knows what its errors and a full disk mean."""

    kind: str
    dialect: SqlDialect
    faults: tuple[type[Exception], ...]  # the driver's own errors; each concerns the whole transaction

    @property
    def in_memory(self) -> bool:
        """Whether everything is gone once the connection is closed."""

    @property
    def name(self) -> str:
        """The store's name in messages."""

    def process_notifier(self) -> ProcessNotifier | None:
        """Notifies other processes of commits. None: there are no others, or no way to reach them."""

    def open(self) -> SqlConnection:
        """A connection to a sound, current store. Refuses, and changes nothing, otherwise."""

    def reopen(self) -> SqlConnection:
        """The same store again after its connection was closed; never another one, nor a new one."""

    def open_reader(self) -> SqlConnection:
        """A second connection, for reading beside the writer."""

    def let_go(self) -> None:
        """The writer's connection is being closed for a while."""

    def leave(self) -> None:
        """The writer's connection was closed for good."""

    def watch(self, holder: ConnectionHolder) -> None:
        """Close this holder's connection before the process forks."""

    def check(self) -> None:
        """Raise if the store is no longer the one that was opened."""

    def now(self) -> int:
        """The time of a step that is given none: by the clock that all processes of the store share."""

    def begin(self, connection: SqlConnection) -> None:
        """Begin a transaction that writes, once other processes let it."""

    def begin_at_once(self, connection: SqlConnection) -> bool:
        """Begin a transaction that writes, if that takes no time. False: no transaction was begun."""

    def may_repeat(self, error: Exception) -> bool:
        """Whether nothing of the transaction happened, and it may succeed if it is made again."""

    def patiently(self, attempt: Callable[[], T]) -> T:
        """The result of `attempt`, repeated until other processes let it succeed."""

    def check_every(self, *, notified: bool) -> float:
        """Seconds between checks for what other processes committed, while someone waits. `notified`: they notify this
        one, unless they are killed before they can."""

    def changed(self, connection: SqlConnection) -> bool:
        """Whether another connection has committed since the last call."""

    def translated(self, error: Exception) -> TorilError:
        """The driver's error as one of ours, by what the caller should do."""

    def is_distrusted(self, error: Exception) -> bool:
        """Whether what a connection remembers may differ from the store after this error."""

    def check_room(self, connection: SqlConnection, *, grows: bool) -> None:
        """Called before a transaction: check that the disk has room for it; `grows` if one of its steps needs more."""

    def is_full(self) -> bool:
        """Whether the disk was full, and still is."""

    def make_room(self, connection: SqlConnection | None) -> None:
        """The disk is full: release the reserved space. None: the connection was closed."""

    def tidy_up(self, connection: SqlConnection) -> bool:
        """Tidy up while idle. False: not finished, so call again."""
