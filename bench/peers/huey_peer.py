"""Huey, on Redis or on a SQLite file at FULL as it leaves it, by its consumer with threads; results are not stored.

On a file one thread is its fastest, as more contend for the lock; `work 0` is a bare loop around its dequeue and
execute, with no scheduler and no threads, so that nobody can say that the consumer was held wrong.
"""

import logging
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from huey import RedisHuey, SqliteHuey
from huey.consumer_options import ConsumerConfig

from bench.peers.adapter import DEFAULT_LOG, FILE, URL, Adapter, Producer, main, noop, wait

if DEFAULT_LOG:
    ConsumerConfig().setup_logger()
else:
    logging.getLogger("huey").setLevel(logging.WARNING)
huey = (
    RedisHuey("bench", url=URL, results=False)
    if URL.startswith("redis:")
    else SqliteHuey("bench", filename=FILE, fsync=True, results=False)
)
TASKS = {"noop": huey.task(name="noop")(noop), "io": huey.task(name="io")(wait)}


class Tasks(Producer):
    async def one(self, kind: str, data: dict[str, Any]) -> object:
        return TASKS[kind](data)


@asynccontextmanager
async def opened() -> AsyncIterator[Producer]:
    yield Tasks()


def work(slots: int) -> None:
    if slots:
        huey.create_consumer(workers=slots, worker_type="thread", periodic=False).run()
    while True:
        task = huey.dequeue()
        if task is None:
            time.sleep(0.01)
        else:
            huey.execute(task)


if __name__ == "__main__":
    main(Adapter(opened, work))
