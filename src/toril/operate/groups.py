"""`queue.groups`: look at the groups of a queue, pause them, and limit them."""

from typing import TYPE_CHECKING, Any, TypedDict, Unpack

from toril.errors import InvalidOption, preview
from toril.model import GroupLimits, Page, RateLimit, SetGroup, SetGroups
from toril.records import GroupRecord, as_record

if TYPE_CHECKING:
    from toril.queue import Queue

__all__ = ["GroupOptions", "QueueGroups"]


class GroupOptions(TypedDict, total=False):
    """The limits that you can set for a group. None goes back to those of the queue."""

    concurrency: int | None
    rate_limit: RateLimit | None
    max_waiting: int | None
    weight: int | None


class QueueGroups:
    """`queue.groups`: the groups of a queue, in all processes."""

    def __init__(self, queue: "Queue") -> None:
        self._queue = queue

    async def list(self, cursor: str | None = None, limit: int = 100) -> Page[GroupRecord]:
        """Read a page of groups that have unfinished jobs or limits of their own, in the order of their names."""
        page = await self._queue.store.groups.page(self._queue.name, cursor=cursor, limit=limit)
        return Page(tuple(as_record(GroupRecord, group) for group in page), page.cursor)

    async def get(self, group: str) -> GroupRecord:
        """Read one group. An unknown one has no jobs, and the limits of the queue."""
        return as_record(GroupRecord, await self._queue.store.groups.get(self._queue.name, group))

    async def pause(self, group: str) -> GroupRecord:
        """Stop starting jobs of this group, in every process, until `resume(group)`. Running jobs continue, and you can
        still add jobs."""
        return await self._set(SetGroup(name=group, paused=True))

    async def resume(self, group: str) -> GroupRecord:
        """Start jobs of this group again after `pause(group)`."""
        return await self._set(SetGroup(name=group, paused=False))

    async def set(self, group: str, **limits: Unpack[GroupOptions]) -> GroupRecord:
        """Give one group limits of its own. Limits that you do not name stay as they are."""
        before = (await self.get(group)).own
        return await self._set(SetGroup(name=group, limits=_changed(before, limits)))

    async def set_all(self, limits: GroupLimits | None) -> GroupLimits:
        """Set the limits of each group, overriding the code; None restores what the code declares. Returns the limits
        that now hold."""
        if limits is not None and not isinstance(limits, GroupLimits):
            raise InvalidOption(f"the limits of groups must be GroupLimits(…) or None, not {preview(limits)}")
        queue = self._queue
        settings = await queue.services.call(
            lambda call: queue.store.configure(queue.name, [SetGroups(limits)], call=call)
        )
        return settings.groups

    async def _set(self, change: SetGroup) -> GroupRecord:
        queue = self._queue
        return as_record(
            GroupRecord, await queue.services.call(lambda call: queue.store.groups.set(queue.name, change, call=call))
        )


def _changed(before: GroupLimits, given: GroupOptions) -> GroupLimits:
    now: dict[str, Any] = {name: getattr(before, name) for name in GroupOptions.__annotations__}
    for name in given:
        if name not in now:
            raise TypeError(f"{name!r} is not a group limit; expected one of {', '.join(now)}")
    return GroupLimits(**(now | dict(given)))
