"""How soon a worker process is started anew."""

from itertools import accumulate

import pytest

from toril.policy.restarts import Restarts


@pytest.mark.covers("F40")
@pytest.mark.parametrize("chance", [0.0, 0.5, 0.999])
def test_what_cannot_start_is_tried_ever_more_seldom_and_never_given_up(chance: float) -> None:
    restarts = Restarts(lambda: chance)

    pauses = [restarts.pause(lived=0.5, ended=0, requested=False) for _ in range(100)]

    assert pauses[0] < 0.2
    assert pauses[1] < pauses[2] < pauses[3] < pauses[4] < pauses[5]
    assert max(pauses) == pauses[-1] <= 30 * 1.25
    assert sum(moment < 60 for moment in accumulate(pauses)) <= 10  # in the first minute


@pytest.mark.covers("F40")
def test_what_works_between_its_crashes_waits_about_a_second() -> None:
    restarts = Restarts(lambda: 0.5)
    for _ in range(10):
        restarts.pause(lived=1, ended=0, requested=False)

    pauses = [restarts.pause(lived=5, ended=9, requested=False) for _ in range(20)]

    assert pauses == [1.0] * 20


@pytest.mark.parametrize(("lived", "requested"), [(61.0, False), (1.0, True)], ids=["it lived long", "it was asked to"])
def test_what_came_before_a_long_life_or_a_request_is_forgotten(lived: float, requested: bool) -> None:
    restarts = Restarts(lambda: 0.5)
    for _ in range(10):
        restarts.pause(lived=1, ended=0, requested=False)

    assert restarts.pause(lived=lived, ended=0, requested=requested) < 0.2
