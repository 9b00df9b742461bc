"""The loop of one queue: settle what has ended, claim what fits, wait until something happens. While an exchange is in
flight, finished jobs are collected, and the next exchange carries them all, so batches grow with the load by
themselves. If they are large, a second exchange runs beside the first: the store works on one half while the other half
runs here."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final, Protocol

from toril.errors import EngineUnavailable, TorilError
from toril.model import EXCHANGE, Call, Claim, Claimed, Exchange, Gate, Limits, Settlement, Verdict
from toril.runtime.clock import Clock, yield_to_ready
from toril.runtime.logs import outages
from toril.store.engine import Engine
from toril.worker.claiming import ClaimState
from toril.worker.isolation import IsolationHold, SuspectPolicy

__all__ = ["ClaimTerms", "Loop", "Slots"]

_LONGEST_WAIT: Final = 60_000  # ms that a wait lasts at most
_FIRST_PAUSE: Final = 0.05
_LONGEST_PAUSE: Final = 1.5  # all workers resume within two seconds of the store's return
_LAST_PAUSE: Final = 0.5  # the longest pause while stopping, when little time is left
# Seconds to wait for the answer to a claim once the worker must stop: from a slow store, and from one
# that cannot be reached.
_LAST_ANSWER: Final = 5.0
_LAST_CLAIM: Final = 1.0
_CROWD: Final = 8  # finished jobs that do not wait for an exchange in flight


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimTerms:
    """What the loop claims, and how."""

    queue: str
    worker: str
    concurrency: int
    lease: int
    max_stalls: int
    limits: Limits
    suspects: SuspectPolicy = SuspectPolicy.HOLD_CLAIMS


class Slots(Protocol):
    """The slots in which claimed jobs run."""

    def free(self) -> int:
        """How many more can be taken."""

    def idle(self) -> bool:
        """Whether nothing runs."""

    def is_process_idle(self) -> bool:
        """Whether nothing runs in the whole process."""

    def claiming(self, *, alone: bool) -> None:
        """A claim is in flight."""

    def claimed(self, *, suspect: bool, hold_others: float | None) -> None:
        """The claim is answered, and its jobs have begun. `hold_others` is until when other workers must claim
        nothing."""

    def start(self, job: Claimed, asked_at: float) -> None: ...

    def settled(self, settlement: Settlement, verdict: Verdict) -> None: ...

    def looked(self, answer: Exchange) -> None:
        """A claim has read the queue."""

    def drained(self) -> None:
        """Nothing is left to do, after there was something."""

    def nothing_to_do(self) -> None:
        """There is nothing to settle and nothing to claim just now."""


class _Lane:
    """One exchange at a time. Each lane has its own sender, because the store takes a sender's calls in order."""

    __slots__ = ("away", "busy", "limit", "sender", "seq", "settling")

    def __init__(self, sender: str) -> None:
        self.sender = sender
        self.seq = 0
        self.busy = False
        self.settling = 0  # ended jobs in the exchange in flight
        self.away = False  # the store could not be reached when it was last tried
        self.limit: asyncio.Timeout | None = None  # for an exchange that only claims

    def call(self) -> Call:
        self.seq += 1
        return Call(self.sender, self.seq)

    def hurry(self) -> None:
        """The worker must stop: do not wait long for a claim in flight."""
        if self.limit is not None:
            last = asyncio.get_running_loop().time() + (_LAST_CLAIM if self.away else _LAST_ANSWER)
            before = self.limit.when()
            self.limit.reschedule(last if before is None else min(before, last))


class Phase(Enum):
    """The phase of a worker."""

    WORKING = auto()
    QUIET = auto()  # it claims nothing more
    STOPPING = auto()  # and it ends once everything is settled


