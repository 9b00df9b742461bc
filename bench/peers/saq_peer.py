"""SAQ: JSON, as it is."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from saq import Queue, Worker

from bench.peers.adapter import DATA, URL, Adapter, Producer, main, noop, wait_async


class Saq(Producer):
    def __init__(self, queue: Any) -> None:
        self._queue = queue

    async def one(self, kind: str, data: dict[str, Any]) -> object:
        return await self._queue.enqueue(kind, data=data)

    async def many(self, kind: str, jobs: int) -> object:
        for at in range(0, jobs, 100):
            await asyncio.gather(*(self.one(kind, DATA) for _ in range(min(100, jobs - at))))
        return None


@asynccontextmanager
async def opened() -> AsyncIterator[Producer]:
    queue = Queue.from_url(URL, name="bench")
    yield Saq(queue)
    await queue.disconnect()


async def nothing(_: Any, *, data: dict[str, Any]) -> None:
    noop(data)


async def io(_: Any, *, data: dict[str, Any]) -> None:
    await wait_async(data)


async def worked(slots: int) -> None:
    queue = Queue.from_url(URL, name="bench")
    await Worker(queue, [("noop", nothing), ("io", io)], concurrency=slots).start()


def work(slots: int) -> None:
    asyncio.run(worked(slots))


if __name__ == "__main__":
    main(Adapter(opened, work))
