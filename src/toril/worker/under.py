"""A worker process under a supervisor: what it tells it, and what it hears from it.

The supervisor keeps the leases that stand in the shared table. Should it die, its end of the line closes: the worker
then keeps its leases itself, and begins to stop.
"""

import asyncio
import json
import socket
import threading
from collections.abc import Callable
from typing import Any, Final

from toril.clock import Clock, Timer
from toril.engine import Engine
from toril.model import Cancellation, Extended, Lease
from toril.worker.leases import Keeper, Tell
from toril.worker.quarantine import Suspects
from toril.worker.table import Held, Table

__all__ = ["TableKeeper", "Under"]

_TICK: Final = 0.5  # seconds


class Under:
    """The worker's end of the line to its supervisor: a JSON document a line, both ways."""

    def __init__(self, line: int, memory: int, suspects: Suspects = Suspects.MAKE_WAY) -> None:
        self.suspects = suspects
        self._socket = socket.socket(fileno=line)
        self._sending = threading.Lock()
        self._table = Table(memory)

    def keeper(
        self, engine: Engine, clock: Clock, *, owned: bool, rouse: Callable[[], None],
        stalled: Callable[[str, list[str]], None], look: Callable[[], None],
    ) -> "TableKeeper":  # fmt: skip
        """What keeps leases in this process: it leaves that to the supervisor."""
        return TableKeeper(engine, clock, self, self._table, owned=owned, orphaned=rouse, stalled=stalled, look=look)

    def say(self, **message: Any) -> None:
        """Tell the supervisor; if it is gone, whoever listens will notice."""
        try:
            with self._sending:
                self._socket.sendall(json.dumps(message).encode() + b"\n")
        except OSError:
            return

    def listen(self, hear: Callable[[dict[str, Any]], None]) -> None:
        """Hear what comes, until the supervisor is gone."""
        try:
            with self._socket.makefile("rb") as lines:
                for line in lines:
                    hear(json.loads(line))
        except OSError:
            return


class TableKeeper(Keeper):
    """Has the leases kept by the supervisor, and by this process itself once that is gone."""

    def __init__(
        self, engine: Engine, clock: Clock, line: Under, table: Table, *, owned: bool,
        orphaned: Callable[[], None], stalled: Callable[[str, list[str]], None], look: Callable[[], None],
    ) -> None:  # fmt: skip
        super().__init__(engine, clock, owned=owned)
        self._line = line
        self._table = table
        self._orphaned = orphaned
        self._stalled = stalled
        self._look = look
        self._ticking: Timer | None = None
        self._home: asyncio.AbstractEventLoop | None = None

    def hold(self, lease: Lease, *, ttl: int, renew: int, since: float, tell: Tell) -> None:
        super().hold(lease, ttl=ttl, renew=renew, since=since, tell=tell)
        self._table.put(Held(lease, since, ttl, renew))

    def release(self, lease: Lease) -> None:
        super().release(lease)
        self._table.drop(lease)

    def ask(self) -> None:
        super().ask()
        self._line.say(ask=True)

    def start(self) -> None:
        self._home = asyncio.get_running_loop()
        self._tick(self._clock.monotonic())
        super().start()

    async def stop(self) -> None:
        """The thread stays in its wait for the supervisor; it is a daemon."""
        self._stopping = True
        if self._ticking is not None:
            self._ticking.cancel()

    def _tick(self, due: float) -> None:
        now = self._clock.monotonic()
        self._table.tick(now, now - due)
        self._ticking = self._clock.later(_TICK, lambda: self._tick(now + _TICK))

    def _main(self) -> None:
        self._line.listen(self._hear)
        if not self._stopping:
            self._orphaned()
            self.ask_all()
            super()._main()

    def ask_all(self) -> None:
        """Nobody knows when the supervisor last renewed: renew everything at once."""
        now = self._clock.monotonic()
        for held in list(self._held.values()):
            held.due, held.deadline = now, now + held.ttl / 1000

    def _hear(self, message: dict[str, Any]) -> None:
        for words in message.get("lost", ()):
            self._tell(Lease(*words), Extended(lost=(Lease(*words),)))
        for *words, reason in message.get("cancelled", ()):
            self._tell(Lease(*words), Extended(cancelled=(Cancellation(Lease(*words), reason),)))
        if self._home is None or self._home.is_closed():
            return
        if "stalled" in message:
            self._home.call_soon_threadsafe(self._stalled, *message["stalled"])
        if "look" in message:
            self._home.call_soon_threadsafe(self._look)

    def _tell(self, lease: Lease, found: Extended) -> None:
        held = self._held.get(lease)
        if held is not None:
            held.tell(found)
