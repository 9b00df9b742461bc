"""The workers of a store, wherever they run: who is alive, and what one of them is told."""

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, Final

from toril.client.declaring import PLAIN
from toril.errors import NotFound, shown
from toril.job import Job
from toril.model import JobRecord, Order
from toril.model.states import State
from toril.queue import Queue
from toril.records import WorkerInfo, as_record
from toril.store.engine import Store

__all__ = ["Crew"]

_PAGE: Final = 1000


class Crew:
    """A part of `App`, which has what is declared here."""

    queues: Mapping[str, Queue]

    @property
    @abstractmethod
    def store(self) -> Store: ...

    async def workers(self) -> list[WorkerInfo]:
        """The worker processes that are alive."""
        return [as_record(WorkerInfo, worker) for worker in await self.store.workers()]

    async def running_jobs(self, worker: str | None = None) -> list[Job[Any]]:
        """The jobs that run now, of all queues, the longest first; those of one worker process, if it is named. It may
        be dead: what it ran counts as running until it is taken back."""
        found: list[JobRecord] = []
        for name in await self.store.queues():
            cursor: str | None = None
            while True:
                page = await self.store.page(name, State.ACTIVE, cursor=cursor, limit=_PAGE)
                found += [row for row in page.items if worker in {None, row.worker}]
                cursor = page.cursor
                if cursor is None:
                    break
        found.sort(key=lambda row: (row.started_at or row.added_at, row.queue, row.id))
        return [self._as_job(row) for row in found]

    def _as_job(self, row: JobRecord) -> Job[Any]:
        app: Any = self
        known = row.queue in self.queues
        queue = self.queues[row.queue] if known else Queue(app, row.queue, PLAIN)
        return Job(queue, row.id, row.name, queue.decoded(row.name, row.data), record=row)

    async def quiet_worker(self, worker: str) -> None:
        """Have one worker process claim nothing more; what it runs goes on. `NotFound` if it is not alive."""
        await self._order(worker, Order.QUIET)

    async def stop_worker(self, worker: str) -> None:
        """Have one worker process drain and end; its supervisor does not start it anew. `NotFound` if it is not
        alive."""
        await self._order(worker, Order.STOP)

    async def _order(self, worker: str, order: Order) -> None:
        if not await self.store.signal(worker, order):
            raise NotFound(f"no worker {shown(worker)} is alive")
