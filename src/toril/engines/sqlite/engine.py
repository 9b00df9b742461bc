"""What people and programs do to jobs and queues, as steps for the runner."""

import asyncio
import os
from abc import abstractmethod
from collections.abc import Sequence
from functools import partial
from typing import Literal, TypeVar

from toril.engines.sql import control, replay
from toril.engines.sql import control as sweep
from toril.engines.sql import inspector as reads
from toril.engines.sql import leases as held
from toril.engines.sql import maintenance as upkeep
from toril.engines.sql.add import add
from toril.engines.sql.audit import SqliteAudits
from toril.engines.sql.breakers import SqliteBreakers
from toril.engines.sql.dead_letters import SqliteDeadLetters
from toril.engines.sql.exchange import exchange
from toril.engines.sql.flows import SqliteFlows
from toril.engines.sql.groups import SqliteGroups
from toril.engines.sql.inspector import SqliteInspector
from toril.engines.sql.notifier import Bell, Waiter
from toril.engines.sql.schedules import SqliteSchedules
from toril.engines.sql.transaction import Op
from toril.engines.sql.transfer_import import SqliteMoves
from toril.engines.sqlite.repairs import SqliteRepairs
from toril.engines.sqlite.threads import Inline, Reader, Runner, Threaded
from toril.engines.sqlite.url import Address, parse
from toril.engines.sqlite.writer import Core
from toril.errors import Closed, EngineUnusable, InvalidOption, TorilError, shown
from toril.model import (
    BATCH,
    MAX_REASON_BYTES,
    Added,
    Beat,
    Call,
    Changed,
    Claim,
    Exchange,
    Extended,
    Finished,
    Health,
    Lease,
    NewJob,
    Pending,
    Recovered,
    Report,
    Setting,
    Settings,
    Settlement,
    Swept,
    Update,
    Verdict,
    WorkerOrder,
    storable,
    whole,
)
from toril.model.names import check_label, check_queue_name, check_worker_name
from toril.model.states import State
from toril.runtime.clock import SYSTEM, Clock

__all__ = ["SqliteControls", "SqliteEngine"]

T = TypeVar("T")


