"""A worker is killed at every await of a handler with six steps, and at every call to the store: its result is right,
and no step that is recorded begins again."""

import pytest

from tests.proof import prove
from tests.sim.faults import Point
from tests.sim.kept import STORES
from tests.sim.result import played
from tests.sim.step_kills import KillWorld


def played_out(world: KillWorld) -> None:
    result = played("steps", world)
    assert not result.violations, str(result)


@pytest.mark.parametrize("store", STORES)
def test_nothing_happens_twice_where_nobody_dies(store: str) -> None:
    world = KillWorld(STORES[store])
    played_out(world)

    assert world.deaths == 0
    assert set(world.began.values()) == {1}
    assert world.awaits > 20
    assert world.calls > 20


@pytest.mark.covers("S1", "S2")
@pytest.mark.parametrize("store", STORES)
def test_a_worker_is_killed_at_every_await(store: str) -> None:
    calm = KillWorld(STORES[store])
    played_out(calm)

    for number in range(1, calm.awaits + 1):
        world = KillWorld(STORES[store], at_await=number)
        played_out(world)
        assert world.deaths == 1
    prove("T2", faults=calm.awaits)


@pytest.mark.covers("S1", "S2")
@pytest.mark.parametrize("point", Point)
@pytest.mark.parametrize("store", STORES)
def test_a_worker_is_killed_at_every_call_to_the_store(store: str, point: Point) -> None:
    calm = KillWorld(STORES[store])
    played_out(calm)

    again = 0
    for number in range(1, calm.calls + 1):
        world = KillWorld(STORES[store], at_call=number, point=point)
        played_out(world)
        assert world.deaths == 1
        again += sum(world.began.values()) - 6
    assert (again > 0) is (point is Point.BEFORE_SEND), "only what had not reached the store is done again"
    prove("T2", faults=calm.calls)
