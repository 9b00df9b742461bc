"""Every call of the seam, cut off at every point at which a process or a connection can fail."""

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from tests.sim.brittle import BrittleStore
from tests.sim.faults import CALM, Fate, Point
from tests.sim.loop import run
from tests.sim.redis_store import RedisStore
from tests.sim.scenario import UNNUMBERED, Demolition, Mourning, Scenario
from tests.sim.stage import OneFault, picture, staged
from tests.sim.store import MemoryStore, SimStore
from toril.runtime.clock import Clock
from toril.store.engine import Engine

ScenarioType = type[Scenario]
_ALL = pytest.mark.parametrize("scenario", [Scenario, Demolition, Mourning])

# A store in memory has one process and elects no leader; opening and closing are not sent.
_NOT_SENT = {"open", "close", "twin", "lead", "resign"}


async def play(
    scenario: ScenarioType, at: int = -1, fate: Fate = CALM, store: Callable[[Clock], SimStore] = MemoryStore
) -> tuple[list[str], list[object], list[object]]:
    """The calls that were made, what the numbered ones were answered, and the store afterwards."""
    weather = OneFault(at, fate)
    async with staged(weather, store) as stage:
        process = stage.process()
        subject = scenario(process)
        assert await stage.run(process, subject.run())
        seen = await picture(stage.store.view())
        calls = list(weather.calls)
        await stage.take_over()
        await stage.judge()
    return calls, subject.answers, seen


async def die(scenario: ScenarioType, at: int, point: Point, store: Callable[[Clock], SimStore] = MemoryStore) -> None:
    """The process dies there; others take over, and all comes to its end."""
    async with staged(OneFault(at, Fate(crash=point)), store) as stage:
        process = stage.process()
        assert not await stage.run(process, scenario(process).run())
        await stage.take_over()
        await stage.judge()


def carried(scenario: ScenarioType) -> list[tuple[int, str]]:
    """The calls of a scenario that have an effect."""
    calls, _, _ = run(play(scenario))
    return [(at, what) for at, what in enumerate(calls) if what not in {"wait", "finished", "health", "letters"}]


@contextmanager
def told(text: str) -> Iterator[None]:
    """Say with the failure where it happened."""
    try:
        yield
    except BaseException as error:
        error.add_note(text)
        raise


def test_the_scenarios_make_every_call_of_the_seam() -> None:
    calls = {what for scenario in (Scenario, Demolition) for what in run(play(scenario))[0]}
    methods = {name for name, _ in inspect.getmembers(Engine, inspect.isfunction) if not name.startswith("_")}

    assert calls == methods - _NOT_SENT


@_ALL
@pytest.mark.parametrize("point", Point)
@pytest.mark.covers(
    "F01", "F02", "F03", "F06", "F08", "F09", "F13", "F15", "I1", "I2", "I3", "I5", "G1", "R182", "R184", "R185"
)
def test_a_process_may_die_at_any_point_of_any_call(scenario: ScenarioType, point: Point) -> None:
    for at, what in carried(scenario):
        with told(f"died {point} of call {at}, {what}"):
            run(die(scenario, at, point))


@pytest.mark.parametrize("point", Point)
@pytest.mark.covers("R074", "R079")
def test_whoever_dies_while_a_job_fails_or_is_replayed_leaves_it_in_one_place_on_redis(point: Point) -> None:
    for at, what in carried(Mourning):
        with told(f"died {point} of call {at}, {what}"):
            run(die(Mourning, at, point, RedisStore))


@_ALL
@pytest.mark.parametrize("fate", [Fate(lost="request"), Fate(lost="reply")], ids=lambda fate: fate.lost)
@pytest.mark.covers("F07", "F121", "G2")
def test_a_call_whose_connection_drops_is_sent_again_without_a_second_effect(
    scenario: ScenarioType, fate: Fate
) -> None:
    _, answers, seen = run(play(scenario))

    for at, what in carried(scenario):
        with told(f"lost {fate.lost} of call {at}, {what}"):
            _, answers_then, seen_then = run(play(scenario, at, fate))
            assert answers_then == answers
            assert seen_then == seen


@pytest.mark.parametrize("late", [0.05, 0.45], ids=["before the next call", "after the next call"])
@pytest.mark.covers("G2")
def test_a_request_that_arrives_after_it_was_sent_again_changes_nothing(late: float) -> None:
    _, answers, seen = run(play(Scenario))

    for at, what in carried(Scenario):
        if what not in UNNUMBERED:
            with told(f"late copy of call {at}, {what}"):
                _, answers_then, seen_then = run(play(Scenario, at, Fate(late=late)))
                assert answers_then == answers
                assert seen_then == seen


@_ALL
@pytest.mark.covers("F13", "F15", "I1")
def test_a_step_that_breaks_at_any_statement_leaves_nothing_behind(scenario: ScenarioType) -> None:
    async def brittle() -> tuple[list[object], int]:
        async with staged(store=BrittleStore) as stage:
            process = stage.process()
            assert await stage.run(process, scenario(process).run())
            assert isinstance(stage.store, BrittleStore)
            return await picture(stage.store.view()), stage.store.broken

    seen, broken = run(brittle())

    assert broken > 20
    assert seen == run(play(scenario))[2]
