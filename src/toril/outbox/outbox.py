"""`Outbox`: adds jobs in your application's own transaction."""

import sqlite3
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, Unpack

from toril.client.options import AddOptions
from toril.codec.new_jobs import dump_new_job
from toril.errors import UsageError, preview
from toril.outbox.database import DDL, INSERT, Dialect
from toril.queue import Queue
from toril.runtime.services import Services

__all__ = ["BoundConnection", "Outbox", "writer_of"]

_VENDORS: dict[str, Dialect] = {"sqlite": "sqlite", "postgresql": "postgresql"}


@dataclass(frozen=True, slots=True)
class BoundConnection:
    """A connection and its dialect. Parameters are written `?`. It never commits."""

    dialect: Dialect
    execute: Callable[[str, Sequence[str]], object]


def writer_of(connection: Any) -> BoundConnection:
    """Wrap a connection of sqlite3, psycopg, SQLAlchemy (or a session) or Django, without importing any of these."""
    kinds = type(connection).__mro__
    if any(kind.__name__.startswith("Async") for kind in kinds):
        raise UsageError(
            f"an outbox needs a blocking connection, and {preview(connection)} is asynchronous; with SQLAlchemy use "
            "`await session.run_sync(lambda s: app.outbox(s).add(…))`"
        )
    if isinstance(connection, sqlite3.Connection):
        return BoundConnection("sqlite", connection.execute)
    match next((root for kind in kinds if (root := kind.__module__.partition(".")[0]) in _KINDS), None):
        case "psycopg":
            return BoundConnection("postgresql", _by_cursor(connection))
        case "sqlalchemy":
            bind = connection if hasattr(connection, "dialect") else connection.get_bind()
            return BoundConnection(_known(bind.dialect.name, connection), _by_text(connection))
        case "django":
            return BoundConnection(_known(connection.vendor, connection), _by_cursor(connection))
        case _:
            raise UsageError(
                f"an outbox needs a connection of sqlite3, psycopg, SQLAlchemy or Django, not {preview(connection)}"
            )


_KINDS = frozenset({"psycopg", "sqlalchemy", "django"})


def _known(vendor: str, connection: object) -> Dialect:
    if vendor not in _VENDORS:
        raise UsageError(f"an outbox needs SQLite or PostgreSQL; {preview(connection)} is a connection to {vendor}")
    return _VENDORS[vendor]


def _by_cursor(connection: Any) -> Callable[[str, Sequence[str]], None]:
    def execute(sql: str, parameters: Sequence[str]) -> None:
        with connection.cursor() as cursor:
            cursor.execute(sql.replace("?", "%s"), tuple(parameters) or None)

    return execute


def _by_text(connection: Any) -> Callable[[str, Sequence[str]], None]:
    def execute(sql: str, parameters: Sequence[str]) -> None:
        from sqlalchemy import text  # noqa: PLC0415 - whoever has such a connection has it

        named = {f"p{place}": value for place, value in enumerate(parameters)}
        for name in named:
            sql = sql.replace("?", f":{name}", 1)
        connection.execute(text(sql), named)

    return execute


class Outbox:
    """`app.outbox(connection)`: adds jobs in the transaction of that connection. It never commits; you do."""

    def __init__(self, services: Services, connection: Any, written_to: Callable[[], object]) -> None:
        self._services = services
        self._writer = writer_of(connection)
        self._written_to = written_to

    def create(self) -> None:
        """Create the outbox's tables if they do not exist, in the same transaction."""
        for statement in DDL[self._writer.dialect]:
            self._writer.execute(statement, ())

    def add(
        self, job: Any, data: Any = None, *, queue: Queue | str | None = None, **options: Unpack[AddOptions]
    ) -> str:
        """Add a job, by its handler or by its name, with the options and checks of `Queue.add`. Returns the id that the
        job will have.

        You can leave out `queue` if only one queue of the app can be meant.
        """
        home = self._queue(job, queue)
        if options.get("job_id") is None:
            options["job_id"] = self._services.clock.unique()
        planned, tracing = home.new(job, data, **options).job, self._services.tracing
        with nullcontext([planned]) if tracing is None else tracing.sending(home.name, [planned]) as (new,):
            self._writer.execute(INSERT, (home.name, str(new.id), dump_new_job(new)))
        self._written_to()
        return str(new.id)

    def _queue(self, job: Any, given: Queue | str | None) -> Queue:
        queues = self._services.queues
        if given is not None:
            return queues[given if isinstance(given, str) else given.name]
        fitting = list(queues.values())
        if len(fitting) != 1 and callable(job):
            fitting = [queue for queue in fitting if _handles(queue, job)]
        if len(fitting) != 1:
            raise UsageError(f"several queues could run {preview(job)}; name one, as in add(…, queue='emails')")
        return fitting[0]


def _handles(queue: Queue, job: Callable[..., Any]) -> bool:
    try:
        return bool(queue.handlers.name_of(job))
    except UsageError:
        return False
