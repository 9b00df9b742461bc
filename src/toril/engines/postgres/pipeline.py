"""A connection to PostgreSQL for an event loop: a few statements in one flight, each a transaction of its own."""

import asyncio
import os
from collections.abc import Sequence
from typing import Any, Final, TypeAlias, cast

import psycopg
from psycopg import pq
from psycopg.adapt import Transformer

from toril.engines.postgres.connection import complain, state_of
from toril.engines.postgres.errors import CUT_OFF, PostgresError
from toril.engines.postgres.url import PostgresAddress

__all__ = ["Ask", "PostgresPipeline", "PostgresPipelines", "Rows"]

# A statement, its parameters, and their formats.
Ask: TypeAlias = tuple[bytes, Sequence[bytes | None], Sequence[int]]
Rows: TypeAlias = list[tuple[Any, ...]]

# Whatever is usual in the database: a function that waited for a queue has to see what those before it have committed.
_ISOLATION: Final = "SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL READ COMMITTED"
_AT_ONCE: Final = 4  # connections of one event loop
_GOOD: Final = {pq.ExecStatus.TUPLES_OK, pq.ExecStatus.COMMAND_OK}


class PostgresPipeline:
    """One connection. One caller at a time uses it."""

    def __init__(self, connection: psycopg.AsyncConnection[Any], *, prepares: bool) -> None:
        self._connection = connection
        self._pg = connection.pgconn
        self._pg.notice_handler = None
        self._loop = asyncio.get_running_loop()
        self._rows = Transformer(connection)
        self._prepared: dict[bytes, bytes] | None = {} if prepares else None
        self._answer: asyncio.Future[list[Rows | PostgresError]] | None = None
        self._found: list[Rows | PostgresError] = []
        self._left = 0
        self._names = 0
        self._new: list[bytes] = []  # statements that this flight prepares
        self._pg.enter_pipeline_mode()
        self._socket = self._pg.socket  # libpq forgets it when the connection is lost
        self._loop.add_reader(self._socket, self._readable)

    @classmethod
    async def connect(cls, address: PostgresAddress) -> "PostgresPipeline":
        try:
            connection = await psycopg.AsyncConnection.connect(address.conninfo, autocommit=True)
            try:
                await connection.execute(_ISOLATION)
            except BaseException:
                await connection.close()
                raise
        except psycopg.Error as error:
            raise PostgresError(str(error), error.sqlstate or state_of(str(error))) from error
        return cls(connection, prepares=address.prepare == "auto")

    @property
    def is_usable(self) -> bool:
        return self._answer is None and self._pg.status == pq.ConnStatus.OK

    async def ask(self, *asks: Ask) -> list[Rows]:
        """The rows of each statement; the first error, once all have answered."""
        self._found, self._left, self._new = [], len(asks), []
        answer = self._answer = self._loop.create_future()
        try:
            for sql, values, formats in asks:
                self._send(sql, values, formats)
                self._pg.pipeline_sync()
            self._flush()
        except psycopg.Error as error:
            self._broken(error)
        # What was sent is carried out even if nobody waits for it any more: the connection is free once it is answered.
        found = await asyncio.shield(answer)
        for each in found:
            if isinstance(each, PostgresError):
                raise each
        return cast("list[Rows]", found)

    def close(self) -> None:
        if self._pg.status == pq.ConnStatus.OK:
            self._broken(PostgresError("the connection was closed", CUT_OFF))

    def _send(self, sql: bytes, values: Sequence[bytes | None], formats: Sequence[int]) -> None:
        given = cast("Sequence[bytes]", values)
        if self._prepared is None:
            self._pg.send_query_params(sql, given, param_formats=formats)
            return
        name = self._prepared.get(sql)
        if name is None:
            self._names += 1
            self._new.append(sql)
            name = self._prepared[sql] = b"toril%d" % self._names
            self._pg.send_prepare(name, sql)
        self._pg.send_query_prepared(name, given, param_formats=formats)

    def _flush(self) -> None:
        if self._pg.flush():
            self._loop.add_writer(self._socket, self._writable)

    def _writable(self) -> None:
        try:
            if not self._pg.flush():
                self._loop.remove_writer(self._socket)
        except psycopg.Error as error:
            self._broken(error)

    def _readable(self) -> None:
        try:
            self._pg.consume_input()
            while self._left and not self._pg.is_busy():
                result = self._pg.get_result()
                if result is not None:
                    self._take(result)
        except psycopg.Error as error:
            self._broken(error)

    def _take(self, result: pq.abc.PGresult) -> None:
        if result.status == pq.ExecStatus.PIPELINE_SYNC:
            self._left -= 1
            if not self._left:
                self._end()
        elif result.status == pq.ExecStatus.COMMAND_OK and not result.nfields:
            pass  # a statement was prepared
        elif result.status in _GOOD:
            self._rows.set_pgresult(result)
            self._found.append(self._rows.load_rows(0, result.ntuples, tuple) if result.ntuples else [])
        elif result.status != pq.ExecStatus.PIPELINE_ABORTED:
            for sql in self._new:  # whether these were prepared is not known
                (self._prepared or {}).pop(sql, None)
            self._found.append(complain(result))

    def _end(self) -> None:
        answer, self._answer = self._answer, None
        if answer is not None and not answer.done():
            answer.set_result(self._found)

    def _broken(self, error: Exception) -> None:
        """The connection is gone. What was sent may have happened."""
        self._loop.remove_reader(self._socket)
        self._loop.remove_writer(self._socket)
        self._pg.finish()
        self._found, self._left = [PostgresError(str(error), CUT_OFF)], 0
        self._end()


class PostgresPipelines:
    """The connections of one event loop. Made when they are needed."""

    def __init__(self, address: PostgresAddress) -> None:
        self.process: Final = os.getpid()  # a fork must not speak on its parent's connections
        self._address = address
        self._idle: list[PostgresPipeline] = []
        self._all: set[PostgresPipeline] = set()
        self._room = asyncio.Semaphore(_AT_ONCE)
        self._closed = False

    async def ask(self, *asks: Ask) -> list[Rows]:
        async with self._room:
            pipeline = await self._one()
            try:
                return await pipeline.ask(*asks)
            finally:
                self._give_back(pipeline)

    async def _one(self) -> PostgresPipeline:
        while self._idle:
            pipeline = self._idle.pop()
            if pipeline.is_usable:
                return pipeline
            self._drop(pipeline)
        pipeline = await PostgresPipeline.connect(self._address)
        if self._closed:
            pipeline.close()
            raise PostgresError("the store was closed meanwhile", CUT_OFF)
        self._all.add(pipeline)
        return pipeline

    def _give_back(self, pipeline: PostgresPipeline) -> None:
        """One that has not been answered is closed: who waited for it was cancelled."""
        if pipeline.is_usable:
            self._idle.append(pipeline)
        else:
            self._drop(pipeline)

    def _drop(self, pipeline: PostgresPipeline) -> None:
        self._all.discard(pipeline)
        pipeline.close()

    def close(self) -> None:
        self._closed = True
        self._idle.clear()
        while self._all:
            self._all.pop().close()
