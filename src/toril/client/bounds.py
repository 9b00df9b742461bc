"""How many jobs of a queue may wait, and what holds for its groups, as its declaration says it: for producers too, with
or without a worker."""

from collections.abc import Awaitable, Callable
from typing import Any, Protocol
from weakref import WeakSet

from toril.model import Call, DeclareGroups, GroupLimits, SetMaxWaiting, Setting
from toril.store.engine import Store

__all__ = ["Bound"]


class _Home(Protocol):
    @property
    def store(self) -> Store: ...

    async def call(self, make: Callable[[Call], Awaitable[Any]]) -> Any: ...


class Bound:
    """A queue's bounds. A process tells the store once, before its first add: what is declared later wins."""

    def __init__(self, queue: str, limit: int | None, groups: GroupLimits | None = None) -> None:
        self._queue = queue
        self.settings: list[Setting] = []
        if limit is not None:
            self.settings.append(SetMaxWaiting(limit))
        if groups is not None:
            self.settings.append(DeclareGroups(groups))
        self._told: WeakSet[Store] = WeakSet()

    async def tell(self, home: _Home) -> None:
        if not self.settings or home.store in self._told:
            return
        store = home.store
        await home.call(lambda call: store.configure(self._queue, self.settings, call=call))
        self._told.add(store)
