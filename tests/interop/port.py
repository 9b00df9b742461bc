"""BullMQ's own port to Python, on the server that Toril uses. It runs on the test's event loop."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import bullmq

Handlers = Mapping[str, Callable[[Any], Awaitable[Any]]]


class Port:
    """Opens queues and workers of the port."""

    def __init__(self, url: str) -> None:
        self._connection = url

    @asynccontextmanager
    async def queue(self, name: str) -> AsyncIterator[Any]:
        """A `bullmq.Queue`."""
        queue = bullmq.Queue(name, {"connection": self._connection})
        try:
            yield queue
        finally:
            await queue.close()

    @asynccontextmanager
    async def working(self, name: str, handlers: Handlers, **options: Any) -> AsyncIterator[Any]:
        """A `bullmq.Worker` that runs until the block ends; options are BullMQ's, times in milliseconds."""

        async def run(job: Any, _: str) -> Any:
            return await handlers[job.name](job)

        settings = {"connection": self._connection, "autorun": False, "drainDelay": 1, **options}
        worker = bullmq.Worker(name, run, settings)
        running = asyncio.ensure_future(worker.run())
        try:
            yield worker
        finally:
            await worker.close()
            await asyncio.wait_for(running, 15)
