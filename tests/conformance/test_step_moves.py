"""Moving jobs with steps: rows, signals and rests arrive as they were, and what a job waits for finds it there."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.conformance.jobs import claim, claim_one, job, settle
from tests.conformance.stepping import (
    WHY,
    all_rows,
    at_rest,
    called,
    child,
    recorded,
    report,
    resting,
    rows_of,
    running,
    sleep,
    steps_of,
    wait,
    with_steps,
    write,
)
from tests.conformance.test_moves import carried, sound
from tests.conftest import opened
from tests.kinds import KINDS_THAT_MOVE_STEPS
from toril.engines.sqlite import SqliteEngine
from toril.engines.sqlite.url import parse
from toril.model import (
    KEEP_ALL,
    Completed,
    Failed,
    JobRef,
    NewSignal,
    Released,
    Replay,
    SignalOutcome,
    SignalWait,
    StepVerdict,
    letter_id,
)
from toril.model.states import State
from toril.store.engine import Store
from toril.testing import ManualClock


@pytest.fixture
async def other(clock: ManualClock) -> AsyncIterator[Store]:
    """The other end of the move."""
    store = SqliteEngine(parse("memory://"), clock=clock)
    await store.open()
    yield store
    await store.close()


@pytest.fixture(params=KINDS_THAT_MOVE_STEPS)
async def mover(request: pytest.FixtureRequest, clock: ManualClock, tmp_path: Path) -> AsyncIterator[Store]:
    """Every engine whose jobs take their steps along."""
    async with opened(request.param, clock, tmp_path) as store:
        yield store


@pytest.fixture(params=["from", "to"])
def ends(request: pytest.FixtureRequest, mover: Store, other: Store) -> tuple[Store, Store]:
    """From the engine to another, and from another to it."""
    return (mover, other) if request.param == "from" else (other, mover)


async def moved(source: Store, target: Store, *queues: str) -> None:
    await carried(source, target, *queues)
    for store in (source, target):
        await sound(store, *(queues or ("q",)))


@pytest.mark.covers("R278")
async def test_rows_and_signals_arrive_as_they_were(ends: tuple[Store, Store], clock: ManualClock) -> None:
    source, target = ends
    lease = (await with_steps(source, "z", "a", "käse", text='"5.0 é"', id="mine", keep_failed=KEEP_ALL)).lease
    await settle(source, lease, Failed(WHY))
    await source.retry("q", ["mine"])
    lease = (await claim_one(source)).lease
    for n in range(3):
        await steps_of(source).deliver("q", [NewSignal(name="ok", payload=str(n), job_id="mine", id=f"id-{n}")])
    await steps_of(source).receive(lease, "w", [SignalWait("ok")])
    before = await all_rows(source, "mine")
    inbox = [(each.name, each.payload, each.at, each.id) for each in await steps_of(source).inbox("q", "mine")]
    await settle(source, lease, Released())

    await moved(source, target)

    assert await all_rows(source, "mine") == {}
    assert await all_rows(target, "mine") == before
    assert list(await all_rows(target, "mine")) == list(before)
    there = [(each.name, each.payload, each.at, each.id) for each in await steps_of(target).inbox("q", "mine")]
    assert there == inbox
    claimed = await claim_one(target)
    assert claimed.steps is not None
    assert (claimed.steps.reruns, claimed.steps.epoch, rows_of(claimed)) == (1, 0, ["a", "käse", "w", "z"])
    known = [NewSignal(name="ok", job_id="mine", id=f"id-{n}") for n in range(3)]
    outcomes = [each.outcome for each in await steps_of(target).deliver("q", known)]
    assert outcomes == [SignalOutcome.DUPLICATE] * 3
    (answer,) = await recorded(target, report(claimed.lease, "new"))
    stored = await all_rows(target, "mine")
    assert answer.bytes == sum(len(key.encode()) + len(text.encode()) for key, text in stored.items())
    assert stored["new"].split()[1] == "5"


async def test_a_job_that_rests_goes_on_resting(ends: tuple[Store, Store], clock: ManualClock) -> None:
    source, target = ends
    lease = (await running(source)).lease
    before = await resting(source, lease, sleep("s", 5_000), wait("ok"), wait("key", key="k", by="k"))
    clock.advance(100)

    await moved(source, target)

    found = await job(target, lease.id)
    assert (found.state, found.due, found.rest) == (State.DELAYED, before.due, before.rest)
    assert (await at_rest(source), await at_rest(target)) == ([], [lease.id])
    assert ((await source.counts("q")).resting, (await target.counts("q")).resting) == (0, 1)
    (answer,) = await steps_of(target).deliver("q", [NewSignal(name="key", key="k")])
    assert (answer.outcome, answer.job_id) == (SignalOutcome.WOKEN, lease.id)
    assert (await job(target, lease.id)).rest is None
    await claim_one(target)
    other = (await running(target)).lease
    clash = await steps_of(target).receive(other, "w", [SignalWait("key", "k")])
    assert clash.verdict is StepVerdict.CLASH


async def test_a_sleeper_wakes_when_it_would_have(ends: tuple[Store, Store], clock: ManualClock) -> None:
    source, target = ends
    lease = (await running(source)).lease
    await resting(source, lease, sleep("s", 1_000))
    clock.advance(600)
    await moved(source, target)

    clock.advance(399)
    assert (await claim(target)).jobs == ()
    clock.advance(1)
    assert (await claim_one(target)).lease.id == lease.id


async def test_a_job_that_rests_for_its_children_moves_with_them(ends: tuple[Store, Store]) -> None:
    source, target = ends
    lease = (await running(source, id="top")).lease
    await resting(source, lease, called(JobRef("c", "a")), wait("ok"), children=[child("a", "top")])
    await resting(source, (await running(source, id="two")).lease, children=[child("b", "two")])

    await moved(source, target, "q", "c")

    assert sorted(await at_rest(target)) == ["top", "two"]
    for _ in range(2):
        await settle(target, (await claim_one(target, queue="c")).lease, Completed("1"))
    assert sorted(each.lease.id for each in (await claim(target)).jobs) == ["top", "two"]
    assert (await target.counts("q")).resting == 0


async def test_dead_letters_move_with_their_steps(ends: tuple[Store, Store], clock: ManualClock) -> None:
    source, target = ends
    lease = (await running(source, id="mine")).lease
    await write(source, lease, "a")
    await steps_of(source).deliver("q", [NewSignal(name="ok", payload="7", job_id="mine", id="x")])
    await settle(source, lease, Failed(WHY))
    before = await all_rows(source, "mine", where="dead_letters")

    await moved(source, target)

    assert await all_rows(source, "mine", where="dead_letters") == {}
    assert await all_rows(target, "mine", where="dead_letters") == before
    (signal,) = await steps_of(target).inbox("q", "mine", where="dead_letters")
    assert (signal.payload, signal.id) == ("7", "x")
    await target.dead_letters.replay("q", [Replay(letter_id("q", "mine"))])
    again = await claim_one(target)
    assert again.steps is not None
    assert (again.steps.rows, again.steps.reruns) == (before, 1)


async def test_kept_signals_move_with_the_queue(ends: tuple[Store, Store], clock: ManualClock) -> None:
    source, target = ends
    for n in range(3):
        signal = NewSignal(name="ok", key="k", payload=str(n), id=f"id-{n}", ttl=(1_000, 100, 5_000)[n])
        await steps_of(source).deliver("q", [signal])
        clock.advance(1)
    clock.advance(100)

    await moved(source, target)

    lease = (await running(target)).lease
    received = [await steps_of(target).receive(lease, key, [SignalWait("ok", "k")]) for key in ("a", "b", "c")]
    assert [None if each.row is None else each.row[-1] for each in received] == ["0", "2", None]
    again = [NewSignal(name="ok", key="k", id=f"id-{n}") for n in range(3)]
    (one, two, three) = await steps_of(target).deliver("q", again)
    assert (one.outcome, two.outcome, three.outcome) == (
        SignalOutcome.DUPLICATE, SignalOutcome.KEPT, SignalOutcome.DUPLICATE,
    ), "ids move too, until their ttl"  # fmt: skip
    clock.advance(5_000)
    assert await steps_of(source).deliver("q", []) == []