class SqliteControls(SqliteInspector):
    """The controls of the seam."""

    @abstractmethod
    async def _write(self, op: Op[T], now: int | None, *, grows: bool = False) -> T: ...

    async def retry(
        self, queue: str, ids: Sequence[str], *, call: Call | None = None, now: int | None = None
    ) -> Changed:
        queue = check_queue_name(queue)
        return await self._write(partial(replay.retry, queue=queue, ids=ids, call=call), now)

    async def promote(
        self, queue: str, ids: Sequence[str], *, call: Call | None = None, now: int | None = None
    ) -> Changed:
        queue = check_queue_name(queue)
        return await self._write(partial(control.promote, queue=queue, ids=ids, call=call), now)

    async def cancel(
        self, queue: str, ids: Sequence[str], *, reason: str, call: Call | None = None, now: int | None = None
    ) -> Changed:
        reason = storable(reason, MAX_REASON_BYTES)
        queue = check_queue_name(queue)
        return await self._write(partial(control.cancel, queue=queue, ids=ids, reason=reason, call=call), now)

    async def remove(
        self, queue: str, ids: Sequence[str], *, call: Call | None = None, now: int | None = None
    ) -> Changed:
        queue = check_queue_name(queue)
        return await self._write(partial(control.remove, queue=queue, ids=ids, call=call), now)

    async def update(
        self, queue: str, updates: Sequence[Update], *, call: Call | None = None, now: int | None = None
    ) -> Changed:
        queue = check_queue_name(queue)
        return await self._write(partial(control.update, queue=queue, updates=updates, call=call), now)

    async def drain(
        self,
        queue: str,
        *,
        states: frozenset[State],
        limit: int = 1000,
        call: Call | None = None,
        now: int | None = None,
    ) -> Swept:
        queue = check_queue_name(queue)
        return await self._write(partial(sweep.drain, queue=queue, states=states, limit=limit, call=call), now)

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
        queue = check_queue_name(queue)
        return await self._write(
            partial(sweep.clean, queue=queue, state=state, grace=grace, limit=limit, call=call), now
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
        if running not in {"refuse", "remove"}:
            raise InvalidOption(f"running must be 'refuse' or 'remove', not {shown(running)}")
        queue = check_queue_name(queue)
        return await self._write(partial(sweep.obliterate, queue=queue, running=running, limit=limit, call=call), now)

    async def configure(
        self, queue: str, settings: Sequence[Setting], *, call: Call | None = None, now: int | None = None
    ) -> Settings:
        queue = check_queue_name(queue)
        return await self._write(partial(sweep.configure, queue=queue, settings=settings, call=call), now)


class SqliteEngine(
    SqliteControls, SqliteDeadLetters, SqliteBreakers, SqliteAudits, SqliteRepairs, SqliteFlows, SqliteGroups,
    SqliteMoves,
):  # fmt: skip
    """A store in a file, shared by any number of processes of one machine; or in the memory of this one."""

    def __init__(self, address: Address, *, clock: Clock = SYSTEM, inline: bool = False) -> None:
        self._address = address
        self._clock = clock
        self._inline = inline
        self._pid = os.getpid()
        self._adopting = False
        self._assemble()

    def _assemble(self) -> None:
        self._bell = Bell()
        self._core = Core(self._address, self._clock, self._bell)
        self._runner: Runner = Inline(self._core) if self._inline else Threaded(self._core, self._bell, self._clock)
        own_reader = not self._inline and self._address.path is not None
        self._reader = Reader(self._core.file, self._clock) if own_reader else None
        self._open = False
        # For each queue the mark of what had arrived when a claim last found nothing more in it.
        self._exhausted: dict[str, str] = {}
        self._heard: dict[str, str] = {}

    @classmethod
    def from_url(cls, url: str, *, clock: Clock = SYSTEM) -> "SqliteEngine":
        return cls(parse(url), clock=clock)

    def __repr__(self) -> str:
        if self._address.path is None:
            return "<Toril store in memory: its jobs are gone when this process ends>"
        return f"<Toril store in {self._address.path}>"

    @property
    def schedules(self) -> SqliteSchedules:
        return SqliteSchedules(self._write, self._read_at)

    @property
    def in_memory(self) -> bool:
        return self._address.path is None

    async def open(self) -> None:
        if not self._open:
            await self._runner.start()
            self._open = True

    async def close(self) -> None:
        if not self._open:
            return
        self._open = False
        self._bell.look()
        try:
            if self._reader is not None:
                await self._reader.stop()
        finally:
            await self._runner.stop()

    def twin(self) -> "SqliteEngine":
        return self  # its thread serves every event loop

    async def health(self) -> Health:
        try:
            await self._here()
            return await self._runner.health()
        except TorilError as error:
            return Health(ok=False, detail=str(error), now=self._clock.now())

    async def add(
        self, queue: str, jobs: Sequence[NewJob], *, call: Call | None = None, now: int | None = None
    ) -> list[Added]:
        if not jobs and call is None:
            return []
        queue = check_queue_name(queue)
        return await self._write(partial(add, queue=queue, jobs=jobs, call=call), now, grows=bool(jobs))

    async def exchange(
        self,
        queue: str,
        batch: Sequence[Settlement],
        claim: Claim,
        *,
        call: Call | None = None,
        now: int | None = None,
    ) -> Exchange:
        queue = check_queue_name(queue)
        exchanged = await self._write(partial(exchange, queue=queue, batch=batch, claim=claim, call=call), now)
        if exchanged.exhausted_at is not None:
            self._exhausted[queue] = exchanged.exhausted_at
        return exchanged.answer

    async def extend(self, leases: Sequence[Lease], *, ttl: int, now: int | None = None) -> Extended:
        _bounded(leases)
        whole("ttl", ttl, 1, 2**42)
        return await self._write(partial(held.extend, leases=leases, ttl=ttl), now)

    async def wait(self, queues: Sequence[str], *, timeout: int) -> set[str]:
        names = list(dict.fromkeys(_waited(name) for name in queues))
        until = self._clock.monotonic() + timeout / 1000
        while True:
            rung = self._bell.listen(names)
            try:
                found = await self._fresh(names)
                heard = [] if found else await self._rung_before(rung, until)
                # What rang here is sure to be new; what another process did has to be looked for.
                found |= {name for name in heard or () if not name.startswith(":")}
                if found or heard is None:
                    return found
            finally:
                self._bell.forget(names, rung)

    async def _fresh(self, names: Sequence[str]) -> set[str]:
        """Queues into which something has come since a claim found nothing more, and calls not yet heard."""
        queues = [name for name in names if not name.startswith(":")]
        workers = [name[1:] for name in names if name.startswith(":")]
        arrivals = await self._read_now(partial(reads.arrivals, names=queues)) if queues else {}
        pokes = await self._read_now(partial(reads.pokes, names=workers)) if workers else {}
        found = {
            name for name, mark in arrivals.items() if self._exhausted.get(name) != mark and not mark.endswith(".0")
        }
        for worker, mark in pokes.items():
            if self._heard.get(worker) != mark:
                self._heard[worker] = mark
                found.add(f":{worker}")
        return found

    async def _rung_before(self, rung: Waiter, until: float) -> list[str] | None:
        """What rang before the time was up; None if nothing did, or the store was closed."""
        try:
            async with asyncio.timeout(max(0.0, until - self._clock.monotonic())):
                heard = await rung
        except TimeoutError:
            return None
        return heard if self._open else None

    async def report(
        self, queue: str, reports: Sequence[Report], *, call: Call | None = None, now: int | None = None
    ) -> list[Verdict]:
        _bounded(reports)
        queue = check_queue_name(queue)
        return await self._write(partial(held.report, queue=queue, reports=reports, call=call), now)

    async def finished(self, queue: str, ids: Sequence[str], *, timeout: int) -> list[Finished]:
        _bounded(ids)
        queue = check_queue_name(queue)
        names = [f"={queue}"]
        until = self._clock.monotonic() + timeout / 1000
        found: dict[str, Finished] = {}
        while True:
            pending = [each for each in ids if each not in found or isinstance(found[each].ended, Pending)]
            rung = self._bell.listen(names)
            try:
                looked = await self._read_now(partial(reads.finished, name=queue, ids=pending))
                found |= {each.id: each for each in looked}
                over = not any(isinstance(each.ended, Pending) for each in looked)
                if over or await self._rung_before(rung, until) is None:
                    if not over and not self._open:
                        raise Closed(f"{self!r} was closed while results were awaited")
                    return [found[each] for each in ids]
            finally:
                self._bell.forget(names, rung)

    async def recover(
        self,
        queue: str,
        *,
        dead: Sequence[Lease] = (),
        cause: str | None = None,
        limit: int = 1000,
        now: int | None = None,
    ) -> Recovered:
        cause = None if cause is None else storable(cause, MAX_REASON_BYTES)
        _bounded(dead)
        queue = check_queue_name(queue)
        whole("limit", limit, 1, 10_000)
        return await self._write(partial(held.recover, queue=queue, dead=dead, cause=cause, limit=limit), now)

    async def prune(self, queue: str, *, limit: int = 1000, now: int | None = None) -> int:
        queue = check_queue_name(queue)
        return await self._write(partial(upkeep.prune, queue=queue, limit=limit), now)

    async def beat(self, beat: Beat, *, ttl: int, now: int | None = None) -> tuple[WorkerOrder, ...]:
        whole("ttl", ttl, 0, 2**42)
        return await self._write(partial(upkeep.beat, beat=beat, ttl=ttl), now)

    async def lead(self, role: str, owner: str, *, ttl: int, now: int | None = None) -> bool:
        check_label("a role", role)
        check_worker_name(owner)
        whole("ttl", ttl, 1, 2**42)
        if self.in_memory:
            raise InvalidOption(
                "a store in memory has one process, so there is no leader to elect; switch election off"
            )
        return await self._write(partial(upkeep.lead, role=role, owner=owner, ttl=ttl), now)

    async def resign(self, role: str, owner: str) -> bool:
        check_label("a role", role)
        check_worker_name(owner)
        return await self._write(partial(upkeep.resign, role=role, owner=owner), None)

    async def signal(self, worker: str, order: WorkerOrder, *, now: int | None = None) -> bool:
        check_worker_name(worker)
        return await self._write(partial(upkeep.signal, worker=worker, order=order), now)

    async def once(self, key: str, owner: str, *, ttl: int, now: int | None = None) -> bool:
        check_label("a key", key)
        check_worker_name(owner)
        whole("ttl", ttl, 1, 2**42)
        return await self._write(partial(upkeep.once, key=key, owner=owner, ttl=ttl), now)

    async def _write(self, op: Op[T], now: int | None, *, grows: bool = False) -> T:
        await self._here()
        return await self._runner.write(op, now, grows=grows)

    async def _read(self, op: Op[T], now: int | None = None) -> T:
        await self._here()
        return await (self._reader or self._runner).read(op, now)

    async def _read_now(self, op: Op[T]) -> T:
        """Read where the writes are made, so that what this process has committed is seen without fail."""
        return await self._read_at(op, None)

    async def _read_at(self, op: Op[T], now: int | None) -> T:
        """The same, at a time of the caller's."""
        await self._here()
        return await self._runner.read(op, now)

    async def _here(self) -> None:
        """Be in the process that opened the store, or open it for this one."""
        if self._pid != os.getpid() and self._open:
            if self.in_memory:
                raise EngineUnusable(
                    "a store in memory belongs to the process that opened it, and this is a fork of that"
                )
            self._pid = os.getpid()
            self._assemble()
            self._adopting = True
        if self._adopting:
            await self.open()  # by each of several first callers: the runner starts once
            self._adopting = False
        if not self._open:
            raise Closed(f"{self!r} is not open; open it first, or it was closed")


def _waited(name: object) -> str:
    """What is waited for: a queue, or a worker's control, which no queue can be called as."""
    return name if isinstance(name, str) and name.startswith(":") else check_queue_name(name)


def _bounded(batch: Sequence[object]) -> None:
    if len(batch) > BATCH:
        raise InvalidOption(f"one call takes at most {BATCH} jobs, not {len(batch)}")
