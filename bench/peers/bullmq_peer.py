"""BullMQ's own port to Python."""

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

from bullmq import Queue, Worker

from bench.peers.adapter import DATA, URL, Adapter, Producer, main, noop, wait_async

CONNECTION = {"host": urlsplit(URL).hostname, "port": urlsplit(URL).port}


class Port(Producer):
    def __init__(self, queue: Any) -> None:
        self._queue = queue

    async def one(self, kind: str, data: dict[str, Any]) -> object:
        return await self._queue.add(kind, data, {})

    async def many(self, kind: str, jobs: int) -> object:
        return await self._queue.addBulk([{"name": kind, "data": DATA, "opts": {}}] * jobs)


@asynccontextmanager
async def opened() -> AsyncIterator[Producer]:
    queue = Queue("bench", {"connection": CONNECTION})
    yield Port(queue)
    await queue.close()


async def run(job: Any, _: str) -> None:
    if job.name == "io":
        await wait_async(job.data)
    else:
        noop(job.data)


async def worked(slots: int) -> None:
    over = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, over.set)
    worker = Worker("bench", run, {"connection": CONNECTION, "concurrency": slots})
    await over.wait()
    await worker.close(force=True)


def work(slots: int) -> None:
    asyncio.run(worked(slots))


if __name__ == "__main__":
    main(Adapter(opened, work))
