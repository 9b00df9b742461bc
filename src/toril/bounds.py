"""How many jobs of a queue may wait, as its declaration says it: for producers too, with or without a worker."""

from collections.abc import Awaitable, Callable
from typing import Any, Protocol
from weakref import WeakSet

from toril.engine import Store
from toril.model import Call, SetMaxWaiting

__all__ = ["Bound"]


class _Home(Protocol):
    @property
    def store(self) -> Store: ...

    async def call(self, make: Callable[[Call], Awaitable[Any]]) -> Any: ...


class Bound:
    """A queue's bound. A process tells the store once, before its first add: what is declared later wins."""

    def __init__(self, queue: str, limit: int | None) -> None:
        self._queue = queue
        self._limit = limit
        self._told: WeakSet[Store] = WeakSet()

    async def tell(self, home: _Home) -> None:
        if self._limit is None or home.store in self._told:
            return
        store, setting = home.store, SetMaxWaiting(self._limit)
        await home.call(lambda call: store.configure(self._queue, [setting], call=call))
        self._told.add(store)
