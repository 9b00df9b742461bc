"""`OutboxService`: how `App` writes to its outbox and relays it."""

import asyncio
import os
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

from toril.errors import TorilError, UsageError
from toril.runtime.hooks import GRACE, worker_name
from toril.runtime.logs import watch
from toril.runtime.services import AppServices
from toril.store.connect import open_with_patience

if TYPE_CHECKING:
    from toril.outbox.database import OutboxStatus
    from toril.outbox.outbox import Outbox
    from toril.outbox.relay import Relay

__all__ = ["OutboxService", "Round"]

Round = Callable[[], Coroutine[Any, Any, None]]


class OutboxService:
    """The outbox of an app, at `url`: writes to it, and relays it."""

    def __init__(self, services: AppServices, url: str | None) -> None:
        self.url = checked_outbox(url)
        self._services = services
        self._relay: Relay | None = None  # the relay of a worker in this process

    def of(self, connection: Any) -> "Outbox":
        """See `App.outbox`."""
        from toril.outbox.outbox import Outbox  # noqa: PLC0415 - most apps have none

        return Outbox(self._services, connection, self._written)

    async def run(self, url: str | None) -> None:
        """See `App.relay`."""
        from toril.runtime.signals import StopSignals, run_until  # noqa: PLC0415 - as above

        services = self._services
        relay = self._new_relay(url)
        watch(services.events)
        stopping = asyncio.Event()
        with StopSignals(GRACE, lambda _: stopping.set()).watching():
            if await open_with_patience(services.open, services.clock, stopping.wait):
                try:
                    await run_until(stopping, relay.run())
                finally:
                    await services.close()

    async def relay_once(self, url: str | None) -> int:
        """See `App.relay_once`."""
        relay = self._new_relay(url)
        await self._services.open()
        try:
            return await relay.drain()
        finally:
            await relay.close()
            await self._services.close()

    async def status(self) -> "OutboxStatus | None":
        """See `App.outbox_status`."""
        if self.url is None:
            return None
        from toril.outbox.database import Database, OutboxAway  # noqa: PLC0415 - as above
        from toril.outbox.relay import OwnThread  # noqa: PLC0415 - as above

        database, thread = Database(self.url), OwnThread("toril-outbox-status")

        def read() -> "OutboxStatus":
            try:
                return database.status()
            finally:
                database.close()

        try:
            return await thread.do(read)
        except OutboxAway:
            return None
        finally:
            thread.close()

    async def rounds(self, name: str, *, burst: bool) -> list[Round]:
        """What a worker process runs beside its workers. A burst begins with everything that is in the outbox."""
        if self.url is None or self._services.given:
            return []
        self._relay = relay = self._new_relay(None, name)
        if burst:
            try:
                await relay.drain()
            except TorilError as error:
                relay.tell(error)
        return [relay.run]

    def _new_relay(self, url: str | None, name: str | None = None) -> "Relay":
        from toril.outbox.database import Database  # noqa: PLC0415 - as above
        from toril.outbox.relay import Relay  # noqa: PLC0415 - as above

        where, services = url or self.url, self._services
        if where is None:
            raise UsageError("this app has no outbox; declare one, as in App(outbox='sqlite:///app.db')")
        database = Database(where)
        database.check_driver()
        own = worker_name(services.clock).replace("worker-", "relay-", 1) if name is None else name
        return Relay(database, services.engine, services.clock, services.events, own)

    def _written(self) -> None:
        """Nudge the relays of this process, because a row was written here."""
        if self._relay is not None:
            self._relay.nudge()


def checked_outbox(url: str | None) -> str | None:
    """The outbox given to an app, or else the one from the environment."""
    given = url if url is not None else os.environ.get("TORIL_OUTBOX") or None
    if given is None:
        return None
    from toril.outbox.database import check_url  # noqa: PLC0415 - as above

    return check_url(given)
