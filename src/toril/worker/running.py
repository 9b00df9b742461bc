"""A running attempt: its job, its task, its stop signal and its timers."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from toril.context import Signal
from toril.model import Claimed, Lease, Outcome
from toril.runtime.clock import Timer
from toril.worker.stacks import of_task

__all__ = ["RunningAttempt", "with_job"]


@dataclass(slots=True, eq=False)
class RunningAttempt:
    """One slot of a worker while it is in use."""

    job: Claimed
    signal: Signal
    started: float
    over_by: Callable[["RunningAttempt", BaseException], None]
    task: "asyncio.Task[None] | None" = None
    timers: list[Timer] = field(default_factory=list)
    ending: list[Timer] = field(default_factory=list)  # timers of an attempt that was told to stop
    outcome: Outcome | None = None
    apart: Callable[[], Awaitable[str | None]] | None = None  # reads its stack, if it does not run on this loop
    begun: bool = False
    cancelled: bool = False
    over: bool = False

    @property
    def lease(self) -> Lease:
        return self.job.lease

    def end(self) -> bool:
        """The attempt is over, one way or another; False if it already was."""
        if self.over:
            return False
        self.over = True
        self._disarm()
        return True

    def ends_with(self, outcome: Outcome) -> None:
        """The handler has ended: nothing that happens before the settlement changes the outcome."""
        self.outcome = outcome
        self._disarm()

    def _disarm(self) -> None:
        for timer in (*self.timers, *self.ending):
            timer.cancel()

    def stack(self) -> str:
        """The stack of the handler's coroutine."""
        return "" if self.task is None else of_task(self.task)

    async def current_stack(self) -> str:
        """The handler's stack, even in a thread or a child process."""
        apart = None if self.apart is None else await self.apart()
        return apart or self.stack()

    def cancel(self) -> None:
        if self.task is None:
            return
        self.cancelled = True
        if not self.begun:  # nothing of the attempt will run that could do this
            self.task.add_done_callback(self._never_began)
        self.task.cancel()

    def _never_began(self, task: "asyncio.Task[None]") -> None:
        if task.cancelled() and not self.begun:
            self.over_by(self, asyncio.CancelledError())


async def with_job(call: Any, ctx: Any) -> Any:
    """For raw handlers, which get the Job itself; middleware gets a context as everywhere."""
    return await call(ctx.job)
