"""taskiq on Redis streams, which it acknowledges, by its own command with one worker process."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from taskiq_redis import RedisStreamBroker

from bench.peers.adapter import DATA, DEFAULT_LOG, URL, Adapter, Producer, main, noop, wait_async

# From the first message on: else it does not see what was added before its group was made.
broker = RedisStreamBroker(URL, queue_name="bench", consumer_id="0")


async def nothing(data: dict[str, Any]) -> None:
    noop(data)


TASKS = {
    "noop": broker.register_task(nothing, task_name="noop"),
    "io": broker.register_task(wait_async, task_name="io"),
}


class Broker(Producer):
    async def one(self, kind: str, data: dict[str, Any]) -> object:
        return await TASKS[kind].kiq(data)

    async def many(self, kind: str, jobs: int) -> object:
        for at in range(0, jobs, 100):
            await asyncio.gather(*(self.one(kind, DATA) for _ in range(min(100, jobs - at))))
        return None


@asynccontextmanager
async def opened() -> AsyncIterator[Producer]:
    await broker.startup()
    yield Broker()
    await broker.shutdown()


def work(slots: int) -> None:
    options = ["bench.peers.taskiq_peer:broker", "--workers", "1", "--max-async-tasks", str(slots)]
    command = [sys.executable, "-m", "taskiq", "worker", *options, "--log-level", "INFO" if DEFAULT_LOG else "WARNING"]
    os.execv(sys.executable, command)  # noqa: S606 - this very interpreter


if __name__ == "__main__":
    main(Adapter(opened, work))
