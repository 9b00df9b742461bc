"""A simulated process: it can be killed, and paused."""

import asyncio

__all__ = ["Node"]


class Node:
    """One process of the simulated fleet. Once it is dead, nothing it does reaches the store."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.dead = False
        self.root: asyncio.Task[None] | None = None
        self._resumed: asyncio.Event | None = None

    async def awake(self) -> None:
        """Go on if the process lives, as soon as it is not paused."""
        while self._resumed is not None and not self.dead:
            await self._resumed.wait()
        if self.dead:
            raise asyncio.CancelledError(f"{self.name} is dead")

    def kill(self) -> None:
        """Dead first, then cancelled: no `finally` of the process can reach the store any more."""
        self.dead = True
        if self.root is not None:
            self.root.cancel()

    @property
    def paused(self) -> bool:
        return self._resumed is not None

    def pause(self) -> None:
        if self._resumed is None:
            self._resumed = asyncio.Event()

    def resume(self) -> None:
        if self._resumed is not None:
            self._resumed.set()
            self._resumed = None
