"""Circuit breakers in a worker: defers jobs whose circuit is open, and reports how the others did."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any, Final, Protocol

from toril.context import Signal, StopReason
from toril.errors import Snooze, TorilError
from toril.events import Events, WorkerEvent
from toril.handlers import RegisteredHandler
from toril.model import Admitted, CircuitSample, CircuitState, Claimed, Deferred
from toril.policy.breaker import Breaker, put_off
from toril.policy.retry import ErrorTable, Nature, nature_of, own_table, unwrapped
from toril.queue import Queue
from toril.runtime.clock import Clock
from toril.runtime.logs import log
from toril.store.capabilities import CircuitStore
from toril.store.engine import Store

__all__ = ["BreakerGate"]

_BELIEVED: Final = 1.0  # seconds for which an open circuit counts as open without asking; it may be reset by hand


class _GateServices(Protocol):
    @property
    def engine(self) -> Store: ...

    @property
    def clock(self) -> Clock: ...

    @property
    def events(self) -> Events: ...

    @property
    def name(self) -> str: ...


class BreakerGate:
    """The circuits of one queue's jobs. A store that does not answer does not prevent jobs from running."""

    def __init__(self, queue: Queue, services: _GateServices, table_for: Callable[[str], ErrorTable]) -> None:
        self._queue = queue
        self._services = services
        self._circuits: CircuitStore = services.engine.circuits
        self._table_for = table_for
        self._notes: set[asyncio.Task[None]] = set()
        self._open: dict[str, tuple[float, float]] = {}  # key: until when to believe it, and until when it is open

    def of(self, entry: RegisteredHandler, job: Claimed) -> Breaker | None:
        """The circuit of this job, if it has one. A job that names its circuit needs no declared breaker."""
        return entry.handler.breaker or self._queue.options.breaker or (Breaker() if job.options.breaker else None)

    async def call(
        self, breaker: Breaker, job: Claimed, data: Any, signal: Signal, run: Callable[[], Awaitable[Any]]
    ) -> Any:
        """Call `run` if the circuit admits the job, else raise `Snooze`. The outcome is recorded in the circuit."""
        key = breaker.key_for(self._queue.name, job.name, data, job.options.breaker)
        probe = await self._admitted(breaker, key, job)
        try:
            with self._kept(breaker, key, job) if probe else nullcontext():
                answer = await run()
        except asyncio.CancelledError:
            sign = CircuitSample.BAD if signal.kind is StopReason.TIMEOUT else CircuitSample.NEITHER
            self._later(self._record(breaker, key, job, sign, probe=probe))
            raise
        except BaseException as error:
            nature = nature_of(unwrapped(error), own_table(job) or self._table_for(job.name))
            sign = CircuitSample.BAD if nature is Nature.TRANSIENT else CircuitSample.NEITHER
            await self._record(breaker, key, job, sign, probe=probe)
            raise
        await self._record(breaker, key, job, CircuitSample.GOOD, probe=probe)
        return answer

    async def settle(self) -> None:
        """Wait for records in progress."""
        if self._notes:
            await asyncio.wait(self._notes)

    async def _admitted(self, breaker: Breaker, key: str, job: Claimed) -> bool:
        """Whether it runs as a probe."""
        if (wait := self._known_wait(key)) is not None:
            raise self._put_off(breaker, key, wait)
        try:
            admission = await self._circuits.admit(key, breaker.terms(), _holder(job), lease=self._queue.options.lease)
        except TorilError as error:
            log.warning("circuit %s could not be checked, so job %s runs: %s", key, job.lease.id, error)
            return False
        match admission:
            case Deferred(wait):
                now = self._services.clock.monotonic()
                self._open[key] = (now + _BELIEVED, now + wait / 1000)
                raise self._put_off(breaker, key, wait)
            case Admitted(news, probe):
                self._tell(key, news)
                return probe

    @contextmanager
    def _kept(self, breaker: Breaker, key: str, job: Claimed) -> Iterator[None]:
        """Renew a probe as long as it runs, so that there are never too many."""
        task = asyncio.get_running_loop().create_task(self._renew(breaker, key, job))
        try:
            yield
        finally:
            task.cancel()

    async def _renew(self, breaker: Breaker, key: str, job: Claimed) -> None:
        lease = self._queue.options.lease
        while True:
            await self._services.clock.sleep(lease / 3000)
            try:
                admission = await self._circuits.admit(key, breaker.terms(), _holder(job), lease=lease)
            except TorilError as error:
                log.warning("job %s may not count as a probe of circuit %s: %s", job.lease.id, key, error)
                continue
            if isinstance(admission, Deferred):  # another probe has failed
                return
            self._tell(key, admission.news)

    def _known_wait(self, key: str) -> int | None:
        """How long it stays open, as far as this process knows: many jobs of one key cost one query per second."""
        now = self._services.clock.monotonic()
        for known in [known for known, (believed, _) in self._open.items() if believed <= now]:
            del self._open[known]
        _, till = self._open.get(key, (0.0, now))
        return round((till - now) * 1000) if till > now else None

    def _put_off(self, breaker: Breaker, key: str, wait: int) -> Snooze:
        late = put_off(wait, breaker.terms(), chance=self._services.clock.random())
        return Snooze(late / 1000, f"circuit {key} is open")

    async def _record(self, breaker: Breaker, key: str, job: Claimed, sign: CircuitSample, *, probe: bool) -> None:
        counts = sign is CircuitSample.BAD or (sign is CircuitSample.GOOD and breaker.rate is not None)
        if not probe and not counts:
            return
        try:
            self._tell(key, await self._circuits.record(key, breaker.terms(), _holder(job), sign))
        except TorilError as error:
            log.warning("the outcome of job %s was not recorded in circuit %s: %s", job.lease.id, key, error)

    def _tell(self, key: str, news: CircuitState | None) -> None:
        if news is not None:
            detail = {"key": key, "state": news.value}
            event = WorkerEvent(
                worker=self._services.name, queue=self._queue.name, error=f"{key} is {news}", detail=detail
            )
            self._services.events.emit("breaker", event)

    def _later(self, note: Any) -> None:
        task = asyncio.get_running_loop().create_task(note)
        self._notes.add(task)
        task.add_done_callback(self._notes.discard)


def _holder(job: Claimed) -> str:
    return f"{job.lease.token}:{job.lease.id}"
