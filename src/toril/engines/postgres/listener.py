"""Hears what other processes notify: a thread with a connection of its own that listens on a channel."""

import asyncio
import contextlib
import os
import select
import socket
import threading
from collections.abc import Callable, Iterable
from typing import Final

import psycopg

from toril.engines.postgres.connection import PostgresConnection
from toril.engines.postgres.errors import PostgresError
from toril.engines.postgres.url import PostgresAddress
from toril.engines.sql.driver import Topic
from toril.runtime.clock import Clock

__all__ = ["PostgresListener"]

_REST: Final = 1.0  # seconds before the server is asked again for a connection
_QUIET: Final = 60.0  # seconds without a notification after which the connection is tried


class PostgresListener:
    """What `ProcessNotifier` promises. The transactions themselves notify, so there is nothing to send here."""

    def __init__(self, address: PostgresAddress, clock: Clock) -> None:
        self._address = address
        self._clock = clock
        self._process = os.getpid()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._ends: tuple[socket.socket, socket.socket] | None = None
        self._hearing = False

    def listen(self, topics: Iterable[Topic], heard: Callable[[list[str]], None]) -> None:  # noqa: ARG002 - one channel
        with self._lock:
            if self._thread is None and self._process == os.getpid():
                self._ends = socket.socketpair()
                self._thread = threading.Thread(
                    target=self._main, args=(self._ends[1], heard), name="toril-postgres-listen", daemon=True
                )
                self._thread.start()

    def forget(self, topics: Iterable[Topic], loop: asyncio.AbstractEventLoop) -> None:
        pass  # whoever waited is likely to wait again

    def hears(self) -> bool:
        return self._hearing

    def notify(self, names: Iterable[str]) -> None:
        pass

    def close(self) -> None:
        with self._lock:
            thread, self._thread = self._thread, None
            ends, self._ends = self._ends, None
        if ends is not None:
            ends[0].close()
        if thread is not None and self._process == os.getpid():
            thread.join()
        if ends is not None:
            ends[1].close()

    def _main(self, closed: socket.socket, heard: Callable[[list[str]], None]) -> None:
        while not _is_readable(closed, 0):
            try:
                connection = PostgresConnection(self._address, reads=True)
            except PostgresError:
                _is_readable(closed, _REST)
                continue
            with contextlib.suppress(PostgresError, psycopg.Error, OSError):
                self._hear(connection, closed, heard)
            self._hearing = False
            connection.close()

    def _hear(self, connection: PostgresConnection, closed: socket.socket, heard: Callable[[list[str]], None]) -> None:
        connection.tell(f'LISTEN "{self._address.schema}.jobs"'.encode())
        self._hearing = True
        heard([])  # whatever was notified before
        while True:
            ready, _, _ = select.select([connection.socket, closed.fileno()], [], [], _QUIET)
            if closed.fileno() in ready:
                return
            if not ready:
                connection.tell(b"SELECT 1")
            names = connection.notified()
            if names:
                heard(names)


def _is_readable(end: socket.socket, timeout: float) -> bool:
    return bool(select.select([end], [], [], timeout)[0])
