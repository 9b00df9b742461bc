"""What a seed stands for: the jobs and the blows, from the seed alone."""

import random

from toril.torture.plan import LINK, SERVER, FaultType, JobKind, draw, order_of


def test_a_seed_stands_for_the_same_blows_every_time() -> None:
    random.seed(1)
    first = draw(42, 60, frozenset(FaultType))
    random.seed(2)

    assert draw(42, 60, frozenset(FaultType)) == first
    assert draw(43, 60, frozenset(FaultType)) != first
    assert 40 <= len(first) <= 120
    assert all(0 < blow.at < 60 for blow in first)


def test_what_cannot_be_struck_there_is_left_out_and_the_rest_stays() -> None:
    everything = draw(42, 60, frozenset(FaultType))
    without = draw(42, 60, frozenset(FaultType) - LINK - SERVER)

    assert without == [blow for blow in everything if blow.strike not in LINK | SERVER]


def test_a_few_seeds_strike_in_every_way() -> None:
    assert {blow.strike for seed in range(5) for blow in draw(seed, 120, frozenset(FaultType))} == set(FaultType)


def test_a_blow_always_has_somebody_to_strike() -> None:
    blows = draw(1795036282, 1260, frozenset(FaultType))

    assert max(blow.target for blow in blows) == 0.9999
    assert {blow.of(3) for blow in blows} == {0, 1, 2}


def test_a_run_has_jobs_of_every_kind() -> None:
    orders = [order_of(7, number, lease=2000) for number in range(2000)]

    assert {order.kind for order in orders} == set(JobKind)
    assert orders[5] == order_of(7, 5, lease=2000)