class Loop:
    """Moves jobs between the store and the slots. `run` returns after `stop`, once everything is settled."""

    def __init__(
        self, terms: ClaimTerms, engine: Engine, clock: Clock, slots: Slots, away: Callable[[EngineUnavailable], None]
    ) -> None:
        self._terms = terms
        self._engine = engine
        self._clock = clock
        self._slots = slots
        self._away = away
        self._outbox: list[Settlement] = []
        self._news = asyncio.Event()
        self._watcher: asyncio.Task[None] | None = None
        # Without the queue's name, which may be as long as a sender's, and contain spaces.
        sender = f"{terms.worker}/{clock.unique()[:8]}"
        self._first, self._second = self._lanes = (_Lane(sender), _Lane(f"{sender}b"))
        self._share = min(EXCHANGE, (terms.concurrency + 1) // 2) if terms.concurrency >= 2 * _CROWD else 0
        self._helper: asyncio.Task[None] | None = None
        self._crowded = asyncio.Event()
        self._claims = ClaimState(
            IsolationHold(clock, terms.suspects), only_suspects=terms.suspects is SuspectPolicy.ONLY
        )
        self._worked = False  # whether jobs have run since the queue was last empty
        self._naps = set[asyncio.Event]()  # pauses of lanes that cannot reach the store
        self._notified = False  # whether a notification came that no exchange has followed
        self._phase = Phase.WORKING

    def settle(self, settlement: Settlement) -> None:
        """An attempt has ended."""
        self._outbox.append(settlement)
        self._news.set()
        if self._claims.last.filled and len(self._outbox) >= _CROWD:
            self._crowded.set()

    def slot_freed(self) -> None:
        self._news.set()

    def look_again(self) -> None:
        """Something may have arrived."""
        self._claims.arrived()
        self._news.set()

    def quiet(self) -> None:
        """Claim nothing more, and leave notifications to others."""
        if self._phase is Phase.WORKING:
            self._phase = Phase.QUIET
        if self._watcher is not None:
            self._watcher.cancel()
        self._news.set()

    def stop(self) -> None:
        """Return once everything is settled."""
        if not self.stopping:
            for lane in self._lanes:
                lane.hurry()
        self._phase = Phase.STOPPING
        self.quiet()
        for nap in self._naps:
            nap.set()

    @property
    def stopping(self) -> bool:
        return self._phase is Phase.STOPPING

    async def run(self) -> None:
        """Until stopped."""
        try:
            await self._turn()
        finally:
            for task in (self._watcher, self._helper):
                if task is not None:
                    task.cancel()

    async def _turn(self) -> None:
        while not self._is_over():
            await self._check_helper()
            self._news.clear()
            if self._must_exchange():
                await self._exchange(self._first)
                if not self._outbox:
                    await yield_to_ready()  # jobs that end at once are settled in the same exchange
                if self._must_exchange():
                    continue
            self._tell_if_drained()
            self._slots.nothing_to_do()
            if not self._is_over():
                await self._wait()
        await self._check_helper()  # what it could not settle is still pending

    async def _check_helper(self) -> None:
        if self._helper is not None and self._helper.done():
            await self._helper  # it raises what is wrong

    async def _help(self) -> None:
        """The second lane: settles what collects while the first is busy."""
        try:
            while True:
                await self._crowded.wait()
                self._crowded.clear()
                while self._is_crowded():
                    await self._exchange(self._second)
                    self._news.set()
        except Exception:
            self._news.set()
            raise

    def _is_crowded(self) -> bool:
        if not self._claims.last.filled or not self._first.busy or len(self._outbox) < _CROWD:
            return False
        return self._may_claim()

    @property
    def empty(self) -> bool:
        """Whether the last claim found nothing more, and nothing runs or waits to be settled."""
        busy = self._first.busy or self._second.busy
        claims = self._claims
        return claims.last.exhausted and not busy and not self._outbox and self._slots.idle() and not claims.unlooked

    @property
    def unsettled(self) -> int:
        """Ended jobs that the store has not confirmed."""
        return len(self._outbox) + sum(lane.settling for lane in self._lanes)

    @property
    def wake_at(self) -> float | None:
        """When the next known job is due, if it is not due yet."""
        return self._claims.wake_at

    @property
    def limited_until(self) -> float | None:
        """When a rate allows more starts, if it holds up waiting jobs."""
        return self._claims.wake_at if self._claims.last.blocked_by in {Gate.RATE, Gate.GROUPS} else None

    def _tell_if_drained(self) -> None:
        if self._worked and not self._claims.last.blocked_by and self.empty:
            self._worked = False
            self._slots.drained()

    def _must_exchange(self) -> bool:
        return bool(self._outbox) or self._may_claim() or self._owes_news()

    def _owes_news(self) -> bool:
        """Whether this worker has taken a notification that it will not follow. An exchange then makes the store notify
        another worker, which would otherwise wait until its next check."""
        return self._phase is not Phase.WORKING and self._notified

    def _is_over(self) -> bool:
        done = not self._second.busy and not self._outbox and not self._owes_news()
        return self.stopping and done and self._slots.idle()

    def _may_claim(self) -> bool:
        return self._phase is Phase.WORKING and self._claims.may_claim(self._slots.free(), self._slots.is_process_idle)

    async def _exchange(self, lane: _Lane) -> None:
        claims = self._claims
        crowded = claims.last.filled and self._share and self._phase is Phase.WORKING
        most = self._share if crowded else EXCHANGE
        batch = self._outbox[:most]
        del self._outbox[:most]
        want = min(self._slots.free() - claims.pending, most) if self._may_claim() else 0
        # Suspects run with nothing beside them.
        alone = want > 0 and claims.claims_alone(self._slots.is_process_idle)
        call, arrivals = lane.call(), claims.arrivals
        self._notified = False
        asked_at = self._clock.monotonic()
        terms = self._terms
        claim = Claim(
            want=want,
            token=f"{call.sender}:{call.seq}",
            lease=terms.lease,
            worker=terms.worker,
            alone=alone,
            max_stalls=terms.max_stalls,
            limits=terms.limits,
            only_suspects=claims.only_suspects,
        )
        if want:
            self._slots.claiming(alone=alone)
        answer = await (self._answered if batch else self._answered_in_time)(lane, batch, claim, call)
        if answer is None:
            self._slots.claimed(suspect=False, hold_others=claims.hold.until)
            return
        for settlement, verdict in zip(batch, answer.verdicts, strict=True):
            self._slots.settled(settlement, verdict)
        for job in answer.jobs:
            self._slots.start(job, asked_at)
        self._worked = self._worked or bool(answer.jobs)
        if want:
            self._slots.looked(answer)
            claims.answered(claim, answer, asked_at=asked_at, arrivals=arrivals)
            if claims.last.filled and self._share and self._helper is None:
                self._helper = asyncio.get_running_loop().create_task(self._help())
            taken = bool(answer.jobs) and answer.jobs[0].suspect
            self._slots.claimed(suspect=taken, hold_others=claims.hold.until)

    async def _answered(self, lane: _Lane, batch: list[Settlement], claim: Claim, call: Call) -> Exchange:
        """The answer; meanwhile the lane is busy, and the jobs that it requested are not requested again."""
        lane.busy, lane.settling = True, len(batch)
        self._claims.pending += claim.want
        if self._claims.last.filled and len(self._outbox) >= _CROWD:
            self._crowded.set()
        try:
            return await self._send(lane, batch, claim, call)
        finally:
            self._claims.pending -= claim.want
            lane.busy = lane.away = False
            lane.settling = 0

    async def _answered_in_time(
        self, lane: _Lane, batch: list[Settlement], claim: Claim, call: Call
    ) -> Exchange | None:
        """The answer to an exchange that only claims. Once the worker must stop, it does not wait for a store that does
        not answer: no running job could be lost, and jobs that the claim took are recovered when their leases expire.
        That counts as a stall, so a slow store gets some time."""
        try:
            async with asyncio.timeout(None) as lane.limit:
                if self.stopping:
                    lane.hurry()
                return await self._answered(lane, batch, claim, call)
        except TimeoutError:
            return None
        finally:
            lane.limit = None

    async def _send(self, lane: _Lane, batch: list[Settlement], claim: Claim, call: Call) -> Exchange:
        """The answer, after any number of tries: a repeated call has no second effect."""
        pause = _FIRST_PAUSE
        while True:
            try:
                answer = await self._engine.exchange(self._terms.queue, batch, claim, call=call)
            except EngineUnavailable as error:
                self._away(error)
                lane.away = True
                if self.stopping:
                    lane.hurry()
            else:
                if lane.away:
                    outages.over()
                return answer
            await self._pause(pause * (0.5 + self._clock.random() / 2))
            pause = min(pause * 2, _LAST_PAUSE if self.stopping else _LONGEST_PAUSE)

    async def _pause(self, seconds: float) -> None:
        """Pause between two tries; a request to stop ends it."""
        nap = asyncio.Event()
        timer = self._clock.later(seconds, nap.set)
        self._naps.add(nap)
        try:
            await nap.wait()
        finally:
            self._naps.discard(nap)
            timer.cancel()

    async def _wait(self) -> None:
        """Wait until something ends, arrives, or is due."""
        claims = self._claims
        may_claim = self._phase is Phase.WORKING and self._slots.free() > claims.pending
        # A spare process would take notifications from workers that can act on them.
        if may_claim and not claims.only_suspects and claims.last.exhausted and self._watcher is None:
            self._watcher = asyncio.get_running_loop().create_task(self._watch())
        times = [time for time in (claims.wake_at, claims.hold.until) if time is not None]
        timer = None
        if times and may_claim:  # otherwise there would be nothing to do then
            timer = self._clock.later(max(0.0, min(times) - self._clock.monotonic()), self._due)
        await self._news.wait()
        if timer is not None:
            timer.cancel()

    def _due(self) -> None:
        """What could not be claimed before may be claimed now."""
        self._claims.due()
        self._news.set()

    async def _watch(self) -> None:
        """Wait for one notification of the queue."""
        try:
            self._notified = bool(await self._engine.wait([self._terms.queue], timeout=_LONGEST_WAIT)) or self._notified
        except TorilError:
            await self._clock.sleep(_FIRST_PAUSE)  # the next exchange will report the error
        finally:
            self._watcher = None
        self._claims.arrived()
        self._news.set()
