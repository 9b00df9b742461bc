"""A day in the shop: what customers and the operator do."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from toril import App, Job
from toril.runtime.clock import SYSTEM

__all__ = ["Day", "Orders", "orders_for"]

_CUSTOMERS: Final = ("ada", "grace", "edsger", "barbara", "alan", "radia", "donald", "frances")


@dataclass(frozen=True, slots=True, kw_only=True)
class Orders:
    """What is asked of the shop in a day."""

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
    """Adds the orders, some at once and some as time passes, cancels the export that takes too long, and waits until
    every job has ended."""

    def __init__(self, app: App, orders: Orders, pace: float) -> None:
        self._app = app
        self._orders = orders
        self._pace = pace
        self.added = 0

    async def pass_by(self) -> None:
        """From the first order until nothing is left to do."""
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
        """Half of the orders are there when the shop opens; the others come one by one."""
        await self._add("emails", "send_receipt", [_receipt(n) for n in range(1, many // 2 + 1)])
        for number in range(many // 2 + 1, many + 1):
            await SYSTEM.sleep(0.45 * self._pace)
            await self._add("emails", "send_receipt", [_receipt(number)])

    async def _cancel(self, job: Job[Any]) -> None:
        """The operator loses patience, once it runs."""
        while await job.state() == "waiting":
            await SYSTEM.sleep(0.05)
        await SYSTEM.sleep(1.0 * self._pace)
        await job.cancel("the operator lost patience")

    async def _ended(self) -> int:
        views = [await self._app.store.queue(name) for name in self._app.queues]
        return sum(view.ended_total for view in views)


def _receipt(order: int) -> dict[str, Any]:
    return {"order": order, "to": f"{_CUSTOMERS[order % len(_CUSTOMERS)]}@example.org"}
