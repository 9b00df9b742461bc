"""A worker process's side of the connection to its supervisor. The supervisor renews the leases in the shared table,
and notes there when it last did. A worker whose supervisor does not renew them does so itself, until the supervisor is
back. If the supervisor dies, its end of the connection closes, and the worker begins to stop."""

import asyncio
import contextlib
import select
import signal
import socket
import threading
from collections.abc import Callable
from typing import Any, Final

from toril.model import Cancellation, Lease, Renewed
from toril.runtime.clock import SYSTEM, Clock, Timer
from toril.runtime.logs import log
from toril.store.engine import Engine
from toril.worker.isolation import SuspectPolicy
from toril.worker.lease_table import LeaseEntry, LeaseTable
from toril.worker.leases import HeldLease as Kept
from toril.worker.leases import LeaseKeeper, Tell
from toril.worker.messages import Decoder, Message, MessageTooLong, encoded

__all__ = ["SIGNALS", "SupervisorLink", "TableKeeper"]

# Signals that may be sent to a whole group; a worker process starts with these blocked.
SIGNALS: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT, signal.SIGHUP, signal.SIGUSR1)

_TICK: Final = 0.5  # seconds
_CHUNK: Final = 1 << 16
_UNSENT: Final = 1 << 20  # bytes to keep for a supervisor that does not read; more is dropped
_BOOT: Final = 5.0  # seconds that a message of the boot may wait for such a supervisor


class SupervisorLink:
    """The worker's end of the connection to its supervisor, and the memory that both share."""

    def __init__(self, line: int, memory: int, suspects: SuspectPolicy = SuspectPolicy.HOLD_CLAIMS) -> None:
        self.suspects = suspects
        self._keeper: TableKeeper | None = None
        self._socket = socket.socket(fileno=line)
        self._sending = threading.Lock()
        self._unsent = bytearray()
        self._table = LeaseTable(memory)

    def keeper(self, engine: Engine, clock: Clock, *, owned: bool) -> "TableKeeper":
        """The keeper of leases in this process, which leaves them to the supervisor as long as that renews them."""
        self._keeper = TableKeeper(engine, clock, self, self._table, owned=owned)
        return self._keeper

    def requested(self) -> int:
        """How urgently the supervisor wants this process to stop."""
        return self._table.urgency

    def say(self, **message: Any) -> None:
        """Send a message. This never waits: if a frozen supervisor does not read, messages are sent later, or dropped
        if there are too many. If the supervisor has died, the listening thread will notice."""
        with self._sending:
            if len(self._unsent) <= _UNSENT:
                self._unsent += encoded(message)
            self._send()

    def flush(self) -> None:
        """Send what could not be sent before."""
        if self._unsent:
            with self._sending:
                self._send()

    def tell(self, **message: Any) -> None:
        """Send a message that the supervisor must get before this process works or ends. This may wait for a while;
        nothing runs yet that it could hold up."""
        until = SYSTEM.monotonic() + _BOOT
        with self._sending:
            self._unsent += encoded(message)
            while self._send() and (left := until - SYSTEM.monotonic()) > 0:
                select.select([], [self._socket], [], left)

    def _send(self) -> bool:
        """Send what fits now; returns whether there is more."""
        try:
            while self._unsent:
                del self._unsent[: self._socket.send(self._unsent[:_CHUNK], socket.MSG_DONTWAIT)]
        except BlockingIOError:
            return True
        except OSError:  # the supervisor has died
            self._unsent.clear()
        return False

    def start(self, *, orphaned: Callable[[], None], stalled: Callable[..., None], look: Callable[[], None]) -> None:
        """Listen from now on, in a thread. `orphaned` is called there, the others on the running loop."""
        home = asyncio.get_running_loop()

        def hear(message: Message) -> None:
            self._pass_on(message)
            with contextlib.suppress(RuntimeError):  # the loop is closed, so nobody is interested
                if "stalled" in message:
                    home.call_soon_threadsafe(stalled, *message["stalled"])
                if "look" in message:
                    home.call_soon_threadsafe(look)

        def main() -> None:
            self._listen(hear)
            if self._keeper is not None:
                self._keeper.orphaned()
            orphaned()

        threading.Thread(target=main, name="toril-supervisor", daemon=True).start()

    def _listen(self, hear: Callable[[Message], None]) -> None:
        """Listen until the supervisor has died."""
        decoder = Decoder()
        while True:
            try:
                data = self._socket.recv(_CHUNK)
                messages = decoder.feed(data)
            except (OSError, MessageTooLong) as error:
                log.error("lost the connection to the supervisor: %s", error)
                return
            if not data:
                return
            for message in messages:
                try:
                    hear(message)
                except Exception:  # a malformed message must not stop the others
                    log.exception("cannot handle a message from the supervisor")

    def _pass_on(self, message: Message) -> None:
        lost = tuple(Lease(*words) for words in message.get("lost", ()))
        cancelled = tuple(Cancellation(Lease(*words), reason) for *words, reason in message.get("cancelled", ()))
        if self._keeper is not None and (lost or cancelled):
            self._keeper.found(Renewed(lost=lost, cancelled=cancelled))


