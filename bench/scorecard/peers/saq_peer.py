"""SAQ: a job without a sign of life for 3 s is swept, by whoever holds the sweeper's lock, looked for each second."""

import asyncio
from typing import Any

from redis.asyncio import Redis
from saq import Worker
from saq.queue.redis import RedisQueue
from saq.types import Context

from bench.scorecard.common import URL, add_all, ended, main, started

_SWEEP = 1  # seconds


def queue_of() -> Any:
    """It waits for ever for a server that is silent, unless told otherwise."""
    return RedisQueue(Redis.from_url(URL, socket_timeout=5, health_check_interval=5), name="scorecard")


async def do(_: Context, *, data: dict[str, Any]) -> None:
    await asyncio.sleep(started(data))
    ended(data)


async def produce() -> None:
    queue = queue_of()
    await add_all(lambda data: queue.enqueue("do", data=data, timeout=3, heartbeat=3, retries=1000, ttl=60))


async def worked(slots: int) -> None:
    await Worker(
        queue_of(), [("do", do)], concurrency=slots, dequeue_timeout=2, timers={"sweep": _SWEEP, "schedule": 1}
    ).start()


def work(slots: int) -> None:
    asyncio.run(worked(slots))


if __name__ == "__main__":
    main(produce, work)
