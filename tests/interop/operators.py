"""What operators do to a queue, in the words of each side, so that one test can let either do it."""

from typing import Any, Protocol

from tests.interop.node import Node, NodeQueue
from toril import Job, Queue

NODES = {"waiting": "wait"}  # states that BullMQ's `clean` calls otherwise


class Operator(Protocol):
    """Times are milliseconds."""

    async def drain(self, *, delayed: bool) -> None: ...
    async def clean(self, state: str, grace: int, limit: int) -> int: ...
    async def obliterate(self, *, force: bool) -> None: ...
    async def remove(self, job_id: str) -> None: ...
    async def promote(self, job_id: str) -> None: ...
    async def retry(self, job_id: str, state: str) -> None: ...
    async def retry_failed(self) -> None: ...
    async def set_priority(self, job_id: str, priority: int) -> None: ...
    async def set_delay(self, job_id: str, delay: int) -> None: ...
    async def update_data(self, job_id: str, data: Any) -> None: ...


class OfNode:
    def __init__(self, queue: NodeQueue) -> None:
        self._queue = queue

    async def drain(self, *, delayed: bool) -> None:
        await self._queue.call("drain", delayed)

    async def clean(self, state: str, grace: int, limit: int) -> int:
        return len(await self._queue.call("clean", grace, limit, NODES.get(state, state)))

    async def obliterate(self, *, force: bool) -> None:
        await self._queue.call("obliterate", {"force": force})

    async def remove(self, job_id: str) -> None:
        await self._queue.of_job(job_id, "remove")

    async def promote(self, job_id: str) -> None:
        await self._queue.of_job(job_id, "promote")

    async def retry(self, job_id: str, state: str) -> None:
        await self._queue.of_job(job_id, "retry", state)

    async def retry_failed(self) -> None:
        await self._queue.call("retryJobs", {"state": "failed"})

    async def set_priority(self, job_id: str, priority: int) -> None:
        await self._queue.of_job(job_id, "changePriority", {"priority": priority})

    async def set_delay(self, job_id: str, delay: int) -> None:
        await self._queue.of_job(job_id, "changeDelay", delay)

    async def update_data(self, job_id: str, data: Any) -> None:
        await self._queue.of_job(job_id, "updateData", data)


class OfToril:
    def __init__(self, queue: Queue) -> None:
        self._queue = queue

    async def drain(self, *, delayed: bool) -> None:
        await self._queue.drain(delayed="remove" if delayed else "keep")

    async def clean(self, state: str, grace: int, limit: int) -> int:
        return await self._queue.clean(state, older_than=grace / 1000, limit=limit)  # type: ignore[arg-type]

    async def obliterate(self, *, force: bool) -> None:
        await self._queue.obliterate(force=force)

    async def remove(self, job_id: str) -> None:
        await (await self._job(job_id)).remove()

    async def promote(self, job_id: str) -> None:
        await (await self._job(job_id)).promote()

    async def retry(self, job_id: str, state: str) -> None:
        job = await self._job(job_id)
        assert await job.state() == state
        await job.retry()

    async def retry_failed(self) -> None:
        await self._queue.retry_failed()

    async def set_priority(self, job_id: str, priority: int) -> None:
        await (await self._job(job_id)).set_priority(priority)

    async def set_delay(self, job_id: str, delay: int) -> None:
        await (await self._job(job_id)).set_delay(delay / 1000)

    async def update_data(self, job_id: str, data: Any) -> None:
        await (await self._job(job_id)).update_data(data)

    async def _job(self, job_id: str) -> Job[Any]:
        job = await self._queue.job(job_id)
        assert job is not None
        return job


def operator(who: str, node: Node, queue: Queue) -> Operator:
    return OfNode(node.queue(queue.name)) if who == "node" else OfToril(queue)


async def add_by(who: str, node: Node, queue: Queue, name: str, data: Any = None, **options: Any) -> str:
    """The id of a job that one side has added; options are BullMQ's: delay in milliseconds, priority, attempts."""
    if who == "node":
        return str((await node.queue(queue.name).add(name, data, **options))["id"])
    if "delay" in options:
        options["delay"] /= 1000
    return (await queue.add(name, {} if data is None else data, **{"attempts": 1, **options})).id
