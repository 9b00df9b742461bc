"""Tells a running attempt that it should stop, and why."""

import asyncio
import threading
from enum import StrEnum

__all__ = ["Signal", "Why"]


class Why(StrEnum):
    """Who wants it to stop."""

    CANCELLED = "cancelled"
    LEASE_LOST = "lease lost"
    TIMEOUT = "timeout"
    SHUTDOWN = "shutdown"


class Signal:
    """Fires once. Checking it costs next to nothing; waiting for it works on the loop and in threads."""

    __slots__ = ("_fired", "_waiting", "kind", "reason")

    def __init__(self) -> None:
        self.kind: Why | None = None
        self.reason: str | None = None
        self._fired: threading.Event | None = None
        self._waiting: list[asyncio.Future[None]] = []

    @property
    def aborted(self) -> bool:
        return self.kind is not None

    async def wait(self) -> str:
        """Rest until it fires; the reason."""
        if self.kind is None:
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append(future)
            await future
        return self.reason or ""

    def fire(self, kind: Why, reason: str) -> None:
        """The first reason stays. Called on the loop."""
        if self.kind is not None:
            return
        self.reason = reason
        self.kind = kind
        for future in self._waiting:
            if not future.done():
                future.set_result(None)
        if self._fired is not None:
            self._fired.set()

    def event(self) -> threading.Event:
        """For threads that wait: set when it fires."""
        if self._fired is None:
            self._fired = threading.Event()
            if self.kind is not None:
                self._fired.set()
        return self._fired
