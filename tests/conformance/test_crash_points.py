"""Whoever dies within an operation leaves it done or not done, on every engine: for every operation that there is."""

import inspect
from dataclasses import replace
from typing import Any

import pytest

from tests.conformance.dumps import dump
from tests.conformance.operations import OPERATIONS, READS, SEAM, TWICE, VARIANTS, broken, furnished
from tests.proof import prove
from tests.sim.brittle import BrittleStore
from toril.errors import CallTooLate
from toril.model import Call
from toril.store.engine import Store
from toril.testing import ManualClock

CALL = Call("subject", 7)


def _takes_a_call(name: str) -> bool:
    return "call" in inspect.signature(SEAM[name]).parameters


@pytest.mark.covers("T6")
def test_every_operation_of_the_seam_has_a_case() -> None:
    assert len({name.partition(".")[0] for name in SEAM if "." in name}) == 10
    assert SEAM.keys() - READS - OPERATIONS.keys() == set(), (
        "a new operation needs its case in tests/conformance/operations.py"
    )
    assert OPERATIONS.keys() - SEAM.keys() == set()


@pytest.mark.covers("T6", "F07")
@pytest.mark.parametrize("name", OPERATIONS)
async def test_who_did_not_hear_the_answer_may_send_it_again(
    shared_engine: Store, clock: ManualClock, name: str
) -> None:
    """Dead before it was sent: others do it. Dead after its effect: others do it again. The store is the same."""
    engine = shared_engine
    room = await furnished(engine)
    if name == "repairs.repair":
        room = await broken(room, clock)
    first = await OPERATIONS[name](room, CALL)
    after = await dump(engine)

    again = await OPERATIONS[name](room, CALL)

    if name not in TWICE:
        assert await dump(engine) == after
    if "call" in inspect.signature(_method(engine, name)).parameters and name not in {"obliterate"}:
        assert again == first
    prove("T6", points=2)


@pytest.mark.parametrize("name", VARIANTS)
async def test_other_uses_of_an_operation_may_be_sent_again(shared_engine: Store, name: str) -> None:
    room = await furnished(shared_engine)
    first = await VARIANTS[name](room, CALL)
    after = await dump(shared_engine)

    assert await VARIANTS[name](room, CALL) == first
    assert await dump(shared_engine) == after


@pytest.mark.parametrize("name", VARIANTS)
async def test_other_uses_of_an_operation_break_at_any_statement(name: str) -> None:
    store = BrittleStore(ManualClock())
    await store.open()
    try:
        room = await furnished(store.whole(), elects=False)
        before = store.broken

        await VARIANTS[name](replace(room, store=store.view()), CALL)

        assert store.broken > before
    finally:
        await store.close()


@pytest.mark.parametrize("name", [name for name in OPERATIONS if _takes_a_call(name)])
async def test_a_call_that_comes_too_late_has_no_effect(shared_engine: Store, name: str) -> None:
    engine = shared_engine
    room = await furnished(engine)
    await engine.remove("q", [], call=replace(CALL, seq=CALL.seq + 1))
    before = await dump(engine)

    with pytest.raises(CallTooLate, match="came too late: call 8"):
        await OPERATIONS[name](room, CALL)

    assert await dump(engine) == before


@pytest.mark.covers("T6", "I1", "R182", "R184", "R185", "R251")
@pytest.mark.parametrize("name", sorted(OPERATIONS.keys() - {"lead", "resign"}))  # a store in memory has no leaders
async def test_an_operation_that_breaks_at_any_statement_leaves_nothing_behind(name: str) -> None:
    clock = ManualClock()
    store = BrittleStore(clock)
    await store.open()
    try:
        room = await furnished(store.whole(), elects=False)
        if name == "repairs.repair":
            room = await broken(room, clock)
        before = store.broken

        await OPERATIONS[name](replace(room, store=store.view()), CALL)

        prove("T6", points=store.broken - before)
        assert store.broken > before or name in {"prune"}
    finally:
        await store.close()


def _method(engine: Store, name: str) -> Any:
    part, _, last = name.rpartition(".")
    return getattr(getattr(engine, part) if part else engine, last)
