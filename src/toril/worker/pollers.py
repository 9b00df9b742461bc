"""Pollers: functions of the app that run beside the workers, and are restarted if they fail."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final, Literal, Protocol, TypeAlias

from toril.errors import error_text
from toril.events import Events, WorkerEvent
from toril.policy.redaction import redacted
from toril.policy.restarts import Restarts
from toril.runtime.clock import Clock
from toril.runtime.hooks import Poller
from toril.runtime.logs import log

__all__ = ["Elect", "Lead", "Pollers"]

PollerState: TypeAlias = Literal["running", "restarting", "standby", "finished"]

_LOOK: Final = 1.0  # seconds between two checks whether this process still leads
_ERROR: Final = 500  # characters of an error to show


class Lead(Protocol):
    """An election in which this process takes part while it runs."""

    @property
    def leads(self) -> bool: ...

    async def run(self) -> None: ...


# (role, seconds per lease, callback for changes) -> an election to take part in.
Elect: TypeAlias = Callable[[str, float, Callable[[bool], None]], Lead]


@dataclass(slots=True)
class Status:
    """The state of a poller in this process; `error` is why it last died."""

    name: str
    state: PollerState
    restarts: int = 0
    error: str | None = None
    died_at: int | None = None


class Pollers:
    """The pollers of one process. `tell` is called with the states of all of them whenever one changes."""

    def __init__(
        self,
        declared: Sequence[Poller],
        clock: Clock,
        events: Events,
        worker: str,
        *,
        elect: Elect | None,
        tell: Callable[[list[dict[str, Any]]], None],
    ) -> None:
        self._declared = declared
        self._clock = clock
        self._events = events
        self._worker = worker
        self._elect = elect
        self._tell = tell
        self._statuses: list[Status] = []
        self._tasks: list[asyncio.Task[None]] = []

    def __bool__(self) -> bool:
        """Whether any were started."""
        return bool(self._tasks)

    def start(self, group: asyncio.TaskGroup) -> None:
        self._statuses = [Status(poller.name, "standby") for poller in self._declared]
        pairs = zip(self._declared, self._statuses, strict=True)
        self._tasks = [group.create_task(self._run(poller, status)) for poller, status in pairs]

    async def stop(self, patience: float) -> None:
        """Cancel them, and wait this many seconds at most."""
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=patience)

    async def _run(self, poller: Poller, status: Status) -> None:
        if poller.lease is None or self._elect is None:
            await self._keep_running(poller, status)
            return
        self._note(status, "standby")
        changed = asyncio.Event()
        lead = self._elect(f"poller-{poller.name}", poller.lease, lambda _: changed.set())
        async with asyncio.TaskGroup() as group:  # give up the leadership only after the poller has ended
            group.create_task(lead.run())
            while True:
                if lead.leads:
                    await self._while_leading(poller, status, lead, changed)
                await self._changed(changed)

    async def _while_leading(self, poller: Poller, status: Status, lead: Lead, changed: asyncio.Event) -> None:
        work = asyncio.create_task(self._keep_running(poller, status))
        try:
            while lead.leads:
                await self._changed(changed)
        finally:
            work.cancel()
            await asyncio.wait([work])
        self._note(status, "standby")

    async def _changed(self, changed: asyncio.Event) -> None:
        """Wait until the leadership has changed, or for a second: whoever cannot reach the store loses it without
        notice."""
        timer = self._clock.later(_LOOK, changed.set)
        try:
            await changed.wait()
        finally:
            timer.cancel()
        changed.clear()

    async def _keep_running(self, poller: Poller, status: Status) -> None:
        """Run it until it returns, or this is cancelled."""
        restarts = Restarts(self._clock.random)
        while True:
            began = self._clock.monotonic()
            self._note(status, "running")
            try:
                await poller.fn()
            except (Exception, SystemExit, asyncio.CancelledError) as error:
                task = asyncio.current_task()
                if task is not None and task.cancelling():  # it was told to end
                    if not isinstance(error, asyncio.CancelledError):
                        log.exception("poller %s failed while stopping", poller.name)
                    raise asyncio.CancelledError from error
                lived = self._clock.monotonic() - began
                pause = restarts.pause(lived=lived, ended=0, requested=False)
                self._died(status, error, pause)
            else:
                self._note(status, "finished")
                return
            await self._clock.sleep(pause)
            status.restarts += 1

    def _died(self, status: Status, error: BaseException, pause: float) -> None:
        status.error = redacted(f"{type(error).__name__}: {error_text(error)}")[:_ERROR]
        status.died_at = self._clock.now()
        log.exception("poller %s died; restarting it in %.1f s", status.name, pause)
        text = f"poller {status.name} died: {status.error}"
        self._events.emit("error", WorkerEvent(worker=self._worker, error=text))
        self._note(status, "restarting")

    def _note(self, status: Status, state: PollerState) -> None:
        status.state = state
        self._tell([asdict(each) for each in self._statuses])
