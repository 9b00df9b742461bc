"""What workers declare of their queues is known for as long as one of them lives, and no longer."""

import json
from dataclasses import fields, replace

import pytest

from tests.conformance.jobs import add
from tests.declared import declared
from toril.model import (
    MAX_DECLARATION,
    MAX_SCHEMA,
    Backoff,
    Declaration,
    Declarations,
    GroupLimits,
    HandlerDeclaration,
    Heartbeat,
    Keep,
    NewJob,
    RateLimit,
    WorkerCommand,
)
from toril.store.engine import Store
from toril.testing import ManualClock

PLAIN = declared()
FULL = Declaration(
    concurrency=10, lease=45_000, max_stalls=2, max_attempts=3, timeout=9_000, target_wait=5_000,
    backoff=Backoff(kind="fixed", delay=500, cap=9, jitter=0.5, strategy="mine", on=("a.B",), give_up_on=("c.D",)),
    rate=RateLimit(50, per=1.5, window="fixed"), max_waiting=1000, priority_first=True, subject="tenant",
    groups=GroupLimits(concurrency=2, rate_limit=RateLimit(7, per=60), max_waiting=9, weight=3), serializer=True,
    keep_completed=Keep(100), keep_failed=Keep(None, age=3600.5), any_name="other",
    handlers={
        "send": None, "grüße \"again\": true\n": None, "other": None,
        "once": HandlerDeclaration(max_attempts=1, backoff=Backoff(kind="exponential", delay=2)),
    },
    signals={"approval": {"type": "object", "properties": {"ok": {"type": "boolean"}}}, "large": None},
)  # fmt: skip


def beat(worker: str, *, started_at: int = 1, again: bool = False, **declares: Declaration) -> Heartbeat:
    return Heartbeat(
        worker=worker, queues=["q", "other"], slots=1, running=0, started_at=started_at, again=again,
        declares=declares or None,
    )  # fmt: skip


async def said(engine: Store, queue: str = "q") -> list[tuple[Declaration, int]]:
    return [(each.declaration, each.workers) for each in (await engine.declarations(queue)).items]


async def test_all_that_a_worker_declares_can_be_read(engine: Store, clock: ManualClock) -> None:
    clock.advance(5)
    await engine.heartbeat(beat("w:1", q=FULL, other=PLAIN), ttl=1000)

    found = await engine.declarations("q")

    assert {each.name for each in fields(Declaration) if getattr(FULL, each.name) == getattr(PLAIN, each.name)} == set()
    assert found.newest == FULL
    assert [(each.workers, each.at) for each in found.items] == [(1, clock.now())]
    assert await said(engine, "other") == [(PLAIN, 1)]
    assert await engine.declarations("never") == Declarations()


async def test_alike_ones_come_once_and_the_newest_first(engine: Store, clock: ManualClock) -> None:
    faster = replace(PLAIN, concurrency=8, rate=RateLimit(5))
    for worker in ("old-1", "old-2"):
        await engine.heartbeat(beat(worker, q=PLAIN), ttl=60_000)
    clock.advance(1)
    await engine.heartbeat(beat("new", q=faster), ttl=60_000)
    clock.advance(1)
    await engine.heartbeat(beat("old-1", again=True), ttl=60_000)

    found = await engine.declarations("q")

    assert await said(engine) == [(faster, 1), (PLAIN, 2)]
    assert (found.newest, found.workers, found.slots) == (faster, 3, 10)
    assert found.differing == ("concurrency", "rate")
    clock.advance(1)
    await engine.heartbeat(beat("old-2", q=faster), ttl=60_000)
    assert await said(engine) == [(faster, 2), (PLAIN, 1)]
    await engine.heartbeat(beat("old-1", again=True, q=faster), ttl=60_000)
    assert (await engine.declarations("q")).differing == ()


async def test_a_heartbeat_that_declares_nothing_leaves_it_as_it_is(engine: Store) -> None:
    await engine.heartbeat(beat("w", q=PLAIN, other=FULL), ttl=60_000)
    await engine.heartbeat(beat("w", again=True), ttl=60_000)

    assert (await said(engine), await said(engine, "other")) == ([(PLAIN, 1)], [(FULL, 1)])


async def test_what_is_declared_anew_takes_the_place_of_all_before(engine: Store) -> None:
    await engine.heartbeat(beat("w", q=PLAIN, other=FULL), ttl=60_000)
    await engine.heartbeat(beat("w", q=FULL), ttl=60_000)

    assert (await said(engine), await said(engine, "other")) == ([(FULL, 1)], [])


async def is_forgotten(engine: Store, worker: str) -> bool:
    """Whether the store knows a worker no more. Its next sign of life would show what is left of its declarations."""
    return await engine.heartbeat(beat(worker, again=True), ttl=60_000) == (WorkerCommand.DECLARE,)


