"""What the answers to claims say about the next one."""

from typing import Any

import pytest

from toril.model import Claim, Claimed, Exchange, Gate, Lease
from toril.testing import ManualClock
from toril.worker.claiming import ClaimState
from toril.worker.isolation import IsolationHold, SuspectPolicy


def state(clock: ManualClock | None = None, suspects: SuspectPolicy = SuspectPolicy.HOLD_CLAIMS) -> ClaimState:
    hold = IsolationHold(clock or ManualClock(), suspects)
    return ClaimState(hold, only_suspects=suspects is SuspectPolicy.ONLY)


def claim(want: int = 2, *, alone: bool = False) -> Claim:
    return Claim(want=want, token="t", lease=1000, worker="w", alone=alone)


def answer(jobs: int = 0, *, suspect: bool = False, **facts: Any) -> Exchange:
    return Exchange((), tuple(claimed(n, suspect=suspect) for n in range(jobs)), **{"now": 0, **facts})


def claimed(number: int, *, suspect: bool) -> Claimed:
    return Claimed(
        lease=Lease("q", str(number), "t"), name="n", data="null", starts=1, fence=1, max_attempts=1, attempts_made=0,
        stalls=0, added_at=0, delay=0, priority=0, metadata=None, checkpoint=None,
        suspect=suspect,
    )  # fmt: skip


def busy() -> bool:
    return False


def idle() -> bool:
    return True


def told(claims: ClaimState, asked: Claim, answered: Exchange, *, arrived: int = 0) -> ClaimState:
    before = claims.arrivals
    for _ in range(arrived):
        claims.arrived()
    claims.answered(asked, answered, asked_at=0.0, arrivals=before)
    return claims


@pytest.mark.parametrize(
    ("answered", "arrived", "exhausted", "filled"),
    [
        (answer(2), 0, False, True),
        (answer(2, suspects=1), 0, False, False),
        (answer(1), 0, True, False),
        (answer(0), 0, True, False),
        (answer(0), 1, False, False),  # what arrived meanwhile may have come after the claim
        (answer(1, suspect=True), 0, False, False),
        (answer(1, blocked_by=Gate.RATE), 0, True, False),
    ],
    ids=["all", "all, suspects wait", "some", "none", "none, something arrived", "a suspect", "a rate in the way"],
)
def test_a_claim_is_made_again_unless_the_last_one_found_less_than_it_wanted(
    answered: Exchange, arrived: int, exhausted: bool, filled: bool
) -> None:
    claims = told(state(), claim(), answered, arrived=arrived)

    assert (claims.last.exhausted, claims.last.filled) == (exhausted, filled)
    assert claims.last.blocked_by is answered.blocked_by


def test_what_is_asked_for_already_is_not_asked_for_twice() -> None:
    claims = state()
    claims.pending = 2

    assert not claims.may_claim(2, idle)
    assert claims.may_claim(3, idle)


def test_an_arrival_makes_a_worker_claim_again() -> None:
    claims = told(state(), claim(alone=True), answer(0, wake_at=5_000))
    assert not claims.may_claim(1, busy)
    assert claims.wake_at == 5.0

    claims.due()

    assert claims.may_claim(1, busy)
    assert claims.wake_at is None


def test_the_wake_up_is_counted_from_when_the_claim_was_made() -> None:
    claims = state()

    claims.answered(claim(), answer(0, now=1_000, wake_at=3_000), asked_at=10.0, arrivals=0)

    assert claims.wake_at == 12.0


def test_a_worker_looks_for_suspects_as_soon_as_its_process_is_idle() -> None:
    claims = told(state(), claim(), answer(0, suspects=1))
    assert not claims.may_claim(1, busy)

    assert claims.may_claim(1, idle)
    assert claims.claims_alone(idle)
    told(claims, claim(alone=True), answer(0, suspects=1))
    assert not claims.may_claim(1, idle), "that was looked for"


def test_claims_are_held_back_for_a_suspect_and_not_for_ever() -> None:
    clock = ManualClock()
    claims = told(state(clock), claim(), answer(2, suspects=1))
    assert not claims.may_claim(1, busy)

    clock.advance(10_000)

    assert claims.may_claim(1, busy)


def test_nothing_is_claimed_beside_a_suspect() -> None:
    claims = told(state(), claim(alone=True), answer(1, suspect=True))

    assert not claims.may_claim(1, busy)
    assert claims.may_claim(1, idle)


@pytest.mark.parametrize(("due", "look"), [(None, 5.0), (60_000, 5.0), (2_000, 2.0)])
def test_a_spare_process_looks_in_time_whatever_falls_due_later(due: int | None, look: float) -> None:
    claims = told(state(suspects=SuspectPolicy.ONLY), claim(1, alone=True), answer(0, wake_at=due))

    assert claims.wake_at == look
    assert not claims.may_claim(1, idle)


def test_a_spare_process_claims_only_while_nothing_runs_in_it() -> None:
    claims = state(suspects=SuspectPolicy.ONLY)

    assert not claims.may_claim(1, busy)
    assert claims.may_claim(1, idle)
