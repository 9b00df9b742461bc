"""`PostgresDatabase`: opens connections, checks the server, and brings the schema up to date."""

import hashlib
from collections.abc import Callable
from typing import Final, TypeVar

from toril.engines.postgres.connection import PostgresConnection, PostgresCursor
from toril.engines.postgres.dialect import PostgresDialect, in_schema, migrations, own_functions
from toril.engines.postgres.errors import GAVE_WAY, PostgresError, translated
from toril.engines.postgres.listener import PostgresListener
from toril.engines.postgres.url import PostgresAddress
from toril.engines.sql.driver import ConnectionHolder, ProcessNotifier, SqlConnection, SqlDialect
from toril.errors import EngineUnusable, TorilError
from toril.runtime.clock import SYSTEM, Clock

__all__ = ["PostgresDatabase"]

T = TypeVar("T")

_OLDEST: Final = 140000
_TIME: Final = "SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint"
# Seconds between checks for what other processes committed, while someone waits.
_CHECK_EVERY: Final = 0.2
_CHECK_NOTIFIED_EVERY: Final = 5.0
_LAYOUT: Final = "layout"
_FUNCTIONS: Final = "functions"


class PostgresDatabase:
    """One process's hold on a store in PostgreSQL. What `SqlDatabase` promises."""

    kind = "postgres"
    dialect: SqlDialect = PostgresDialect()
    faults: tuple[type[Exception], ...] = (PostgresError,)

    def __init__(self, address: PostgresAddress, clock: Clock) -> None:
        self.address = address
        self._clock = clock
        lock = int.from_bytes(hashlib.blake2b(address.schema.encode(), digest_size=8).digest(), "big", signed=True)
        # Steps that change the store are made one after another, as on a file.
        self._begin = "; ".join(
            (
                "BEGIN ISOLATION LEVEL READ COMMITTED",
                # The commit gives the locks away without waiting for the disk; `PostgresConnection` waits for it then.
                "SET LOCAL synchronous_commit = 'off'",
                "SET LOCAL lock_timeout = '5s'",
                "SET LOCAL idle_in_transaction_session_timeout = '5s'",
                f"SELECT pg_advisory_xact_lock({lock})",
                _TIME,
            )
        ).encode()
        self._snapshot = ""
        self._ahead = 0  # ms by which the server's clock is ahead of ours; of one that a test moves, none

    @property
    def in_memory(self) -> bool:
        return False

    @property
    def name(self) -> str:
        return self.address.name

    def process_notifier(self) -> ProcessNotifier | None:
        return PostgresListener(self.address, self._clock)

    def check_every(self, *, notified: bool) -> float:
        return _CHECK_NOTIFIED_EVERY if notified else _CHECK_EVERY

    def open(self) -> PostgresConnection:
        try:
            connection = PostgresConnection(self.address)
        except PostgresError as error:
            raise translated(error, self.name) from error
        try:
            self._check(connection)
            self._migrate(connection)
        except PostgresError as error:
            connection.close()
            raise translated(error, self.name) from error
        except BaseException:
            connection.close()
            raise
        return connection

    def reopen(self) -> PostgresConnection:
        try:
            return PostgresConnection(self.address)
        except PostgresError as error:
            raise translated(error, self.name) from error

    def open_reader(self) -> PostgresConnection:
        return PostgresConnection(self.address, reads=True)

    def _check(self, connection: PostgresConnection) -> None:
        version, encoding = connection.tell(
            b"SELECT current_setting('server_version_num')::int, current_setting('server_encoding')"
        ).fetchone()
        self._read_clock(connection.tell(_TIME.encode()))
        if version < _OLDEST:
            raise EngineUnusable(f"PostgreSQL {version // 10_000} is too old; Toril needs 14 or newer")
        if encoding != "UTF8":
            raise EngineUnusable(f"the database at {self.name} has the encoding {encoding}; Toril needs UTF8")

    def _migrate(self, connection: PostgresConnection) -> None:
        """Bring the layout up to date, in one transaction: it is the old one or the new one, never between."""
        steps, functions = migrations(), "".join(own_functions())
        newest = str(len(steps))
        digest = hashlib.blake2b(functions.encode(), digest_size=8).hexdigest()
        if self._facts(connection) == (newest, digest):
            return
        schema = self.address.schema
        connection.tell(self._begin)
        try:
            layout = self._known_layout(connection, len(steps))
            if connection.tell(f"SELECT to_regnamespace('{schema}')".encode()).fetchone() == (None,):
                connection.tell(f"CREATE SCHEMA {schema}".encode())
            for step in [*steps[layout:], functions]:
                connection.tell(in_schema(step, schema).encode())
            for fact, found in ((_LAYOUT, newest), (_FUNCTIONS, digest)):
                connection.tell(
                    f"INSERT INTO {schema}.facts (name, value) VALUES ('{fact}', '{found}') "
                    "ON CONFLICT (name) DO UPDATE SET value = excluded.value".encode()
                )
            connection.tell(b"COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.tell(b"ROLLBACK")
            raise

    def _known_layout(self, connection: PostgresConnection, newest: int) -> int:
        """The version of the layout that is there; 0 for none."""
        layout = int(self._facts(connection)[0] or 0)
        if layout > newest:
            raise EngineUnusable(
                f"the schema {self.address.schema} at {self.name} has layout version {layout}; this Toril supports up "
                f"to {newest}. Upgrade Toril"
            )
        return layout

    def _facts(self, connection: PostgresConnection) -> tuple[str | None, str | None]:
        """The version of the layout, and the digest of the functions."""
        schema = self.address.schema
        if connection.tell(f"SELECT to_regclass('{schema}.facts')".encode()).fetchone() == (None,):
            return None, None
        found = dict(connection.tell(f"SELECT name, value FROM {schema}.facts".encode()).fetchall())
        return found.get(_LAYOUT), found.get(_FUNCTIONS)

    def let_go(self) -> None:
        pass

    def leave(self) -> None:
        pass

    def watch(self, holder: ConnectionHolder) -> None:
        pass

    def check(self) -> None:
        pass

    def now(self) -> int:
        """The server's time, as far as the last transaction told."""
        return self._clock.now() + self._ahead

    def begin(self, connection: SqlConnection) -> None:
        assert isinstance(connection, PostgresConnection)  # noqa: S101 - it came from `open`
        self._read_clock(connection.tell(self._begin))

    def _read_clock(self, answer: PostgresCursor) -> None:
        if self._clock is SYSTEM:
            self._ahead = answer.fetchone()[0] - SYSTEM.now()

    def may_repeat(self, error: Exception) -> bool:
        return isinstance(error, PostgresError) and error.sqlstate in GAVE_WAY

    def begin_at_once(self, connection: SqlConnection) -> bool:  # noqa: ARG002 - the server is never that near
        return False

    def patiently(self, attempt: Callable[[], T]) -> T:
        return attempt()

    def changed(self, connection: SqlConnection) -> bool:
        """Whether anything was committed on the server since the last look."""
        (found,) = connection.execute("SELECT pg_current_snapshot()::text").fetchone()
        before, self._snapshot = self._snapshot, found
        return bool(before != found)

    def translated(self, error: Exception) -> TorilError:
        return translated(error, self.name)

    def is_distrusted(self, error: Exception) -> bool:
        return isinstance(error, PostgresError) and error.sqlstate[:2] in {"08", "57"}

    def check_room(self, connection: SqlConnection, *, grows: bool) -> None:
        pass

    def is_full(self) -> bool:
        return False

    def make_room(self, connection: SqlConnection | None) -> None:
        pass

    def tidy_up(self, connection: SqlConnection) -> bool:  # noqa: ARG002 - autovacuum tidies up
        return True
