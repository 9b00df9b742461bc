"""`SqlEngine`: each core method of the seam as one step in a thread; capabilities are attributes."""

import asyncio
import os
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, Literal, TypeVar

from toril.engines.sql import control, inspector, maintenance, replay
from toril.engines.sql.add import add
from toril.engines.sql.audit import SqlAudit
from toril.engines.sql.breakers import SqlCircuits
from toril.engines.sql.dead_letters import SqlDeadLetters
from toril.engines.sql.driver import SqlDatabase
from toril.engines.sql.exchange import exchange
from toril.engines.sql.faults import ReadFacts, SqlRepairs
from toril.engines.sql.flows import SqlFlows
from toril.engines.sql.groups import SqlGroups
from toril.engines.sql.inspector import SqlInspector
from toril.engines.sql.leases import recover, renew, report
from toril.engines.sql.metrics import SqlMetrics
from toril.engines.sql.notifier import LocalNotifier, Waiter
from toril.engines.sql.schedules import SqlSchedules
from toril.engines.sql.steps import SqlSteps
from toril.engines.sql.threads import InlineWriter, ReaderThread, Runner, WriterThread
from toril.engines.sql.transaction import Op, Steps
from toril.engines.sql.transfer_import import SqlTransfers
from toril.engines.sql.writer import Writer
from toril.errors import Closed, EngineUnusable, InvalidOption, TorilError
from toril.model import (
    Added,
    Call,
    Claim,
    ControlResult,
    Exchange,
    Finished,
    Health,
    Heartbeat,
    Lease,
    NewJob,
    Pending,
    Recovered,
    Renewed,
    Report,
    Setting,
    Settings,
    Settlement,
    Swept,
    Update,
    Verdict,
    WorkerRequest,
)
from toril.model.states import State
from toril.runtime.clock import Clock
from toril.store.checked import implements
from toril.store.engine import Engine

__all__ = ["BRIEF", "SqlEngine"]

T = TypeVar("T")

BRIEF: Final = 10  # jobs that are added, settled or claimed in no time


