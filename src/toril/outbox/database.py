"""The relay's connection to the outbox's tables, in SQLite or PostgreSQL."""

import sqlite3
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from toril.client.connections import Dialect
from toril.engines.sqlite.url import parse
from toril.errors import EngineUnavailable, EngineUnusable, InvalidOption, NotFound, preview
from toril.model import storable
from toril.runtime.logs import log
from toril.store.engine import redacted

__all__ = [
    "DDL",
    "INSERT",
    "Batch",
    "Database",
    "OutboxAway",
    "OutboxRow",
    "OutboxStatus",
    "PendingRow",
    "check_url",
    "statements",
]


# Times are milliseconds of the database's clock, because producers and relays may be on different machines.
_NOW: Final[dict[Dialect, str]] = {
    "sqlite": "CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)",
    "postgresql": "CAST(extract(epoch FROM clock_timestamp()) * 1000 AS BIGINT)",
}
# Numbers are never reused, not even those of deleted rows.
_KEY: Final[dict[Dialect, str]] = {
    "sqlite": "INTEGER PRIMARY KEY AUTOINCREMENT",
    "postgresql": "BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY",
}


def _ddl(dialect: Dialect) -> tuple[str, ...]:
    return (
        f"""CREATE TABLE IF NOT EXISTS toril_outbox (
    id {_KEY[dialect]},
    queue TEXT NOT NULL,
    job_id TEXT NOT NULL,
    request TEXT NOT NULL,
    created_at BIGINT NOT NULL DEFAULT ({_NOW[dialect]}),
    lane TEXT,
    error TEXT
)""",
        """CREATE INDEX IF NOT EXISTS toril_outbox_waiting
    ON toril_outbox (id) WHERE lane IS NULL AND error IS NULL""",
        "CREATE INDEX IF NOT EXISTS toril_outbox_taken ON toril_outbox (lane) WHERE lane IS NOT NULL",
        """CREATE TABLE IF NOT EXISTS toril_outbox_lanes (
    name TEXT PRIMARY KEY,
    seq BIGINT NOT NULL,
    leased_until BIGINT NOT NULL
)""",
    )


DDL: Final[dict[Dialect, tuple[str, ...]]] = {"sqlite": _ddl("sqlite"), "postgresql": _ddl("postgresql")}

INSERT: Final = "INSERT INTO toril_outbox (queue, job_id, request) VALUES (?, ?, ?)"

# `$now` is the database's clock; `$lock` locks a row and skips rows that others have locked, if the database can.
_STATEMENTS: Final = {
    "anything": """SELECT EXISTS (SELECT 1 FROM toril_outbox WHERE lane IS NULL AND error IS NULL)
        OR EXISTS (SELECT 1 FROM toril_outbox WHERE lane IS NOT NULL)""",
    # A lane whose relay has died comes first, with its unfinished batch.
    "lane": """SELECT name, seq FROM toril_outbox_lanes AS l WHERE leased_until <= $now
        ORDER BY CASE WHEN EXISTS (SELECT 1 FROM toril_outbox WHERE lane = l.name) THEN 0 ELSE 1 END, name
        LIMIT 1 $lock""",
    "new_lane": "INSERT INTO toril_outbox_lanes (name, seq, leased_until) VALUES (?, 0, 0)",
    "waiting": """SELECT id, queue, length(request) FROM toril_outbox
        WHERE lane IS NULL AND error IS NULL $unheld ORDER BY id LIMIT 100 $lock""",
    "requests": "SELECT id, request FROM toril_outbox WHERE id IN ($ids) ORDER BY id",
    "lease": "UPDATE toril_outbox_lanes SET seq = ?, leased_until = $now + ? WHERE name = ?",
    "board": "UPDATE toril_outbox SET lane = ? WHERE id IN ($ids)",
    "batch": "SELECT id, queue, request, $now - created_at FROM toril_outbox WHERE lane = ? ORDER BY id",
    # A relay with an older number has lost the lane to another.
    "free": """UPDATE toril_outbox_lanes SET seq = ?, leased_until = 0 WHERE name = ? AND seq = ? RETURNING name""",
    "retire": "DELETE FROM toril_outbox_lanes WHERE name = ? AND seq = ? RETURNING name",
    "delete": "DELETE FROM toril_outbox WHERE lane = ?",
    "leave": "UPDATE toril_outbox SET lane = NULL WHERE lane = ?",
    "refuse": "UPDATE toril_outbox SET error = ? WHERE id = ?",
    "rows": """SELECT id, queue, job_id, $now - created_at, lane, error FROM toril_outbox
        WHERE id > ? ORDER BY id LIMIT ?""",
    "again": "UPDATE toril_outbox SET error = NULL WHERE error IS NOT NULL AND id = ? RETURNING id",
    "status": """SELECT count(CASE WHEN error IS NULL THEN 1 END), count(error),
        $now - min(CASE WHEN error IS NULL THEN created_at END)
        FROM (SELECT error, created_at FROM toril_outbox ORDER BY id LIMIT 100000) AS first""",
}


