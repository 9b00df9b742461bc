"""What every adapter is: a producer, a worker, and handlers that write down when they ran.

    python -m bench.peers.NAME one JOBS        add so many, each when the last is stored
    python -m bench.peers.NAME many JOBS KIND  add so many in the quickest way there is; KIND is noop or io
    python -m bench.peers.NAME trickle JOBS    add one now and then, with the time in it
    python -m bench.peers.NAME work SLOTS      work until told to end, so many at once

The store is $BENCH_URL. Adding prints one JSON object: seconds, and processor seconds. Nothing but the standard library
and the peer itself is needed here, beside the board.
"""

import asyncio
import json
import os
import random
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any

from toril.cli.bench.timestamps import marker

DATA: dict[str, Any] = {"user_id": 12345, "email": "someone@example.org", "text": "x" * 50}
URL = os.environ.get("BENCH_URL", "")
FILE = URL.removeprefix("sqlite:///")
IO = 0.01  # seconds
DEFAULT_LOG = os.environ.get("BENCH_LOG") == "default"  # as its command logs when nobody says otherwise; else silent
CHUNK = 1000


class Producer(ABC):
    """Adds jobs."""

    @abstractmethod
    async def one(self, kind: str, data: dict[str, Any]) -> object:
        """Add one, and return when it is stored."""

    async def many(self, kind: str, jobs: int) -> object:
        """Add up to a thousand; one by one, where the peer has nothing better."""
        for _ in range(jobs):
            await self.one(kind, DATA)
        return None


@dataclass(frozen=True, slots=True)
class Adapter:
    """How one peer is opened for adding, and how it works."""

    opened: Callable[[], AbstractAsyncContextManager[Producer]]
    work: Callable[[int], object]


_first = threading.Lock()
_made: list[Callable[[float, float], None]] = []


def _mark() -> Callable[[float, float], None]:
    """Made once by the process that runs the first job, which may be a child of the one that imported this."""
    if not _made:
        with _first:
            if not _made:  # a hundred threads may have come here together
                _made.append(marker(os.environ["TORIL_BENCH_BOARD"], int(os.environ["TORIL_BENCH_SLOTS"])))
    return _made[0]


def noop(data: dict[str, Any]) -> None:
    """The job that does nothing."""
    _mark()(time.monotonic(), data.get("at", 0.0))


def wait(data: dict[str, Any]) -> None:
    """The job that waits, for peers that run plain functions."""
    started = time.monotonic()
    time.sleep(IO if data else 0)
    _mark()(started, time.monotonic())


async def wait_async(data: dict[str, Any]) -> None:
    """The job that waits, for peers that run coroutines."""
    started = time.monotonic()
    await asyncio.sleep(IO if data else 0)
    _mark()(started, time.monotonic())


def main(adapter: Adapter) -> None:
    """Do what the command line says."""
    match sys.argv[1:]:
        case ["work", slots]:
            adapter.work(int(slots))
        case [verb, jobs, *kind]:
            print(json.dumps(asyncio.run(_added(adapter, verb, int(jobs), *kind))))
        case _:
            sys.exit(__doc__)


async def _added(adapter: Adapter, verb: str, jobs: int, kind: str = "noop") -> dict[str, float]:
    async with adapter.opened() as producer:
        if verb == "many":
            await producer.one(kind, DATA)  # connected, and scripts loaded
        began, used = time.monotonic(), time.process_time()
        if verb == "one":
            for _ in range(jobs):
                await producer.one(kind, DATA)
        elif verb == "many":
            for at in range(1, jobs, CHUNK):
                await producer.many(kind, min(CHUNK, jobs - at))
        else:
            for _ in range(jobs):
                await producer.one(kind, {"at": time.monotonic()})
                await asyncio.sleep(random.uniform(0.005, 0.02))
        return {"jobs": jobs, "seconds": time.monotonic() - began, "cpu": time.process_time() - used}
