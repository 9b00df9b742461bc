"""One queue's loop: settle what has ended, claim what fits, rest until something happens.

While an exchange is under way finished jobs gather, and the next one carries them all: batches grow with the load by
themselves. Where they are large, a second goes out beside it: the store works on one half while the other runs here.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

from toril.errors import EngineUnavailable, TorilError
from toril.model import EXCHANGE, Call, Claim, Claimed, Exchange, Gate, Limits, Settlement, Verdict
from toril.runtime.clock import Clock, yield_to_ready
from toril.runtime.logs import outages
from toril.store.engine import Engine
from toril.worker.isolation import IsolationHold, SuspectPolicy

__all__ = ["ClaimTerms", "Loop", "Slots"]

_REST: Final = 60_000  # ms that a wait for news lasts at most
_FIRST_PAUSE: Final = 0.05
_LONGEST_PAUSE: Final = 1.5  # all go on within two seconds of the store's return
_LAST_PAUSE: Final = 0.5  # the longest while the worker is to stop: it has not much time left
# Seconds that a claim has to be answered once the worker is to stop: by a store that only takes its time, and by one
# that cannot be reached.
_LAST_ANSWER: Final = 5.0
_LAST_CLAIM: Final = 1.0
_CROWD: Final = 8  # jobs that have ended while an exchange is under way, from which on they do not wait for it
_SPARE_LOOK: Final = 5.0  # seconds after which a spare process looks, should nobody have told it to


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
    """Where claimed jobs run."""

    def free(self) -> int:
        """How many more can be taken."""

    def idle(self) -> bool:
        """Whether nothing runs."""

    def is_process_idle(self) -> bool:
        """Whether nothing runs in the whole process."""

    def claiming(self, *, alone: bool) -> None:
        """A claim is on its way."""

    def claimed(self, *, suspect: bool, hold_others: float | None) -> None:
        """It is answered, and what it brought has begun. `hold_others` is until when others are to claim nothing."""

    def start(self, job: Claimed, asked_at: float) -> None: ...

    def settled(self, settlement: Settlement, verdict: Verdict) -> None: ...

    def looked(self, answer: Exchange) -> None:
        """A claim has looked into the queue."""

    def drained(self) -> None:
        """Nothing is left to do, after there was something."""

    def resting(self) -> None:
        """There is nothing to settle and nothing to claim just now."""


class _Lane:
    """One exchange at a time. Each has a sender of its own, as the store takes a sender's calls in their order."""

    __slots__ = ("away", "busy", "limit", "sender", "seq", "settling")

    def __init__(self, sender: str) -> None:
        self.sender = sender
        self.seq = 0
        self.busy = False
        self.settling = 0  # jobs that have ended, in the exchange that is under way
        self.away = False  # the store could not be reached when it was last tried
        self.limit: asyncio.Timeout | None = None  # of an exchange that claims and hands nothing in

    def call(self) -> Call:
        self.seq += 1
        return Call(self.sender, self.seq)

    def hurry(self) -> None:
        """The worker is to stop: do not wait for long for a claim that is under way."""
        if self.limit is not None:
            last = asyncio.get_running_loop().time() + (_LAST_CLAIM if self.away else _LAST_ANSWER)
            before = self.limit.when()
            self.limit.reschedule(last if before is None else min(before, last))


