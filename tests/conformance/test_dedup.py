"""Engine.add with a deduplication key: one job a key, and what becomes of those that come second."""

from dataclasses import replace
from typing import Any, Literal

import pytest

from tests.conformance.jobs import EVERY_OPTION, add, claim, claim_one, job, names, new_job, settle
from toril.model import (
    AddOutcome,
    Backoff,
    Cancelled,
    Dedup,
    EventKind,
    Failed,
    Failure,
    Keep,
    NewJob,
    Released,
    Replay,
    Retried,
    SetMaxWaiting,
    letter_id,
)
from toril.model.states import State
from toril.store.engine import Store
from toril.testing import ManualClock

Mode = Literal["drop", "extend", "replace", "reschedule", "keep_last"]


def once(name: str = "n", key: str = "k", *, ttl: float | None = None, mode: Mode = "drop", **options: Any) -> NewJob:
    return new_job(name, dedup=Dedup(key, ttl, mode), **options)


@pytest.mark.covers("R086", "X03")
async def test_a_second_job_of_a_key_is_left_out_and_answered_with_the_first(engine: Store) -> None:
    first, second, other = await add(engine, once("a"), once("b"), once("c", "other"))

    assert (first.outcome, second.outcome, other.outcome) == (
        AddOutcome.ADDED, AddOutcome.DEDUPLICATED, AddOutcome.ADDED,
    )  # fmt: skip
    assert (second.id, second.state) == (first.id, State.WAITING)
    assert names((await claim(engine)).jobs) == ["a", "c"]
    (event,) = [each for each in (await engine.events("q")).items if each.kind is EventKind.DEDUPLICATED]
    assert (event.job_id, dict(event.detail)) == (first.id, {"deduplicationId": "k", "deduplicatedJobId": "2"})


@pytest.mark.parametrize(
    "ending", ["completed", "kept", "failed", "cancelled", "removed", "drained", "stalled", "expired"]
)
async def test_a_key_is_free_again_when_its_job_is_over(engine: Store, clock: ManualClock, ending: str) -> None:
    options: dict[str, Any] = {"keep_completed": Keep()} if ending == "kept" else {}
    if ending == "expired":
        options = {"expires": 10}
    (first,) = await add(engine, once("a", **options))
    match ending:
        case "cancelled":
            await engine.cancel("q", [first.id], reason="no")
        case "removed":
            await engine.remove("q", [first.id])
        case "drained":
            await engine.drain("q", states=frozenset({State.WAITING}))
        case "stalled":
            await claim(engine, 1, lease=1000, max_stalls=0)
            clock.advance(1001)
            await engine.recover("q")
        case "expired":
            clock.advance(11)
            await claim(engine)
        case _:
            outcome = Failed(Failure("no")) if ending == "failed" else None
            await settle(engine, (await claim_one(engine)).lease, outcome)

    (second,) = await add(engine, once("b"))

    assert second.outcome is AddOutcome.ADDED


async def test_a_key_is_held_while_its_job_is_retried_or_given_back(engine: Store, clock: ManualClock) -> None:
    (first,) = await add(engine, once("a", attempts=3))
    await settle(engine, (await claim_one(engine)).lease, Retried(Failure("once more"), 0))
    await settle(engine, (await claim_one(engine)).lease, Released())

    (second,) = await add(engine, once("b"))

    assert (second.outcome, second.id) == (AddOutcome.DEDUPLICATED, first.id)


@pytest.mark.covers("X22")
async def test_with_a_time_a_key_is_held_for_it_whatever_becomes_of_the_job(engine: Store, clock: ManualClock) -> None:
    (first,) = await add(engine, once("a", ttl=30))
    await settle(engine, (await claim_one(engine)).lease)
    clock.advance(29_999)
    (second,) = await add(engine, once("b", ttl=30))
    clock.advance(1)

    (third,) = await add(engine, once("c", ttl=30))

    assert (second.outcome, second.id, second.state) == (AddOutcome.DEDUPLICATED, first.id, State.COMPLETED)
    assert third.outcome is AddOutcome.ADDED


async def test_removing_the_owner_ends_its_time(engine: Store) -> None:
    (first,) = await add(engine, once("a", ttl=30))

    await engine.remove("q", [first.id])

    assert (await add(engine, once("b", ttl=30)))[0].outcome is AddOutcome.ADDED


async def test_extending_begins_the_time_anew(engine: Store, clock: ManualClock) -> None:
    outcomes = []
    for _ in range(4):
        outcomes += [(await add(engine, once(ttl=10, mode="extend")))[0].outcome]
        clock.advance(9000)
    clock.advance(1000)
    outcomes += [(await add(engine, once(ttl=10, mode="extend")))[0].outcome]

    assert outcomes == [AddOutcome.ADDED, *[AddOutcome.DEDUPLICATED] * 3, AddOutcome.ADDED]


