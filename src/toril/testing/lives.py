"""Workers of an app in a test, one after the other, on a clock that goes from one thing that is due to the next."""

import asyncio
import math
from collections.abc import Callable
from typing import Final, NoReturn

from toril.app import App
from toril.events import tell_recovered
from toril.testing.clock import ManualClock
from toril.testing.watched import Killed, WatchedStore

__all__ = ["Lives"]

_PATIENCE: Final = 1000.0  # seconds of a test's clock for a worker to stop, none of which pass


class Lives:
    """Has a worker run all that is due up to a time; if it is killed on the way, another goes on."""

    def __init__(self, app: App, clock: ManualClock, store: WatchedStore, over: Callable[[], bool]) -> None:
        self._app = app
        self._clock = clock
        self._store = store
        self._over = over
        self._until = 0  # who runs the app himself is moved nowhere
        self._life: asyncio.Task[int] | None = None
        self._funeral: asyncio.Task[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self.deaths = 0
        store.die = self._die

    async def work(self, until: int) -> int:
        """Run what is due by then, each at its time. Returns what `run` returns."""
        self._until = until
        try:
            return await self._work(asyncio.get_running_loop())
        finally:
            self._until = 0

    async def _work(self, loop: asyncio.AbstractEventLoop) -> int:
        self._loop = loop
        while True:
            self._life = loop.create_task(self._app.run(burst=True, signals="leave", grace=_PATIENCE))
            try:
                code = await self._life
            except asyncio.CancelledError:
                if self._store.dead is None:
                    raise
            else:
                if self._store.dead is None:
                    return code
            self.deaths += 1
            self._store.bury()

    def kill_here(self) -> NoReturn:
        """Kill the worker that calls this, from whatever thread its handler runs in."""
        if self._loop is None or self._life is None or self._life.done():
            raise RuntimeError("no worker of this test is at work: `kill_here` is for what its handlers call")
        self._store.kill()
        raise Killed

    def _die(self) -> None:
        """May be called from any thread."""
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._begin_to_die)

    def _begin_to_die(self) -> None:
        if self._loop is not None:
            self._funeral = self._loop.create_task(self._end(self._life))

    async def _end(self, life: "asyncio.Task[int] | None") -> None:
        """A worker that is cancelled gives its jobs back, which does not arrive; it need not wait for that."""
        while life is not None and not life.done():
            life.cancel()
            for _ in range(20):
                await asyncio.sleep(0)

    async def spent(self, wake_at: float | None) -> bool:
        """There is nothing to do now: move to when there is, unless that is later than asked for."""
        if self._over():
            return False
        due, returned = [] if wake_at is None else [self._clock.moment(wake_at)], 0
        for queue in self._app.queues if self.deaths else ():
            found = await self._store.recover(queue)
            returned += len(found.returned)
            due += [] if found.next_deadline is None else [found.next_deadline]
            tell_recovered(self._app.events, queue, found, None)
        if returned:
            return True
        now = self._clock.now()
        to = min((moment for moment in due if moment > now), default=math.inf)
        ahead = int(min(to, self._until)) - now
        if ahead > 0:
            self._clock.advance(ahead)
        return ahead > 0
