"""The reaper: recovers the jobs of dead workers in every queue of a store, including queues without workers.

Worker processes recover their own queues by themselves. The reaper looks after all of them, and an elected leader
ensures that one of many reapers does the work. The lead only saves work: each recovery checks the leases in the store,
so two leaders at once are harmless.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from toril.errors import EngineUnavailable, InvalidOption, TorilError
from toril.events import Events, WorkerEvent, tell_recovered, trouble
from toril.model import REAPER, Fault, Recovered
from toril.operate.doctor import AutoRepair, Doctor
from toril.runtime.clock import Clock
from toril.runtime.logs import Contact
from toril.store.connect import is_in_memory
from toril.store.engine import Engine, Store

__all__ = ["LEASE", "Election", "Reaper", "check_electable"]

LEASE: Final = 30.0  # seconds; renewed at a third of it, and sought at a sixth
_STALL_INTERVAL: Final = 1.0  # seconds; a lease that began after the last look is found this late at most
_NAMES: Final = 1.0  # seconds between looks for new queues, at least
_PRUNE: Final = 60.0
_REPAIR: Final = 300.0  # seconds between looks for what is repaired automatically
_LOOKS: Final = 200  # in one of these: some twenty thousand ids on Redis
_AFTER_AN_ERROR: Final = 5.0
_RESIGN: Final = 0.5  # seconds


def check_electable(url: str) -> None:
    """Raise if there can be no other reapers to elect a leader among."""
    if is_in_memory(url):
        raise InvalidOption(
            "memory:// is private to one process, which needs no reaper; use sqlite://, postgresql:// or redis://"
        )


class Election:
    """Leads, or waits for the leadership. A leader that cannot reach the store stops leading in time, by its own clock.
    The leadership is renewed at a third of its lease and sought at a sixth, unless other intervals are given."""

    def __init__(
        self,
        engine: Engine,
        clock: Clock,
        owner: str,
        on_change: Callable[[bool], None],
        *,
        role: str = REAPER,
        lease: float = LEASE,
        renew: float | None = None,
        interval: float | None = None,
        failed: Callable[[TorilError], None] = lambda _: None,
    ) -> None:
        self._engine = engine
        self._clock = clock
        self._owner = owner
        self._on_change = on_change
        self._role = role
        self._lease = lease
        self._renew = lease / 3 if renew is None else renew
        self._interval = lease / 6 if interval is None else interval
        self._failed = failed
        self._until = 0.0
        self._led = False
        self.stood = asyncio.Event()  # set after the first attempt

    @property
    def leads(self) -> bool:
        return self._led and self._clock.monotonic() < self._until

    async def run(self) -> None:
        """Until cancelled; then the lead is given up, if it is ours."""
        try:
            while True:
                await self.stand()
                rest = self._renew if self._led else self._interval
                await self._clock.sleep(rest * (0.9 + 0.1 * self._clock.random()))
        finally:
            if self._led:
                self._set(leads=False)
                await self._resign()

    async def stand(self) -> None:
        """Try once to become or remain the leader."""
        sent = self._clock.monotonic()
        try:
            leads = await self._engine.lead(self._role, self._owner, ttl=round(self._lease * 1000))
        except TorilError as error:
            self._failed(error)
            leads = self.leads  # until the lease of the last answer is over
        else:
            self._until = sent + self._lease if leads else 0.0
        self._set(leads=leads)
        self.stood.set()

    async def _resign(self) -> None:
        """Give up the leadership. If the store does not answer soon, it expires by itself, so nobody's exit waits for
        it."""
        try:
            async with asyncio.timeout(_RESIGN):
                await self._engine.resign(self._role, self._owner)
        except TimeoutError:
            return
        except TorilError as error:
            self._failed(error)

    def _set(self, *, leads: bool) -> None:
        if leads is not self._led:
            self._led = leads
            self._on_change(leads)


class Reaper:
    """One reaper. Without an election it acts as if it always led. For the first `unled` seconds it recovers jobs
    without leading too, because the leader may be dead."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        events: Events,
        name: str,
        *,
        queues: Sequence[str] | None = None,
        elected: bool = True,
        lease: float = LEASE,
        renew: float | None = None,
        election_interval: float | None = None,
        stall_interval: float = _STALL_INTERVAL,
        unled: float = 0.0,
        repair_interval: float = _REPAIR,
        recovered: Callable[[str, Recovered, float], None] = lambda *_: None,
    ) -> None:
        self._store = store
        self._clock = clock
        self._events = events
        self._name = name
        self._named = queues
        self._queues: Sequence[str] = queues or ()
        self._rest = stall_interval
        self._unled = unled
        self._unled_until = 0.0
        self._recovered = recovered
        self._repair_interval = repair_interval
        self._led = asyncio.Event()
        self._contact = Contact()
        self._election = None
        if elected:
            self._election = Election(
                store,
                clock,
                f"{name}/{clock.unique()[:8]}",
                self._lead_changed,
                lease=lease,
                renew=renew,
                interval=election_interval,
                failed=self._failed,
            )
        else:
            self._led.set()

    async def run(self) -> None:
        """Run until cancelled. The first sweep is made at once."""
        self._unled_until = self._clock.monotonic() + self._unled
        async with asyncio.TaskGroup() as group:
            if self._election is not None:
                group.create_task(self._election.run())
            group.create_task(self._sweeps())
            group.create_task(self._prunes())
            group.create_task(self._repair_round())

    @property
    def leads(self) -> bool:
        """Whether it leads, or need not be elected."""
        return self._election is None or self._election.leads

    @property
    def _is_new(self) -> bool:
        return self._clock.monotonic() < self._unled_until

    async def _sweeps(self) -> None:
        looked, names = None, max(_NAMES, self._rest)
        if self._election is not None:
            await self._election.stood.wait()
        while True:
            if not self._is_new:
                await self._led.wait()
            try:
                if self._named is None and (looked is None or self._clock.monotonic() - looked >= names):
                    self._queues, looked = await self._store.queues(), self._clock.monotonic()
                rest = await self._sweep()
            except TorilError as error:
                self._failed(error)
                rest = _AFTER_AN_ERROR
            await self._clock.sleep(rest)

    async def _sweep(self) -> float:
        """Recover in all queues once. Returns how long to rest: until the first known lease expires, but not too
        long."""
        rest = self._rest
        for queue in self._queues:
            with self._kept_to(queue):
                while self.leads or self._is_new:
                    asked_at = self._clock.monotonic()
                    found = await self._store.recover(queue)
                    self._contact.made()
                    self._recovered(queue, found, asked_at)
                    tell_recovered(self._events, queue, found, self._name)
                    if found.next_deadline is not None:
                        rest = min(rest, max(0.05, (found.next_deadline - found.now) / 1000))
                    if not found.more:
                        break
        return rest

    @contextmanager
    def _kept_to(self, queue: str) -> Iterator[None]:
        """Report an error of one queue without affecting the others. If the store is away, it is away for all of
        them."""
        try:
            yield
        except EngineUnavailable:
            raise
        except TorilError as error:
            self._failed(error, queue)

    async def _prunes(self) -> None:
        while True:
            await self._clock.sleep(_PRUNE * (0.5 + self._clock.random()))
            try:
                for queue in self._queues:
                    with self._kept_to(queue):
                        while self.leads and await self._store.prune(queue) >= 1000:
                            pass
            except TorilError as error:
                self._failed(error)

    async def _repair_round(self) -> None:
        """Now and then, repair what needs no confirmation."""
        repairs = AutoRepair(Doctor(self._store, self._clock), _LOOKS)
        try:
            while True:
                await self._clock.sleep(self._repair_interval * (0.5 + self._clock.random()))
                await self._led.wait()
                try:
                    repaired = await repairs.round(self._queues) if self.leads else []
                except TorilError as error:
                    self._failed(error)
                else:
                    self._report_repairs(repaired)
        finally:
            await repairs.close()

    def _report_repairs(self, repaired: Sequence[Fault]) -> None:
        if repaired:
            kinds = Counter(fault.kind.value for fault in repaired)
            summary = ", ".join(f"{count} {kind}" for kind, count in kinds.items())
            self._events.emit("repaired", WorkerEvent(worker=self._name, faults=summary, detail=tuple(repaired)))

    def _lead_changed(self, leads: bool) -> None:  # noqa: FBT001 - a callback with one fact
        if leads:
            self._led.set()
        else:
            self._led.clear()
        event = WorkerEvent(worker=self._name, detail=self._name)
        self._events.emit("leadership_acquired" if leads else "leadership_lost", event)

    def _failed(self, error: TorilError, queue: str | None = None) -> None:
        if isinstance(error, EngineUnavailable):
            self._contact.lost()
        self._events.emit("error", trouble(error, self._name, queue))
