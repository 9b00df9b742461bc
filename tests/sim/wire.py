"""The way from one process to the store and back, and everything that can happen on it."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVar

from tests.sim.faults import Fate, Point, Weather
from tests.sim.node import Node
from tests.sim.store import SimStore
from tests.sim.witness import Witness
from toril.engine import Store
from toril.errors import EngineUnavailable
from toril.model import Call

__all__ = ["Spawn", "Wire"]

T = TypeVar("T")
Send = Callable[[Store], Awaitable[T]]
Seen = Callable[[T], None]


class Spawn(Protocol):
    """Starts something that belongs to the network, not to any process."""

    def __call__(self, work: Awaitable[None]) -> None: ...


class Wire:
    """Carries calls. What the sender is told may be less than what happened, never more."""

    def __init__(self, node: Node, store: SimStore, weather: Weather, witness: Witness, spawn: Spawn) -> None:
        self._node = node
        self._store = store
        self._weather = weather
        self._witness = witness
        self._spawn = spawn
        self._epoch = -1
        self._view: Store | None = None

    async def carry(self, what: str, send: Send[T], seen: Seen[T], *, call: Call | None = None) -> T:
        """One call: there, its effect, and back."""
        node, store = self._node, self._store
        await node.awake()
        fate, epoch = self._weather.fate(node.name, what), store.epoch
        self._die_at(Point.BEFORE_SEND, fate, what)
        if fate.late is not None:
            self._spawn(self._arrive_late(self._weather.patience + fate.late, what, send, seen, call))
        if fate.lost == "request" or fate.late is not None:
            await self._nothing_comes(what)
        try:
            await asyncio.sleep(fate.request)
        except asyncio.CancelledError:
            if fate.outlives:
                self._spawn(self._arrive_late(fate.request, what, send, seen, call))
            raise
        answer = await self._effect(what, send, seen, call, epoch)
        self._die_at(Point.AFTER_EFFECT, fate, what)
        if fate.lost == "reply":
            await self._nothing_comes(what)
        await asyncio.sleep(fate.reply)
        if store.epoch != epoch:
            raise EngineUnavailable(f"{what}: the connection was reset")
        await node.awake()
        self._die_at(Point.AFTER_REPLY, fate, what)
        return answer

    async def rest(self, what: str, send: Send[T]) -> T:
        """A call that waits within the store and changes nothing there."""
        await self._node.awake()
        fate, epoch = self._weather.fate(self._node.name, what), self._store.epoch
        if fate.lost == "request":
            await self._nothing_comes(what)
        answer = await send(self._reach(what, epoch))
        if fate.lost == "reply":
            await self._nothing_comes(what)
        if self._store.epoch != epoch:
            raise EngineUnavailable(f"{what}: the connection was reset")
        await self._node.awake()
        return answer

    def _die_at(self, point: Point, fate: Fate, what: str) -> None:
        if fate.crash is point:
            self._witness.note(self._node.name, what, f"dies {point}")
            self._node.kill()
            raise asyncio.CancelledError

    async def _nothing_comes(self, what: str) -> None:
        await asyncio.sleep(self._weather.patience)
        await self._node.awake()
        raise EngineUnavailable(f"{what}: no answer within {self._weather.patience} s")

    async def _arrive_late(self, delay: float, what: str, send: Send[T], seen: Seen[T], call: Call | None) -> None:
        """A request whose sender no longer waits for it. Nobody hears the answer."""
        epoch = self._store.epoch
        await asyncio.sleep(delay)
        try:
            await self._effect(what, send, seen, call, epoch)
        except EngineUnavailable:
            return
        self._witness.journal.tally["request took effect late"] += 1

    async def _effect(self, what: str, send: Send[T], seen: Seen[T], call: Call | None, epoch: int) -> T:
        view = self._reach(what, epoch)
        try:
            answer = await send(view)
        except EngineUnavailable as error:
            self._witness.refused(self._node.name, what, call, error)
            raise
        except Exception as error:
            self._witness.refused(self._node.name, what, None, error)
            raise EngineUnavailable(f"{what}: {error!r}") from error
        seen(answer)
        return answer

    def _reach(self, what: str, epoch: int) -> Store:
        """The store, if the connection on which the request was sent still stands."""
        if not self._store.up or self._store.epoch != epoch:
            raise EngineUnavailable(f"{what}: the store is down")
        if self._view is None or self._epoch != epoch:
            self._view, self._epoch = self._store.view(), epoch
        return self._view
