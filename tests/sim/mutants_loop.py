"""Bugs to plant in the worker's loop, in how it keeps leases, in its upkeep, and in what producers send with."""

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from tests.sim.mutants import Make, Mutant, instead, nothing
from toril.errors import EngineUnavailable
from toril.model import Call, Exchange, Verdict
from toril.runtime.calls import Caller
from toril.worker import isolation
from toril.worker.claiming import ClaimState
from toril.worker.isolation import IsolationHold
from toril.worker.leases import LeaseKeeper
from toril.worker.loop import Loop, Phase
from toril.worker.maintenance import Maintenance
from toril.worker.process import WorkerProcess

__all__ = ["loop_mutants"]


def after(extra: Callable[..., None]) -> Make:
    """The original, and then this."""

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        def both(*args: Any, **named: Any) -> Any:
            answer = original(*args, **named)
            extra(*args, **named)
            return answer

        return both

    return make


# the loop


async def _gives_up(self: Loop, _: Any, batch: Any, claim: Any, call: Call) -> Exchange:
    try:
        return await self._engine.exchange(self._terms.queue, batch, claim, call=call)
    except EngineUnavailable:
        await self._clock.sleep(0.05)
        return Exchange(tuple(Verdict.OK for _ in batch), (), 0)


async def _new_number(self: Loop, lane: Any, batch: Any, claim: Any, _: Call) -> Exchange:
    while True:
        try:
            return await self._engine.exchange(self._terms.queue, batch, claim, call=Call(lane.sender, lane.seq))
        except EngineUnavailable:
            await self._clock.sleep(0.05)
            lane.seq += 1


def _one_token(original: Callable[..., Any]) -> Callable[..., Any]:
    async def send(self: Loop, lane: Any, batch: Any, claim: Any, call: Call) -> Exchange:
        answer: Exchange = await original(self, lane, batch, replace(claim, token=call.sender), call)
        return answer

    return send


def _always_alone(original: Callable[..., Any]) -> Callable[..., Any]:
    async def send(self: Loop, lane: Any, batch: Any, claim: Any, call: Call) -> Exchange:
        answer: Exchange = await original(self, lane, batch, replace(claim, alone=True), call)
        return answer

    return send


def _forget_wake(self: ClaimState, *_: Any, **__: Any) -> None:
    self.wake_at = None


async def _deaf_watch(self: Loop) -> None:
    try:
        await self._engine.wait([self._terms.queue], timeout=60_000)
    except EngineUnavailable:
        await self._clock.sleep(0.05)
    finally:
        self._watcher = None


async def _watch_dies(self: Loop) -> None:
    """After an error nobody looks again."""
    try:
        await self._engine.wait([self._terms.queue], timeout=60_000)
    except EngineUnavailable:
        return
    self._watcher = None
    self._claims.arrived()
    self._news.set()


def _exhausted_for_good(self: ClaimState, free: int, process_idle: Callable[[], bool]) -> bool:
    """The bug that seed 887 finds: what only an idle worker can have was not asked for by one that had become idle."""
    if self.last.exhausted or free <= self.pending:
        return False
    return process_idle() or not self.hold.holds_back()


async def _spinning_wait(self: Loop) -> None:
    """The bug that seed 613 finds: a time that has passed is waited for again and again while no slot is free."""
    claims = self._claims
    if claims.last.exhausted and self._watcher is None and self._phase is Phase.WORKING and self._slots.free():
        self._watcher = asyncio.get_running_loop().create_task(self._watch())
    times = [time for time in (claims.wake_at, claims.hold.until) if time is not None]
    if times:
        self._clock.later(max(0.0, min(times) - self._clock.monotonic()), self._due)
    await self._news.wait()


