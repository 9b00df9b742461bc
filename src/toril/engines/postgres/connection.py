"""A connection to PostgreSQL that waits for each answer; for threads."""

from collections.abc import Iterator, Sequence
from typing import Any, Final, cast

import psycopg
from psycopg import pq
from psycopg.adapt import Transformer

from toril.engines.postgres.dialect import Statement, array, statement_of, value
from toril.engines.postgres.errors import CUT_OFF, PostgresError
from toril.engines.postgres.url import PostgresAddress
from toril.engines.sql.statements import statement

__all__ = ["FLUSH", "PostgresConnection", "PostgresCursor", "complain", "state_of"]

_GOOD: Final = {pq.ExecStatus.TUPLES_OK, pq.ExecStatus.COMMAND_OK, pq.ExecStatus.EMPTY_QUERY}
_FAILED_TRANSACTION: Final = "25P02"
_FIND: Final = statement("queues", "find", "toril.engines.sql")
_LOCK: Final = "SELECT toril.lock_queue($1)"  # before the row is read by who is going to change it
_BEGIN_TO_READ: Final = b"BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"  # on one view of the store
# What was committed before this is on the disk when it is: a transaction of its own that holds no lock.
FLUSH: Final = (
    b"SELECT CASE WHEN current_setting('synchronous_commit') = 'off' "
    b"THEN set_config('synchronous_commit', 'on', true) END, pg_logical_emit_message(true, 'toril', '')"
)
_COMMIT: Final = b"COMMIT; " + FLUSH
_PREPARED: Final = 400  # statements that a connection keeps; there are fewer


class PostgresCursor:
    """What came of a statement."""

    __slots__ = ("_rows", "rowcount")

    def __init__(self, rows: list[Any], rowcount: int) -> None:
        self._rows = rows
        self.rowcount = rowcount

    def __iter__(self) -> Iterator[Any]:
        return iter(self._rows)

    def fetchone(self) -> Any:
        return self._rows[0] if self._rows else None

    def fetchall(self) -> list[Any]:
        return self._rows

    def close(self) -> None:
        pass


def complain(result: pq.abc.PGresult) -> PostgresError:
    """The error that the server has answered with."""
    state = result.error_field(pq.DiagnosticField.SQLSTATE)
    said = result.error_field(pq.DiagnosticField.MESSAGE_PRIMARY) or result.error_message
    return PostgresError(said.decode("utf-8", "replace"), CUT_OFF if state is None else state.decode())


class PostgresConnection:
    """What `SqlConnection` promises, for PostgreSQL. It takes the shared statements, and says them as the server wants
    to hear them."""

    def __init__(self, address: PostgresAddress, *, reads: bool = False) -> None:
        self._schema = address.schema
        self._reads = reads
        self._prepared: dict[bytes, bytes] | None = {} if address.prepare == "auto" else None
        try:
            self._connection = psycopg.connect(address.conninfo, autocommit=True)
        except psycopg.Error as error:
            raise PostgresError(str(error), error.sqlstate or state_of(str(error))) from error
        self._pg = self._connection.pgconn
        self._pg.notice_handler = None
        self._rows = Transformer(self._connection)

    @property
    def in_transaction(self) -> bool:
        return self._pg.transaction_status not in {pq.TransactionStatus.IDLE, pq.TransactionStatus.UNKNOWN}

    @property
    def is_open(self) -> bool:
        return self._pg.status == pq.ConnStatus.OK

    @property
    def socket(self) -> int:
        return self._pg.socket

    def notified(self) -> list[str]:
        """What has been notified on the channel that this connection listens on."""
        try:
            self._pg.consume_input()
        except psycopg.Error as error:
            raise PostgresError(str(error), CUT_OFF) from error
        names: dict[str, None] = {}
        while (found := self._pg.notifies()) is not None:
            names[found.extra.decode("utf-8", "replace")] = None
        return list(names)

    def execute(self, sql: str, parameters: Sequence[Any] = (), /) -> PostgresCursor:
        if sql == _FIND and self.in_transaction and not self._reads:
            self._answer(self._send(statement_of(_LOCK, self._schema).sql, [value(each) for each in parameters], None))
        said = statement_of(sql, self._schema)
        if not parameters:
            return self.tell(_BEGIN_TO_READ if sql == "BEGIN" else said.sql)
        if said.lists:
            before = len(parameters) - len(said.lists)
            return self._write_rows(said, [parameters[before:]], parameters[:before])
        return self._answer(self._send(said.sql, [value(each) for each in parameters], None))

    def write_rows(self, sql: str, rows: Sequence[Sequence[Any]], before: Sequence[Any]) -> int:
        """Execute for many rows at once: each column is one parameter."""
        return self._write_rows(statement_of(sql, self._schema, many=True), rows, before).rowcount

    def _write_rows(self, statement: Statement, rows: Sequence[Sequence[Any]], before: Sequence[Any]) -> PostgresCursor:
        values: list[bytes | None] = [value(each) for each in before]
        formats = [0] * len(before)
        for kind, column in zip(statement.lists, zip(*rows, strict=True), strict=True):
            data, form = array(kind, column)
            values.append(data)
            formats.append(form)
        return self._answer(self._send(statement.sql, values, formats))

    def tell(self, sql: bytes) -> PostgresCursor:
        """SQL without parameters, as it is; of several the last one answers. A commit is on the disk then."""
        if sql == b"COMMIT":
            if self._pg.transaction_status == pq.TransactionStatus.INERROR:
                raise PostgresError(
                    "the transaction has failed before and can only be rolled back", _FAILED_TRANSACTION
                )
            sql = _COMMIT
        return self._answer(self._pg.exec_(sql))

    def close(self) -> None:
        self._connection.close()

    def _send(self, sql: bytes, values: list[bytes | None], formats: list[int] | None) -> pq.abc.PGresult:
        if self._prepared is None:
            return self._pg.exec_params(sql, values, param_formats=formats)
        name = self._prepared.get(sql)
        if name is None:
            if len(self._prepared) >= _PREPARED:
                return self._pg.exec_params(sql, values, param_formats=formats)
            name = b"toril%d" % len(self._prepared)
            self._answer(self._pg.prepare(name, sql))
            self._prepared[sql] = name
        # Its annotation forgets that a value may be NULL.
        return self._pg.exec_prepared(name, cast("list[bytes]", values), param_formats=formats)

    def _answer(self, result: pq.abc.PGresult) -> PostgresCursor:
        if result.status not in _GOOD:
            raise complain(result)
        self._rows.set_pgresult(result)
        rows = self._rows.load_rows(0, result.ntuples, tuple) if result.ntuples else []
        return PostgresCursor(rows, result.command_tuples or 0)


def state_of(message: str) -> str:
    """The SQLSTATE of a connection that was refused: libpq tells only the message."""
    for state, words in _REFUSALS.items():
        if words in message:
            return state
    return CUT_OFF


_REFUSALS: Final = {
    "28P01": "password authentication failed",
    "3D000": '" does not exist',
    "53300": "too many clients",
    "57P03": "starting up",
    "28000": "no pg_hba.conf entry",
}