class Loop:
    """Moves jobs between the store and the slots. `run` returns when it was asked to stop and all is settled."""

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
        # Without the queue's name, which may be as long as a sender's may, and have spaces.
        sender = f"{terms.worker}/{clock.unique()[:8]}"
        self._first, self._second = self._lanes = (_Lane(sender), _Lane(f"{sender}b"))
        self._share = min(EXCHANGE, (terms.concurrency + 1) // 2) if terms.concurrency >= 2 * _CROWD else 0
        self._helper: asyncio.Task[None] | None = None
        self._crowded = asyncio.Event()
        self._flowing = False  # whether the last claim brought all that it wanted
        self._wanted = 0  # jobs that are asked for just now
        self._looks = 0  # how often it was said that something may have arrived
        self._exhausted = False
        self._blocked: Gate | None = None
        self._worked = False
        self._alone = False  # whether the last claim was made by a worker that ran nothing
        self._wake_at: float | None = None
        self._naps = set[asyncio.Event]()  # of lanes that cannot reach the store
        self._spare = terms.suspects is SuspectPolicy.ONLY
        self._hold = IsolationHold(clock, terms.suspects)
        self._rung = False  # whether news has come that no exchange has followed
        self._quiet = False
        self._stopping = False

    def settle(self, settlement: Settlement) -> None:
        """An attempt has ended."""
        self._outbox.append(settlement)
        self._news.set()
        if self._flowing and len(self._outbox) >= _CROWD:
            self._crowded.set()

    def slot_freed(self) -> None:
        self._news.set()

    def look_again(self) -> None:
        """Something may have arrived."""
        self._looks += 1
        self._exhausted = False
        self._news.set()

    def quiet(self) -> None:
        """Claim nothing more, and leave the news to others."""
        self._quiet = True
        if self._watcher is not None:
            self._watcher.cancel()
        self._news.set()

    def stop(self) -> None:
        """Return once everything is settled."""
        if not self._stopping:
            for lane in self._lanes:
                lane.hurry()
        self._stopping = True
        self.quiet()
        for nap in self._naps:
            nap.set()

    @property
    def stopping(self) -> bool:
        return self._stopping

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
                    await yield_to_ready()  # what ends at once is settled without another one
                if self._must_exchange():
                    continue
            self._tell_if_drained()
            self._slots.resting()
            if not self._is_over():
                await self._rest()
        await self._check_helper()  # what it could not settle is not over

    async def _check_helper(self) -> None:
        if self._helper is not None and self._helper.done():
            await self._helper  # it ends by what is wrong

    async def _help(self) -> None:
        """The second lane: what gathers while the first is busy."""
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
        if self._quiet or not self._flowing or not self._first.busy or len(self._outbox) < _CROWD:
            return False
        return self._may_claim()

    @property
    def empty(self) -> bool:
        """Whether the last claim found nothing more, and nothing runs or waits to be settled."""
        busy = self._first.busy or self._second.busy
        return self._exhausted and not busy and not self._outbox and self._slots.idle() and not self._unlooked

    @property
    def unsettled(self) -> int:
        """Jobs that have ended, of which the store has not said that it knows."""
        return len(self._outbox) + sum(lane.settling for lane in self._lanes)

    @property
    def wake_at(self) -> float | None:
        """When there will be something to take that is known of, if that is not yet."""
        return self._wake_at

    @property
    def limited_until(self) -> float | None:
        """When a rate lets more jobs start, if that is what holds up those that wait."""
        return self._wake_at if self._blocked in {Gate.RATE, Gate.GROUPS} else None

    def _tell_if_drained(self) -> None:
        if self._worked and not self._blocked and self.empty:
            self._worked = False
            self._slots.drained()

    def _must_exchange(self) -> bool:
        return bool(self._outbox) or self._may_claim() or self._owes_news()

    def _owes_news(self) -> bool:
        """Whether this worker has taken news from the store that it will not follow. An exchange has the store tell
        another worker, which else would wait until it looks by itself."""
        return self._quiet and self._rung

    def _is_over(self) -> bool:
        done = not self._second.busy and not self._outbox and not self._owes_news()
        return self._stopping and done and self._slots.idle()

    def _free(self) -> int:
        """Slots that are neither taken nor asked for."""
        return self._slots.free() - self._wanted

    def _may_claim(self) -> bool:
        if self._quiet or self._free() <= 0:
            return False
        if self._spare:
            return not self._exhausted and self._slots.is_process_idle()
        if self._unlooked and self._slots.is_process_idle():
            return True  # what the last claim could not have, because something ran beside it
        return not self._exhausted and (not self._hold.holds_back() or self._slots.is_process_idle())

    @property
    def _unlooked(self) -> bool:
        """Whether suspects may wait that no claim for one alone has looked for."""
        return self._hold.waiting and not self._alone

    async def _exchange(self, lane: _Lane) -> None:
        most = self._share if self._flowing and self._share and not self._quiet else EXCHANGE
        batch = self._outbox[:most]
        del self._outbox[:most]
        want = min(self._free(), most) if self._may_claim() else 0
        # What has stalled runs with nothing beside it.
        alone = want > 0 and (self._spare or self._hold.waiting) and self._slots.is_process_idle()
        call, looks = lane.call(), self._looks
        self._rung = False
        asked_at = self._clock.monotonic()
        terms = self._terms
        claim = Claim(
            want=want, token=f"{call.sender}:{call.seq}", lease=terms.lease, worker=terms.worker,
            alone=alone, max_stalls=terms.max_stalls, limits=terms.limits, only_suspects=self._spare,
        )  # fmt: skip
        if want:
            self._slots.claiming(alone=alone)
        answer = await (self._answered if batch else self._answered_in_time)(lane, batch, claim, call)
        if answer is None:
            self._slots.claimed(suspect=False, hold_others=self._hold.until)
            return
        for settlement, verdict in zip(batch, answer.verdicts, strict=True):
            self._slots.settled(settlement, verdict)
        for job in answer.jobs:
            self._slots.start(job, asked_at)
        self._worked = self._worked or bool(answer.jobs)
        if want:
            self._slots.looked(answer)
            self._note(answer, claim, asked_at, looks)
            taken = bool(answer.jobs) and answer.jobs[0].suspect
            self._slots.claimed(suspect=taken, hold_others=self._hold.until)

    async def _answered(self, lane: _Lane, batch: list[Settlement], claim: Claim, call: Call) -> Exchange:
        """The answer; meanwhile the lane is busy, and what it has asked for is nobody else's to ask for."""
        lane.busy, lane.settling = True, len(batch)
        self._wanted += claim.want
        if self._flowing and len(self._outbox) >= _CROWD:
            self._crowded.set()
        try:
            return await self._send(lane, batch, claim, call)
        finally:
            self._wanted -= claim.want
            lane.busy = lane.away = False
            lane.settling = 0

    async def _answered_in_time(
        self, lane: _Lane, batch: list[Settlement], claim: Claim, call: Call
    ) -> Exchange | None:
        """The answer to a claim that hands nothing in. Once the worker is to stop, a store that does not answer is not
        waited for: nothing runs that could be lost, and what the claim may have taken is recovered when its lease runs
        out. That counts as a stall, so a store that only takes its time is given some."""
        try:
            async with asyncio.timeout(None) as lane.limit:
                if self._stopping:
                    lane.hurry()
                return await self._answered(lane, batch, claim, call)
        except TimeoutError:
            return None
        finally:
            lane.limit = None

    async def _send(self, lane: _Lane, batch: list[Settlement], claim: Claim, call: Call) -> Exchange:
        """The answer, however often it takes: the same call again has no second effect."""
        pause = _FIRST_PAUSE
        while True:
            try:
                answer = await self._engine.exchange(self._terms.queue, batch, claim, call=call)
            except EngineUnavailable as error:
                self._away(error)
                lane.away = True
                if self._stopping:
                    lane.hurry()
            else:
                if lane.away:
                    outages.over()
                return answer
            await self._pause(pause * (0.5 + self._clock.random() / 2))
            pause = min(pause * 2, _LAST_PAUSE if self._stopping else _LONGEST_PAUSE)

    async def _pause(self, seconds: float) -> None:
        """Between two tries; whoever wants the worker to stop ends it."""
        nap = asyncio.Event()
        timer = self._clock.later(seconds, nap.set)
        self._naps.add(nap)
        try:
            await nap.wait()
        finally:
            self._naps.discard(nap)
            timer.cancel()

    def _note(self, answer: Exchange, claim: Claim, asked_at: float, looks: int) -> None:
        """What the answer says about the next claim."""
        took_suspect = bool(answer.jobs) and answer.jobs[0].suspect
        # What was said to have arrived while the claim was under way may have come after it.
        self._exhausted = len(answer.jobs) < claim.want and not took_suspect and looks == self._looks
        self._alone = claim.alone
        self._blocked = answer.blocked_by
        self._hold.note(waiting=answer.suspects, taken=took_suspect)
        self._flowing = len(answer.jobs) == claim.want and not (took_suspect or self._blocked or answer.suspects)
        if self._flowing and self._share and self._helper is None:
            self._helper = asyncio.get_running_loop().create_task(self._help())
        self._wake_at = None
        if self._exhausted and answer.wake_at is not None:
            # Counted from when it was asked for: the next claim is on its way for as long as this one was, and so
            # reaches the store when the time has come, and not later by a round trip each time.
            self._wake_at = asked_at + max(0, answer.wake_at - answer.now) / 1000
        if self._exhausted and self._spare:
            look = asked_at + _SPARE_LOOK
            self._wake_at = look if self._wake_at is None else min(look, self._wake_at)

    async def _rest(self) -> None:
        """Until something finishes, arrives, or falls due."""
        waits = not self._spare  # else it would take the news away from those who can do something about it
        if waits and self._exhausted and self._watcher is None and not self._quiet and self._free() > 0:
            self._watcher = asyncio.get_running_loop().create_task(self._watch())
        times = [time for time in (self._wake_at, self._hold.until) if time is not None]
        timer = None
        if times and not self._quiet and self._free() > 0:  # else there is nothing to do when they come
            timer = self._clock.later(max(0.0, min(times) - self._clock.monotonic()), self._due)
        await self._news.wait()
        if timer is not None:
            timer.cancel()

    def _due(self) -> None:
        """What could not be had before may be had now."""
        self._looks += 1
        self._exhausted = False
        self._wake_at = None
        self._news.set()

    async def _watch(self) -> None:
        """Wait for news of the queue, once."""
        try:
            self._rung = bool(await self._engine.wait([self._terms.queue], timeout=_REST)) or self._rung
        except TorilError:
            await self._clock.sleep(_FIRST_PAUSE)  # the next exchange will say what is wrong
        finally:
            self._watcher = None
        self._looks += 1
        self._exhausted = False
        self._news.set()
