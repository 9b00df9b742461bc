"""Toril, on whichever store the URL names, worked by `toril run`."""

import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from bench.peers.adapter import DATA, DEFAULT_LOG, URL, Adapter, Producer, main
from toril import App, Queue
from toril.cli.bench.command import worker_environment
from toril.client.options import AddOptions

QUEUE = "bench"
SHAPES: dict[str, AddOptions] = {"waiting": {}, "delayed": {"delay": 3600}, "prioritized": {"priority": 5}}
OPTIONS = SHAPES[os.environ.get("BENCH_SHAPE", "waiting")]


class Ours(Producer):
    def __init__(self, queue: Queue) -> None:
        self._queue = queue

    async def one(self, kind: str, data: dict[str, Any]) -> object:
        return await self._queue.add(kind, data, **OPTIONS)

    async def many(self, kind: str, jobs: int) -> object:
        return await self._queue.add_many([(kind, DATA, OPTIONS)] * jobs)


@asynccontextmanager
async def opened() -> AsyncIterator[Producer]:
    async with App(URL) as app:
        yield Ours(app.queue(QUEUE))


def work(slots: int) -> None:
    """Become `toril run`."""
    board, size = Path(os.environ["TORIL_BENCH_BOARD"]), int(os.environ["TORIL_BENCH_SLOTS"])
    command = ["-m", "toril", "run", "toril.cli.bench.app:app", "--no-http"]
    level = [] if DEFAULT_LOG else ["--log-level", "warning"]
    own = ["-q", f"{QUEUE}:{slots}", "--processes", os.environ.get("BENCH_PROCESSES", "1")]
    own += ["--loop", os.environ.get("BENCH_LOOP", "asyncio")]
    os.execve(  # noqa: S606 - this very interpreter
        sys.executable, [sys.executable, *command, *level, *own], worker_environment(URL, "bull", QUEUE, board, size)
    )


if __name__ == "__main__":
    main(Adapter(opened, work))
