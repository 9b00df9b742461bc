"""The words that these tests are written in."""

import sqlite3
from collections import Counter
from typing import Any

import psycopg

from toril import App
from toril.events import Events
from toril.model import Claim, Completed, Settlement
from toril.outbox.database import Database
from toril.outbox.relay import Relay
from toril.runtime.clock import SYSTEM, Clock
from toril.store.engine import Store

__all__ = ["LONG", "QUEUES", "Place", "drained", "finished", "outbox_of", "relay_of", "write"]

QUEUES = ("mail", "reports")
LONG = 120.0  # seconds that a test waits at most for what should come at once


class Place:
    """A database of an application: what is in its outbox, and connections to it."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.is_sqlite = url.startswith("sqlite")
        self._connections: list[Any] = []
        self._own: Any = None

    def connect(self) -> Any:
        """A plain connection of the driver, as an application has it."""
        if self.is_sqlite:
            made: Any = sqlite3.connect(self.url.removeprefix("sqlite:///"), timeout=60)
        else:
            made = psycopg.connect(self.url)
        self._connections.append(made)
        return made

    def create(self) -> None:
        connection = self.connect()
        App("memory://").outbox(connection).create()
        connection.commit()

    def all(self, sql: str, *parameters: Any) -> list[Any]:
        """What a statement finds, in a transaction of its own."""
        if self._own is None or (not self.is_sqlite and self._own.closed):
            self._own = self.connect()
        cursor = self._own.execute(sql if self.is_sqlite else sql.replace("?", "%s"), parameters)
        found = cursor.fetchall() if cursor.description is not None else []
        self._own.commit()
        return list(found)

    def left(self) -> list[str]:
        """The ids of jobs that are in the outbox still."""
        return [job for (job,) in self.all("SELECT job_id FROM toril_outbox ORDER BY id")]

    def time_passes(self) -> None:
        """The leases of relays that are gone are over."""
        self.all("UPDATE toril_outbox_lanes SET leased_until = 0")

    def close(self) -> None:
        for connection in self._connections:
            connection.close()


def relay_of(place: Place, store: Store, *, clock: Clock = SYSTEM, database: Database | None = None) -> Relay:
    return Relay(database or Database(place.url), store, clock, Events(), "relay")


async def finished(store: Store, runs: Counter[str]) -> None:
    """Run all jobs that wait, and count each. They leave nothing behind, and their ids are free."""
    for queue in QUEUES:
        while True:
            token = SYSTEM.unique()
            claimed = await store.exchange(queue, [], Claim(want=50, token=token, lease=60_000, worker="w"))
            if not claimed.jobs:
                break
            batch = [Settlement(job.lease, Completed()) for job in claimed.jobs]
            await store.exchange(queue, batch, Claim(want=0, token=SYSTEM.unique(), lease=1, worker="w"))
            runs.update(job.lease.id for job in claimed.jobs)


def outbox_of(connection: Any) -> Any:
    app = App("memory://")
    for name in QUEUES:
        app.queue(name)
    return app.outbox(connection)


def write(place: Place, *jobs: str, queue: str = "mail", **options: Any) -> list[str]:
    """Jobs of these ids, in one transaction."""
    connection = place.connect()
    outbox = outbox_of(connection)
    made = [outbox.add("n", queue=queue, job_id=job, **options) for job in jobs]
    connection.commit()
    connection.close()
    return made


async def drained(relay: Relay) -> int:
    try:
        return await relay.drain()
    finally:
        await relay.close()
