"""A worker process: boots in order, works, and shuts down in order."""

import asyncio
import signal
import threading
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, contextmanager
from typing import Any, Final

from toril.calls import Caller
from toril.clock import Clock
from toril.engine import Engine, Schedules
from toril.errors import TorilError, UnknownQueue
from toril.events import Events, WorkerEvent
from toril.logs import log
from toril.model import Order, SetMaxWaiting, whole
from toril.plan import GRACE, Hook, Plan
from toril.queue import Queue
from toril.worker.leases import Keeper
from toril.worker.schedules import Runs
from toril.worker.strays import logged
from toril.worker.upkeep import Upkeep
from toril.worker.worker import Surroundings, Worker

__all__ = ["Process", "chosen"]

_LAST_EXCHANGE: Final = 2.0  # seconds for handing in what was given back


class Process:
    """One process's workers, and all that keeps them going."""

    def __init__(
        self, queues: Sequence[Queue], engine: Engine, keeper: Keeper, clock: Clock, events: Events, plan: Plan, *,
        name: str, version: str, schedules: Schedules | None = None, concurrency: Mapping[str, int] | None = None,
        grace: float = GRACE,
    ) -> None:  # fmt: skip
        self._queues = chosen(queues, concurrency)
        self._concurrency = dict(concurrency or {})
        self._engine = engine
        self._clock = clock
        self._events = events
        self._plan = plan
        self._grace = grace
        self._version = version
        self.name = name
        self._keeper = keeper
        self._runs = None if schedules is None else Runs(schedules, clock, self._round_failed)
        self._workers: list[Worker] = []
        self._stopping = asyncio.Event()
        self._rested = asyncio.Event()
        self._forced = False

    @property
    def stopping(self) -> bool:
        return self._stopping.is_set()

    def stop(self) -> None:
        """Begin to shut down; a second time, do not wait for running jobs."""
        self._forced = self._stopping.is_set()
        self._stopping.set()
        if self._forced:
            for worker in self._workers:
                worker.give_back()

    async def run(self, state: Any, *, burst: bool = False) -> int:
        """Work until stopped, in a burst until nothing is left to do. 0: drained; 1: jobs had to be given back."""
        caller = Caller(f"{self.name}/reports", self._clock)
        around = Surroundings(
            engine=self._engine, clock=self._clock, caller=caller, keeper=self._keeper, events=self._events,
            name=self.name, rested=self._rested.set, runs=self._runs, state=state,
            middleware=tuple(self._plan.middleware),
        )  # fmt: skip
        self._workers = [Worker(queue, around, self._concurrency.get(queue.name)) for queue in self._queues]
        await self._set_bounds()
        async with AsyncExitStack() as shutdown:
            shutdown.push_async_callback(self._each, self._plan.on_flush, "on_flush")
            for hook in self._plan.on_start:
                await _called(hook)
            self._keeper.start()
            shutdown.push_async_callback(self._keeper.stop)
            return await self._work(burst=burst)

    async def _work(self, *, burst: bool) -> int:
        upkeep = Upkeep(
            [(worker.queue.name, worker.queue.options.lease) for worker in self._workers], self._engine, self._clock,
            self._events, self.name, self._keeper, running=lambda: sum(worker.busy for worker in self._workers),
            slots=sum(worker.concurrency for worker in self._workers), version=self._version, order=self._ordered,
        )  # fmt: skip
        with logged():
            return await self._until_stopped(upkeep, burst=burst)

    async def _until_stopped(self, upkeep: Upkeep, *, burst: bool) -> int:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(worker.run()) for worker in self._workers]
            rounds = [group.create_task(upkeep.run())]
            if self._runs is not None:
                rounds.append(group.create_task(self._runs.round([worker.queue.name for worker in self._workers])))
            rounds += [group.create_task(self._poll(poller)) for poller in self._plan.pollers]
            if burst:
                rounds.append(group.create_task(self._until_empty()))
            await self._stopping.wait()
            drained = await self._drain(tasks)
            for task in rounds:
                task.cancel()
        return 0 if drained else 1

    async def _drain(self, tasks: "Sequence[asyncio.Task[None]]") -> bool:
        """Quiet, wait, give back. The deadline is set before anything is waited for."""
        for worker in self._workers:
            worker.stop()
        if self._forced:
            self._give_back()
        _, left = await asyncio.wait(tasks, timeout=0 if self._forced else self._grace)
        if not left:
            return True
        self._give_back()
        _, left = await asyncio.wait(left, timeout=_LAST_EXCHANGE)
        for task in left:
            task.cancel()
        return False

    def _give_back(self) -> None:
        for worker in self._workers:
            worker.give_back()

    async def _until_empty(self) -> None:
        while not all(worker.empty for worker in self._workers):
            await self._rested.wait()
            self._rested.clear()
        self._stopping.set()

    async def _poll(self, poller: Callable[[], Awaitable[Any]]) -> None:
        """A poller that fails is told of and left; the workers go on."""
        try:
            await poller()
        except Exception as error:
            log.exception("a poller failed")
            self._events.emit("error", WorkerEvent(worker=self.name, error=f"a poller failed: {error}"))

    def _round_failed(self, queue: str, error: TorilError) -> None:
        self._events.emit("error", WorkerEvent(worker=self.name, queue=queue, error=str(error)))

    async def _set_bounds(self) -> None:
        for queue in self._queues:
            if queue.options.max_waiting is not None:
                await self._engine.configure(queue.name, [SetMaxWaiting(queue.options.max_waiting)])

    async def _each(self, hooks: Sequence[Hook], what: str) -> None:
        for hook in hooks:
            try:
                await _called(hook)
            except Exception:
                log.exception("%s failed", what)

    def _ordered(self, order: Order) -> None:
        match order:
            case Order.QUIET:
                for worker in self._workers:
                    worker.quiet()
            case Order.STOP:
                if not self._stopping.is_set():
                    self.stop()

    @contextmanager
    def signals(self) -> Iterator[None]:
        """Stop on SIGTERM and SIGINT, where this is the main thread; afterwards all is as it was."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        loop = asyncio.get_running_loop()
        before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
        for number in before:
            signal.signal(number, lambda *_: loop.call_soon_threadsafe(self.stop))
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def chosen(queues: Sequence[Queue], concurrency: Mapping[str, int] | None) -> list[Queue]:
    """The queues to work: those named, else all that have handlers."""
    known = {queue.name: queue for queue in queues}
    if concurrency is not None:
        for name, slots in concurrency.items():
            if name not in known:
                raise UnknownQueue(f"there is no queue {name!r} in this app; it has {', '.join(known) or 'none'}")
            whole(f"concurrency of {name!r}", slots, 0, 10_000)  # 0: as it was declared
        return [known[name] for name in concurrency]
    return [queue for queue in queues if queue.handlers.names]


async def _called(hook: Hook) -> None:
    answer = hook()
    if asyncio.iscoroutine(answer) or isinstance(answer, Awaitable):
        await answer
