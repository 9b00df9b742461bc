"""The groups of a queue: see how they stand, pause one, give one limits of its own."""

from typing import TYPE_CHECKING, Any, TypedDict, Unpack

from toril.errors import InvalidOption, preview
from toril.model import GroupLimits, Page, RateLimit, SetGroup, SetGroups
from toril.records import GroupRecord, as_record

if TYPE_CHECKING:
    from toril.queue import Queue

__all__ = ["GroupOptions", "QueueGroups"]


class GroupOptions(TypedDict, total=False):
    """What can be set for a group. None leaves it to the queue again."""

    concurrency: int | None
    rate_limit: RateLimit | None
    max_waiting: int | None
    weight: int | None


class QueueGroups:
    """`queue.groups`, over the whole fleet."""

    def __init__(self, queue: "Queue") -> None:
        self._queue = queue

    async def list(self, cursor: str | None = None, limit: int = 100) -> Page[GroupRecord]:
        """A page of those that have jobs which have not ended, or limits of their own, by their names."""
        page = await self._queue.store.groups.page(self._queue.name, cursor=cursor, limit=limit)
        return Page(tuple(as_record(GroupRecord, group) for group in page), page.cursor)

    async def get(self, group: str) -> GroupRecord:
        """One of them; one that nothing is known of has no jobs, and the queue's limits."""
        return as_record(GroupRecord, await self._queue.store.groups.get(self._queue.name, group))

    async def pause(self, group: str) -> GroupRecord:
        """Start nothing more of this group, anywhere, until `resume(group)`. What runs goes on, adds succeed."""
        return await self._set(SetGroup(name=group, paused=True))

    async def resume(self, group: str) -> GroupRecord:
        return await self._set(SetGroup(name=group, paused=False))

    async def set(self, group: str, **limits: Unpack[GroupOptions]) -> GroupRecord:
        """Give one group limits of its own. What is not named stays as it is."""
        before = (await self.get(group)).own
        return await self._set(SetGroup(name=group, limits=_changed(before, limits)))

    async def set_all(self, limits: GroupLimits | None) -> GroupLimits:
        """What holds for each group, instead of what the code says; None takes that back. What then holds."""
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
            raise TypeError(f"{name!r} is no limit of a group; known are {', '.join(now)}")
    return GroupLimits(**(now | dict(given)))