@pytest.mark.parametrize("ttl", [None, 10])
async def test_replacing_puts_the_last_one_in_the_place_of_a_delayed_one(
    engine: Store, clock: ManualClock, ttl: float | None
) -> None:
    (first,) = await add(engine, once("a", ttl=ttl, mode="replace", delay=10_000))
    clock.advance(6000)

    (second,) = await add(engine, once("b", ttl=ttl, mode="replace", delay=10_000))

    assert (second.outcome, second.state) == (AddOutcome.REPLACED, State.DELAYED)
    assert await engine.jobs("q", [first.id]) == [None]
    clock.advance(9999)
    assert (await claim(engine)).jobs == ()
    clock.advance(1)
    assert names((await claim(engine)).jobs) == ["b"]
    (third,) = await add(engine, once("c", ttl=None, mode="replace", delay=10_000))
    expected = AddOutcome.DEDUPLICATED if ttl is None else AddOutcome.ADDED
    assert third.outcome is expected  # one that runs is not replaced; but its time may be over


async def test_rescheduling_gives_the_delayed_one_the_new_delay(engine: Store, clock: ManualClock) -> None:
    (first,) = await add(engine, once("a", mode="reschedule", delay=10_000))
    clock.advance(6000)

    (second,) = await add(engine, once("b", mode="reschedule", delay=10_000))

    assert (second.outcome, second.id) == (AddOutcome.DEDUPLICATED, first.id)
    assert (await job(engine, first.id)).due == clock.now() + 10_000
    clock.advance(10_000)
    assert names((await claim(engine)).jobs) == ["a"]


async def test_the_last_one_asked_for_while_the_owner_ran_comes_after_it(engine: Store) -> None:
    (first,) = await add(engine, once("a", mode="keep_last"))
    (waiting,) = await add(engine, once("ignored", mode="keep_last"))
    running = await claim_one(engine)
    (second,) = await add(engine, once("b", mode="keep_last", data="1"))
    last = once("c", mode="keep_last", data="2", attempts=3, metadata='{"m": 1}', options=EVERY_OPTION)
    (third,) = await add(engine, last)
    before = await engine.counts("q")

    await settle(engine, running.lease)

    assert {each.id for each in (waiting, second, third)} == {first.id}
    assert before.waiting == 0
    (kept,) = (await claim(engine)).jobs
    assert (kept.name, kept.data, kept.max_attempts, kept.metadata) == ("c", "2", 3, '{"m": 1}')
    assert kept.options == EVERY_OPTION
    (fourth,) = await add(engine, once("d", mode="keep_last"))
    assert (fourth.outcome, fourth.id) == (AddOutcome.DEDUPLICATED, kept.lease.id)
    await settle(engine, kept.lease)
    assert names((await claim(engine)).jobs) == ["d"]


@pytest.mark.parametrize("when", ["due", "delay"])
async def test_what_comes_after_the_owner_has_all_that_it_was_added_with(
    engine: Store, clock: ManualClock, when: str
) -> None:
    options: dict[str, Any] = {
        "data": "[1]", "priority": 7, "attempts": 3, "backoff": Backoff(kind="fixed", delay=5, on=("ValueError",)),
        "timeout": 900, "expires": 90_000, "keep_completed": Keep(5), "keep_failed": Keep(6, 7.0), "keep_logs": 8,
        "result_ttl": 9000, "metadata": '{"m": 1}', "breaker": "api", "subject": "me", "group": "g",
        when: clock.now() + 10_000 if when == "due" else 10_000, "trace": '{"traceparent": "00-ab-cd-01"}',
    }  # fmt: skip
    await add(engine, once("owner", mode="keep_last"))
    running = await claim_one(engine)
    await add(engine, once("n", mode="keep_last", id="last", **options))
    await settle(engine, running.lease)
    await add(engine, once("n", "other", mode="keep_last", id="plain", **options))

    last, plain = [await job(engine, each) for each in ("last", "plain")]
    assert replace(last, id="", fence=0) == replace(plain, id="", fence=0)
    clock.advance(9999)
    assert (await claim(engine)).jobs == ()
    clock.advance(1)
    first, second = (await claim(engine)).jobs
    assert {first.trace, second.trace} == {options["trace"]}


async def test_one_that_is_due_before_the_owner_ends_comes_at_once(engine: Store, clock: ManualClock) -> None:
    await add(engine, once("owner", mode="keep_last"))
    running = await claim_one(engine, lease=60_000)
    await add(engine, once("last", mode="keep_last", due=clock.now() + 1000))
    clock.advance(5000)

    await settle(engine, running.lease)

    assert names((await claim(engine)).jobs) == ["last"]


async def test_what_comes_after_the_owner_is_claimed_by_who_hands_the_owner_in(engine: Store) -> None:
    from toril.model import Claim, Completed, Settlement

    await add(engine, once("a", mode="keep_last"))
    running = await claim_one(engine)
    await add(engine, once("b", mode="keep_last", priority=3))

    answer = await engine.exchange(
        "q", [Settlement(running.lease, Completed())], Claim(want=5, token="t", lease=1000, worker="w")
    )

    assert names(answer.jobs) == ["b"]


