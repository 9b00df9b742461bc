"""Dramatiq on Redis: one worker process with threads, by its own command."""

import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import dramatiq
from dramatiq.brokers.redis import RedisBroker
from redis import Redis

from bench.peers.adapter import URL, Adapter, Producer, main, noop, wait

# A connection for each thread: with the client's usual hundred, threads fail and wait for five seconds.
dramatiq.set_broker(RedisBroker(client=Redis.from_url(URL, max_connections=1000)))
ACTORS = {
    "noop": dramatiq.actor(noop, actor_name="noop", queue_name="bench"),
    "io": dramatiq.actor(wait, actor_name="io", queue_name="bench"),
}


class Actors(Producer):
    async def one(self, kind: str, data: dict[str, Any]) -> object:
        return ACTORS[kind].send(data)


@asynccontextmanager
async def opened() -> AsyncIterator[Producer]:
    yield Actors()


def work(slots: int) -> None:
    options = ["bench.peers.dramatiq_peer", "--processes", "1", "--threads", str(slots)]
    os.execv(sys.executable, [sys.executable, "-m", "dramatiq", *options])  # noqa: S606 - this very interpreter


if __name__ == "__main__":
    main(Adapter(opened, work))
