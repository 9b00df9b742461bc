"""`toril demo`"""

import asyncio
import os
import sys
import tempfile
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from shutil import which
from typing import Final

import click

from toril import App
from toril.cli.demo.day import Day, orders_for
from toril.cli.demo.follow import Chronicle, live, spoken
from toril.cli.demo.summary import Summary, show_summary
from toril.cli.exit import Failure, say
from toril.cli.output import console
from toril.runtime.clock import SYSTEM

__all__ = ["demo"]

_TOO_LONG: Final = 120.0  # seconds; it takes ten


@click.command()
@click.option("--pace", type=click.FloatRange(0.02, 10), default=1.0, hidden=True)
def demo(*, pace: float) -> int:
    """Watch a small shop of queues at work, for ten seconds, on a store in a temporary file."""
    url = f"sqlite:///{Path(tempfile.mkdtemp(prefix='toril-demo-')) / 'shop.db'}"
    os.environ |= {"TORIL_URL": url, "TORIL_DEMO_PACE": str(pace)}  # for the app, and for its child processes
    from toril.cli.demo.shop import app  # noqa: PLC0415 - it reads the store's URL when it is imported, as apps do

    summary = asyncio.run(_played(app, Day(app, orders_for(pace), pace)))
    if summary is None:
        say("Stopped. Running jobs were given back to their queues.")
        return 130
    show_summary(summary, url, _program())
    if not summary.adds_up:
        raise Failure(f"of {summary.added} jobs that were added {summary.ended} have ended")
    return 0


async def _played(app: App, day: Day) -> Summary | None:
    """Work the queues while the day lasts. None if someone stopped it."""
    async with app, _view(app), asyncio.TaskGroup() as group:
        start = SYSTEM.monotonic()
        work = group.create_task(app.run(grace=2))
        sales = group.create_task(day.pass_by())
        await asyncio.wait({work, sales}, timeout=_TOO_LONG, return_when=asyncio.FIRST_COMPLETED)
        stopped = work.done()
        sales.cancel()
        app.stop()
        await work
        return None if stopped else await Summary.read(app, day.added, SYSTEM.monotonic() - start)


def _view(app: App) -> AbstractAsyncContextManager[None]:
    """A table that lives on a terminal; lines elsewhere."""
    out = console()
    chronicle = Chronicle(app)
    return live(app, chronicle, out) if out.is_terminal and not out.is_dumb_terminal else spoken(chronicle)


def _program() -> str:
    """How the user can call this command again."""
    if which("toril"):
        return "toril"
    path = Path(sys.argv[0])
    if path.name != "toril":
        return "python -m toril"
    return os.path.relpath(path) if path.is_relative_to(Path.cwd()) else str(path)
