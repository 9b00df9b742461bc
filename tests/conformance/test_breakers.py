"""Circuit breakers: one state for the whole fleet, whoever asks."""

import asyncio
from typing import Any

import pytest

from tests.conformance.dumps import unchanged
from toril import InvalidName, InvalidOption
from toril.model import Admitted, CircuitSample, CircuitState, CircuitTerms, Deferred
from toril.store.engine import Store
from toril.testing import ManualClock

TERMS = CircuitTerms(failures=5, window=300_000, pause=60_000, probes=2)
LEASE = 30_000
HALF_OPEN = CircuitState.HALF_OPEN


async def fail(engine: Store, times: int, key: str = "k", terms: CircuitTerms = TERMS) -> list[CircuitState | None]:
    return [await engine.circuits.record(key, terms, f"f{n}", CircuitSample.BAD) for n in range(times)]


async def ask(engine: Store, *holders: str, key: str = "k") -> list[Any]:
    return [await engine.circuits.admit(key, TERMS, holder, lease=LEASE) for holder in holders]


@pytest.mark.covers("R225")
async def test_five_failures_open_it_once_and_only_that_key(engine: Store) -> None:
    assert await fail(engine, 4) == [None] * 4
    assert await ask(engine, "a") == [Admitted()]

    assert await fail(engine, 2) == [CircuitState.OPEN, None]

    assert await ask(engine, "a", "b") == [Deferred(60_000), Deferred(60_000)]
    assert await ask(engine, "a", key="other") == [Admitted()]


@pytest.mark.covers("R225")
async def test_after_the_pause_two_probes_go_out_and_their_success_closes_it(engine: Store, clock: ManualClock) -> None:
    await fail(engine, 5)
    clock.advance(59_999)
    assert await ask(engine, "a") == [Deferred(1)]
    clock.advance(1)

    first, second, third = await ask(engine, "a", "b", "c")
    assert (first, second) == (Admitted(HALF_OPEN, probe=True), Admitted(None, probe=True))
    assert isinstance(third, Deferred)
    assert await engine.circuits.record("k", TERMS, "a", CircuitSample.GOOD) is None
    assert isinstance((await ask(engine, "c"))[0], Deferred), "one did well, one is still out"
    assert await engine.circuits.record("k", TERMS, "b", CircuitSample.GOOD) is CircuitState.CLOSED
    assert await ask(engine, "c", "d", "e") == [Admitted()] * 3


async def test_a_probe_that_fails_opens_it_again(engine: Store, clock: ManualClock) -> None:
    await fail(engine, 5)
    clock.advance(60_000)
    await ask(engine, "a", "b")

    assert await engine.circuits.record("k", TERMS, "a", CircuitSample.BAD) is CircuitState.OPEN
    assert await engine.circuits.record("k", TERMS, "b", CircuitSample.GOOD) is None, "too late"
    assert await ask(engine, "c") == [Deferred(60_000)]


async def test_a_probe_whose_worker_died_is_replaced_when_its_lease_is_over(engine: Store, clock: ManualClock) -> None:
    await fail(engine, 5)
    clock.advance(60_000)
    await ask(engine, "a", "b")
    clock.advance(LEASE - 1)
    assert isinstance((await ask(engine, "c"))[0], Deferred)
    clock.advance(1)

    assert await ask(engine, "c", "d") == [Admitted(None, probe=True)] * 2
    assert isinstance((await ask(engine, "e"))[0], Deferred)


async def test_a_probe_that_takes_long_is_renewed_and_counts_even_late(engine: Store, clock: ManualClock) -> None:
    await fail(engine, 5)
    clock.advance(60_000)
    await ask(engine, "a", "b")
    clock.advance(LEASE - 1)
    assert await ask(engine, "a") == [Admitted(None, probe=True)]
    clock.advance(1)
    assert await ask(engine, "c") == [Admitted(None, probe=True)], "b's lease is over"
    assert isinstance((await ask(engine, "d"))[0], Deferred), "a's is not"

    assert await engine.circuits.record("k", TERMS, "b", CircuitSample.GOOD) is None
    assert await engine.circuits.record("k", TERMS, "a", CircuitSample.GOOD) is CircuitState.CLOSED


async def test_who_is_content_with_fewer_probes_closes_it(engine: Store, clock: ManualClock) -> None:
    await fail(engine, 5)
    clock.advance(60_000)
    await ask(engine, "a")
    assert await engine.circuits.record("k", TERMS, "a", CircuitSample.GOOD) is None

    content = CircuitTerms(failures=5, window=300_000, pause=60_000, probes=1)
    assert await engine.circuits.admit("k", content, "b", lease=LEASE) == Admitted(CircuitState.CLOSED)
    assert await ask(engine, "c", "d", "e") == [Admitted()] * 3


