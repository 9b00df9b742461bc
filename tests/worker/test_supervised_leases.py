"""Leases of a worker process that its supervisor keeps: whoever of the two stands still, none is lost."""

import os
import random
from collections import Counter
from collections.abc import Sequence
from types import ModuleType
from typing import Any

import pytest

from tests.worker.planting import planted
from toril.errors import EngineUnavailable
from toril.model import Cancellation, Lease, Renewed
from toril.supervisor import leases as real_fleet
from toril.testing import ManualClock
from toril.worker import supervised as real_under
from toril.worker.lease_table import LeaseTable, new_memory

UNDER, FLEET = "toril.worker.supervised", "toril.supervisor.leases"
STEP = 100  # ms
UNLISTED = "x" * (1 << 20)  # an id that is too long for the table


class Wrong(AssertionError):
    """A lease is lost that somebody held, or is renewed by both, or its worker does not learn of its loss."""


class Leases:
    """A store's leases. `away` says that it does not answer; what was asked may have been done all the same."""

    def __init__(self, clock: ManualClock, chance: random.Random) -> None:
        self._clock, self._chance = clock, chance
        self.until: dict[Lease, float] = {}
        self.asked: Counter[tuple[str, Lease]] = Counter()
        self.wanted_stopped: set[Lease] = set()
        self.away = False

    def by(self, who: str) -> "_Handle":
        return _Handle(self, who)

    def renew(self, who: str, leases: Sequence[Lease], ttl: int) -> Renewed:
        now = self._clock.monotonic()
        self.asked.update((who, lease) for lease in leases)
        lost = tuple(lease for lease in leases if self.until.get(lease, 0) <= now)
        if not self.away or self._chance.random() < 0.5:
            self.until.update({lease: now + ttl / 1000 for lease in leases if lease not in lost})
        if self.away:
            raise EngineUnavailable("the store does not answer")
        requests = tuple(Cancellation(lease, "enough") for lease in leases if lease in self.wanted_stopped)
        return Renewed(lost=lost, cancelled=requests)


class _Handle:
    def __init__(self, leases: Leases, who: str) -> None:
        self._leases, self._who = leases, who

    async def renew(self, leases: Sequence[Lease], *, ttl: int) -> Renewed:
        return self._leases.renew(self._who, leases, ttl)


class Pair:
    """A worker process and its supervisor, with the table that they share and nothing else of a process."""

    def __init__(self, under: ModuleType, fleet: ModuleType, seed: int) -> None:
        self.chance = random.Random(seed)
        self.clock = ManualClock()
        self.store = Leases(self.clock, self.chance)
        self._memory = new_memory()
        self.told: Counter[tuple[str, Lease]] = Counter()
        self.pid, self.table = 1, LeaseTable(self._memory)  # what the supervisor knows of its child
        self.worker = under.TableKeeper(
            self.store.by("worker"), self.clock, self, LeaseTable(self._memory), owned=False
        )
        self.supervisor = fleet.FleetLeases(self.store.by("supervisor"), self.clock, "s", lambda: [self])

    def held(self) -> list[Any]:
        return self.table.held()

    def say(self, **message: Any) -> None:
        """Each to the other; what the worker says is for the probes."""
        lost = tuple(Lease(*words) for words in message.get("lost", ()))
        requests = tuple(Cancellation(Lease(*words), why) for *words, why in message.get("cancelled", ()))
        self.worker.found(Renewed(lost=lost, cancelled=requests))

    def flush(self) -> None:
        pass

    def hold(self, name: str, ttl: int, renew: int) -> Lease:
        lease, now = Lease("q", name, "t"), self.clock.monotonic()
        self.store.until[lease] = now + ttl / 1000

        def tell(found: Renewed) -> None:
            self.told.update(("lost", each) for each in found.lost)
            self.told.update(("cancelled", request.lease) for request in found.cancelled)

        self.worker.hold(lease, ttl=ttl, renew=renew, since=now, tell=tell)
        return lease

    async def pass_time(self, seconds: float, *, worker: bool = True, supervisor: bool = True) -> None:
        """Each looks at its leases as often as it does, unless it stands still."""
        for _ in range(round(seconds * 1000 / STEP)):
            self.clock.advance(STEP)
            who = [keeper for keeper, lives in ((self.worker, worker), (self.supervisor, supervisor)) if lives]
            self.chance.shuffle(who)
            for keeper in who:
                await keeper.renew_due()

    def close(self) -> None:
        self.table.close()
        self.worker._table.close()
        os.close(self._memory)


async def none_is_lost(pair: Pair) -> None:
    """Either of the two stands still for as long as it likes, and not both."""
    leases = [pair.hold(f"{ttl}-{renew}", ttl, renew) for ttl, renew in ((2000, 600), (2000, 1500), (9000, 3000))]
    leases.append(pair.hold(UNLISTED, 4000, 1000))  # only the worker knows of this one
    for _ in range(8):
        frozen = pair.chance.choice(("nobody", "supervisor", "supervisor"))
        await pair.pass_time(pair.chance.uniform(0.1, 15), supervisor=frozen != "supervisor")
        now = pair.clock.monotonic()
        if any(pair.store.until[lease] <= now for lease in leases):
            raise Wrong("a lease ran out whose worker lives")
    if pair.told:
        raise Wrong("an attempt is told that its lease is lost, and it is not")


async def a_frozen_worker_keeps_its_leases(pair: Pair) -> None:
    """A worker process that stands still does not lose what it runs: its supervisor goes on."""
    lease = pair.hold("1", 2000, 600)
    await pair.pass_time(1)
    await pair.pass_time(60, worker=False)
    if pair.store.until[lease] <= pair.clock.monotonic():
        raise Wrong("a lease ran out whose supervisor lives")


