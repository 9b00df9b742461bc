"""The read side of the engine."""

from abc import abstractmethod
from collections.abc import Sequence
from functools import partial
from typing import TypeVar

from toril.engines.sql import reads
from toril.engines.sql.explain import explain
from toril.engines.sql.figures import figures
from toril.engines.sql.transaction import Op
from toril.engines.sql.usage import usage
from toril.errors import InvalidOption
from toril.model import (
    BATCH,
    AttemptFailure,
    Counts,
    Declarations,
    Ending,
    Events,
    Figures,
    JobRecord,
    Kept,
    Limits,
    Minutes,
    Page,
    QueueView,
    Run,
    Standing,
    Usage,
    Window,
    WorkerView,
)
from toril.model.names import check_queue_name
from toril.model.states import State
from toril.policy.figures import check_window

__all__ = ["SqliteInspector"]

T = TypeVar("T")


class SqliteInspector:
    """Reads that see one moment of the store each."""

    @abstractmethod
    async def _read(self, op: Op[T], now: int | None = None) -> T: ...

    async def queues(self) -> list[str]:
        return await self._read(reads.queues)

    async def queue(self, queue: str) -> QueueView:
        queue = check_queue_name(queue)
        return await self._read(partial(reads.queue_view, name=queue))

    async def counts(self, queue: str) -> Counts:
        return (await self.queue(queue)).counts

    async def usage(self, queue: str) -> Usage:
        queue = check_queue_name(queue)
        return await self._read(partial(usage, name=queue))

    async def jobs(self, queue: str, ids: Sequence[str]) -> list[JobRecord | None]:
        if len(ids) > BATCH:
            raise InvalidOption(f"one call reads at most {BATCH} jobs, not {len(ids)}")
        queue = check_queue_name(queue)
        return await self._read(partial(reads.jobs, name=queue, ids=ids))

    async def page(self, queue: str, state: State, *, cursor: str | None = None, limit: int = 50) -> Page[JobRecord]:
        queue = check_queue_name(queue)
        return await self._read(partial(reads.page, name=queue, state=state, cursor=cursor, limit=limit))

    async def logs(
        self, queue: str, job_id: str, *, cursor: str | None = None, limit: int = 100, where: Kept = "queue"
    ) -> Page[str]:
        queue = check_queue_name(queue)
        read = partial(reads.logs, name=queue, identity=job_id, where=where, cursor=cursor, limit=limit)
        return await self._read(read)

    async def errors(self, queue: str, job_id: str, *, where: Kept = "queue") -> tuple[AttemptFailure, ...]:
        queue = check_queue_name(queue)
        return await self._read(partial(reads.errors, name=queue, identity=job_id, where=where))

    async def events(self, queue: str, *, after: str | None = None, limit: int = 100, of: str | None = None) -> Events:
        queue = check_queue_name(queue)
        return await self._read(partial(reads.events, name=queue, after=after, limit=limit, of=of))

    async def workers(self, queue: str | None = None, *, now: int | None = None) -> list[WorkerView]:
        return await self._read(partial(reads.workers, name=queue), now)

    async def declarations(self, queue: str, *, now: int | None = None) -> Declarations:
        queue = check_queue_name(queue)
        return await self._read(partial(reads.declarations, name=queue), now)

    async def runs(self, queue: str, ending: Ending, *, cursor: str | None = None, limit: int = 20) -> Page[Run]:
        queue = check_queue_name(queue)
        return await self._read(partial(reads.runs, name=queue, ending=ending, cursor=cursor, limit=limit))

    async def metrics(self, queue: str, *, minutes: int, now: int | None = None) -> Minutes:
        queue = check_queue_name(queue)
        return await self._read(partial(reads.metrics, name=queue, minutes=minutes), now)

    async def figures(self, queues: Sequence[str], window: Window, *, now: int | None = None) -> Figures:
        check_window(queues, window)
        names = [check_queue_name(name) for name in queues]
        return await self._read(partial(figures, names=names, window=window), now)

    async def explain(self, queue: str, job_id: str, limits: Limits, *, now: int | None = None) -> Standing:
        queue = check_queue_name(queue)
        return await self._read(partial(explain, queue=queue, identity=job_id, limits=limits), now)
