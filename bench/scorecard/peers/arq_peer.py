"""arq: a job of a worker that died is free when its time to run, 2 s, and its own margin of 10 s are over."""

import asyncio
import json
from typing import Any

from arq import create_pool
from arq.connections import RedisSettings
from arq.worker import Worker, func

from bench.scorecard.common import URL, add_all, ended, main, started

SETTINGS = RedisSettings.from_dsn(URL)


def packed(value: Any) -> bytes:
    return json.dumps(value).encode()


async def do(_: Any, data: dict[str, Any]) -> None:
    await asyncio.sleep(started(data))
    ended(data)


async def produce() -> None:
    pool = await create_pool(SETTINGS, job_serializer=packed, job_deserializer=json.loads)
    await add_all(lambda data: pool.enqueue_job("do", data))


def work(slots: int) -> None:
    asyncio.set_event_loop(asyncio.new_event_loop())  # it asks for one when it is made
    Worker(
        [func(do, name="do")], redis_settings=SETTINGS, max_jobs=slots, poll_delay=0.05, keep_result=0, job_timeout=2,
        max_tries=1000, job_serializer=packed, job_deserializer=json.loads, log_results=False,
    ).run()  # fmt: skip


if __name__ == "__main__":
    main(produce, work)
