"""The app that `toril bench` runs: its handlers do nothing or wait, and note when they ran."""

import os
from typing import Any, Final

from toril import App, JobContext
from toril.cli.bench.timestamps import marker
from toril.runtime.clock import SYSTEM

__all__ = ["app"]

IO: Final = 0.01  # seconds

_mark: Final = marker(os.environ["TORIL_BENCH_BOARD"], int(os.environ["TORIL_BENCH_SLOTS"]))


async def noop(ctx: JobContext[dict[str, Any]]) -> None:
    """Note when it started, and when its producer says that it was added."""
    _mark(SYSTEM.monotonic(), ctx.data.get("at", 0.0))


async def io(ctx: JobContext[dict[str, Any]]) -> None:
    """Wait, as for another service, and note when that began and ended."""
    started = SYSTEM.monotonic()
    await SYSTEM.sleep(IO if ctx.data else 0)
    _mark(started, SYSTEM.monotonic())


app = App(os.environ["TORIL_BENCH_URL"], prefix=os.environ["TORIL_BENCH_PREFIX"])
app.queue(os.environ["TORIL_BENCH_QUEUE"], [noop, io], concurrency=100)
