"""An app in memory for the length of a test: nothing is left behind, and time passes when told to."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import cast

from toril.app import App
from toril.engine import Store, connect
from toril.policy.retry import Seconds, milliseconds
from toril.testing.clock import ManualClock
from toril.testing.flaky import FlakyStore

__all__ = ["Memory", "drain", "memory"]


class Memory:
    """An app whose store is in memory, on a clock of its own."""

    def __init__(self, app: App, clock: ManualClock) -> None:
        self.app = app
        self.clock = clock

    async def drain(self) -> int:
        """Run every job that is due, and those that they add, until nothing is left to do now."""
        return await drain(self.app)

    async def after(self, seconds: Seconds) -> int:
        """Let time pass, and run what is due by then."""
        self.clock.advance(milliseconds("a time to pass", seconds))
        return await self.drain()


@asynccontextmanager
async def memory(app: App, *, loses: float = 0.0, seed: int = 0) -> AsyncIterator[Memory]:
    """Point the app at an empty store in memory, open. `loses` is the share of calls whose request or answer is lost:
    what a correct program does must come out the same."""
    clock = ManualClock(seed=seed)
    store = connect("memory://", clock=clock)
    async with AsyncExitStack() as stack:
        if loses:
            store = cast("Store", FlakyStore(store, rate=loses, seed=seed))
            await stack.enter_async_context(clock.running())  # what is sent again waits before that
        stack.enter_context(app.using(store, clock))
        await stack.enter_async_context(app)
        yield Memory(app, clock)


async def drain(app: App) -> int:
    """Run the app's workers until there is nothing left to do now, and return what `run` returns."""
    return await app.run(burst=True)