def statements(dialect: Dialect) -> dict[str, str]:
    """All statements by name. Parameters are written `?`."""
    lock = "FOR UPDATE SKIP LOCKED" if dialect == "postgresql" else ""
    return {name: text.replace("$now", _NOW[dialect]).replace("$lock", lock) for name, text in _STATEMENTS.items()}


LEASE: Final = 10_000  # ms during which others leave a lane alone; this only saves work
MOST: Final = 100  # rows in a batch
_SIZE: Final = 1024 * 1024  # characters in a batch of more than one
_LONGEST_ERROR: Final = 2_000  # bytes
_PATIENCE: Final = 5  # seconds to wait for a connection, or for a writer on SQLite
_LOCKED, _LONGEST = 5_000, 15_000  # ms to wait on PostgreSQL for a lock, and for a statement
# A server that vanished silently is noticed, both while waiting for an answer and after sending.
_ALIVE: Final = {"keepalives_idle": 10, "keepalives_interval": 3, "keepalives_count": 3}


class OutboxAway(EngineUnavailable):
    """The database with the outbox does not answer, or has no outbox."""


@dataclass(frozen=True, slots=True)
class PendingRow:
    """A waiting job, and how many ms it has waited."""

    id: int
    request: str
    age: int


@dataclass(frozen=True, slots=True)
class Batch:
    """Rows of one queue that are added in one call. A lane has one batch in progress, whose rows never change."""

    lane: str
    seq: int
    queue: str
    rows: tuple[PendingRow, ...]


@dataclass(frozen=True, slots=True)
class OutboxRow:
    """A row as listed."""

    id: int
    queue: str
    job_id: str
    age: int
    lane: str | None
    error: str | None


@dataclass(frozen=True, slots=True)
class OutboxStatus:
    """How many rows are waiting, how many were refused, and how long the oldest has waited, in seconds."""

    waiting: int
    refused: int
    oldest: float


def check_url(url: str) -> str:
    """Check the URL of a database that can have an outbox."""
    if not isinstance(url, str):
        raise InvalidOption(f"an outbox URL must be a string, not {preview(url)}")
    scheme = url.partition("://")[0]
    if scheme in {"postgresql", "postgres", "postgresql+psycopg"}:
        return url
    if scheme != "sqlite":
        raise InvalidOption(f"an outbox URL must be postgresql://… or sqlite:///…, not {redacted(url)!r}")
    parse(url)
    return url