def _loop_mutants() -> Iterator[Mutant]:
    send = (Loop, "_send")
    yield Mutant("outbox_dropped", "what the store did not answer counts as handed in", ((*send, instead(_gives_up)),))
    yield Mutant("resent_as_new", "an exchange sent again has a new number", ((*send, instead(_new_number)),))
    yield Mutant("token_reused", "a worker claims under one token all its life", ((*send, _one_token),))
    yield Mutant("never_alone", "a worker always says that it runs nothing else", ((*send, _always_alone),))
    yield Mutant(
        "wake_ignored", "nobody comes back when a delayed job is due", ((ClaimState, "answered", after(_forget_wake)),)
    )
    yield Mutant(
        "news_lost", "an arrival wakes the loop and changes nothing", ((Loop, "_watch", instead(_deaf_watch)),)
    )
    yield Mutant("watch_dies", "after one error arrivals are not waited for", ((Loop, "_watch", instead(_watch_dies)),))
    yield Mutant(
        "suspects_forgotten",
        "a worker that becomes idle does not ask for suspects",
        ((ClaimState, "may_claim", instead(_exhausted_for_good)),),
    )
    yield Mutant("rest_spins", "a worker without a free slot spins", ((Loop, "_wait", instead(_spinning_wait)),))
    yield Mutant(
        "stops_too_soon",
        "a stopped loop does not wait for what runs",
        ((Loop, "_is_over", instead(lambda self: self.stopping and not self._outbox)),),
    )
    yield Mutant(
        "outbox_left",
        "a stopped loop does not hand in what ended last",
        ((Loop, "_is_over", instead(lambda self: self.stopping and self._slots.idle())),),
    )
    yield Mutant(
        "suspect_has_company",
        "a worker claims beside a suspect",
        ((IsolationHold, "holds_back", instead(lambda self: self.until is not None)),),
    )
    yield Mutant(
        "isolation_for_ever",
        "claims are held back until nothing runs",
        ((isolation, "_HOLD", lambda _: 1e9),),
    )


# leases and upkeep


def _never_due(original: Callable[..., Any]) -> Callable[..., Any]:
    def hold(self: LeaseKeeper, lease: Any, **terms: Any) -> None:
        original(self, lease, **{**terms, "renew": 10**9})

    return hold


def _renews_once(original: Callable[..., Any]) -> Callable[..., Any]:
    async def renew(self: LeaseKeeper, leases: Any, ttl: int, tell: Any) -> None:
        await original(self, leases, ttl, tell)
        for lease in leases:
            if lease in self._held:
                self._held[lease].due = 1e9

    return renew


async def _ends_at_an_error(self: Maintenance, queue: str, lease: int) -> None:
    try:
        while True:
            await self._engine.recover(queue)
            await self._clock.sleep(lease / 1000)
    except EngineUnavailable:
        return


async def _recovers_once(self: Maintenance, queue: str, lease: int) -> None:
    try:
        await self._engine.recover(queue)
    except EngineUnavailable:
        return


def _lease_mutants() -> Iterator[Mutant]:
    yield Mutant("never_renewed", "leases are not renewed", ((LeaseKeeper, "hold", _never_due),))
    yield Mutant("renewed_once", "leases are renewed once", ((LeaseKeeper, "_renew", _renews_once),))
    yield Mutant(
        "renewed_for_ever",
        "leases are renewed after their jobs are settled",
        ((LeaseKeeper, "release", instead(nothing)),),
    )
    yield Mutant(
        "no_postponing",
        "a store that does not answer is not asked again",
        ((LeaseKeeper, "_postpone", _postponed_for_ever),),
    )
    yield Mutant(
        "recovery_ends",
        "an error ends the round that takes jobs back",
        ((Maintenance, "_recover_round", instead(_ends_at_an_error)),),
    )
    yield Mutant(
        "recovers_once",
        "jobs are taken back only at the start",
        ((Maintenance, "_recover_round", instead(_recovers_once)),),
    )
    yield Mutant(
        "orders_ignored", "a worker does not do what it is ordered", ((WorkerProcess, "_ordered", instead(nothing)),)
    )


def _postponed_for_ever(original: Callable[..., Any]) -> Callable[..., Any]:
    def postpone(self: LeaseKeeper, leases: Any, tell: Any) -> None:
        for lease in leases:
            if lease in self._held:
                self._held[lease].due = 1e9

    return postpone


# producers


async def _numbered_anew(self: Caller, make: Callable[[Call], Any]) -> Any:
    lane = self._free.pop() if self._free else self._new_lane()
    until = self._clock.monotonic() + self._patience
    try:
        while True:
            lane.seq += 1
            try:
                return await make(Call(lane.sender, lane.seq))
            except EngineUnavailable:
                if self._clock.monotonic() > until:
                    raise
            await self._clock.sleep(0.05)
    finally:
        self._free.append(lane)


def _caller_mutants() -> Iterator[Mutant]:
    yield Mutant("call_as_new", "what is sent again has a new number", ((Caller, "send", instead(_numbered_anew)),))


def loop_mutants() -> Iterator[Mutant]:
    """All of them."""
    yield from _loop_mutants()
    yield from _lease_mutants()
    yield from _caller_mutants()
