"""streaq: JSON, results not kept."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from streaq import Worker

from bench.peers.adapter import DATA, URL, Adapter, Producer, main, noop, wait_async


def made(slots: int) -> tuple[Any, dict[str, Any]]:
    """The worker, which is its producer too, and its tasks."""
    worker: Any = Worker(
        redis_url=URL, queue_name="bench", concurrency=slots, serializer=json.dumps, deserializer=json.loads
    )

    async def nothing(data: dict[str, Any]) -> None:
        noop(data)

    return worker, {
        "noop": worker.task(name="noop", ttl=0)(nothing),
        "io": worker.task(name="io", ttl=0)(wait_async),
    }


class Streaq(Producer):
    def __init__(self, worker: Any, tasks: dict[str, Any]) -> None:
        self._worker = worker
        self._tasks = tasks

    async def one(self, kind: str, data: dict[str, Any]) -> object:
        return await self._tasks[kind].enqueue(data)

    async def many(self, kind: str, jobs: int) -> object:
        return await self._worker.enqueue_many([self._tasks[kind].enqueue(DATA) for _ in range(jobs)])


@asynccontextmanager
async def opened() -> AsyncIterator[Producer]:
    worker, tasks = made(10)
    async with worker:
        yield Streaq(worker, tasks)


def work(slots: int) -> None:
    made(slots)[0].run_sync()


if __name__ == "__main__":
    main(Adapter(opened, work))
