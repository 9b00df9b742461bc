"""Dramatiq on Redis: a worker is taken for dead after 2 s without a sign of life, and looked for at every call."""

import asyncio
import time
from typing import Any

import dramatiq
from dramatiq.brokers.redis import RedisBroker

from bench.scorecard.common import URL, add_all, ended, main, started

broker = RedisBroker(url=URL, heartbeat_timeout=2000, maintenance_chance=100_000)
dramatiq.set_broker(broker)


@dramatiq.actor(actor_name="do", queue_name="scorecard", max_retries=1000, min_backoff=200)  # type: ignore[untyped-decorator]
def do(data: dict[str, Any]) -> None:
    time.sleep(started(data))
    ended(data)


async def produce() -> None:
    loop = asyncio.get_running_loop()
    await add_all(lambda data: loop.run_in_executor(None, do.send, data))


def work(slots: int) -> None:
    dramatiq.Worker(broker, worker_threads=slots).start()
    while True:
        time.sleep(60)


if __name__ == "__main__":
    main(produce, work)
