"""Maintenance in a worker process: recover lost jobs, prune, send heartbeats, receive commands."""

import asyncio
import os
import socket
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final

from toril.errors import EngineUnavailable, TorilError
from toril.events import Events, tell_recovered, trouble
from toril.model import (
    MAX_STACKS,
    Declaration,
    Heartbeat,
    JobRef,
    Recovered,
    StackRequest,
    WorkerCommand,
    WorkerRequest,
    control,
)
from toril.runtime.clock import Clock
from toril.runtime.logs import Contact
from toril.store.engine import Engine
from toril.worker.leases import LeaseKeeper

__all__ = ["Maintenance"]

_PRUNE: Final = 60.0
_HEARTBEAT: Final = 15.0
_NEWS: Final = 2.0  # seconds within which a change of running jobs is reported, at most
_LAST_HEARTBEAT: Final = 0.5  # seconds for reporting that the worker has stopped
_HEARTBEAT_TTL: Final = 45_000
_LATE: Final = 30  # samples of the loop's lag: a minute
_AFTER_AN_ERROR: Final = 5.0
_ANSWERED: Final = 5.0  # seconds for which heartbeats contain a requested stack
_LISTEN: Final = 60_000


class Maintenance:
    """The rounds for all queues of a process, each with the longest time in ms between two searches for stalled jobs. A
    round that fails is logged and repeated."""

    def __init__(
        self,
        queues: Sequence[tuple[str, int]],
        engine: Engine,
        clock: Clock,
        events: Events,
        worker: str,
        keeper: LeaseKeeper,
        *,
        slots: Callable[[], Mapping[str, tuple[int, int]]],
        claims: Callable[[], tuple[tuple[WorkerCommand, ...], bool]],
        version: str,
        order: Callable[[WorkerCommand], None],
        declare: Callable[[], Awaitable[None]],
        recovered: Callable[[str, Recovered, float], None],
        declared: Callable[[], Mapping[str, Declaration]],
        stack: Callable[[JobRef], Awaitable[str]],
    ) -> None:
        self._queues = queues
        self._engine = engine
        self._clock = clock
        self._events = events
        self._worker = worker
        self._keeper = keeper
        self._slots = slots
        self._claims = claims  # the commands that it follows, and whether it isolates a job
        self._version = version
        self._order = order
        self._declare = declare
        self._recovered = recovered
        self._declared = declared
        self._published: Mapping[str, Declaration] | None = None  # what the store has of these
        self._stack = stack
        self._stacks: dict[str, tuple[float, str]] = {}  # stacks by request, and until when to send them
        self._contact = Contact()
        self._announced = False  # a first heartbeat was sent: the store may list this worker, even if nobody heard so
        self._registered = False
        self._published_slots: Mapping[str, tuple[int, int]] = {}  # slots, and how many of them were in use
        self._published_claims: tuple[tuple[WorkerCommand, ...], bool] = ((), False)
        self._heard: tuple[WorkerRequest, ...] = ()
        self._started_at = clock.now()
        self._late: deque[float] = deque(maxlen=_LATE)

    async def run(self) -> None:
        """Run all rounds until cancelled."""
        async with asyncio.TaskGroup() as group:
            for name, longest in self._queues:
                group.create_task(self._recover_round(name, longest))
            group.create_task(self._prune_round())
            group.create_task(self._heartbeat_round())
            group.create_task(self._listen())

    async def _recover_round(self, queue: str, longest: int) -> None:
        """Search when the next known lease expires, and at the latest after the longest rest. By default that is the
        lease's length: a lease that begins after a search cannot expire before the next one, so none is missed."""
        while True:
            asked_at = self._clock.monotonic()
            try:
                found = await self._engine.recover(queue)
            except TorilError as error:
                self._failed(queue, error)
                await self._clock.sleep(_AFTER_AN_ERROR)
                continue
            self._contact.made()
            self._recovered(queue, found, asked_at)
            tell_recovered(self._events, queue, found, self._worker)
            if found.more:
                continue
            rest = longest if found.next_deadline is None else min(longest, found.next_deadline - found.now)
            await self._clock.sleep(max(rest, 50) / 1000)

    async def _prune_round(self) -> None:
        while True:
            await self._clock.sleep(_PRUNE * (0.5 + self._clock.random()))
            for name, _ in self._queues:
                try:
                    while await self._engine.prune(name) >= 1000:
                        pass
                except TorilError as error:
                    self._failed(name, error)

    async def _heartbeat_round(self) -> None:
        while True:
            await self.heartbeat()
            await self._until_due()

    async def _until_due(self) -> None:
        """Wait until the next heartbeat is due, the numbers of running jobs have changed since the last one, or
        declarations must be sent again."""
        until = self._clock.monotonic() + _HEARTBEAT
        while (left := until - self._clock.monotonic()) > 0:
            due = self._clock.monotonic() + min(_NEWS, left)
            await self._clock.sleep(min(_NEWS, left))
            self._late.append(self._clock.monotonic() - due)  # whatever blocks the loop delays this too
            changed = self._slots() != self._published_slots or self._claims() != self._published_claims
            if changed or self._published is None:
                return

    def _state(self) -> Heartbeat:
        slots, declared, now = self._slots(), self._declared(), self._clock.monotonic()
        obeys, isolates = self._claims()
        self._stacks = {request: answer for request, answer in self._stacks.items() if answer[0] > now}
        return Heartbeat(
            worker=self._worker,
            queues=[name for name, _ in self._queues],
            slots=sum(all_ for all_, _ in slots.values()),
            running=sum(used for _, used in slots.values()),
            queue_slots=slots,
            host=socket.gethostname(),
            pid=os.getpid(),
            version=self._version,
            started_at=self._started_at,
            heard=self._heard,
            lag=max(0, round(max(self._late, default=0) * 1000)),
            stacks={request: text for request, (_, text) in self._stacks.items()},
            obeys=obeys,
            isolates=isolates,
            again=self._registered,
            declares=None if declared == self._published else declared,
        )

    async def stopped(self) -> None:
        """Report that this worker has stopped. A store that does not answer soon finds out by itself."""
        if not self._announced:
            return
        try:
            async with asyncio.timeout(_LAST_HEARTBEAT):
                await self._engine.heartbeat(self._state(), ttl=0)
        except (TimeoutError, TorilError):
            return

    async def heartbeat(self) -> None:
        """Send a heartbeat, and carry out the commands in the answer."""
        state, self._announced = self._state(), True
        try:
            self._heard = await self._engine.heartbeat(state, ttl=_HEARTBEAT_TTL)
            self._contact.made()
            self._registered, self._published_slots = True, state.queue_slots
            self._published_claims = (tuple(state.obeys), state.isolates)
            if state.declares is not None:
                self._published = state.declares
            if WorkerCommand.DECLARE in self._heard:
                self._published = None
                await self._declare()
        except TorilError as error:
            self._failed(None, error)
            return
        requests = [order for order in self._heard if isinstance(order, StackRequest)]
        for order in self._heard:
            if not isinstance(order, StackRequest):
                self._order(order)
        if requests:
            await self._show_stacks(requests)

    async def _show_stacks(self, requests: Sequence[StackRequest]) -> None:
        """Answer requests for stacks with the next heartbeats, for a while."""
        most, until = MAX_STACKS // len(requests), self._clock.monotonic() + _ANSWERED
        for request in requests:
            self._stacks[request] = until, (await self._stack(request.job))[-most:]
        await self.heartbeat()

    async def _listen(self) -> None:
        """Wake up for cancellations and commands instead of waiting for the next round."""
        while True:
            try:
                if await self._engine.wait([control(self._worker)], timeout=_LISTEN):
                    self._keeper.ask()
                    await self.heartbeat()
            except TorilError as error:
                self._failed(None, error)
                await self._clock.sleep(_AFTER_AN_ERROR)

    def _failed(self, queue: str | None, error: TorilError) -> None:
        if isinstance(error, EngineUnavailable):
            self._contact.lost()
        self._events.emit("error", trouble(error, self._worker, queue))