@pytest.mark.parametrize("asked", [(), ("a",)], ids=["open", "half-open"])
async def test_one_that_nobody_asks_any_more_is_forgotten(
    engine: Store, clock: ManualClock, asked: tuple[str, ...]
) -> None:
    await fail(engine, 5)
    clock.advance(60_000)
    await ask(engine, *asked)
    clock.advance(LEASE + TERMS.window + TERMS.pause if asked else TERMS.window + TERMS.pause)
    await engine.prune("q")
    assert len(await engine.circuits.list()) == 1

    clock.advance(1)
    await engine.prune("q")
    assert await engine.circuits.list() == []


async def test_a_probe_that_says_nothing_makes_room_for_another(engine: Store, clock: ManualClock) -> None:
    await fail(engine, 5)
    clock.advance(60_000)
    await ask(engine, "a", "b")

    assert await engine.circuits.record("k", TERMS, "a", CircuitSample.NEITHER) is None
    assert await ask(engine, "c") == [Admitted(None, probe=True)]


async def test_who_asks_twice_is_one_probe(engine: Store, clock: ManualClock) -> None:
    await fail(engine, 5)
    clock.advance(60_000)

    assert await ask(engine, "a", "a", "b") == [
        Admitted(HALF_OPEN, probe=True), Admitted(None, probe=True), Admitted(None, probe=True)
    ]  # fmt: skip


async def test_failures_that_are_over_do_not_count(engine: Store, clock: ManualClock) -> None:
    await fail(engine, 4)
    clock.advance(320_000)

    assert await fail(engine, 4) == [None] * 4
    assert await fail(engine, 1) == [CircuitState.OPEN]


async def test_a_rate_needs_enough_runs_to_speak(engine: Store) -> None:
    terms = CircuitTerms(rate=0.5, minimum=10, window=300_000, pause=1_000)
    assert await fail(engine, 4, terms=terms) == [None] * 4
    for n in range(5):
        assert await engine.circuits.record("k", terms, f"g{n}", CircuitSample.GOOD) is None

    assert await fail(engine, 1, terms=terms) == [CircuitState.OPEN]


@pytest.mark.covers("R226")
async def test_it_is_opened_and_closed_by_hand_and_seen(engine: Store, clock: ManualClock) -> None:
    assert await engine.circuits.list() == []
    opened = await engine.circuits.trip("k", pause=10_000)
    assert (opened.state, opened.till) == (CircuitState.OPEN, clock.now() + 10_000)
    await fail(engine, 2, "other")
    assert [(each.key, each.state, sum(slot[2] for slot in each.slots)) for each in await engine.circuits.list()] == [
        ("k", CircuitState.OPEN, 0), ("other", CircuitState.CLOSED, 2),
    ]  # fmt: skip
    assert await ask(engine, "a") == [Deferred(10_000)]

    assert await engine.circuits.reset("k") is True
    assert await engine.circuits.reset("k") is False
    assert await ask(engine, "a") == [Admitted()]


async def test_what_there_is_nothing_left_to_know_of_is_forgotten(engine: Store, clock: ManualClock) -> None:
    await fail(engine, 2)
    await engine.prune("q")
    assert len(await engine.circuits.list()) == 1
    clock.advance(400_000)
    await engine.prune("q")

    assert await engine.circuits.list() == []


async def test_a_circuit_that_never_failed_leaves_no_trace(engine: Store) -> None:
    async with unchanged(engine):
        await ask(engine, "a", "b")
        await engine.circuits.record("k", TERMS, "a", CircuitSample.GOOD if TERMS.rate else CircuitSample.NEITHER)


async def test_many_who_ask_at_once_get_two_probes_among_them(engine: Store, clock: ManualClock) -> None:
    await asyncio.gather(*(engine.circuits.record("k", TERMS, f"f{n}", CircuitSample.BAD) for n in range(20)))
    clock.advance(60_000)

    answers = await asyncio.gather(*(engine.circuits.admit("k", TERMS, f"h{n}", lease=LEASE) for n in range(30)))

    admitted = [answer for answer in answers if isinstance(answer, Admitted)]
    assert len(admitted) == 2
    assert [answer.news for answer in admitted].count(HALF_OPEN) == 1


@pytest.mark.parametrize("key", ["", "a\nb", "x" * 257, 7, None])
async def test_odd_keys_are_refused(engine: Store, key: Any) -> None:
    for call in (
        engine.circuits.admit(key, TERMS, "a", lease=1),
        engine.circuits.trip(key),
        engine.circuits.reset(key),
    ):
        with pytest.raises(InvalidName, match="key"):
            await call


@pytest.mark.parametrize("odd", [
    {"failures": 0}, {"window": 5}, {"pause": 0}, {"probes": 0}, {"rate": 0}, {"rate": 1.5}, {"minimum": 0},
    {"rate": True},
])  # fmt: skip
def test_odd_terms_are_refused(odd: dict[str, Any]) -> None:
    with pytest.raises(InvalidOption, match=next(iter(odd))):
        CircuitTerms(**odd)
