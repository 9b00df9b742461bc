"""A parent knows its children by their names, in the order in which they were added, whatever becomes of either."""

import pytest

from tests.conformance.jobs import claim, claim_one, settle
from tests.conformance.test_flows import TOP, WHY, child, ended, parent
from tests.conformance.test_moves import carried, ends, other, sound
from toril.model import (
    BATCH,
    Completed,
    Failed,
    FlowNode,
    JobRef,
    NewJob,
    OnFailure,
    Replay,
    Rested,
    Retried,
    Verdict,
    letter_id,
)
from toril.store.engine import Store

__all__ = ["ends", "other"]  # fixtures


async def names(engine: Store, ref: JobRef = TOP) -> list[tuple[str, str]]:
    return [(str(found), name) for found, name in await engine.flows.child_names(ref)]


def named(name: str, identity: str, queue: str = "q") -> FlowNode:
    return FlowNode(queue=queue, job=NewJob(name=name, id=identity), parent=TOP)


async def test_children_are_named_in_the_order_in_which_they_were_added(engine: Store) -> None:
    nested = parent("mid", queue="q", under=TOP)
    below = child("below", under=JobRef("q", "mid"))
    await engine.flows.add([parent(), named("z", "c3"), named("a", "c1", "r"), nested, below, named("z", "c2")])

    assert await names(engine) == [("q:c3", "z"), ("r:c1", "a"), ("q:mid", "mid"), ("q:c2", "z")]
    assert await names(engine, JobRef("q", "mid")) == [("q:below", "below")]
    assert await names(engine, JobRef("q", "c2")) == []
    assert await names(engine, JobRef("p", "none")) == []


async def test_the_order_goes_on_where_a_flow_comes_in_parts_and_where_it_is_sent_again(engine: Store) -> None:
    first = [parent(), *(named("n", f"{n}-a") for n in range(BATCH - 1))]
    rest = [named("n", f"{n}-b") for n in range(10)]
    await engine.flows.add(first, held=[TOP])
    await engine.flows.add(first, held=[TOP])
    await engine.flows.add(rest, closed=[TOP])
    await engine.flows.add(rest)

    found = [ref.id for ref, _ in await engine.flows.child_names(TOP)]
    assert found == [*(f"{n}-a" for n in range(BATCH - 1)), *(f"{n}-b" for n in range(10))]


async def test_children_that_a_run_adds_come_after_those_before(engine: Store) -> None:
    await engine.flows.add([parent(), child("b"), child("c")])
    await ended(engine, "b")
    await ended(engine, "c")
    running = await claim_one(engine, queue="p")
    assert await engine.flows.add_children(running.lease, [child("a")]) is Verdict.OK
    await settle(engine, running.lease, Rested((child("_"),), 1))

    assert [name for _, name in await names(engine)] == ["b", "c", "a", "_"]


async def test_a_job_that_was_there_already_stands_where_it_was_adopted(engine: Store) -> None:
    await engine.add("q", [NewJob(name="old", id="old"), NewJob(name="done", id="done", lifo=True)])
    await engine.flows.add([parent(), child("first"), child("old"), child("last")])

    assert await names(engine) == [("q:first", "first"), ("q:old", "old"), ("q:last", "last")]


@pytest.mark.parametrize("policy", [OnFailure.IGNORE, OnFailure.CONTINUE, OnFailure.FAIL, OnFailure.WAIT])
async def test_the_order_is_the_same_however_children_end(engine: Store, policy: OnFailure) -> None:
    await engine.flows.add([parent(), child("c"), child("b", on_failure=policy), child("a", attempts=2)])
    await ended(engine, "c")
    await ended(engine, "b", Failed(WHY))
    await ended(engine, "a", Retried(WHY, 0))
    await ended(engine, "a")

    assert [name for _, name in await names(engine)] == ["c", "b", "a"]


async def test_the_order_outlives_the_death_of_parent_and_child_and_their_replay(engine: Store) -> None:
    await engine.flows.add([parent(), child("c"), child("b"), child("a")])
    await ended(engine, "c")
    await ended(engine, "b", Failed(WHY))
    await ended(engine, "a")
    assert await engine.dead_letters.count() == 1
    await settle_parent_dead(engine)
    await engine.dead_letters.replay("p", [Replay(letter_id("p", "top"))])
    await ended(engine, "b")

    assert [name for _, name in await names(engine)] == ["c", "b", "a"]
    top = await claim_one(engine, queue="p")
    assert top.lease.id == "top"


async def settle_parent_dead(engine: Store) -> None:
    """Whoever claims a parent whose child has failed finds it failed."""
    assert (await claim(engine, queue="p")).jobs == ()
    assert await engine.dead_letters.count() == 2


async def test_the_order_moves_to_another_store(ends: tuple[Store, Store]) -> None:
    source, target = ends
    await source.flows.add([parent(), child("c"), child("b", on_failure=OnFailure.IGNORE), child("a"), child("_")])
    await ended(source, "c", Completed("3"))
    await ended(source, "b", Failed(WHY))
    before = await names(source)

    await carried(source, target, "q", "p")

    assert await names(target) == before == [("q:c", "c"), ("q:b", "b"), ("q:a", "a"), ("q:_", "_")]
    for store in ends:
        await sound(store, "q", "p")


async def test_the_order_moves_with_a_dead_letter(ends: tuple[Store, Store]) -> None:
    source, target = ends
    await source.flows.add([parent(), child("c"), child("b"), child("a")])
    await ended(source, "c")
    await ended(source, "b", Failed(WHY))
    await ended(source, "a")
    await settle_parent_dead(source)

    await carried(source, target, "q", "p")
    await target.dead_letters.replay("p", [Replay(letter_id("p", "top"))])

    assert [name for _, name in await names(target)] == ["c", "b", "a"]
