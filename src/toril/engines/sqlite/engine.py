"""`SqliteEngine`: a store in a file or in memory; opens it, waits for news of it, follows it into forks."""

import asyncio
import os
from collections.abc import Sequence
from functools import partial
from typing import TypeVar

from toril.engines.sql import inspector as reads
from toril.engines.sql.engine import SqlEngine
from toril.engines.sql.exchange import exchange
from toril.engines.sql.notifier import LocalNotifier, Waiter
from toril.engines.sql.transaction import Op, Steps
from toril.engines.sqlite.repairs import SqliteRepairs
from toril.engines.sqlite.threads import InlineWriter, ReaderThread, Runner, WriterThread
from toril.engines.sqlite.url import FileAddress, parse
from toril.engines.sqlite.writer import Writer
from toril.errors import Closed, EngineUnusable, InvalidOption, TorilError
from toril.model import BATCH, Call, Claim, Exchange, Finished, Health, Pending, Settlement
from toril.model.names import check_queue_name
from toril.runtime.clock import SYSTEM, Clock

__all__ = ["SqliteEngine"]

T = TypeVar("T")


class SqliteEngine(SqlEngine):
    """A store in a file, shared by any number of processes of one machine; or in the memory of this one."""

    def __init__(self, address: FileAddress, *, clock: Clock = SYSTEM, inline: bool = False) -> None:
        self._address = address
        self.in_memory = address.path is None
        self._clock = clock
        self._inline = inline
        self._pid = os.getpid()
        self._adopting = False
        steps = Steps(self._write, self._read, self._read_now)
        super().__init__(steps)
        self.repairs = SqliteRepairs(steps, address)
        self._assemble()

    def _assemble(self) -> None:
        self._bell = LocalNotifier()
        self._core = Writer(self._address, self._clock, self._bell)
        self._runner: Runner = (
            InlineWriter(self._core) if self._inline else WriterThread(self._core, self._bell, self._clock)
        )
        own_reader = not self._inline and self._address.path is not None
        self._reader = ReaderThread(self._core.file, self._clock) if own_reader else None
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

    async def _write(self, op: Op[T], now: int | None, *, grows: bool = False) -> T:
        await self._here()
        return await self._runner.write(op, now, grows=grows)

    async def _read(self, op: Op[T], now: int | None = None) -> T:
        await self._here()
        return await (self._reader or self._runner).read(op, now)

    async def _read_now(self, op: Op[T], now: int | None = None) -> T:
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
