"""`toril bench`: measures adding, draining and latency."""

import asyncio
import os
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import click

from toril import App, Queue
from toril.cli.bench.timestamps import Boards
from toril.cli.exit import CommandFailed, say
from toril.cli.store_option import StoreOption, on_store, store_options
from toril.cli.terminal import Column, Lines, json_option, show
from toril.runtime.clock import SYSTEM

__all__ = ["DATA", "BenchRun", "Figure", "bench", "percentile", "worker_environment"]

DATA: Final[dict[str, Any]] = {"user_id": 12345, "email": "someone@example.org", "text": "x" * 50}

_LOOK: Final = 0.01  # seconds between two looks at the boards
_PAUSE: Final = (0.005, 0.02)  # seconds, at least and at most, between two jobs at light load


@dataclass(frozen=True, slots=True)
class Figure:
    """A measured value."""

    what: str
    value: float
    unit: str


def percentile(values: Sequence[float], share: float) -> float:
    """The value that this share of them does not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, round(len(ordered) * share))]


def worker_environment(url: str, prefix: str, queue: str, board: Path, slots: int) -> dict[str, str]:
    """The environment of the benchmark's workers, without the user's own settings for `toril run`."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("TORIL_")}
    ours = {"URL": url, "PREFIX": prefix, "QUEUE": queue, "BOARD": str(board), "SLOTS": str(slots)}
    return kept | {f"TORIL_BENCH_{name}": value for name, value in ours.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchRun:
    """A benchmark: how many jobs, in which queue, on which open app."""

    app: App
    name: str
    alone: int
    bulk: int
    light: int
    concurrency: int

    async def run(self, tell: Callable[[str], None]) -> list[Figure]:
        """Measure everything, and remove the queue afterwards, whatever happens."""
        queue = self.app.queue(self.name)
        try:
            return await self._measured(queue, tell)
        finally:
            await queue.obliterate(force=True)

    async def _measured(self, queue: Queue, tell: Callable[[str], None]) -> list[Figure]:
        tell(f"Adding {self.alone} jobs one by one, and {self.bulk} in bulk")
        began = SYSTEM.monotonic()
        for _ in range(self.alone):
            await queue.add("noop", DATA)
        halfway = SYSTEM.monotonic()
        await queue.add_many([("noop", DATA)] * self.bulk)
        added = SYSTEM.monotonic()
        tell(f"Processing them, {self.concurrency} at once")
        waiting = self.alone + self.bulk
        async with self._worker(waiting + self.light) as boards:
            await _until(boards, waiting)
            first, last = (boards.pairs()[n][0] for n in (0, waiting - 1))
            tell(f"Adding {self.light} more, one at a time")
            await self._trickle(queue)
            await _until(boards, waiting + self.light)
            waits = [(start - at) * 1000 for start, at in boards.pairs() if at]
        rates = {
            "added one by one": self.alone / (halfway - began),
            "added in bulk": self.bulk / (added - halfway),
            f"processed, {self.concurrency} at once": (waiting - 1) / (last - first),
        }
        return [Figure(what, rate, "jobs/s") for what, rate in rates.items()] + [
            Figure(f"pickup latency, p{share}", percentile(waits, share / 100), "ms") for share in (50, 95, 99)
        ]

    async def _trickle(self, queue: Queue) -> None:
        least, most = _PAUSE
        for _ in range(self.light):
            await queue.add("noop", {"at": SYSTEM.monotonic()})
            await SYSTEM.sleep(least + (most - least) * SYSTEM.random())

    @asynccontextmanager
    async def _worker(self, slots: int) -> AsyncIterator[Boards]:
        """Run `toril run` with one process on this queue, and end it afterwards."""
        app = self.app
        with tempfile.TemporaryDirectory(prefix="toril-bench-") as folder:
            command = [sys.executable, "-m", "toril", "run", "toril.cli.bench.app:app", "--no-http"]
            child = await asyncio.create_subprocess_exec(
                *command,
                "--log-level",
                "warning",
                "-q",
                f"{self.name}:{self.concurrency}",
                env=worker_environment(app.url, app.prefix, self.name, Path(folder), slots),
            )
            ended = asyncio.create_task(child.wait())
            try:
                yield _Watched(Path(folder), slots, ended)
            finally:
                if child.returncode is None:
                    child.terminate()
                await ended


class _Watched(Boards):
    """Boards whose worker must be running."""

    def __init__(self, folder: Path, slots: int, ended: "asyncio.Task[int]") -> None:
        super().__init__(folder, slots)
        self._ended = ended

    def count(self) -> int:
        if self._ended.done():
            raise CommandFailed(f"the worker process exited early, with code {self._ended.result()}")
        return super().count()


async def _until(boards: Boards, jobs: int) -> None:
    while boards.count() < jobs:
        await SYSTEM.sleep(_LOOK)


_COLUMNS: Final = [Column("what"), Column("figure", numbers=True), Column("unit")]


@click.command()
@click.option(
    "--jobs", type=click.IntRange(10), default=20_000, show_default=True, help="Jobs to add in bulk and process."
)
@click.option(
    "--light",
    type=click.IntRange(1),
    default=200,
    show_default=True,
    help="Jobs to add one at a time, for the pickup latency.",
)
@click.option("-c", "--concurrency", type=click.IntRange(1, 10_000), default=100, show_default=True)
@store_options
@json_option
def bench(*, jobs: int, light: int, concurrency: int, place: StoreOption, as_json: bool) -> None:
    """Benchmark your store: adding jobs, processing them, and how soon a job is picked up.

    The jobs are no-ops of about 100 bytes in a queue of their own, which is removed afterwards. One process of
    `toril run` processes them. The rate is the number of jobs over the time from the first handler to the last; pickup
    is timed from the call that adds a job until its handler starts. Run it while the machine is idle.
    """

    async def measured(app: App) -> list[Figure]:
        if app.services.in_memory:
            raise click.UsageError("memory:// is private to one process: use a store that a worker process can reach")
        name = f"bench-{SYSTEM.unique()[:12]}"
        course = BenchRun(app=app, name=name, alone=max(1, jobs // 10), bulk=jobs, light=light, concurrency=concurrency)
        return await course.run(say)

    found = on_store(place, measured, missing="create")
    documents = [{"what": each.what, "value": round(each.value, 3), "unit": each.unit} for each in found]
    show(Lines(documents, _COLUMNS, _row, "Nothing was measured."), as_json=as_json)


def _row(figure: dict[str, Any]) -> list[object]:
    value = figure["value"]
    return [figure["what"], f"{value:,.0f}" if figure["unit"] == "jobs/s" else f"{value:.2f}", figure["unit"]]
