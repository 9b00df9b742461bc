"""persist-queue: its queue with acknowledgements in a SQLite file; taken, run and acknowledged in a plain loop."""

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from persistqueue import Empty, SQLiteAckQueue
from persistqueue.serializers import json as by_json

from bench.peers.adapter import FILE, Adapter, Producer, main, noop


def made() -> Any:
    place = Path(FILE)
    return SQLiteAckQueue(str(place.parent), db_file_name=place.name, serializer=by_json, auto_commit=True)


class Acknowledged(Producer):
    def __init__(self) -> None:
        self._queue = made()

    async def one(self, _: str, data: dict[str, Any]) -> object:
        return self._queue.put(data)


@asynccontextmanager
async def opened() -> AsyncIterator[Producer]:
    yield Acknowledged()


def work(_: int) -> None:
    queue = made()
    while True:
        try:
            item = queue.get(block=False)
        except Empty:
            time.sleep(0.01)
            continue
        noop(item)
        queue.ack(item)


if __name__ == "__main__":
    main(Adapter(opened, work))