class TableKeeper(LeaseKeeper):
    """Leaves leases to the supervisor, and keeps those itself that the supervisor does not renew."""

    def __init__(self, engine: Engine, clock: Clock, line: SupervisorLink, table: LeaseTable, *, owned: bool) -> None:
        super().__init__(engine, clock, owned=owned)
        self._line = line
        self._table = table
        self._unlisted: set[Lease] = set()  # held, but not in the table
        self._alone = False  # whether the supervisor does not renew leases
        self._orphaned = False
        self._ended = threading.Event()
        self._ticking: Timer | None = None

    def hold(self, lease: Lease, *, ttl: int, renew: int, since: float, tell: Tell) -> None:
        super().hold(lease, ttl=ttl, renew=renew, since=since, tell=tell)
        if not self._table.put(LeaseEntry(lease, since, ttl, renew)):
            self._unlisted.add(lease)

    def release(self, lease: Lease) -> None:
        super().release(lease)
        self._unlisted.discard(lease)
        self._table.drop(lease)

    def ask(self) -> None:
        super().ask()
        self._line.say(ask=True)

    def start(self) -> None:
        self._tick(self._clock.monotonic())
        super().start()

    async def stop(self) -> None:
        self._ended.set()
        if self._ticking is not None:
            self._ticking.cancel()
        await super().stop()

    def _tick(self, due: float) -> None:
        now = self._clock.monotonic()
        self._table.tick(now, now - due)
        self._ticking = self._clock.later(_TICK, lambda: self._tick(now + _TICK))

    def _main(self) -> None:
        """Watch the supervisor. An event loop and a connection to the store are only created when needed."""
        while not self._ended.wait(self.rest):
            self._line.flush()
            if self._wanted():
                self._asked = True  # ask the store about all of them
                super()._main()
                return

    async def _prepare(self) -> None:
        """What has to be renewed is due already."""

    async def renew_due(self) -> None:
        self._line.flush()
        await self._renew_all(self._wanted())

    def _wanted(self) -> list[Lease]:
        """The leases that this process must renew itself now: those not in the table, and those that the supervisor has
        not renewed for half their length. From then on it renews everything that is due, until it sees that the
        supervisor does."""
        now, wanted = self._clock.monotonic(), list[Lease]()
        asked, self._asked = self._asked, False  # a supervisor that renews leases was asked too
        for lease, held in list(self._held.items()):
            self._note_renewal(lease, held)
            own = self._alone or lease in self._unlisted
            neglected = held.deadline - held.ttl / 1000 + _patience(held.ttl / 1000, held.renew) <= now
            if not own and neglected:
                log.warning(
                    "the supervisor has not renewed a lease for %g s; this process now renews its leases itself",
                    _patience(held.ttl / 1000, held.renew),
                )
                self._alone = own = True
            if own and (asked or held.due <= now):
                wanted.append(lease)
        return wanted

    def _note_renewal(self, lease: Lease, held: Kept) -> None:
        """Take over the time of the supervisor's last renewal, if it is later than this process's own."""
        renewed = self._table.renewed(lease)
        if renewed + held.ttl / 1000 > held.deadline:
            held.due, held.deadline = renewed + held.renew, renewed + held.ttl / 1000
            if self._alone and not self._orphaned:
                self._alone = False
                log.info("the supervisor is renewing leases again")

    def orphaned(self) -> None:
        """The supervisor has died."""
        self._alone = self._orphaned = True

    def found(self, found: Renewed) -> None:
        """The results of the supervisor's renewals."""
        for lease in found.lost:
            self._tell(lease, Renewed(lost=(lease,)))
        for request in found.cancelled:
            self._tell(request.lease, Renewed(cancelled=(request,)))

    def _tell(self, lease: Lease, found: Renewed) -> None:
        held = self._held.get(lease)
        if held is not None:
            held.tell(found)


def _patience(ttl: float, renew: float) -> float:
    """Seconds without a renewal after which a worker renews a lease itself: half of the lease, or later if the
    supervisor is not due to renew it before that."""
    return ttl / 2 if renew <= ttl * 2 / 5 else (renew + ttl) / 2
