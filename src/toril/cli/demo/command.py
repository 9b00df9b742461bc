"""`toril demo`: adds orders, waits, cancels one."""

import asyncio
import os
import sys
import tempfile
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from shutil import which
from typing import Any, Final

import click

from toril import App, Job
from toril.cli.demo.screen import Chronicle, live, spoken
from toril.cli.demo.summary import Summary, show_summary
from toril.cli.exit import CommandFailed, say
from toril.cli.terminal import console
from toril.runtime.clock import SYSTEM

__all__ = ["Day", "Orders", "demo", "orders_for"]

_CUSTOMERS: Final = ("ada", "grace", "edsger", "barbara", "alan", "radia", "donald", "frances")


@dataclass(frozen=True, slots=True, kw_only=True)
class Orders:
    """The demo's workload."""

    receipts: int
    pictures: Sequence[dict[str, Any]]
    payments: Sequence[dict[str, Any]]
    exports: Sequence[dict[str, Any]]


def orders_for(pace: float) -> Orders:
    """The demo's orders; a faster day has smaller pictures."""
    height = max(16, int(1800 * min(1.0, pace)))
    return Orders(
        receipts=28,
        pictures=[{"name": f"photo-{n}.jpg", "width": 4000, "height": height} for n in range(1, 9)],
        payments=[
            {"order": 1},
            {"order": 2, "outages": 1},
            {"order": 3, "outages": 2},
            {"order": 4},
            {"order": 5, "card": "stolen"},
            {"order": 6, "outages": 1},
            {"order": 7},
            {"order": 8, "outages": 2},
        ],
        exports=[{"pages": 45}, {"pages": 600}],
    )


class Day:
    """Adds the orders, some at once and some over time, cancels the export that takes too long, and waits until every
    job has ended."""

    def __init__(self, app: App, orders: Orders, pace: float) -> None:
        self._app = app
        self._orders = orders
        self._pace = pace
        self.added = 0

    async def pass_by(self) -> None:
        """Run from the first order until nothing is left to do."""
        orders = self._orders
        await self._add("thumbnails", "make_thumbnail", orders.pictures)
        await self._add("payments", "charge_card", orders.payments)
        exports = await self._add("exports", "export_catalogue", orders.exports)
        await self._add("emails", "ask_for_review", [_receipt(1)], delay=7 * self._pace)
        await self._sell(orders.receipts)
        await self._cancel(exports[-1])
        while await self._ended() < self.added:
            await SYSTEM.sleep(0.05)

    async def _add(self, queue: str, job: str, payloads: Sequence[Any], **options: Any) -> list[Job[Any]]:
        jobs = await self._app.queues[queue].add_many([(job, payload, options) for payload in payloads])
        self.added += len(jobs)
        return jobs

    async def _sell(self, many: int) -> None:
        """Add half of the orders at once, and the others one by one."""
        await self._add("emails", "send_receipt", [_receipt(n) for n in range(1, many // 2 + 1)])
        for number in range(many // 2 + 1, many + 1):
            await SYSTEM.sleep(0.45 * self._pace)
            await self._add("emails", "send_receipt", [_receipt(number)])

    async def _cancel(self, job: Job[Any]) -> None:
        """Cancel the export once it runs."""
        while await job.state() == "waiting":
            await SYSTEM.sleep(0.05)
        await SYSTEM.sleep(1.0 * self._pace)
        await job.cancel("the operator lost patience")

    async def _ended(self) -> int:
        views = [await self._app.store.queue(name) for name in self._app.queues]
        return sum(view.ended_total for view in views)


def _receipt(order: int) -> dict[str, Any]:
    return {"order": order, "to": f"{_CUSTOMERS[order % len(_CUSTOMERS)]}@example.org"}


_TOO_LONG: Final = 120.0  # seconds; it takes ten


@click.command()
@click.option("--pace", type=click.FloatRange(0.02, 10), default=1.0, hidden=True)
def demo(*, pace: float) -> int:
    """Watch a small demo shop process jobs for ten seconds, on a store in a temporary file."""
    url = f"sqlite:///{Path(tempfile.mkdtemp(prefix='toril-demo-')) / 'shop.db'}"
    os.environ |= {"TORIL_URL": url, "TORIL_DEMO_PACE": str(pace)}  # for the app, and for its child processes
    from toril.cli.demo.shop import app  # noqa: PLC0415 - it reads the store's URL when it is imported, as apps do

    summary = asyncio.run(_played(app, Day(app, orders_for(pace), pace)))
    if summary is None:
        say("Stopped. Running jobs were returned to their queues.")
        return 130
    show_summary(summary, url, _program())
    if not summary.adds_up:
        raise CommandFailed(f"only {summary.ended} of the {summary.added} jobs added have ended")
    return 0


async def _played(app: App, day: Day) -> Summary | None:
    """Run the queues until the demo is over. None if someone stopped it."""
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
    """The live table on a terminal, lines elsewhere."""
    out = console()
    chronicle = Chronicle(app)
    return live(app, chronicle, out) if out.is_terminal and not out.is_dumb_terminal else spoken(chronicle)


def _program() -> str:
    """How the user can start this command again."""
    if which("toril"):
        return "toril"
    path = Path(sys.argv[0])
    if path.name != "toril":
        return "python -m toril"
    return os.path.relpath(path) if path.is_relative_to(Path.cwd()) else str(path)
