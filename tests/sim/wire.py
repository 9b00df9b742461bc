"""The way from one process to the store and back, and everything that can happen on it."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Protocol, TypeVar

from tests.sim.faults import Fate, Point, Weather
from tests.sim.node import Node
from tests.sim.store import SimStore
from tests.sim.witness import Witness
from toril.errors import EngineUnavailable
from toril.model import Call
from toril.store.engine import Store

__all__ = ["Spawn", "Wire"]

T = TypeVar("T")
Send = Callable[[Store], Awaitable[T]]
Seen = Callable[[T], None]


class Spawn(Protocol):
    """Starts something that belongs to the network, not to any process."""

    def __call__(self, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]": ...


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
        """One call: there, its effect, and back. What is on its way goes on whatever its sender does."""
        node = self._node
        node.check()
        fate = self._weather.fate(node.name, what)
        self._die_at(Point.BEFORE_SEND, fate, what)
        epoch = self._store.epoch
        heard: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        trip = self._spawn(self._travel(fate, what, lambda: self._effect(what, send, seen, call, epoch), heard))
        try:
            answer = await heard
        except asyncio.CancelledError:
            if not fate.outlives and fate.late is None:
                trip.cancel()
            raise
        finally:
            node.check()
        self._die_at(Point.AFTER_REPLY, fate, what)
        return answer

    async def _travel(
        self, fate: Fate, what: str, effect: Callable[[], Awaitable[T]], heard: "asyncio.Future[T]"
    ) -> None:
        epoch = self._store.epoch
        if fate.late is not None or fate.lost == "request":
            await self._nothing_comes(what, heard)
            if fate.late is None:
                return
        await asyncio.sleep(fate.request if fate.late is None else fate.late)
        try:
            answer = await effect()
        except EngineUnavailable as error:
            _say(heard, error)
            return
        if heard.done():
            self._witness.journal.tally["request took effect late"] += 1
            return
        self._die_at(Point.AFTER_EFFECT, fate, what)
        if fate.lost == "reply":
            await self._nothing_comes(what, heard)
            return
        await asyncio.sleep(fate.reply)
        if self._store.epoch != epoch:
            _say(heard, EngineUnavailable(f"{what}: the connection was reset"))
        elif not heard.done():
            heard.set_result(answer)

    async def rest(self, what: str, send: Send[T]) -> T:
        """A call that waits within the store and changes nothing there."""
        self._node.check()
        fate, epoch = self._weather.fate(self._node.name, what), self._store.epoch
        if fate.lost == "request":
            await self._no_answer(what)
        answer = await send(self._reach(what, epoch))
        if fate.lost == "reply":
            await self._no_answer(what)
        if self._store.epoch != epoch:
            raise EngineUnavailable(f"{what}: the connection was reset")
        self._node.check()
        return answer

    def _die_at(self, point: Point, fate: Fate, what: str) -> None:
        if fate.crash is point:
            self._witness.note(self._node.name, what, f"dies {point}")
            self._node.kill()
            raise asyncio.CancelledError

    async def _no_answer(self, what: str) -> None:
        await asyncio.sleep(self._weather.patience)
        self._node.check()
        raise EngineUnavailable(f"{what}: no answer within {self._weather.patience} s")

    async def _nothing_comes(self, what: str, heard: "asyncio.Future[T]") -> None:
        await asyncio.sleep(self._weather.patience)
        _say(heard, EngineUnavailable(f"{what}: no answer within {self._weather.patience} s"))

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


def _say(heard: "asyncio.Future[T]", error: EngineUnavailable) -> None:
    if not heard.done():
        heard.set_exception(error)
