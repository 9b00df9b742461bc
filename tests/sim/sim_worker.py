"""A simulated worker process: the real one, with its event loop, its clock and its store simulated."""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TypeVar, cast, get_args

from tests.sim.acting import Actor
from tests.sim.conduct import Conduct
from tests.sim.node import Node
from tests.sim.plan import Terms
from tests.sim.script import HANDLER, QUEUE
from toril.events import EventName, Events, JobEvent
from toril.model import KEEP_ALL, Call, Lease, WorkerCommand
from toril.queue import Queue, QueueOptions
from toril.runtime.calls import Caller
from toril.runtime.clock import Clock
from toril.runtime.hooks import Hooks
from toril.runtime.portal import Portal
from toril.runtime.redaction import Redaction
from toril.store.engine import Engine, Store
from toril.worker.leases import LeaseKeeper
from toril.worker.process import WorkerProcess

__all__ = ["ApartKeeper", "SimServices", "SimWorker", "queue_of"]

T = TypeVar("T")

_ENDS = ("completed", "failed", "retrying", "snoozed", "released", "cancelled", "lease_lost")


class SimServices:
    """What a queue needs of its app: the store, and a way to send calls again."""

    def __init__(self, name: str, engine: Engine, clock: Clock) -> None:
        self.store = cast("Store", engine)
        self.events = Events()
        self.redaction = Redaction()
        self.tracing = None
        self.inbox = None
        self.clock = clock
        self.queues: dict[str, Queue] = {}
        self._caller = Caller(f"{name}/app", clock, patience=2.0)

    async def call(self, make: Callable[[Call], Awaitable[T]]) -> T:
        return await self._caller.send(make)

    def portal(self) -> Portal:
        raise AssertionError("simulated code does not block")


def queue_of(services: SimServices, terms: Terms) -> Queue:
    options = QueueOptions(
        concurrency=terms.slots, lease=terms.lease, renew=terms.lease // 3, max_stalls=terms.max_stalls,
        keep_completed=KEEP_ALL, keep_failed=KEEP_ALL,
    )  # fmt: skip
    return Queue(services, QUEUE, options)


class ApartKeeper(LeaseKeeper):
    """Keeps leases in the process's other simulated thread, where a real one has a real thread."""

    def __init__(self, engine: Engine, clock: Clock, node: Node) -> None:
        super().__init__(engine, clock)
        self._node = node
        self._task: asyncio.Task[None] | None = None
        self.ended = 0  # jobs, as the table counts them that a supervisor reads

    def release(self, lease: Lease) -> None:
        super().release(lease)
        self.ended += 1

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self.keep(), context=self._node.aside.context())

    async def stop(self) -> None:
        self._stopping = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})


class SimWorker:
    """One life of a worker process. `engine` and `twin` are its two connections to the store."""

    def __init__(self, node: Node, engine: Engine, twin: Engine, clock: Clock, terms: Terms, conduct: Conduct) -> None:
        self._node = node
        self._conduct = conduct
        self._terms = terms
        conduct.nodes[node.name], conduct.slots = node, terms.slots
        node.stop = self.stop
        queue = queue_of(SimServices(node.name, engine, clock), terms)
        actor = Actor(node, clock, conduct)
        queue.handlers.register_all({HANDLER: actor.play})
        events = Events()
        for name in get_args(EventName):
            if name in _ENDS:
                events.on(name, partial(self._told, name))
        self.keeper = ApartKeeper(twin, clock, node)
        self.process = WorkerProcess(
            [queue], cast("Store", engine), clock, events, Hooks(),
            name=node.name, owner="sim", version="simulated", grace=terms.grace,
        )  # fmt: skip

    async def run(self) -> None:
        code = await self.process.run(self.keeper, None)
        self._node.check()
        self._conduct.stopped(self._node, code)

    def stop(self) -> None:
        self.expect_stop(0)
        self.process.stop()

    async def order_stop(self, engine: Engine) -> None:
        """By way of the store, as an operator far away does."""
        self.expect_stop(16)  # it hears at its next sign of life at the latest
        self._node.stopping = await engine.signal(self._node.name, WorkerCommand.STOP)

    def expect_stop(self, hears: float) -> None:
        node = self._node
        if not node.stopping:
            node.stop_at, node.stop_delays = self._conduct.now(), node.delays
            node.patience = hears + self._terms.grace + 3.0
            node.excused = self._conduct.deaf(node) or node.held
            node.stopping = True

    @property
    def held(self) -> list[Lease]:
        return list(self.keeper._held)

    def leftovers(self) -> list[str]:
        """What a worker with nothing to do should not have."""
        found = [f"the lease of {lease.id} is kept" for lease in self.held]
        for worker in self.process._workers:
            if worker.busy:
                found.append(f"{worker.busy} slots are in use")
            if worker._loop._outbox:
                found.append(f"{len(worker._loop._outbox)} settlements are not handed in")
        return found

    def _told(self, name: str, event: JobEvent) -> None:
        self._conduct.told(self._node.name, name, event.job_id)