async def test_it_goes_with_the_worker_that_stops(engine: Store) -> None:
    await engine.heartbeat(beat("stays", q=FULL), ttl=60_000)
    await engine.heartbeat(beat("goes", q=PLAIN), ttl=60_000)
    await engine.heartbeat(beat("goes", again=True), ttl=0)

    assert await said(engine) == [(FULL, 1)]
    assert await is_forgotten(engine, "goes")
    assert await said(engine) == [(FULL, 1)]


async def test_a_late_farewell_does_not_take_what_the_next_worker_of_the_name_declares(engine: Store) -> None:
    await engine.heartbeat(beat("w", started_at=1, q=PLAIN), ttl=60_000)
    await engine.heartbeat(beat("w", started_at=2, q=FULL), ttl=60_000)
    await engine.heartbeat(beat("w", started_at=1, again=True), ttl=0)

    assert await said(engine) == [(FULL, 1)]


async def test_it_goes_with_the_worker_that_dies(engine: Store, clock: ManualClock) -> None:
    await add(engine, NewJob(name="n"))
    await engine.heartbeat(beat("w", q=FULL), ttl=1000)
    clock.advance(1000)

    assert await said(engine) == []
    clock.advance(600_000)
    await engine.prune("q")
    assert await is_forgotten(engine, "w"), "it is asked for all of it again"
    assert await said(engine) == []


async def test_a_doctor_who_removes_a_dead_worker_removes_that_too(engine: Store, clock: ManualClock) -> None:
    await add(engine, NewJob(name="n"))
    await engine.heartbeat(beat("w", q=FULL), ttl=1000)
    clock.advance(3_600_000)
    found = [fault async for look in engine.repairs.scan(["q"]) for fault in look.items]
    assert await engine.repairs.repair(found, mode="repair") == [True]

    assert await is_forgotten(engine, "w")
    assert await said(engine) == []


async def test_one_that_is_too_long_does_not_name_its_handlers(engine: Store) -> None:
    many = replace(FULL, handlers={f"handler-{n}" * 4: None for n in range(1000)})
    await engine.heartbeat(beat("w", q=many), ttl=60_000)

    assert len(many.dump()) <= MAX_DECLARATION
    assert await said(engine) == [(replace(FULL, handlers=None), 1)]


@pytest.mark.parametrize("handlers", [3, 1000])
async def test_one_that_is_too_long_leaves_out_the_schemas_of_signals_first(engine: Store, handlers: int) -> None:
    schema = {"type": "object", "description": "x" * (MAX_SCHEMA - 50)}
    signals = {f"signal-{n}": schema for n in range(9)}
    long = replace(FULL, signals=signals, handlers={f"handler-{n}" * 4: None for n in range(handlers)})
    await engine.heartbeat(beat("w", q=long), ttl=60_000)

    assert len(long.dump()) <= MAX_DECLARATION
    named = replace(long, signals=dict.fromkeys(signals))
    assert await said(engine) == [(named if handlers == 3 else replace(named, handlers=None), 1)]


@pytest.mark.parametrize("odd", ["", "{}", "[]", "null", "no JSON", '{"concurrency": "many"}'])
async def test_what_cannot_be_read_is_passed_over(engine: Store, odd: str) -> None:
    class Odd(Declaration):
        def dump(self) -> str:
            return odd

    await engine.heartbeat(
        beat("later-version", q=Odd(**{f.name: getattr(PLAIN, f.name) for f in fields(PLAIN)})), ttl=1000
    )
    await engine.heartbeat(beat("w", q=PLAIN), ttl=1000)

    assert await said(engine) == [(PLAIN, 1)]
    assert (await engine.declarations("q")).handled(2) is None, "nobody knows what the other one runs"


def test_names_are_known_when_every_worker_has_told_them() -> None:
    named = replace(PLAIN, handlers={"a": None, "b": None})
    rows = [(named.dump(), 2, 1), (replace(PLAIN, handlers={"c": None}).dump(), 1, 0)]
    any_name = (replace(PLAIN, handlers={"rest": None}, any_name="rest").dump(), 1, 0)

    assert Declarations.of(rows).handled(3) == frozenset({"a", "b", "c"})
    assert Declarations.of(rows).handled(4) is None
    assert Declarations.of([]).handled(0) is None
    assert Declarations.of([*rows, any_name]).handled(4) is None
    assert Declarations.of([(replace(named, handlers=None).dump(), 1, 0)]).handled(1) is None


def test_a_handler_may_say_itself_how_often_it_is_tried() -> None:
    once = FULL.handlers["once"] if FULL.handlers else None
    assert once is not None
    rest = replace(FULL, handlers={"rest": once}, any_name="rest")

    assert FULL.retry_of("once") == (1, once.backoff)
    assert FULL.retry_of("send") == replace(FULL, handlers=None).retry_of("once") == (3, FULL.backoff)
    assert rest.retry_of("whatever") == (1, once.backoff)
    assert json.loads(FULL.dump())["max_attempts"] == 3
