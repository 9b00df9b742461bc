"""The smallest worker that keeps all the rules: claim, run, renew, report, settle; and send again what got lost."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

from tests.sim.journal import Journal
from tests.sim.node import Node
from tests.sim.script import Kind, Script, outcome_of, script_of
from toril.clock import Clock
from toril.engine import Engine
from toril.errors import EngineUnavailable
from toril.model import (
    Call,
    Cancelled,
    Checkpoint,
    Claim,
    Claimed,
    Exchange,
    Lease,
    LogLine,
    Outcome,
    Progress,
    Settlement,
    Verdict,
)

__all__ = ["Caller", "Terms", "Worker"]

T = TypeVar("T")


class Caller:
    """One sender: a call at a time, numbered, and sent again under the same number until it is answered."""

    def __init__(self, sender: str, clock: Clock, *, tries: int) -> None:
        self._sender = sender
        self._clock = clock
        self._tries = tries
        self._seq = 0
        self._turn = asyncio.Lock()

    async def make(self, send: Callable[[Call], Awaitable[T]]) -> T | None:
        """The answer; or None after too many tries, when nobody knows whether it happened."""
        async with self._turn:
            self._seq += 1
            call = Call(self._sender, self._seq)
            for attempt in range(self._tries):
                try:
                    return await send(call)
                except EngineUnavailable:
                    await self._clock.sleep(0.02 * 2 ** min(attempt, 5) * (0.5 + self._clock.random()))
            return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """How a worker works. Times are milliseconds."""

    queue: str
    slots: int
    lease: int
    max_stalls: int
    tries: int
    patience: int


class Worker:
    """Runs jobs until its process dies."""

    def __init__(self, node: Node, engine: Engine, clock: Clock, terms: Terms, journal: Journal) -> None:
        self._node = node
        self._engine = engine
        self._clock = clock
        self._terms = terms
        self._journal = journal
        self._exchanges = Caller(f"{node.name}.x", clock, tries=terms.tries)
        self._reports = Caller(f"{node.name}.r", clock, tries=terms.tries)
        self._running: dict[Lease, tuple[Claimed, asyncio.Task[None]]] = {}
        self._stopped: dict[Lease, str] = {}
        self._outbox: list[Settlement] = []
        self._suspects = 0
        self._stir = asyncio.Event()
        self._hungry = asyncio.Event()

    @property
    def held(self) -> list[Lease]:
        """What is running here, or has run and is not yet settled."""
        return [*self._running, *(settlement.lease for settlement in self._outbox)]

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._renew())
            group.create_task(self._listen())
            await self._work(group)

    async def _work(self, group: asyncio.TaskGroup) -> None:
        while True:
            want = self._want()
            wake: float | None = None
            if want or self._outbox:
                answer = await self._exchange(want)
                if answer is None:
                    continue
                wake = None if answer.wake_at is None else (answer.wake_at - answer.now) / 1000
                for job in answer.jobs:
                    self._running[job.lease] = (job, group.create_task(self._attempt(job)))
            await self._rest(wake)

    def _want(self) -> int:
        """Free slots; but nothing beside a suspect, and nothing more while suspects wait for an idle worker."""
        if self._running and (self._suspects or any(job.suspect for job, _ in self._running.values())):
            return 0
        return self._terms.slots - len(self._running)

    async def _exchange(self, want: int) -> Exchange | None:
        batch = list(self._outbox)
        claim = Claim(
            want=want,
            token=self._token(),
            lease=self._terms.lease,
            worker=self._node.name,
            alone=not self._running,
            max_stalls=self._terms.max_stalls,
        )
        answer = await self._exchanges.make(
            lambda call: self._engine.exchange(self._terms.queue, batch, claim, call=call)
        )
        if answer is None:
            self._journal.tally["exchange given up"] += 1
            return None  # the settlements stay in the outbox: the next exchange hands them in again
        del self._outbox[: len(batch)]
        if want:
            self._suspects = answer.suspects
        return answer

    def _token(self) -> str:
        return self._clock.unique()

    async def _rest(self, wake: float | None) -> None:
        """Until something finished, something arrived, or something is due."""
        if self._outbox:
            return
        if self._want():
            self._hungry.set()
        try:
            async with asyncio.timeout(wake):
                await self._stir.wait()
        except TimeoutError:
            pass
        self._stir.clear()

    async def _listen(self) -> None:
        while True:
            await self._hungry.wait()
            self._hungry.clear()
            try:
                await self._engine.wait([self._terms.queue], timeout=self._terms.patience)
            except EngineUnavailable:
                await self._clock.sleep(0.1)
            self._stir.set()

    async def _renew(self) -> None:
        while True:
            await self._clock.sleep(self._terms.lease / 3000)
            if not self.held:
                continue
            try:
                answer = await self._engine.extend(self.held, ttl=self._terms.lease)
            except EngineUnavailable:
                continue
            for lease in answer.lost:
                self._stop(lease)
            for each in answer.cancelled:
                self._stopped[each.lease] = each.reason
                self._stop(each.lease)

    def _stop(self, lease: Lease) -> None:
        if lease in self._running:
            self._running[lease][1].cancel()

    async def _attempt(self, job: Claimed) -> None:
        script = script_of(job.data)
        self._journal.began(script.nonce, job.fence)
        try:
            outcome = await self._play(script, job)
        except asyncio.CancelledError:
            if self._node.dead or job.lease not in self._stopped:
                raise
            outcome = Cancelled(self._stopped.pop(job.lease))
        finally:
            if not self._node.dead:  # what a dead process held is for its supervisor to see
                self._running.pop(job.lease, None)
            self._stir.set()
        self._journal.over(script.nonce, job.fence)
        if outcome is not None:
            self._outbox.append(Settlement(job.lease, outcome))

    async def _play(self, script: Script, job: Claimed) -> Outcome | None:
        """Run the handler. None: it learned on the way that its lease is lost."""
        await self._clock.sleep(script.ms / 2000)
        if script.kind is Kind.POISON or (script.kind is Kind.SCARE and job.starts == 1):
            self._journal.tally["killed by a job"] += 1
            self._node.kill()
        await self._node.awake()
        if script.kind is Kind.LONG and not await self._report(job.lease):
            return None
        await self._clock.sleep(script.ms / 2000)
        return outcome_of(script, job)

    async def _report(self, lease: Lease) -> bool:
        """Whether the lease still held when the report came in, as far as is known."""
        reports = (Progress(lease, "50"), LogLine(lease, "half way"), Checkpoint(lease, '"half"'))
        verdicts = await self._reports.make(lambda call: self._engine.report(self._terms.queue, reports, call=call))
        return verdicts is None or all(verdict is Verdict.OK for verdict in verdicts)