async def only_one_of_them_asks(pair: Pair) -> None:
    """A worker whose supervisor is well asks the store for nothing, also after the supervisor had stood still."""
    listed, unlisted = pair.hold("1", 2000, 600), pair.hold(UNLISTED, 2000, 600)
    for _ in range(3):
        await pair.pass_time(3)
        before = pair.store.asked["worker", listed]
        await pair.pass_time(20)
        if pair.store.asked["worker", listed] > before:
            raise Wrong("both renew a lease")
        if not pair.store.asked["worker", unlisted]:
            raise Wrong("nobody renews what is not in the table")
        await pair.pass_time(pair.chance.uniform(2, 9), supervisor=False)


async def who_runs_it_learns_of_it(pair: Pair) -> None:
    """A lease that the store no longer knows is told to its attempt, whoever found out; and asked about once."""
    for frozen in ("nobody", "supervisor"):
        lease = pair.hold(frozen, 9000, 1000)
        await pair.pass_time(1.5)
        del pair.store.until[lease]
        await pair.pass_time(1.5 if frozen == "nobody" else 6, supervisor=frozen != "supervisor")
        if not pair.told["lost", lease]:
            raise Wrong("an attempt does not learn that its lease is lost")
        await pair.pass_time(5)
        if pair.store.asked["supervisor", lease] > 6:
            raise Wrong("the store is asked again and again about a lease that is lost")
        pair.worker.release(lease)
    request = pair.hold("stop", 2000, 600)
    pair.store.wanted_stopped.add(request)
    await pair.pass_time(3)
    if not pair.told["cancelled", request]:
        raise Wrong("an attempt does not learn that somebody wants it stopped")


async def an_outage_costs_only_what_ran_out(pair: Pair) -> None:
    """A store that is away for less than what is left of the leases costs none of them."""
    leases = [pair.hold(str(number), 6000, 2000) for number in range(3)]
    for _ in range(4):
        await pair.pass_time(pair.chance.uniform(1, 5), supervisor=pair.chance.random() < 0.7)
        pair.store.away = True
        await pair.pass_time(pair.chance.uniform(0.1, 2), supervisor=pair.chance.random() < 0.7)
        pair.store.away = False
        await pair.pass_time(6)
        before = pair.store.asked["worker", leases[0]]
        await pair.pass_time(6)
        if pair.store.asked["worker", leases[0]] > before:
            raise Wrong("the supervisor does not go on after an outage")
        if any(pair.store.until[lease] <= pair.clock.monotonic() for lease in leases) or pair.told:
            raise Wrong("a short outage costs a lease")


async def what_has_ended_is_renewed_no_more(pair: Pair) -> None:
    lease = pair.hold("1", 2000, 600)
    await pair.pass_time(3)
    pair.worker.release(lease)
    await pair.pass_time(0.2)
    before = pair.store.asked.copy()
    await pair.pass_time(6)
    if pair.store.asked != before:
        raise Wrong("a lease of a job that has ended is renewed")


CHECKS = (
    none_is_lost, a_frozen_worker_keeps_its_leases, only_one_of_them_asks, who_runs_it_learns_of_it,
    an_outage_costs_only_what_ran_out, what_has_ended_is_renewed_no_more,
)  # fmt: skip
SEEDS = range(4)


async def run(check: Any, seed: int, under: ModuleType = real_under, fleet: ModuleType = real_fleet) -> None:
    pair = Pair(under, fleet, seed)
    try:
        await check(pair)
    finally:
        pair.close()


@pytest.mark.covers("F39", "F26")
@pytest.mark.parametrize("check", CHECKS)
async def test_leases_are_kept_by_whoever_can(check: Any) -> None:
    for seed in SEEDS:
        await run(check, seed)


NOTED = "if renewed + held.ttl / 1000 > held.deadline:"
OWN = "own = self._alone or lease in self._unlisted"
BUGS = {
    "a worker waits for its supervisor for ever": (UNDER, "if not own and neglected:", "if False:"),
    "a worker waits for two leases": (UNDER, "return ttl / 2 if", "return ttl * 2 if"),
    "a worker that took over goes on for good": (UNDER, "self._alone = False\n            ", "pass\n            "),
    "a renewal by the supervisor is not looked at": (UNDER, NOTED, "if False:"),
    "what is not in the table is nobody's": (UNDER, OWN, "own = self._alone"),
    "an attempt is not told of a loss": (UNDER, "self._tell(lease, Renewed(lost=(lease,)))", "pass"),
    "an attempt is not told of a request": (UNDER, "self._tell(request.lease, Renewed(cancelled=(request,)))", "pass"),
    "a job that has ended stays in the table": (UNDER, "self._table.drop(lease)", "pass"),
    "the supervisor does not say that it renewed": (FLEET, "held.tell.child.table.renew(lease, sent)", "pass"),
    "the supervisor looks at no new leases": (FLEET, "        self._look()\n        await", "        await"),
    "the supervisor asks about a lost lease again": (FLEET, "self._lost.add(lease)", "pass"),
    "the supervisor gives up at an outage": (FLEET, "held.due = now + RETRY", "held.due = now + 999"),
}  # fmt: skip


@pytest.mark.parametrize("bug", BUGS)
async def test_a_bug_that_is_planted_between_them_is_found(bug: str) -> None:
    name, right, wrong = BUGS[bug]
    module = planted(name, right, wrong)
    under, fleet = (module, real_fleet) if name == UNDER else (real_under, module)

    assert await _is_found(under, fleet)


async def _is_found(under: ModuleType, fleet: ModuleType) -> bool:
    for check in CHECKS:
        for seed in SEEDS:
            try:
                await run(check, seed, under, fleet)
            except Wrong:
                return True
    return False