@implements(Engine)
class SqlEngine(SqlInspector):
    """A store in an SQL database. `database` creates the driver's access to it, again in each fork of the process."""

    def __init__(
        self, database: Callable[[], SqlDatabase], facts: ReadFacts, *, clock: Clock, inline: bool = False
    ) -> None:
        steps = Steps(self._write, self._read, self._read_now)
        super().__init__(steps)
        self.dead_letters = SqlDeadLetters(steps)
        self.circuits = SqlCircuits(steps)
        self.flows = SqlFlows(steps)
        self.groups = SqlGroups(steps)
        self.schedules = SqlSchedules(steps)
        self.steps = SqlSteps(steps)
        self.metrics = SqlMetrics(steps)
        self.audit = SqlAudit(steps)
        self.transfers = SqlTransfers(steps)
        self.repairs = SqlRepairs(steps, facts)
        self._database = database
        self._clock = clock
        self._inline = inline
        self._pid = os.getpid()
        self._adopting = False
        self._assemble()

    def _assemble(self) -> None:
        database = self._database()
        self.in_memory = database.in_memory
        self._notifier = LocalNotifier(None if self._inline else database.process_notifier())
        self._writer = Writer(database, self._clock, self._notifier)
        self._runner: Runner = (
            InlineWriter(self._writer) if self._inline else WriterThread(self._writer, self._notifier, self._clock)
        )
        own_reader = not self._inline and not database.in_memory
        self._reader = ReaderThread(database, self._clock) if own_reader else None
        self._open = False
        # For each queue, the mark of what had arrived when a claim last found it empty.
        self._exhausted: dict[str, str] = {}
        self._heard: dict[str, str] = {}

    async def open(self) -> None:
        if not self._open:
            await self._runner.start()
            self._open = True

    async def close(self) -> None:
        if not self._open:
            return
        self._open = False
        self._notifier.notify_all()
        try:
            if self._reader is not None:
                await self._reader.stop()
        finally:
            await self._runner.stop()
            self._notifier.close()

    async def health(self) -> Health:
        try:
            await self._here()
            return await self._runner.health()
        except TorilError as error:
            return Health(ok=False, detail=str(error), now=self._clock.now())

    async def exchange(
        self,
        queue: str,
        batch: Sequence[Settlement],
        claim: Claim,
        *,
        call: Call | None = None,
        now: int | None = None,
    ) -> Exchange:
        step = partial(exchange, queue=queue, batch=batch, claim=claim, call=call)
        exchanged = await self._write(step, now, brief=len(batch) <= BRIEF and claim.want <= BRIEF)
        if exchanged.exhausted_at is not None:
            self._exhausted[queue] = exchanged.exhausted_at
        return exchanged.answer

    async def wait(self, queues: Sequence[str], *, timeout: int) -> set[str]:
        names = list(dict.fromkeys(queues))
        await self._here()
        until = self._clock.monotonic() + timeout / 1000
        while True:
            waiter = self._notifier.listen(names)
            try:
                found = await self._fresh(names)
                heard = [] if found else await self._notified_before(waiter, until)
                # Notifications from this process are certainly new; changes by other processes must be looked up.
                found |= {name for name in heard or () if not name.startswith(":")}
                if found or heard is None:
                    return found
            finally:
                self._notifier.forget(names, waiter)

    async def _fresh(self, names: Sequence[str]) -> set[str]:
        """Queues in which something has arrived since a claim found them empty, and calls that were not yet noticed."""
        queues = [name for name in names if not name.startswith(":")]
        workers = [name[1:] for name in names if name.startswith(":")]
        arrivals = await self._read_now(partial(inspector.arrivals, names=queues)) if queues else {}
        calls = await self._read_now(partial(inspector.worker_calls, names=workers)) if workers else {}
        found = {
            name for name, mark in arrivals.items() if self._exhausted.get(name) != mark and not mark.endswith(".0")
        }
        for worker, mark in calls.items():
            if self._heard.get(worker) != mark:
                self._heard[worker] = mark
                found.add(f":{worker}")
        return found

    async def _notified_before(self, waiter: Waiter, until: float) -> list[str] | None:
        """The names notified before the time is up; None: none was, or the store was closed."""
        try:
            async with asyncio.timeout(max(0.0, until - self._clock.monotonic())):
                heard = await waiter
        except TimeoutError:
            return None
        return heard if self._open else None

    async def finished(self, queue: str, ids: Sequence[str], *, timeout: int) -> list[Finished]:
        names = [f"={queue}"]
        await self._here()
        until = self._clock.monotonic() + timeout / 1000
        found: dict[str, Finished] = {}
        while True:
            pending = [each for each in ids if each not in found or isinstance(found[each].ended, Pending)]
            waiter = self._notifier.listen(names)
            try:
                ended = await self._read_now(partial(inspector.finished, name=queue, ids=pending))
                found |= {each.id: each for each in ended}
                over = not any(isinstance(each.ended, Pending) for each in ended)
                if over or await self._notified_before(waiter, until) is None:
                    if not over and not self._open:
                        raise Closed(f"{self!r} was closed while waiting for results")
                    return [found[each] for each in ids]
            finally:
                self._notifier.forget(names, waiter)

    async def _write(self, op: Op[T], now: int | None, *, grows: bool = False, brief: bool = False) -> T:
        await self._here()
        return await self._runner.write(op, now, grows=grows, brief=brief)

    async def _read(self, op: Op[T], now: int | None = None) -> T:
        await self._here()
        return await (self._reader or self._runner).read(op, now)

    async def _read_now(self, op: Op[T], now: int | None = None) -> T:
        await self._here()
        return await self._runner.read(op, now)

    async def _here(self) -> None:
        """Make sure that the store is open in this process."""
        if self._pid != os.getpid() and self._open:
            if self.in_memory:
                raise EngineUnusable(
                    "an in-memory store cannot be used in a forked process, only in the one that opened it"
                )
            self._pid = os.getpid()
            self._assemble()
            self._adopting = True
        if self._adopting:
            await self.open()  # several first callers may do so: the runner starts once
            self._adopting = False
        if not self._open:
            raise Closed(f"{self!r} is not open; open it with `async with app:`")

    async def retry(
        self, queue: str, ids: Sequence[str], *, call: Call | None = None, now: int | None = None
    ) -> ControlResult:
        return await self._steps.write(partial(replay.retry, queue=queue, ids=ids, call=call), now)

    async def promote(
        self, queue: str, ids: Sequence[str], *, call: Call | None = None, now: int | None = None
    ) -> ControlResult:
        return await self._steps.write(partial(control.promote, queue=queue, ids=ids, call=call), now)

    async def cancel(
        self, queue: str, ids: Sequence[str], *, reason: str, call: Call | None = None, now: int | None = None
    ) -> ControlResult:
        return await self._steps.write(partial(control.cancel, queue=queue, ids=ids, reason=reason, call=call), now)

    async def remove(
        self, queue: str, ids: Sequence[str], *, call: Call | None = None, now: int | None = None
    ) -> ControlResult:
        return await self._steps.write(partial(control.remove, queue=queue, ids=ids, call=call), now)

    async def update(
        self, queue: str, updates: Sequence[Update], *, call: Call | None = None, now: int | None = None
    ) -> ControlResult:
        return await self._steps.write(partial(control.update, queue=queue, updates=updates, call=call), now)

    async def drain(
        self,
        queue: str,
        *,
        states: frozenset[State],
        limit: int = 1000,
        call: Call | None = None,
        now: int | None = None,
    ) -> Swept:
        return await self._steps.write(partial(control.drain, queue=queue, states=states, limit=limit, call=call), now)

    async def clean(
        self,
        queue: str,
        *,
        state: State,
        grace: int,
        limit: int = 1000,
        call: Call | None = None,
        now: int | None = None,
    ) -> Swept:
        return await self._steps.write(
            partial(control.clean, queue=queue, state=state, grace=grace, limit=limit, call=call), now
        )

    async def obliterate(
        self,
        queue: str,
        *,
        running: Literal["refuse", "remove"] = "refuse",
        limit: int = 1000,
        call: Call | None = None,
        now: int | None = None,
    ) -> Swept:
        return await self._steps.write(
            partial(control.obliterate, queue=queue, running=running, limit=limit, call=call), now
        )

    async def configure(
        self, queue: str, settings: Sequence[Setting], *, call: Call | None = None, now: int | None = None
    ) -> Settings:
        return await self._steps.write(partial(control.configure, queue=queue, settings=settings, call=call), now)

    async def report(
        self, queue: str, reports: Sequence[Report], *, call: Call | None = None, now: int | None = None
    ) -> list[Verdict]:
        return await self._steps.write(partial(report, queue=queue, reports=reports, call=call), now)

    async def recover(
        self,
        queue: str,
        *,
        dead: Sequence[Lease] = (),
        cause: str | None = None,
        limit: int = 1000,
        now: int | None = None,
    ) -> Recovered:
        return await self._steps.write(partial(recover, queue=queue, dead=dead, cause=cause, limit=limit), now)

    async def prune(self, queue: str, *, limit: int = 1000, now: int | None = None) -> int:
        return await self._steps.write(partial(maintenance.prune, queue=queue, limit=limit), now)

    async def resign(self, role: str, owner: str) -> bool:
        return await self._steps.write(partial(maintenance.resign, role=role, owner=owner), None)

    async def signal(self, worker: str, order: WorkerRequest, *, now: int | None = None) -> bool:
        return await self._steps.write(partial(maintenance.signal, worker=worker, order=order), now)

    async def once(self, key: str, owner: str, *, ttl: int, now: int | None = None) -> bool:
        return await self._steps.write(partial(maintenance.once, key=key, owner=owner, ttl=ttl), now)

    async def renew(self, leases: Sequence[Lease], *, ttl: int, now: int | None = None) -> Renewed:
        return await self._steps.write(partial(renew, leases=leases, ttl=ttl), now)

    async def heartbeat(self, beat: Heartbeat, *, ttl: int, now: int | None = None) -> tuple[WorkerRequest, ...]:
        return await self._steps.write(partial(maintenance.heartbeat, beat=beat, ttl=ttl), now)

    async def add(
        self, queue: str, jobs: Sequence[NewJob], *, call: Call | None = None, now: int | None = None
    ) -> list[Added]:
        if not jobs and call is None:
            return []
        return await self._steps.write(partial(add, queue=queue, jobs=jobs, call=call), now, grows=bool(jobs))

    async def lead(self, role: str, owner: str, *, ttl: int, now: int | None = None) -> bool:
        if self.in_memory:
            raise InvalidOption("an in-memory store has one process, so there is no leader to elect; turn election off")
        return await self._steps.write(partial(maintenance.lead, role=role, owner=owner, ttl=ttl), now)
