"""Keeps the leases of a worker process, apart from the event loop that runs its handlers.

So a handler that blocks the loop does not lose its job. One that blocks it for longer than the hang timeout does: it
cannot be ended from here, and another worker can run the job.
"""

import asyncio
import contextlib
import sys
import threading
import traceback
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from toril.errors import TorilError
from toril.model import BATCH, Lease, Renewed
from toril.runtime.clock import Clock
from toril.runtime.logs import Contact, log, outages
from toril.store.engine import Engine

__all__ = ["RETRY", "HeldLease", "LeaseKeeper", "LoopKeeper", "Tell"]

# Called with what a renewal found: lost leases, and jobs to be stopped.
Tell = Callable[[Renewed], None]

_LOOK: Final = 0.25  # seconds between two checks of the table
_LOOKS: Final = 16  # least number of checks within the shortest lease
RETRY: Final = 0.5  # seconds before a renewal that was not answered is sent again


@dataclass(slots=True)
class HeldLease:
    """A lease that is kept here. It expires a lease's length after it was last renewed."""

    ttl: int
    renew: float
    due: float
    deadline: float
    tell: Tell


class LeaseKeeper:
    """The table of held leases. `hold` and `release` may be called from the loop while `keep` runs elsewhere."""

    def __init__(self, engine: Engine, clock: Clock, *, owned: bool = False, hang_timeout: float | None = None) -> None:
        self._engine = engine
        self._owned = owned
        self._clock = clock
        self._held: dict[Lease, HeldLease] = {}
        self._shortest = _LOOK * _LOOKS  # seconds; the shortest lease held so far, if shorter
        self._stopping = False
        self._asked = False
        self._thread: threading.Thread | None = None
        self._hang_timeout = hang_timeout
        self._home: tuple[asyncio.AbstractEventLoop, int] | None = None  # the handlers' loop, and its thread
        self._asked_loop: float | None = None  # when that loop was asked to respond, if it has not yet
        self._hung = False
        self._contact = Contact()

    def hold(self, lease: Lease, *, ttl: int, renew: int, since: float, tell: Tell) -> None:
        """Keep this lease. `since` is when it was requested: it cannot have begun earlier."""
        self._shortest = min(self._shortest, ttl / 1000)
        self._held[lease] = HeldLease(ttl, renew / 1000, since + renew / 1000, since + ttl / 1000, tell)

    def release(self, lease: Lease) -> None:
        self._held.pop(lease, None)

    @property
    def rest(self) -> float:
        """Seconds between two checks."""
        return self._shortest / _LOOKS

    def ask(self) -> None:
        """Ask the store about every lease soon: some jobs may have to stop."""
        self._asked = True

    def start(self) -> None:
        """Keep leases in a separate thread."""
        self._home = asyncio.get_running_loop(), threading.get_ident()
        self._thread = threading.Thread(target=self._main, name="toril-leases", daemon=True)
        self._thread.start()

    async def stop(self) -> None:
        self._stopping = True
        thread, self._thread = self._thread, None
        if thread is not None:
            await asyncio.get_running_loop().run_in_executor(None, thread.join)

    def _main(self) -> None:
        asyncio.run(self._keep_apart())

    async def _keep_apart(self) -> None:
        """Run on a loop of its own; a twin of the store that is used only there is closed there."""
        try:
            await self._prepare()
            await self.keep()
        finally:
            if self._owned:
                await self._engine.close()

    async def _prepare(self) -> None:
        if self._owned:
            await self._engine.health()  # connect now: later there may be no file descriptor left

    async def keep(self) -> None:
        """Renew what is due, again and again, until stopped."""
        while not self._stopping:
            await self._clock.sleep(self.rest)
            try:
                await self.renew_due()
            except Exception:  # the table must be kept whatever happens in one round
                log.exception("renewing leases failed")

    async def renew_due(self) -> None:
        """One round: renew what is due, and give up leases that could not be renewed in time."""
        now = self._clock.monotonic()
        asked, self._asked = self._asked, False
        wanted = [lease for lease, held in list(self._held.items()) if asked or held.due <= now]
        if wanted and self._hang_timeout is not None and self._home is not None:
            self._look_at_loop(*self._home, self._hang_timeout, now)
        await self._renew_all(wanted)

    def _look_at_loop(self, loop: asyncio.AbstractEventLoop, thread: int, timeout: float, now: float) -> None:
        """Whether the handlers' loop still responds."""
        if self._asked_loop is None:
            self._asked_loop = now
            with contextlib.suppress(RuntimeError):  # it is closed
                loop.call_soon_threadsafe(self._loop_answered)
        elif not self._hung and now - self._asked_loop >= timeout:
            self._hung = True
            stack = "".join(traceback.format_stack(sys._current_frames().get(thread)))  # noqa: SLF001 - meant for this
            log.error(
                "the event loop has been blocked for %g s: the leases of its %s jobs are no longer renewed, and other "
                "workers can run them. It is blocked here:\n%s",
                timeout,
                len(self._held),
                stack,
            )

    def _loop_answered(self) -> None:
        if self._hung:
            log.warning("the event loop runs again; this process has lost the jobs whose leases ran out")
        self._asked_loop, self._hung = None, False

    async def _renew_all(self, wanted: Iterable[Lease]) -> None:
        due: dict[tuple[int, Tell], list[Lease]] = {}
        for lease in wanted:
            if (held := self._held.get(lease)) is not None:
                due.setdefault((held.ttl, held.tell), []).append(lease)
        for (ttl, tell), leases in due.items():
            for start in range(0, len(leases), BATCH):
                await self._renew(leases[start : start + BATCH], ttl, tell)

    async def _renew(self, leases: list[Lease], ttl: int, tell: Tell) -> None:
        if self._hung:
            self._postpone(leases, tell)
            return
        sent = self._clock.monotonic()
        try:
            answer = await self._engine.renew(leases, ttl=ttl)
        except TorilError as error:
            outages.tell(str(error))
            self._contact.lost()
            self._postpone(leases, tell)
            return
        self._contact.made()
        for lease in answer.lost:
            self.release(lease)
        for lease in leases:
            held = self._held.get(lease)
            if held is not None:
                self._renewed(lease, held, sent)
        if answer.lost or answer.cancelled:
            tell(answer)

    def _renewed(self, _lease: Lease, held: HeldLease, sent: float) -> None:
        held.due, held.deadline = sent + held.renew, sent + held.ttl / 1000

    def _postpone(self, leases: list[Lease], tell: Tell) -> None:
        """They are not renewed now. Those whose time is over count as lost: another worker may have them."""
        now = self._clock.monotonic()
        lost = []
        for lease in leases:
            held = self._held.get(lease)
            if held is None:
                continue
            held.due = now + RETRY
            if held.deadline <= now:
                self.release(lease)
                lost.append(lease)
        if lost:
            tell(Renewed(lost=tuple(lost)))


class LoopKeeper(LeaseKeeper):
    """Keeps leases from the running loop: for clocks that only this loop can follow."""

    _task: "asyncio.Task[None] | None" = None

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self.keep())

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
