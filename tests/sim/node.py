"""A simulated process: it can be killed, paused, and blocked by one of its own handlers."""

import asyncio
from collections.abc import Callable
from contextvars import Context, ContextVar, copy_context
from typing import Final, Protocol

__all__ = ["LANE", "Lane", "Node"]

# The thread that code belongs to. Tasks, callbacks and timers inherit it from whoever made them; the store and the
# network have none.
LANE: Final[ContextVar["Lane | None"]] = ContextVar("lane", default=None)


class _Loop(Protocol):
    def put_back(self, handles: list[asyncio.Handle]) -> None: ...


class Lane:
    """A thread of a process. While it is held nothing of it runs: what was due is made up for afterwards, in order."""

    __slots__ = ("backlog", "holds", "home")

    def __init__(self, home: "Lane | None" = None) -> None:
        self.holds = 0
        self.backlog: list[asyncio.Handle] = []
        self.home = home or self

    def context(self) -> Context:
        context = copy_context()
        context.run(LANE.set, self)
        return context

    def release(self, holds: int = 1) -> None:
        self.holds = max(0, self.holds - holds)
        if not self.holds and self.backlog:
            loop: _Loop = asyncio.get_running_loop()  # type: ignore[assignment]
            handles, self.backlog = self.backlog, []
            loop.put_back(handles)


class Node:
    """One process of the simulated fleet, with its event loop and the thread that keeps its leases. Once it is dead,
    nothing it does reaches the store."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.dead = False
        self.stopping = False
        self.failed = False  # it could not start
        self.over = False
        self.clean = False  # it has stopped and left nothing behind
        self.delays = 0  # how often it was kept from running
        self.root: asyncio.Task[None] | None = None
        self.stop: Callable[[], None] | None = None
        self.stop_at = 0.0
        self.stop_delays = 0
        self.patience = 0.0  # seconds that it may take to stop
        self.excused = False  # something runs in it that nothing can stop
        self.main = Lane()
        self.aside = Lane(self.main)
        self._paused = False

    def check(self) -> None:
        """Whoever belongs to a dead process goes no further."""
        if self.dead:
            raise asyncio.CancelledError(f"{self.name} is dead")

    def kill(self) -> None:
        """Dead first, then cancelled: no `finally` of the process can reach the store any more."""
        self.dead = True
        for lane in (self.main, self.aside):
            lane.release(lane.holds)
        if self.root is not None:
            self.root.cancel()

    @property
    def held(self) -> bool:
        """Whether its event loop stands still."""
        return self.main.holds > 0

    def pause(self) -> None:
        if not self._paused and not self.dead:
            self._paused = True
            self.delays += 1
            self.main.holds += 1
            self.aside.holds += 1

    def resume(self) -> None:
        if self._paused and not self.dead:
            self.main.release()
            self.aside.release()
        self._paused = False

    async def block(self, seconds: float) -> None:
        """Keep the event loop busy, as a handler does that computes; leases are kept meanwhile, from their thread."""
        self.check()
        self.delays += 1
        self.main.holds += 1
        asyncio.get_running_loop().call_later(seconds, self._unblock, context=Context())
        await asyncio.sleep(0)
        self.check()

    def _unblock(self) -> None:
        if not self.dead:
            self.main.release()
