"""An event loop that never waits: when nothing is ready, its time jumps to whatever is due next."""

import asyncio
import gc
import heapq
import selectors
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from contextvars import Context, copy_context
from itertools import count
from typing import Any, Final, TypeVar, TypeVarTuple, Unpack

from tests.sim.node import LANE, Lane

__all__ = ["Deadlock", "SimLoop", "run", "until"]

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

_SPIN: Final = 20_000  # rounds of the loop in which no time passes: far more than anything useful takes


class Deadlock(BaseException):
    """Nothing is ready and nothing ever will be; or something is always ready, and time does not pass."""


class _NeverWaits(selectors.SelectSelector):
    """Says at once that the time is over, and moves the loop's clock by as much."""

    loop: "SimLoop"
    _idle = 0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise Deadlock(f"nothing is left to happen after {self.loop.time():.3f} s")
        if timeout <= 0:
            self._idle += 1
            if self._idle > _SPIN:
                self._idle = 0
                raise Deadlock(f"something spins: {_SPIN} rounds, and it is still {self.loop.time():.3f} s")
        else:
            self._idle = 0
            self.loop.virtual += timeout
        return []


class _Soon(asyncio.Handle):
    """A callback of a simulated thread."""

    __slots__ = ("lane",)
    lane: Lane

    def _run(self) -> None:
        if self.lane.holds:
            self.lane.backlog.append(self)
        else:
            super()._run()


class _Later(asyncio.TimerHandle):
    """A timer of a simulated thread. If it falls due while that is held, it can still be cancelled."""

    __slots__ = ("lane",)
    lane: Lane

    def _run(self) -> None:
        if self.lane.holds:
            self.lane.backlog.append(self)
        else:
            super()._run()


class _Task(asyncio.Task[T]):
    """A task whose place in a set depends on when it was made, not on where in memory it lies: asyncio cancels the
    tasks of a group in the order of a set."""

    def __init__(self, number: int, coro: Any, loop: "SimLoop", options: dict[str, Any]) -> None:
        self._number = number
        super().__init__(coro, loop=loop, **options)

    def __hash__(self) -> int:
        return self._number


class _Future(asyncio.Future[T]):
    """The same for what is waited for."""

    def __init__(self, number: int, loop: "SimLoop") -> None:
        self._number = number
        super().__init__(loop=loop)

    def __hash__(self) -> int:
        return self._number


class SimLoop(asyncio.SelectorEventLoop):
    """A loop on virtual time, in seconds from 0. One thread, no sockets, nothing outside it that could wake it; within
    it many simulated threads, each of which can be held up."""

    _ready: Any
    _scheduled: list[asyncio.TimerHandle]

    def __init__(self) -> None:
        self.virtual = 0.0
        selector = _NeverWaits()
        selector.loop = self
        self._numbers = count(1)
        super().__init__(selector)

    def time(self) -> float:
        return self.virtual

    def create_task(self, coro: Any, **options: Any) -> asyncio.Task[Any]:
        return _Task(next(self._numbers), coro, self, options)

    def create_future(self) -> asyncio.Future[Any]:
        return _Future(next(self._numbers), self)

    def call_soon(
        self, callback: Callable[[Unpack[Ts]], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        lane = LANE.get() if context is None else context.get(LANE)
        if lane is None:
            return super().call_soon(callback, *args, context=context)
        handle = _Soon(callback, args, self, context)
        handle.lane = lane
        self._ready.append(handle)
        return handle

    def call_at(
        self, when: float, callback: Callable[[Unpack[Ts]], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        lane = LANE.get() if context is None else context.get(LANE)
        if lane is None:
            return super().call_at(when, callback, *args, context=context)
        timer = _Later(when, callback, args, self, context)
        timer.lane = lane
        heapq.heappush(self._scheduled, timer)
        timer._scheduled = True  # type: ignore[attr-defined]
        return timer

    def call_soon_threadsafe(
        self, callback: Callable[[Unpack[Ts]], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        """From whichever of its threads a process calls this, its event loop runs it."""
        lane = LANE.get()
        if lane is not None and context is None:
            context = copy_context()
            context.run(LANE.set, lane.home)
        return self.call_soon(callback, *args, context=context)

    def put_back(self, handles: list[asyncio.Handle]) -> None:
        """What was held up runs now."""
        self._ready.extend(handles)

    def _write_to_self(self) -> None:
        """Nobody has to be woken from a wait that never takes place."""


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run to the end on a loop of its own; whatever is left over then is cancelled."""
    loop = SimLoop()
    with _nothing_collected():
        try:
            return loop.run_until_complete(main)
        finally:
            left = sorted(asyncio.all_tasks(loop), key=hash)
            for task in left:
                task.cancel()
            if left:
                loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
            loop.close()


@contextmanager
def _nothing_collected() -> Iterator[None]:
    """What others have left behind may run code when it is collected; not in the middle of a simulation."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


async def until(done: Callable[[], bool], seconds: float) -> bool:
    """Let time pass until this is so, at most so long. To look often costs nothing here."""
    loop = asyncio.get_running_loop()
    end = loop.time() + seconds
    while not done() and loop.time() < end:  # noqa: ASYNC110 - the time is virtual
        await asyncio.sleep(0.2)
    return done()
