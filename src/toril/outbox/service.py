"""What an app has to say about its outbox: how jobs get into it, and who hands them over."""

import asyncio
import os
from abc import abstractmethod
from collections.abc import Callable, Coroutine, Mapping
from typing import TYPE_CHECKING, Any

from toril.errors import TorilError, UsageError
from toril.events import Events
from toril.queue import Queue
from toril.runtime.clock import Clock
from toril.runtime.hooks import GRACE, worker_name
from toril.runtime.logs import watch
from toril.runtime.services import Tracing
from toril.store.connect import open_with_patience
from toril.store.engine import Engine

if TYPE_CHECKING:
    from toril.outbox.database import OutboxStatus
    from toril.outbox.outbox import Outbox
    from toril.outbox.relay import Relay

__all__ = ["Relaying", "Round", "checked_outbox"]

Round = Callable[[], Coroutine[Any, Any, None]]


class Relaying:
    """A part of `App`, which has what is declared here."""

    queues: Mapping[str, Queue]
    tracing: Tracing | None
    outbox_url: str | None = None
    _clock: Clock
    _store: Engine
    _given: bool
    _relay: "Relay | None" = None

    @property
    @abstractmethod
    def events(self) -> Events: ...

    @abstractmethod
    async def open(self) -> Any: ...

    @abstractmethod
    async def close(self) -> None: ...

    def outbox(self, connection: Any) -> "Outbox":
        """The outbox in the database of this connection, of sqlite3, psycopg, SQLAlchemy or Django: what is added there
        is part of the connection's own transaction."""
        from toril.outbox.outbox import Outbox  # noqa: PLC0415 - most apps have none

        return Outbox(self, connection, self._clock, self._written)

    async def relay(self, url: str | None = None) -> None:
        """Be a relay, until a signal or cancellation: hand over to the store what is in the outbox at this URL, else
        in the app's own. Workers of an app with an outbox do that by themselves."""
        from toril.runtime.signals import StopSignals, run_until  # noqa: PLC0415 - as above

        relay = self._made(url, worker_name(self._clock).replace("worker-", "relay-", 1))
        watch(self.events)
        stopping = asyncio.Event()
        with StopSignals(GRACE, lambda _: stopping.set()).watching():
            if await open_with_patience(self.open, self._clock, stopping.wait):
                try:
                    await run_until(stopping, relay.run())
                finally:
                    await self.close()

    async def hand_over(self, url: str | None = None) -> int:
        """Hand over what is in the outbox now, once. Returns how many jobs that were."""
        relay = self._made(url, worker_name(self._clock).replace("worker-", "relay-", 1))
        await self.open()
        try:
            return await relay.drain()
        finally:
            await relay.close()
            await self.close()

    async def outbox_standing(self) -> "OutboxStatus | None":
        """How much is in the app's outbox, and for how long; None if it has none, or its database is away."""
        if self.outbox_url is None:
            return None
        from toril.outbox.database import Database, OutboxAway  # noqa: PLC0415 - as above
        from toril.outbox.relay import OwnThread  # noqa: PLC0415 - as above

        database, thread = Database(self.outbox_url), OwnThread("toril-outbox-standing")

        def look() -> "OutboxStatus":
            try:
                return database.standing()
            finally:
                database.close()

        try:
            return await thread.do(look)
        except OutboxAway:
            return None
        finally:
            thread.close()

    async def _relays(self, name: str, *, burst: bool) -> list[Round]:
        """What a worker process runs beside its workers. A burst begins with all that is in the outbox."""
        if self.outbox_url is None or self._given:
            return []
        self._relay = relay = self._made(None, name)
        if burst:
            try:
                await relay.drain()
            except TorilError as error:
                relay.tell(error)
        return [relay.run]

    def _made(self, url: str | None, name: str) -> "Relay":
        from toril.outbox.database import Database  # noqa: PLC0415 - as above
        from toril.outbox.relay import Relay  # noqa: PLC0415 - as above

        where = url or self.outbox_url
        if where is None:
            raise UsageError("this app has no outbox: give it one, as in App(outbox='sqlite:///app.db')")
        database = Database(where)
        database.check_driver()
        return Relay(database, self._store, self._clock, self.events, name)

    def _written(self) -> None:
        """A row was written here: whoever relays in this process need not wait for its next look."""
        if self._relay is not None:
            self._relay.nudge()


def checked_outbox(url: str | None) -> str | None:
    """The outbox that an app is given, else the one that the environment names."""
    given = url if url is not None else os.environ.get("TORIL_OUTBOX") or None
    if given is None:
        return None
    from toril.outbox.database import check_url  # noqa: PLC0415 - as above

    return check_url(given)
