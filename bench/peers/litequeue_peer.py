"""litequeue: a table in a SQLite file; taken, run and marked as done in a plain loop, as it has no worker."""

import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from litequeue import LiteQueue

from bench.peers.adapter import FILE, Adapter, Producer, main, noop


def made() -> Any:
    queue = LiteQueue(FILE)
    queue.conn.execute("PRAGMA synchronous = FULL")  # as the others have it; by itself it is at NORMAL
    return queue


class Table(Producer):
    def __init__(self) -> None:
        self._queue = made()

    async def one(self, _: str, data: dict[str, Any]) -> object:
        return self._queue.put(json.dumps(data))


@asynccontextmanager
async def opened() -> AsyncIterator[Producer]:
    yield Table()


def work(_: int) -> None:
    queue = made()
    while True:
        message = queue.pop()
        if message is None:
            time.sleep(0.01)
            continue
        noop(json.loads(message.data))
        queue.done(message.message_id)


if __name__ == "__main__":
    main(Adapter(opened, work))
