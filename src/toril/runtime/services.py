"""`Services`: what the parts of an app share, such as its store, clock and events."""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from toril.errors import Closed, UsageError
from toril.events import Events
from toril.model import Call, NewJob
from toril.runtime.calls import Caller
from toril.runtime.clock import Clock
from toril.runtime.hooks import worker_name
from toril.runtime.portal import Portal, refuse_in_a_loop
from toril.runtime.redaction import Redaction
from toril.store.connect import is_in_memory
from toril.store.engine import Store

if TYPE_CHECKING:
    from toril.queue import Queue

__all__ = ["AppServices", "Services", "SyncServices", "Tracing"]

T = TypeVar("T")


class Tracing(Protocol):
    """Follows jobs from the code that adds them to the code that runs them."""

    def sending(self, queue: str, jobs: Sequence[NewJob]) -> AbstractContextManager[list[NewJob]]:
        """Around an add: the jobs, with what the worker needs to continue the trace."""

    def step(self, name: str, key: str, tries: int) -> AbstractContextManager[None]:
        """Around one try of a durable step that is not recorded yet."""


class Services(Protocol):
    """What queues, flows, dead letters and the other parts of an app share. They get nothing else from the app."""

    @property
    def store(self) -> Store:
        """The open store."""

    @property
    def inbox(self) -> str | None:
        """The table of the store, open or not, in which transactions of its database put jobs."""

    @property
    def clock(self) -> Clock: ...

    @property
    def events(self) -> Events: ...

    @property
    def redaction(self) -> Redaction: ...

    @property
    def tracing(self) -> Tracing | None: ...

    @property
    def queues(self) -> "Mapping[str, Queue]": ...

    async def call(self, make: Callable[[Call], Awaitable[T]]) -> T:
        """Send a call to the store, repeated while it does not answer."""

    def portal(self) -> Portal:
        """Runs coroutines for blocking code."""


class AppServices:
    """The services of an app. `engine` is its store, open or not. An `exclusive` store can be reached by this process
    only: a store in memory, or one that a test has put there."""

    def __init__(
        self, url: str, connect: Callable[[], Store], clock: Clock, redaction: Redaction, queues: "Mapping[str, Queue]"
    ) -> None:
        self.engine = connect()
        self.clock = clock
        self.events = Events()
        self.redaction = redaction
        self.queues = queues
        self.tracing: Tracing | None = None
        self.given = False
        self.in_memory = is_in_memory(url)
        self.users = 0
        self._connect = connect
        self._caller = _caller(clock, "app")
        self._portal: Portal | None = None
        self._opening = threading.Lock()

    @property
    def inbox(self) -> str | None:
        return self.engine.inbox

    @property
    def exclusive(self) -> bool:
        return self.given or self.in_memory

    @property
    def store(self) -> Store:
        if not self.users:
            raise Closed("the app is not open: use `async with app:`, or `await app.run()` for a worker")
        return self.engine

    async def call(self, make: Callable[[Call], Awaitable[T]]) -> T:
        return await self._caller.send(make)

    async def open(self) -> None:
        """Open the store for one more user."""
        if not self.users:
            await self.engine.open()
        self.users += 1

    async def close(self) -> None:
        """Close the store for one user. Closing more often than opening is harmless."""
        if self.users:
            self.users -= 1
            if not self.users:
                if self._portal is not None:
                    await asyncio.get_running_loop().run_in_executor(None, self._portal.close)
                await self.engine.close()

    @contextmanager
    def using(self, store: Store, clock: Clock) -> Iterator[None]:
        """Use another store and clock for a while, as tests do."""
        if self.users:
            raise UsageError("the app is already open: replace its store before opening it")
        before = {name: getattr(self, name) for name in ("engine", "clock", "_caller", "given")}
        self.engine, self.clock, self.given = store, clock, True
        self._caller = _caller(clock, "app")
        try:
            yield
        finally:
            vars(self).update(before)

    def portal(self) -> Portal:
        """Runs coroutines for blocking code; created on first use, and again in a forked child."""
        with self._opening:
            if self._portal is None or not self._portal.open:
                # Nobody but the app itself can reach an exclusive store, so the portal shares it.
                store = self.engine if self.exclusive else self._connect()
                leave = self._close_unused if self.exclusive else store.close
                self._portal = Portal(store, leave, _caller(self.clock, "sync"), self.events)
            return self._portal

    async def _close_unused(self) -> None:
        if not self.users:
            await self.engine.close()


def _caller(clock: Clock, kind: str) -> Caller:
    return Caller(f"{worker_name(clock)}/{kind}", clock)


class SyncServices:
    """The services of blocking code. It gets the portal at each use, so that objects outlive a `close` and a fork."""

    def __init__(self, services: Services) -> None:
        self.portal = services.portal
        self.redaction = services.redaction
        self.queues = services.queues
        self._services = services

    @property
    def inbox(self) -> str | None:
        return self._services.inbox

    @property
    def clock(self) -> Clock:
        return self._services.clock

    @property
    def tracing(self) -> Tracing | None:
        return self._services.tracing

    @property
    def store(self) -> Store:
        return self.portal().store

    @property
    def events(self) -> Events:
        return self.portal().events

    async def call(self, make: Callable[[Call], Awaitable[T]]) -> T:
        return await self.portal().call(make)

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """The coroutine's result. Raises if this would block an event loop."""
        refuse_in_a_loop(coroutine)
        try:
            portal = self.portal()
        except BaseException:  # the store's error matters, not the warning about an unawaited call
            coroutine.close()
            raise
        return portal.run(coroutine)
