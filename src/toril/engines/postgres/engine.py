"""`PostgresEngine`: a store in a schema of a PostgreSQL database."""

import asyncio
import os
from collections.abc import Awaitable, Sequence
from contextlib import suppress
from functools import partial
from typing import Final, TypeVar
from weakref import WeakKeyDictionary

from toril.engines.postgres import hot_path
from toril.engines.postgres.connection import FLUSH
from toril.engines.postgres.database import PostgresDatabase
from toril.engines.postgres.errors import GAVE_WAY, PostgresError, translated
from toril.engines.postgres.facts import server_facts
from toril.engines.postgres.inbox import Inbox, ask_filled
from toril.engines.postgres.pipeline import Ask, PostgresPipelines, Rows
from toril.engines.postgres.url import PostgresAddress, parse
from toril.engines.postgres.usage import usage
from toril.engines.sql.engine import SqlEngine
from toril.engines.sql.notifier import hand_over
from toril.engines.sql.transaction import Transaction
from toril.errors import TorilError
from toril.model import Added, Call, Claim, Exchange, Finished, NewJob, Pending, Settlement, Usage
from toril.runtime.clock import SYSTEM, Clock
from toril.store.checked import implements
from toril.store.engine import Engine, Inspector

__all__ = ["PostgresEngine"]

T = TypeVar("T")

_AWAITED: Final = 20_000  # ms for which who ends a job notifies those who wait for results
_UNUSUAL: Final = 1.0  # seconds for which the function is not asked again about a queue
_AGAIN: Final = 3  # times that a call is made again which gave way to another
_AWAIT_RESULTS: Final = "SELECT toril.await_results($1, $2)"
_FLUSH: Final[Ask] = (FLUSH, (), ())


