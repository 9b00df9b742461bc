"""The overview: what is wrong, and how all queues are doing."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from toril.model import AuditEntry
from toril.operate.metrics import QueueOverview
from toril.policy.attention import Importance, QueueFacts, importance_of, trend
from toril.records import WorkerRecord
from toril.web.access import Role
from toril.web.api.common import Search
from toril.web.audit_text import in_words
from toril.web.fleet_status import FleetStatus
from toril.web.pages.attention import troubles
from toril.web.pages.drawing import Spark, spark
from toril.web.pages.page import PageRequest, PageSpec, View
from toril.web.templates import Words, number, plural

__all__ = ["OVERVIEW"]

_CHANGES: Final = 6


class OverviewPageView(View):
    """Which queues are listed."""

    only: Literal["", "problem", "idle"] = ""
    q: Search = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OverviewRow:
    """A queue in the table."""

    hour: QueueOverview
    facts: QueueFacts
    spark: Spark
    cls: str
    icon: str
    trend: int
    growth: str
    slow: bool

    @property
    def kind(self) -> str:
        """The view of the table to which it belongs, besides all."""
        if self.cls in {"crit", "warn", "paused"}:
            return "problem"
        return "idle" if not (self.facts.waiting or self.facts.running or self.hour.rate) else "busy"


async def overview(asking: PageRequest) -> dict[str, Any]:
    around, query = asking.around, asking.query
    rows = sorted((_row(each, around) for each in around.overview.queues), key=_urgency)
    shown = [
        row for row in rows if query.only in {"", row.kind} and (query.q or "").casefold() in row.hour.queue.casefold()
    ]
    count = len(around.needs)
    return {
        "title": "Overview", "now": around.now, "query": query, "rows": shown, "of": len(rows),
        "verdict": f"{plural(count, 'thing')} need{'s' if count == 1 else ''} attention" if count else "All clear",
        "counted": {kind: sum(row.kind == kind for row in rows) for kind in ("problem", "idle")},
        "troubles": troubles(around.needs), "totals": _totals(around), "fleet": _fleet(around.overview.workers, rows),
        "changes": _changes(around) if asking.who.role >= Role.ADMIN else None,
    }  # fmt: skip


def _row(each: QueueOverview, around: FleetStatus) -> OverviewRow:
    facts = around.facts[each.queue]
    mine = [need for need in around.needs if getattr(need, "queue", None) == each.queue]
    worst = min((importance_of(need) for need in mine), default=None)
    busy = facts.waiting or facts.running or each.rate
    look = {Importance.CRITICAL: ("crit", "crit"), Importance.WARNING: ("warn", "warn")}.get(worst) if worst else None
    if facts.paused and worst is not Importance.CRITICAL:
        look = ("paused", "paused")
    cls, icon = look or (("active", "active") if busy else ("wait", "wait"))
    way = trend(facts.waiting, facts.growth)
    growth = f"{'growing' if way > 0 else 'shrinking'} by {number(abs(facts.growth or 0))} per minute"
    return OverviewRow(
        hour=each,
        facts=facts,
        spark=spark(each.completed, each.failed),
        cls=cls,
        icon=icon,
        trend=way,
        growth=growth,
        slow=each.waits_too_long,
    )


def _urgency(row: OverviewRow) -> tuple[int, float, str]:
    """Sort key: problems first, then the busiest."""
    order = {"crit": 0, "warn": 1, "paused": 2}.get(row.cls, 3)
    return order, -(row.hour.rate + row.facts.running), row.hour.queue


def _totals(around: FleetStatus) -> dict[str, Any]:
    queues = around.overview.queues
    completed = [sum(minute) for minute in zip(*(each.completed for each in queues), strict=True)]
    failed = [sum(minute) for minute in zip(*(each.failed for each in queues), strict=True)]
    ended = sum(completed) + sum(failed)
    waits = [each.wait_p95 for each in queues if each.wait_p95 is not None]
    return {
        "waiting": sum(facts.waiting for facts in around.facts.values()),
        "running": sum(facts.running for facts in around.facts.values()),
        "slots": sum(worker.slots for worker in around.overview.workers),
        "rate": sum(each.rate for each in queues), "completed": spark(completed), "failed": sum(failed),
        "share": 100 * sum(failed) / ended if ended else 0.0, "failing": spark(failed),
        "cancelled": sum(each.cancelled for each in queues), "wait": max(waits, default=None),
    }  # fmt: skip


def _changes(around: FleetStatus) -> list[tuple[AuditEntry, Words]]:
    return [(entry, in_words(entry)) for entry in around.notes[:_CHANGES]]


def _fleet(workers: Sequence[WorkerRecord], rows: Sequence[OverviewRow]) -> str:
    hosts = len({worker.host for worker in workers})
    served = f"{plural(len(workers), 'worker')} on {plural(hosts, 'host')}" if workers else "no workers"
    return f"{plural(len(rows), 'queue')}, {served}."


OVERVIEW: Final = (PageSpec(path="/", template="overview.html", show=overview, query=OverviewPageView),)
