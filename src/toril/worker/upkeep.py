"""The slow rounds of a process: take back what was lost, prune, give signs of life, hear orders."""

import asyncio
import os
import socket
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from toril.clock import Clock
from toril.engine import Engine
from toril.errors import TorilError
from toril.events import STALLED_OUT, Events, JobEvent, trouble
from toril.model import Beat, Order, Recovered, control
from toril.worker.leases import Keeper

__all__ = ["Upkeep"]

_PRUNE: Final = 60.0
_BEAT: Final = 15.0
_BEAT_TTL: Final = 45_000
_LATE: Final = 4  # beats: a minute
_AFTER_AN_ERROR: Final = 5.0
_LISTEN: Final = 60_000


class Upkeep:
    """Rounds for all queues of a process, each with the longest time in ms between two looks for what has stalled in
    it. A round that fails is told of, and made again."""

    def __init__(
        self, queues: Sequence[tuple[str, int]], engine: Engine, clock: Clock, events: Events, worker: str,
        keeper: Keeper, *, running: Callable[[], int], slots: int, version: str, order: Callable[[Order], None],
        declare: Callable[[], Awaitable[None]], recovered: Callable[[str, Recovered, float], None],
    ) -> None:  # fmt: skip
        self._queues = queues
        self._engine = engine
        self._clock = clock
        self._events = events
        self._worker = worker
        self._keeper = keeper
        self._running = running
        self._slots = slots
        self._version = version
        self._order = order
        self._declare = declare
        self._recovered = recovered
        self._beaten = False
        self._heard: tuple[Order, ...] = ()
        self._started_at = clock.now()
        self._late: deque[float] = deque(maxlen=_LATE)

    async def run(self) -> None:
        """All rounds, until cancelled."""
        async with asyncio.TaskGroup() as group:
            for name, longest in self._queues:
                group.create_task(self._recover_round(name, longest))
            group.create_task(self._prune_round())
            group.create_task(self._beat_round())
            group.create_task(self._listen())

    async def _recover_round(self, queue: str, longest: int) -> None:
        """Look when the next known lease runs out, and at the latest after the longest rest. By default that is the
        lease's length: a lease that begins after a look cannot run out before, so none is missed."""
        while True:
            asked_at = self._clock.monotonic()
            try:
                found = await self._engine.recover(queue)
            except TorilError as error:
                self._failed(queue, error)
                await self._clock.sleep(_AFTER_AN_ERROR)
                continue
            self._recovered(queue, found, asked_at)
            self._tell(queue, found)
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

    async def _beat_round(self) -> None:
        while True:
            await self.beat()
            due = self._clock.monotonic() + _BEAT
            await self._clock.sleep(_BEAT)
            self._late.append(self._clock.monotonic() - due)  # what held up the loop held up this as well

    async def beat(self) -> None:
        """Say that this worker lives, and carry out what it is told."""
        beat = Beat(
            worker=self._worker, queues=[name for name, _ in self._queues], slots=self._slots, running=self._running(),
            host=socket.gethostname(), pid=os.getpid(), version=self._version, started_at=self._started_at,
            heard=self._heard, lag=max(0, round(max(self._late, default=0) * 1000)), again=self._beaten,
        )  # fmt: skip
        try:
            self._heard = await self._engine.beat(beat, ttl=_BEAT_TTL)
            self._beaten = True
            if Order.DECLARE in self._heard:
                await self._declare()
        except TorilError as error:
            self._failed(None, error)
            return
        for order in self._heard:
            self._order(order)

    async def _listen(self) -> None:
        """Be woken for cancellations and orders instead of waiting for the next round."""
        while True:
            try:
                if await self._engine.wait([control(self._worker)], timeout=_LISTEN):
                    self._keeper.ask()
                    await self.beat()
            except TorilError as error:
                self._failed(None, error)
                await self._clock.sleep(_AFTER_AN_ERROR)

    def _tell(self, queue: str, found: Recovered) -> None:
        if self._events.wanted("stalled"):
            ends = [(job, None) for job in found.returned] + [(job, STALLED_OUT) for job in found.failed]
            for job, error in ends:
                event = JobEvent(queue=queue, job_id=job, job_name="", worker=self._worker, error=error)
                self._events.emit("stalled", event)

    def _failed(self, queue: str | None, error: TorilError) -> None:
        self._events.emit("error", trouble(error, self._worker, queue))
