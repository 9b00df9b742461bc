"""arq: JSON, results not kept, and polling each 10 ms: with its own 500 ms there is little to compare."""

import asyncio
import json
import logging.config
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from arq import create_pool
from arq.connections import RedisSettings
from arq.logs import default_log_config
from arq.worker import Worker, func

from bench.peers.adapter import DATA, DEFAULT_LOG, URL, Adapter, Producer, main, noop, wait_async


def packed(value: Any) -> bytes:
    return json.dumps(value).encode()


class Pool(Producer):
    def __init__(self, pool: Any) -> None:
        self._pool = pool

    async def one(self, kind: str, data: dict[str, Any]) -> object:
        return await self._pool.enqueue_job(kind, data)

    async def many(self, kind: str, jobs: int) -> object:
        for at in range(0, jobs, 100):
            await asyncio.gather(*(self.one(kind, DATA) for _ in range(min(100, jobs - at))))
        return None


@asynccontextmanager
async def opened() -> AsyncIterator[Producer]:
    pool = await create_pool(RedisSettings.from_dsn(URL), job_serializer=packed, job_deserializer=json.loads)
    yield Pool(pool)
    await pool.aclose()


async def nothing(_: Any, data: dict[str, Any]) -> None:
    noop(data)


async def io(_: Any, data: dict[str, Any]) -> None:
    await wait_async(data)


def work(slots: int) -> None:
    if DEFAULT_LOG:
        logging.config.dictConfig(default_log_config(verbose=False))
    asyncio.set_event_loop(asyncio.new_event_loop())  # it asks for one when it is made
    worker = Worker(
        [func(nothing, name="noop"), func(io, name="io")],
        redis_settings=RedisSettings.from_dsn(URL),
        max_jobs=slots,
        poll_delay=0.01,
        keep_result=0,
        job_serializer=packed,
        job_deserializer=json.loads,
        log_results=DEFAULT_LOG,
    )
    worker.run()


if __name__ == "__main__":
    main(Adapter(opened, work))
