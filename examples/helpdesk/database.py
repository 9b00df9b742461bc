"""The product's own database: also SQLite, but separate from the jobs.

Plain functions with a connection as their first argument read and change it. `await run(function, …)` calls one in a
thread, in a transaction of its own, so that the event loop never waits for the disk.
"""

import asyncio
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from sqlite3 import Connection
from typing import Concatenate, ParamSpec, TypeVar

from helpdesk import settings

__all__ = ["Connection", "done", "note_alert", "prepare", "run"]

P = ParamSpec("P")
R = TypeVar("R")

_SCHEMA = Path(__file__).with_name("schema.sql").read_text("utf-8")
_PATIENCE = 60.0  # seconds for which a writer waits for its turn


async def run(work: Callable[Concatenate[Connection, P], R], *args: P.args, **kwargs: P.kwargs) -> R:
    """Return what the function returns, after the commit. If it raises, nothing has happened."""
    return await asyncio.to_thread(lambda: done(work, *args, **kwargs))


def done(work: Callable[Concatenate[Connection, P], R], *args: P.args, **kwargs: P.kwargs) -> R:
    """The same for blocking code."""
    with closing(_connected()) as connection:
        connection.execute("BEGIN IMMEDIATE")
        with connection:
            return work(connection, *args, **kwargs)


def prepare() -> None:
    """Create the tables. Any number of processes may do so at once."""
    with closing(_connected()) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.executescript(_SCHEMA)


def note_alert(db: Connection, kind: str, queue: str | None, text: str) -> None:
    db.execute("INSERT INTO alerts VALUES (?, ?, ?, ?)", (time.time(), kind, queue, text))


def _connected() -> Connection:
    connection = sqlite3.connect(settings.database(), timeout=_PATIENCE, isolation_level=None)
    connection.execute("PRAGMA synchronous = NORMAL")
    return connection