@implements(Engine)
@implements(Inspector)
class PostgresEngine(SqlEngine):
    """A store in PostgreSQL, shared by any number of processes and machines.

    Usual jobs are added, settled and claimed by functions in the database. Everything else is a step of the code that
    all SQL engines share. With `general`, all of it is.
    """

    def __init__(self, address: PostgresAddress, *, clock: Clock = SYSTEM, general: bool = False) -> None:
        self._address = address
        self._general = general
        self._pipelines: WeakKeyDictionary[asyncio.AbstractEventLoop, PostgresPipelines] = WeakKeyDictionary()
        self._keys: dict[str, int] = {}
        self._unusual: dict[str, float] = {}  # queues whose exchanges the function has refused, and for how long
        super().__init__(partial(PostgresDatabase, address, clock), partial(server_facts, address=address), clock=clock)
        self._inbox = Inbox(self._steps.write, clock)

    @classmethod
    def from_url(cls, url: str, *, clock: Clock = SYSTEM, general: bool = False) -> "PostgresEngine":
        return cls(parse(url), clock=clock, general=general)

    def __repr__(self) -> str:
        return f"<Toril store in {self._address.name}>"

    def twin(self) -> "PostgresEngine":
        return self  # its threads serve every event loop, and each loop has connections of its own

    async def close(self) -> None:
        for loop, pipelines in self._pipelines.items():
            if loop is asyncio.get_running_loop():
                pipelines.close()
            elif pipelines.process == os.getpid():
                hand_over(loop, PostgresPipelines.close, pipelines)
        self._pipelines.clear()
        await super().close()

    async def finished(self, queue: str, ids: Sequence[str], *, timeout: int) -> list[Finished]:
        """Whoever ends a job of the queue is asked to notify, again and again while this waits."""
        until = self._clock.monotonic() + timeout / 1000
        while True:
            await self._write(lambda tx: tx.run(_AWAIT_RESULTS, (queue, _AWAITED)), None)
            left = max(0, round((until - self._clock.monotonic()) * 1000))
            found = await super().finished(queue, ids, timeout=min(left, _AWAITED // 2))
            if left <= _AWAITED // 2 or not any(isinstance(each.ended, Pending) for each in found):
                return found

    @property
    def inbox(self) -> str:
        return f"{self._address.schema}.inbox"

    async def wait(self, queues: Sequence[str], *, timeout: int) -> set[str]:
        """Whoever waits also looks into the inbox: nothing tells that a transaction of others has been committed."""
        names = [name for name in queues if not name.startswith(":")]
        if not names:
            return await super().wait(queues, timeout=timeout)
        waiting = asyncio.ensure_future(super().wait(queues, timeout=timeout))
        try:
            while True:
                with suppress(TorilError):  # whatever is wrong, who waits for jobs finds out by claiming
                    await self._take_from_inbox([name for name in names if self._inbox.is_due(name)])
                await asyncio.wait((waiting,), timeout=self._inbox.every)
                if waiting.done():
                    return waiting.result()
        finally:
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)

    async def _take_from_inbox(self, names: Sequence[str]) -> None:
        if names:
            (filled,) = await self._answered(self._ask(ask_filled(self._address.schema, names)))
            await self._inbox.take([name for (name,) in filled])

    async def usage(self, queue: str) -> Usage:
        return await self._steps.read(partial(usage, name=queue))

    async def add(
        self, queue: str, jobs: Sequence[NewJob], *, call: Call | None = None, now: int | None = None
    ) -> list[Added]:
        if self._general or not hot_path.is_usual_add(jobs):
            return await super().add(queue, jobs, call=call, now=now)
        ask = hot_path.ask_to_add(self._address.schema, await self._key(queue), jobs, call, self._time(now))
        try:
            (((base, unflushed),),) = await self._ask(ask)
        except PostgresError as error:
            self._leaves_to_others(error, queue)
            return await super().add(queue, jobs, call=call, now=now)
        if unflushed:
            await self._answered(self._ask(_FLUSH))
        self._notifier.committed({queue: None})
        return hot_path.added_of(base, len(jobs))

    async def exchange(
        self,
        queue: str,
        batch: Sequence[Settlement],
        claim: Claim,
        *,
        call: Call | None = None,
        now: int | None = None,
    ) -> Exchange:
        if claim.want and self._inbox.is_due(queue):
            await self._take_from_inbox([queue])
        if self._general or self._clock.monotonic() < self._unusual.get(queue, 0.0):
            return await super().exchange(queue, batch, claim, call=call, now=now)
        schema, time = self._address.schema, self._time(now)
        key = await self._key(queue)
        asked = hot_path.ask_to_exchange(schema, key, batch, claim, call, time)
        if asked is None:
            return await super().exchange(queue, batch, claim, call=call, now=now)
        ask, order = asked
        asks = (ask, hot_path.ask_claimed(schema, key, claim.token, time)) if claim.want else (ask,)
        try:
            (answer,), *claimed = await self._ask(*asks)
        except PostgresError as error:
            self._leaves_to_others(error, queue)
            self._unusual[queue] = self._clock.monotonic() + _UNUSUAL
            return await super().exchange(queue, batch, claim, call=call, now=now)
        *_, arrivals, _, freed, unflushed = answer
        if unflushed:
            await self._answered(self._ask(_FLUSH))
        exchanged = hot_path.exchange_of(queue, claim.token, order, answer, claimed[0] if claimed else ())
        if len(exchanged.jobs) < claim.want:
            self._exhausted[queue] = f"{key}.{arrivals}"
        if freed:
            self._notifier.committed({queue: None})
        if batch:
            self._notifier.committed({f"={queue}": None})
        return exchanged

    def _time(self, now: int | None) -> int | None:
        """The time of a step; None for the server's."""
        return self._clock.now() if now is None and self._clock is not SYSTEM else now

    async def _key(self, queue: str) -> int:
        """The number of a queue, which is made if need be."""
        key = self._keys.get(queue)
        if key is None:

            def find(tx: Transaction) -> int:
                return tx.queue(queue).key

            key = self._keys[queue] = await self._write(find, None)
        return key

    async def _ask(self, *asks: Ask) -> list[Rows]:
        await self._here()
        loop = asyncio.get_running_loop()
        pipelines = self._pipelines.get(loop)
        if pipelines is None or pipelines.process != os.getpid():
            pipelines = self._pipelines[loop] = PostgresPipelines(self._address)
        for _ in range(_AGAIN):
            try:
                return await pipelines.ask(*asks)
            except PostgresError as error:
                if error.sqlstate not in GAVE_WAY:
                    raise
        return await pipelines.ask(*asks)

    async def _answered(self, asked: Awaitable[T]) -> T:
        try:
            return await asked
        except PostgresError as error:
            raise translated(error, self._address.name) from error

    def _leaves_to_others(self, error: PostgresError, queue: str) -> None:
        """Return if the function leaves this step to the general road. Any other error is the caller's."""
        if error.sqlstate == hot_path.UNKNOWN_QUEUE:
            self._keys.pop(queue, None)  # it was removed; it may be made again
        elif error.sqlstate != hot_path.GENERAL:
            raise translated(error, self._address.name) from error