class Database:
    """A connection, used from one thread. If anything goes wrong it is dropped, and the next use opens another."""

    def __init__(self, url: str) -> None:
        self.url = check_url(url)
        self._dialect: Dialect = "sqlite" if url.startswith("sqlite:") else "postgresql"
        self._sql = statements(self._dialect)
        self._connection: Any = None

    def check_driver(self) -> None:
        """Raise `EngineUnusable` if the driver that the URL needs is not installed."""
        if self._dialect == "postgresql":
            try:
                import psycopg  # noqa: F401, PLC0415 - the user's choice
            except ModuleNotFoundError:
                raise EngineUnusable(
                    "an outbox in postgresql:// needs the package 'psycopg'; install it with: "
                    "pip install 'toril[postgres]'"
                ) from None

    # what the relay does

    def anything(self) -> bool:
        """Whether a row is waiting, or a batch was left unfinished."""
        ((found,),) = self._look("anything")
        return bool(found)

    def take(
        self, fresh: str, most: Mapping[str, int], held: Collection[str], wrong_with: Callable[[str], str | None]
    ) -> Batch | None:
        """The unfinished batch of a dead relay, or else a new one with the oldest rows of a queue that is not `held`.
        Invalid rows are set aside and never become part of a batch. `fresh` is the name of a new lane, if one is
        needed."""
        with self._transaction():
            free = self._run("lane")
            name, seq = free[0] if free else (fresh, 0)
            rows = self._run("batch", name) if free else []
            if not rows:
                chosen = self._sound(most, held, wrong_with)
                if not chosen:
                    return None
                if not free:
                    self._run("new_lane", name)
                seq += 1
                self._run("board", name, *chosen, ids=chosen)
                rows = self._run("batch", name)
            self._run("lease", seq, LEASE, name)
        return Batch(name, seq, rows[0][1], tuple(PendingRow(row, request, age) for row, _, request, age in rows))

    def done(self, batch: Batch) -> None:
        """Delete the rows of a batch that was added, unless another relay has done so."""
        with self._transaction():
            if self._run("free", batch.seq, batch.lane, batch.seq):
                self._run("delete", batch.lane)

    def release(self, batch: Batch, errors: Mapping[int, str]) -> None:
        """Return the rows of a batch that was refused for good; those with an error are set aside."""
        with self._transaction():
            if self._run("free", batch.seq + 1, batch.lane, batch.seq):
                self._run("leave", batch.lane)
                self._set_aside(errors)

    def retire(self, batch: Batch) -> None:
        """Give up a lane whose numbers the store does not recognize: its rows wait for another lane."""
        with self._transaction():
            if self._run("retire", batch.lane, batch.seq):
                self._run("leave", batch.lane)

    # for commands

    def create(self) -> None:
        """Create the tables, and the file if necessary."""
        if self._dialect == "sqlite":
            with self._driver_errors():
                self._connection = self._connection or sqlite3.connect(str(parse(self.url).path), isolation_level=None)
        with self._transaction():
            for statement in DDL[self._dialect]:
                self._execute(statement, ())

    def rows(self, after: int, limit: int) -> list[OutboxRow]:
        return [OutboxRow(*row) for row in self._look("rows", after, limit)]

    def again(self, row: int) -> None:
        """Let a refused row be tried again."""
        if not self._look("again", row):
            raise NotFound(f"there is no refused row {row} in the outbox")

    def status(self) -> OutboxStatus:
        ((waiting, refused, oldest),) = self._look("status")
        return OutboxStatus(waiting, refused, max(0, oldest or 0) / 1000)

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(Exception):  # it may be broken, so closing it may fail too
                connection.close()

    # helpers

    def _sound(
        self, most: Mapping[str, int], held: Collection[str], wrong_with: Callable[[str], str | None]
    ) -> list[int]:
        while chosen := self._chosen(most, held):
            found = [(row, wrong_with(text)) for row, text in self._run("requests", *chosen, ids=chosen)]
            errors = {row: error for row, error in found if error is not None}
            if not errors:
                break
            self._set_aside(errors)
        return chosen

    def _set_aside(self, errors: Mapping[int, str]) -> None:
        for row, error in errors.items():
            self._run("refuse", storable(error.replace("\0", " "), _LONGEST_ERROR), row)
            log.error("row %s of the outbox was refused and set aside: %s", row, error)

    def _chosen(self, most: Mapping[str, int], held: Collection[str]) -> list[int]:
        unheld = f"AND queue NOT IN ({_marks(held)})" if held else ""
        found = self._run("waiting", *held, unheld=unheld)
        if not found:
            return []
        queue = found[0][1]
        chosen: list[int] = []
        room = _SIZE
        for row, of, size in found:
            if of == queue:
                room -= size
                if len(chosen) == most.get(queue, MOST) or (chosen and room < 0):
                    break
                chosen.append(row)
        return chosen

    def _look(self, name: str, *parameters: Any) -> list[Any]:
        """Execute a statement that is a transaction by itself."""
        with self._driver_errors() if self._dialect == "sqlite" else self._transaction():
            return self._run(name, *parameters)

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        """Commit what happens inside as one transaction. On SQLite it begins as a writer, because one that has read
        could not become one later. On PostgreSQL it ends if it has to wait for another, which may never end."""
        with self._driver_errors():
            self._execute("BEGIN IMMEDIATE" if self._dialect == "sqlite" else _begin(), ())
            yield
            self._execute("COMMIT", ())

    @contextmanager
    def _driver_errors(self) -> Iterator[None]:
        try:
            yield
        except BaseException as error:
            self.close()  # and with it everything uncommitted
            if isinstance(error, OSError) or _is_driver_error(error):
                raise OutboxAway(self._words(error)) from error
            raise

    def _words(self, error: BaseException) -> str:
        said = (str(error) or type(error).__name__).strip().splitlines()[0]
        hint = ""
        if "toril_outbox" in said and ("no such table" in said or "does not exist" in said):
            hint = "; create it with: toril outbox create URL"
        return f"the outbox in {redacted(self.url)}: {said}{hint}"

    def _run(self, name: str, *parameters: Any, ids: Sequence[int] = (), unheld: str = "") -> list[Any]:
        return self._execute(self._sql[name].replace("$ids", _marks(ids)).replace("$unheld", unheld), parameters)

    def _execute(self, sql: str, parameters: Sequence[Any]) -> list[Any]:
        """One statement. A commit is one, too."""
        if self._connection is None:
            self._connection = self._connected()
        if self._dialect == "postgresql":
            sql = sql.replace("?", "%s")
        cursor = self._connection.execute(sql, parameters)
        found: list[Any] = [] if cursor.description is None else cursor.fetchall()
        cursor.close()
        return found

    def _connected(self) -> Any:
        if self._dialect == "sqlite":
            path = parse(self.url).path or Path()
            return sqlite3.connect(f"{path.as_uri()}?mode=rw", uri=True, timeout=_PATIENCE, isolation_level=None)
        import psycopg  # noqa: PLC0415 - the user's choice
        from psycopg.conninfo import conninfo_to_dict  # noqa: PLC0415

        known: dict[str, Any] = {"connect_timeout": _PATIENCE, "tcp_user_timeout": 2000 * _PATIENCE, **_ALIVE}
        known |= conninfo_to_dict(self.url.replace("postgresql+psycopg:", "postgresql:", 1))
        return psycopg.connect("", autocommit=True, prepare_threshold=None, **known)


def _begin() -> str:
    """Begins a transaction in one message. The settings are local to it: a pooler would refuse options of the
    connection."""
    return (
        "BEGIN ISOLATION LEVEL READ COMMITTED; "
        f"SET LOCAL lock_timeout = {_LOCKED}; SET LOCAL statement_timeout = {_LONGEST}"
    )


def _marks(values: Collection[object]) -> str:
    return ", ".join("?" for _ in values)


def _is_driver_error(error: BaseException) -> bool:
    return isinstance(error, sqlite3.Error) or any(
        kind.__module__.startswith("psycopg") and kind.__name__ == "Error" for kind in type(error).__mro__
    )