async def test_a_chosen_id_that_is_taken_wins_over_the_key(engine: Store) -> None:
    await add(engine, NewJob(name="a", id="x"))

    (second,) = await add(engine, once("b", id="x"))
    (third,) = await add(engine, once("c", id="y"))

    assert second.outcome is AddOutcome.DUPLICATE
    assert (third.outcome, third.id) == (AddOutcome.ADDED, "y")


async def test_what_is_left_out_does_not_count_against_the_bound(engine: Store) -> None:
    await engine.configure("q", [SetMaxWaiting(2)])
    await add(engine, once("a"))

    second, _ = await add(engine, once("b"), NewJob(name="c"))

    assert second.outcome is AddOutcome.DEDUPLICATED


async def test_an_obliterated_queue_has_no_keys(engine: Store) -> None:
    await add(engine, once("a"))
    await engine.obliterate("q")

    assert (await add(engine, once("b")))[0].outcome is AddOutcome.ADDED


@pytest.mark.covers("X22")
@pytest.mark.parametrize(
    "ending",
    ["completed", "kept", "failed", "kept failed", "cancelled", "cancelled while it ran", "stalled", "expired"],
)
async def test_a_key_for_a_time_is_held_however_its_job_ended(engine: Store, clock: ManualClock, ending: str) -> None:
    keep: dict[str, Any] = {"keep_completed": Keep(), "keep_failed": Keep()} if ending.startswith("kept") else {}
    (first,) = await add(engine, once("a", ttl=86_400, expires=10 if ending == "expired" else None, **keep))
    match ending:
        case "cancelled":
            await engine.cancel("q", [first.id], reason="no")
        case "cancelled while it ran":
            running = await claim_one(engine)
            await engine.cancel("q", [first.id], reason="no")
            await settle(engine, running.lease, Cancelled("no"))
        case "stalled":
            await claim(engine, 1, lease=1000, max_stalls=0)
            clock.advance(1001)
            await engine.recover("q")
        case "expired":
            clock.advance(11)
            await claim(engine)
        case _:
            outcome = Failed(Failure("no")) if "failed" in ending else None
            await settle(engine, (await claim_one(engine)).lease, outcome)
    began = clock.now()

    (second,) = await add(engine, once("b", ttl=86_400))
    clock.advance(86_400_000 - 1_100)
    (third,) = await add(engine, once("b", ttl=86_400))
    clock.advance(1_100)
    (fourth,) = await add(engine, once("b", ttl=86_400))

    assert (second.outcome, second.id) == (AddOutcome.DEDUPLICATED, first.id)
    assert (third.outcome, third.id) == (AddOutcome.DEDUPLICATED, first.id)
    assert fourth.outcome is AddOutcome.ADDED
    assert clock.now() - began == 86_400_000


@pytest.mark.parametrize("ending", ["removed", "drained", "cleaned", "obliterated"])
async def test_a_key_for_a_time_is_free_when_its_job_is_removed(engine: Store, clock: ManualClock, ending: str) -> None:
    (first,) = await add(engine, once("a", ttl=86_400))
    clock.advance(1)
    match ending:
        case "removed":
            await engine.remove("q", [first.id])
        case "drained":
            await engine.drain("q", states=frozenset({State.WAITING}))
        case "cleaned":
            await engine.clean("q", state=State.WAITING, grace=0, limit=10)
        case _:
            await engine.obliterate("q", running="refuse")

    assert (await add(engine, once("b", ttl=86_400)))[0].outcome is AddOutcome.ADDED


async def test_a_job_that_is_replayed_leaves_its_key_for_a_time_alone(engine: Store, clock: ManualClock) -> None:
    (first,) = await add(engine, once("a", ttl=60))
    await settle(engine, (await claim_one(engine)).lease, Failed(Failure("no")))
    clock.advance(30_000)
    await engine.dead_letters.replay("q", [Replay(letter_id("q", first.id))])
    await settle(engine, (await claim_one(engine)).lease)

    (second,) = await add(engine, once("b", ttl=60))
    clock.advance(30_000)

    assert (second.outcome, second.id) == (AddOutcome.DEDUPLICATED, first.id)
    assert (await add(engine, once("c", ttl=60)))[0].outcome is AddOutcome.ADDED


async def test_of_two_adds_of_one_step_under_a_key_for_a_time_one_is_stored(engine: Store) -> None:
    first, second = await add(engine, once("a", ttl=60), once("b", ttl=60))

    assert (first.outcome, second.outcome, second.id) == (AddOutcome.ADDED, AddOutcome.DEDUPLICATED, first.id)
    assert names((await claim(engine)).jobs) == ["a"]
