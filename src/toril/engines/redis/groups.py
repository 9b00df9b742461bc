"""Groups on Redis."""

from collections.abc import Sequence
from typing import Any

from toril.engines.redis.runner import ScriptRunner
from toril.model import Call, GroupBlockers, GroupLimits, GroupRow, Page, SetGroup
from toril.store.capabilities import GroupStore
from toril.store.checked import implements

__all__ = ["RedisGroups", "group_standing"]


@implements(GroupStore)
class RedisGroups:
    """Groups of the seam."""

    def __init__(self, runner: ScriptRunner) -> None:
        self._runner = runner

    async def set(self, queue: str, change: SetGroup, *, call: Call | None = None, now: int | None = None) -> GroupRow:
        limits = ("", "") if change.limits is None else ("1", change.limits.dump())
        paused = {None: "", True: "p", False: "r"}[change.paused]
        return _view(await self._runner.write("set_group", queue, [queue, change.name, *limits, paused], call, now))

    async def get(self, queue: str, name: str, *, now: int | None = None) -> GroupRow:
        return _view(await self._runner.write("set_group", queue, [queue, name, "", "", ""], None, now))

    async def page(
        self, queue: str, *, cursor: str | None = None, limit: int = 100, now: int | None = None
    ) -> Page[GroupRow]:
        rows = await self._runner.read("groups", queue, [cursor or "", limit + 1], now)
        items = tuple(map(_view, rows[:limit]))
        return Page(items, items[-1].name if len(rows) > limit else None)


def _view(row: Sequence[Any]) -> GroupRow:
    name, waiting, running, own, all_groups, paused, till = row
    limits = GroupLimits.load(own.rstrip("p"))
    return GroupRow(
        name=name,
        waiting=waiting,
        running=running,
        own=limits,
        limits=limits.over(GroupLimits.load(all_groups)),
        paused=paused == 1,
        till=till,
    )


def group_standing(row: Sequence[Any] | None) -> GroupBlockers | None:
    """What `explain.lua` returns about a job's group; None if it has none."""
    if row is None:
        return None
    group, let_in, ahead, holders = row
    view = _view(group)
    return GroupBlockers(
        name=view.name,
        let_in=let_in == 1,
        ahead=ahead,
        holders=tuple(holders),
        limits=view.limits,
        paused=view.paused,
        till=view.till,
    )
