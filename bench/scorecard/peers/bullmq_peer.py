"""BullMQ's own port to Python: lock of 2 s, a look for stalled jobs each second, as many stalls as there are."""

import asyncio
from typing import Any

from bullmq import Queue, Worker

from bench.scorecard.common import PORT, add_all, ended, main, started

CONNECTION = {"host": "127.0.0.1", "port": PORT}


async def do(job: Any, _: str) -> None:
    await asyncio.sleep(started(job.data))
    ended(job.data)


async def produce() -> None:
    queue = Queue("scorecard", {"connection": CONNECTION})
    await add_all(lambda data: queue.add("do", data, {}))


async def worked(slots: int) -> None:
    options = {
        "connection": CONNECTION, "concurrency": slots, "lockDuration": 2000, "stalledInterval": 1000,
        "maxStalledCount": 1000,
    }  # fmt: skip
    Worker("scorecard", do, options)
    await asyncio.Event().wait()


def work(slots: int) -> None:
    asyncio.run(worked(slots))


if __name__ == "__main__":
    main(produce, work)
