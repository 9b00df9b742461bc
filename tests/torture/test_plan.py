"""What a seed stands for: the jobs and the faults, from the seed alone."""

import random

from toril.torture.plan import LINK, SERVER, FaultType, JobKind, draw, order_of


def test_a_seed_stands_for_the_same_faults_every_time() -> None:
    random.seed(1)
    first = draw(42, 60, frozenset(FaultType))
    random.seed(2)

    assert draw(42, 60, frozenset(FaultType)) == first
    assert draw(43, 60, frozenset(FaultType)) != first
    assert 40 <= len(first) <= 120
    assert all(0 < fault.at < 60 for fault in first)


def test_what_cannot_be_done_there_is_left_out_and_the_rest_stays() -> None:
    everything = draw(42, 60, frozenset(FaultType))
    without = draw(42, 60, frozenset(FaultType) - LINK - SERVER)

    assert without == [fault for fault in everything if fault.kind not in LINK | SERVER]


def test_a_few_seeds_have_faults_of_every_type() -> None:
    assert {fault.kind for seed in range(5) for fault in draw(seed, 120, frozenset(FaultType))} == set(FaultType)


def test_a_fault_always_has_somebody_to_hit() -> None:
    faults = draw(1795036282, 1260, frozenset(FaultType))

    assert max(fault.target for fault in faults) == 0.9999
    assert {fault.of(3) for fault in faults} == {0, 1, 2}


def test_a_run_has_jobs_of_every_kind() -> None:
    orders = [order_of(7, number, lease=2000) for number in range(2000)]

    assert {order.kind for order in orders} == set(JobKind)
    assert orders[5] == order_of(7, 5, lease=2000)
