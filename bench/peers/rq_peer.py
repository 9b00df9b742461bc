"""RQ: JSON, results not kept, and its SimpleWorker, which runs jobs in its own process, one at a time."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from redis import Redis
from rq import Queue, SimpleWorker
from rq.serializers import JSONSerializer

from bench.peers.adapter import DATA, DEFAULT_LOG, URL, Adapter, Producer, main

NAMES = {"noop": "bench.peers.adapter.noop", "io": "bench.peers.adapter.wait"}


class Simple(Producer):
    def __init__(self) -> None:
        self._queue = Queue("bench", connection=Redis.from_url(URL), serializer=JSONSerializer)

    async def one(self, kind: str, data: dict[str, Any]) -> object:
        return self._queue.enqueue(NAMES[kind], data, result_ttl=0)

    async def many(self, kind: str, jobs: int) -> object:
        return self._queue.enqueue_many([Queue.prepare_data(NAMES[kind], (DATA,), result_ttl=0) for _ in range(jobs)])


@asynccontextmanager
async def opened() -> AsyncIterator[Producer]:
    yield Simple()


def work(_: int) -> None:
    connection = Redis.from_url(URL)
    SimpleWorker(["bench"], connection=connection, serializer=JSONSerializer).work(
        logging_level="INFO" if DEFAULT_LOG else "WARNING"
    )


if __name__ == "__main__":
    main(Adapter(opened, work))
