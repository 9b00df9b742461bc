"""Signals: kept before anybody waits, received once and in order, and never slept through."""

import asyncio
from collections.abc import Sequence
from itertools import count
from typing import Any

import pytest

from tests.conformance.dumps import dump
from tests.conformance.jobs import LEASE, add, claim, claim_one, ids, job, new_job, settle
from tests.conformance.stepping import (
    WHY,
    all_rows,
    at_rest,
    recorded,
    report,
    resting,
    row,
    running,
    sleep,
    steps_of,
    wait,
    write,
)
from toril.codec.steps import load_received
from toril.errors import CallTooLate, InvalidName, InvalidOption, PayloadTooLarge
from toril.model import (
    KEEP_ALL,
    MAX_INBOX,
    MAX_INBOX_BYTES,
    MAX_KEPT_SIGNALS,
    MAX_SENT_IDS,
    MAX_SIGNAL,
    MAX_STEPS,
    RECORDED_AT_ONCE,
    SIGNAL_IDS,
    Call,
    Completed,
    DeliveredSignal,
    EventKind,
    Failed,
    Lease,
    NewSignal,
    Pause,
    Released,
    Replay,
    Retried,
    SentId,
    SignalOutcome,
    SignalRow,
    SignalWait,
    Snoozed,
    StepAnswer,
    StepVerdict,
    TransferBatch,
    TransferSettings,
    letter_id,
)
from toril.model.states import State
from toril.store.engine import Store
from toril.testing import ManualClock

DUPLICATE, ENDED, FULL = SignalOutcome.DUPLICATE, SignalOutcome.ENDED, SignalOutcome.FULL
KEPT, MISSING, NOT_WAITING = SignalOutcome.KEPT, SignalOutcome.MISSING, SignalOutcome.NOT_WAITING
WOKEN = SignalOutcome.WOKEN
_senders = count(1)


def a_call() -> Call:
    return Call(f"sender-{next(_senders)}", 1)


async def deliver(
    engine: Store, *signals: NewSignal, queue: str = "q", call: Call | None = None
) -> list[SignalOutcome]:
    return [each.outcome for each in await steps_of(engine).deliver(queue, signals, call=call)]


async def send(engine: Store, job_id: str, name: str = "ok", payload: str = "true", **given: Any) -> SignalOutcome:
    """One signal to a job."""
    (outcome,) = await deliver(engine, NewSignal(name=name, payload=payload, job_id=job_id, **given))
    return outcome


async def post(engine: Store, key: str, name: str = "ok", payload: str = "true", **given: Any) -> SignalOutcome:
    """One signal by key."""
    (outcome,) = await deliver(engine, NewSignal(name=name, payload=payload, key=key, **given))
    return outcome


async def receive(
    engine: Store, lease: Lease, *names: str, key: str = "w", by: str | None = None, call: Call | None = None
) -> StepAnswer:
    waits = [SignalWait(name, by) for name in names or ("ok",)]
    return await steps_of(engine).receive(lease, key, waits, call=call)


async def payload(engine: Store, lease: Lease, *names: str, key: str = "w", by: str | None = None) -> str | None:
    """Receive one signal, which is there, and tell its payload; None if the time was over."""
    answer = await receive(engine, lease, *names, key=key, by=by)
    assert answer.verdict is StepVerdict.OK
    found = await row(engine, lease.id, key, queue=lease.queue)
    assert found is not None
    assert answer.row == (await all_rows(engine, lease.id, queue=lease.queue))[key]
    received = load_received(found.text)
    return None if received is None else received.payload


async def unread(engine: Store, job_id: str, **given: Any) -> list[str]:
    return [each.payload for each in await steps_of(engine).inbox("q", job_id, **given)]


@pytest.mark.covers("R272")
async def test_a_signal_is_kept_until_somebody_waits_for_it(step_engine: Store, clock: ManualClock) -> None:
    lease = (await running(step_engine)).lease
    assert await send(step_engine, lease.id, payload='{"a": 1}', id="x") is KEPT
    (signal,) = await steps_of(step_engine).inbox("q", lease.id)
    assert (signal.name, signal.payload, signal.at, signal.id, signal.key, signal.until) == (
        "ok", '{"a": 1}', clock.now(), "x", None, None,
    )  # fmt: skip
    clock.advance(5)

    answer = await receive(step_engine, lease)

    text = f'w 1 {clock.now()} 0 - 0.0 - ["ok",null] {{"a": 1}}'
    assert answer == StepAnswer(StepVerdict.OK, clock.now(), text, 1, len("w") + len(text))
    assert await all_rows(step_engine, lease.id) == {"w": text}
    assert await unread(step_engine, lease.id) == []


async def test_nothing_that_came_is_no_row(step_engine: Store, clock: ManualClock) -> None:
    lease = (await running(step_engine)).lease
    await send(step_engine, lease.id, "other")
    before = await dump(step_engine)

    assert await receive(step_engine, lease) == StepAnswer(StepVerdict.OK, clock.now())
    assert await dump(step_engine) == before


async def test_signals_are_received_once_and_in_order(step_engine: Store, clock: ManualClock) -> None:
    lease = (await running(step_engine)).lease
    for n in range(3):
        await send(step_engine, lease.id, payload=str(n))
        clock.advance(1)
    await send(step_engine, lease.id, payload="3")
    await send(step_engine, lease.id, payload="4")

    assert [await payload(step_engine, lease, key=f"w{n}") for n in range(5)] == ["0", "1", "2", "3", "4"]
    assert (await receive(step_engine, lease, key="w5")).row is None


async def test_the_oldest_of_several_names_is_received(step_engine: Store, clock: ManualClock) -> None:
    lease = (await running(step_engine)).lease
    for name in ("c", "b", "a"):
        await send(step_engine, lease.id, name, f'"{name}"')
        clock.advance(1)

    received = [
        await payload(step_engine, lease, "a", "b", key="w"),
        await payload(step_engine, lease, "a", "b", key="v"),
    ]

    assert received == ['"b"', '"a"']
    assert await unread(step_engine, lease.id) == ['"c"']


@pytest.mark.parametrize(
    "text",
    ["5.0", "1e400", "123456789012345678901234567890", '"käse 🧀"', "[ 1 , 2 ]", '{"b":1,"a":2}', '" \\u2028\\n"'],
)
async def test_a_payload_comes_to_the_letter(step_engine: Store, text: str) -> None:
    lease = (await running(step_engine)).lease
    await send(step_engine, lease.id, payload=text)
    await post(step_engine, "key / with: 'signs' \"ä\"", "kept", text)

    assert await payload(step_engine, lease) == text
    assert await payload(step_engine, lease, "kept", key="v", by="key / with: 'signs' \"ä\"") == text


async def test_a_second_receive_answers_the_first(step_engine: Store) -> None:
    lease, call = (await running(step_engine)).lease, a_call()
    await send(step_engine, lease.id, payload="1")
    await send(step_engine, lease.id, payload="2")

    first = await receive(step_engine, lease, call=call)

    assert await receive(step_engine, lease, call=call) == first
    assert (await receive(step_engine, lease)).row == first.row
    assert await unread(step_engine, lease.id) == ["2"]
    with pytest.raises(CallTooLate):
        await receive(step_engine, lease, call=Call(call.sender, 0))
    await settle(step_engine, lease, Released())
    assert (await receive(step_engine, lease, call=call)).verdict is StepVerdict.LOST


@pytest.mark.parametrize(("kind", "text", "given"), [("d", "1", {}), ("z", "", {"delay": 0}), ("v", "1", {})])
async def test_what_else_is_recorded_under_the_key_is_the_answer(
    step_engine: Store, kind: str, text: str, given: dict[str, Any]
) -> None:
    lease = (await running(step_engine)).lease
    await write(step_engine, lease, "w", kind, text, **given)
    await send(step_engine, lease.id)

    answer = await receive(step_engine, lease)

    assert {"w": answer.row} == await all_rows(step_engine, lease.id)
    assert await unread(step_engine, lease.id) == ["true"]


@pytest.mark.parametrize("kind", ["e", "t"])
async def test_a_failure_under_the_key_gives_way(step_engine: Store, kind: str) -> None:
    lease = (await running(step_engine)).lease
    await write(step_engine, lease, "w", kind, '[1,"K",""]', **({"delay": 5} if kind == "t" else {}))
    await send(step_engine, lease.id)

    assert await payload(step_engine, lease) == "true"


async def test_that_the_time_is_over_is_recorded(step_engine: Store, clock: ManualClock) -> None:
    lease = (await running(step_engine)).lease
    await write(step_engine, lease, "w", "p", '[["ok",null]]', delay=100)
    until = clock.now() + 100
    clock.advance(99)
    assert (await receive(step_engine, lease)).row is None
    clock.advance(1)

    answer = await receive(step_engine, lease)

    assert answer.row == f"w 2 {clock.now()} 0 - 0.0 {until} null"
    await send(step_engine, lease.id)
    assert (await receive(step_engine, lease)).row == answer.row
    assert await unread(step_engine, lease.id) == ["true"]


async def test_a_signal_that_is_there_when_the_time_is_over_counts(step_engine: Store, clock: ManualClock) -> None:
    lease = (await running(step_engine)).lease
    await write(step_engine, lease, "w", "p", '[["ok",null]]', delay=100)
    clock.advance(200)
    await send(step_engine, lease.id)

    assert await payload(step_engine, lease) == "true"
    found = await row(step_engine, lease.id, "w")
    assert found is not None
    assert found.until == clock.now() - 100


async def test_without_a_time_nothing_is_over(step_engine: Store, clock: ManualClock) -> None:
    lease = (await running(step_engine)).lease
    clock.advance(LEASE - 1)
    assert (await receive(step_engine, lease, key="none")).row is None
    await write(step_engine, lease, "w", "p", '[["ok",null]]')
    assert (await receive(step_engine, lease)).row is None


async def test_a_signal_that_did_not_fit_is_set_aside(step_engine: Store, clock: ManualClock) -> None:
    lease = (await running(step_engine)).lease
    await write(step_engine, lease, "w", "p", '[["ok",null]]', delay=100)
    until = clock.now() + 100
    await send(step_engine, lease.id, payload='"typo"')
    await receive(step_engine, lease)
    clock.advance(50)

    (answer,) = await recorded(step_engine, report(lease, "w", "p", '[["ok",null]]', until=until))

    text = f'p 3 {clock.now()} 0 - 0.0 {until} [["ok",null]]'
    assert (answer.row, answer.bytes) == (text, 1 + len(text))
    await send(step_engine, lease.id, payload="1")
    assert await payload(step_engine, lease) == "1"


@pytest.mark.covers("R272")
async def test_an_id_makes_a_second_signal_harmless(step_engine: Store) -> None:
    lease, other = (await running(step_engine)).lease, (await running(step_engine)).lease

    assert await send(step_engine, lease.id, payload="1", id="x") is KEPT
    assert await send(step_engine, lease.id, payload="2", id="x") is DUPLICATE
    assert await send(step_engine, lease.id, "another", id="x", only_if_waiting=True) is DUPLICATE
    assert await send(step_engine, other.id, id="x") is KEPT
    assert await payload(step_engine, lease) == "1"
    assert await send(step_engine, lease.id, payload="3", id="x") is DUPLICATE
    assert await unread(step_engine, lease.id) == []


async def test_a_job_remembers_a_thousand_ids(step_engine: Store) -> None:
    lease = (await running(step_engine)).lease
    for at in range(0, SIGNAL_IDS + 1, 91):
        size = min(91, SIGNAL_IDS + 1 - at)
        many = [NewSignal(name="ok", job_id=lease.id, id=f"id-{n}") for n in range(at, at + size)]
        assert await deliver(step_engine, *many) == [KEPT] * size
        for n in range(at, at + size):
            await receive(step_engine, lease, key=f"w{n}")

    assert await send(step_engine, lease.id, id="id-1") is DUPLICATE
    assert await send(step_engine, lease.id, id="id-0") is KEPT


async def test_a_job_that_rests_for_a_signal_is_woken_by_it(step_engine: Store, clock: ManualClock) -> None:
    lease = (await running(step_engine)).lease
    await resting(step_engine, lease, wait("no", "ok", delay=500), sleep("s", 900))
    await add(step_engine, new_job("behind"))
    await claim(step_engine, 0)
    before = (await step_engine.events("q")).items

    assert await send(step_engine, lease.id) is WOKEN

    found = await job(step_engine, lease.id)
    assert (found.state, found.rest, found.due) == (State.WAITING, None, None)
    assert await at_rest(step_engine) == []
    counts = await step_engine.counts("q")
    assert (counts.delayed, counts.resting, counts.waiting) == (0, 0, 2)
    (event,) = (await step_engine.events("q")).items[len(before) :]
    assert (event.kind, event.job_id, event.detail["prev"]) == (EventKind.WAITING, lease.id, "delayed")
    assert await send(step_engine, lease.id, "no") is KEPT, "it rests no more"
    assert ids((await claim(step_engine)).jobs)[0] == lease.id
    assert await unread(step_engine, lease.id) == ["true", "true"]


async def test_a_worker_that_waits_hears_of_a_signal(step_engine: Store) -> None:
    lease = (await running(step_engine)).lease
    await resting(step_engine, lease, wait("ok"))
    await claim(step_engine)
    waiting = asyncio.create_task(step_engine.wait(["q"], timeout=10_000))
    await asyncio.sleep(0)

    await send(step_engine, lease.id)

    assert await waiting == {"q"}


async def test_only_a_job_that_rests_for_it_is_moved_by_a_signal(step_engine: Store, clock: ManualClock) -> None:
    run = await running(step_engine)
    await add(step_engine, new_job("waiting"), new_job("later", delay=900))
    backoff, snoozed = (await claim(step_engine, 1)).jobs[0], await running(step_engine, attempts=2)
    await settle(step_engine, backoff.lease, Snoozed(800))
    await settle(step_engine, snoozed.lease, Retried(WHY, 800))
    other, by_key = await running(step_engine), await running(step_engine)
    await resting(step_engine, other.lease, wait("other"))
    await resting(step_engine, by_key.lease, wait("ok", by="k"))
    await add(step_engine, new_job("ready"))
    every = [str(n) for n in range(1, 8)]
    before = [(found.state, found.due, found.rest) for found in await step_engine.jobs("q", every) if found]

    for each in every:
        assert await send(step_engine, each) is KEPT

    after = [(found.state, found.due, found.rest) for found in await step_engine.jobs("q", every) if found]
    assert after == before
    assert run.lease.id == "1"
    assert await at_rest(step_engine) == [other.lease.id, by_key.lease.id]


async def test_a_signal_may_be_refused_unless_a_job_rests_for_it(step_engine: Store) -> None:
    lease = (await running(step_engine)).lease
    assert await send(step_engine, lease.id, only_if_waiting=True) is NOT_WAITING
    assert await post(step_engine, "k", only_if_waiting=True) is NOT_WAITING
    await resting(step_engine, lease, wait("ok"), wait("ok", key="by", by="k"))
    assert await send(step_engine, lease.id, "other", only_if_waiting=True) is NOT_WAITING
    assert await unread(step_engine, lease.id) == []

    assert await send(step_engine, lease.id, only_if_waiting=True) is WOKEN
    assert await send(step_engine, lease.id, only_if_waiting=True) is NOT_WAITING


async def test_a_signal_to_a_job_that_has_ended_or_is_gone(step_engine: Store) -> None:
    for outcome in (Completed(), Failed(WHY)):
        kept = (await running(step_engine, keep_completed=KEEP_ALL, keep_failed=KEEP_ALL)).lease
        await settle(step_engine, kept, outcome)
        assert await send(step_engine, kept.id) is ENDED
    dead = (await running(step_engine)).lease
    await settle(step_engine, dead, Failed(WHY))
    assert await send(step_engine, dead.id) is ENDED
    gone = (await running(step_engine)).lease
    await settle(step_engine, gone)
    before = await dump(step_engine)

    assert await send(step_engine, gone.id) is MISSING
    assert await deliver(step_engine, NewSignal(name="ok", job_id="1"), queue="nowhere") == [MISSING]
    assert await dump(step_engine) == before


async def test_an_inbox_has_room_for_a_hundred_signals(step_engine: Store) -> None:
    lease = (await running(step_engine)).lease
    assert await deliver(step_engine, *[NewSignal(name="ok", job_id=lease.id)] * MAX_INBOX) == [KEPT] * MAX_INBOX
    assert await send(step_engine, lease.id) is FULL
    await receive(step_engine, lease)
    assert await send(step_engine, lease.id, id="x") is KEPT
    assert await send(step_engine, lease.id, id="x") is DUPLICATE, "which comes before its being full"


async def test_an_inbox_has_room_for_a_megabyte(step_engine: Store) -> None:
    lease = (await running(step_engine)).lease
    large = f'"{"é" * (MAX_SIGNAL // 2 - 1)}"'
    for _ in range(MAX_INBOX_BYTES // MAX_SIGNAL):
        assert await send(step_engine, lease.id, payload=large) is KEPT
    assert await send(step_engine, lease.id) is FULL
    with pytest.raises(PayloadTooLarge):
        NewSignal(name="ok", job_id="1", payload=large + "é")


@pytest.mark.parametrize("by", [None, "k"])
async def test_what_a_job_rests_for_reaches_it_however_full_its_inbox_is(step_engine: Store, by: str | None) -> None:
    async def deliver_one(text: str) -> SignalOutcome:
        to: dict[str, Any] = {"job_id": lease.id} if by is None else {"key": by}
        (outcome,) = await deliver(step_engine, NewSignal(name="ok", payload=text, **to))
        return outcome

    lease = (await running(step_engine)).lease
    for name in ("many", "large"):
        text = f'"{"x" * (MAX_SIGNAL - 2)}"' if name == "large" else "true"
        while await send(step_engine, lease.id, name, text) is KEPT:
            pass
        there = len(await unread(step_engine, lease.id))
        await resting(step_engine, lease, wait("ok", key=f"w-{name}", by=by))
        assert await send(step_engine, lease.id, name, text) is FULL, "it rests for another"

        assert await deliver_one('"wakes"') is WOKEN
        assert await deliver_one('"one more"') is FULL, "it rests no more"

        assert len(await unread(step_engine, lease.id)) == there + 1
        lease = (await claim_one(step_engine)).lease
        assert await payload(step_engine, lease, key=f"w-{name}", by=by) == '"wakes"'
        if name == "many":
            for n in range(there):
                await receive(step_engine, lease, "many", key=f"many-{n}")


@pytest.mark.covers("R273")
async def test_a_signal_by_key_is_kept_for_whoever_will_wait(step_engine: Store, clock: ManualClock) -> None:
    lease = (await running(step_engine)).lease
    (kept,) = await steps_of(step_engine).deliver("q", [NewSignal(name="ok", key="k", payload="1", id="x")])
    assert kept == DeliveredSignal(KEPT, None)
    assert await post(step_engine, "k", payload="2", id="x") is DUPLICATE
    assert await post(step_engine, "k", "other", payload="3", id="x") is KEPT
    assert (await receive(step_engine, lease)).row is None, "it was sent by a key"
    assert (await receive(step_engine, lease, key="v", by="other")).row is None

    assert await payload(step_engine, lease, by="k") == "1"
    assert await send(step_engine, lease.id, id="x") is DUPLICATE, "the job remembers its id"
    assert (await receive(step_engine, lease, key="u", by="k")).row is None


async def test_a_kept_signal_ends_with_its_ttl(step_engine: Store, clock: ManualClock) -> None:
    await post(step_engine, "k", payload='"tell-tale"', ttl=1_000, id="x")
    clock.advance(1_000)
    lease = (await running(step_engine)).lease

    assert (await receive(step_engine, lease, by="k")).row is None
    assert await resting(step_engine, lease, wait("ok", by="other")) is not None
    assert await post(step_engine, "new", id="x") is KEPT
    assert await step_engine.prune("q") >= 1
    assert not [line for lines in (await dump(step_engine)).values() for line in lines if "tell-tale" in line]


@pytest.mark.covers("R272")
@pytest.mark.parametrize("reader", ["later", "runs", "rests", "ended"])
async def test_an_id_makes_a_second_signal_by_key_harmless_after_the_first_was_read(
    step_engine: Store, clock: ManualClock, reader: str
) -> None:
    lease = (await running(step_engine)).lease
    if reader == "rests":
        await resting(step_engine, lease, wait("ok", by="k"))
    elif reader == "runs":
        await receive(step_engine, lease, by="k")
    assert await post(step_engine, "k", payload="1", id="tell-tale", ttl=1_000) is (
        WOKEN if reader == "rests" else KEPT
    )
    lease = (await claim_one(step_engine)).lease if reader == "rests" else lease
    assert await payload(step_engine, lease, by="k") == "1"
    if reader == "ended":
        await settle(step_engine, lease)

    clock.advance(999)
    assert await post(step_engine, "k", payload="2", id="tell-tale") is DUPLICATE
    assert await post(step_engine, "k", id="tell-tale", only_if_waiting=True) is DUPLICATE
    other = (await running(step_engine)).lease
    await resting(step_engine, other, wait("ok", by="k"))
    (answer,) = await steps_of(step_engine).deliver("q", [NewSignal(name="ok", key="k", payload="3", id="tell-tale")])
    assert answer == DeliveredSignal(DUPLICATE, other.id)
    assert (await job(step_engine, other.id)).state is State.DELAYED
    assert await post(step_engine, "another", id="tell-tale") is KEPT
    assert await post(step_engine, "k", "another", id="tell-tale") is KEPT

    clock.advance(1)
    assert await post(step_engine, "k", payload="4", id="tell-tale") is WOKEN, "its ttl is over"
    assert await post(step_engine, "k", payload="5", id="tell-tale") is DUPLICATE


async def test_the_ids_of_signals_by_key_are_forgotten_with_their_ttl(step_engine: Store, clock: ManualClock) -> None:
    for n in range(3):
        lease = (await running(step_engine)).lease
        await post(step_engine, "k", id=f"tell-tale-{n}", ttl=1_000)
        await receive(step_engine, lease, by="k")
        await settle(step_engine, lease)
    clock.advance(999)
    await step_engine.prune("q")
    assert await post(step_engine, "k", id="tell-tale-0") is DUPLICATE
    clock.advance(1)

    assert await step_engine.prune("q", limit=2) >= 2
    assert await step_engine.prune("q", limit=2) >= 1
    assert not [line for lines in (await dump(step_engine)).values() for line in lines if "tell-tale" in line]


async def test_the_id_of_a_signal_that_was_refused_is_not_known(step_engine: Store) -> None:
    assert await post(step_engine, "k", id="x", only_if_waiting=True) is NOT_WAITING
    lease = (await running(step_engine)).lease
    await receive(step_engine, lease, by="k")
    await deliver(step_engine, *[NewSignal(name="other", job_id=lease.id)] * MAX_INBOX)
    assert await post(step_engine, "k", id="x") is FULL
    await receive(step_engine, lease, "other", key="o")

    assert await post(step_engine, "k", id="x") is KEPT


async def test_a_queue_remembers_fifty_thousand_ids(step_engine: Store, clock: ManualClock) -> None:
    until = clock.now() + 1_000
    ids_before = tuple(SentId("ok", "k", f"id-{n}", until + n) for n in range(MAX_SENT_IDS))
    settings = TransferSettings(
        queue="q", paused=False, concurrency=None, rate=None, max_waiting=None, held_till=None, groups_set=None,
        groups_declared=None, groups={}, numbers=0, fences=0, sent_ids=ids_before,
    )  # fmt: skip
    to = await step_engine.transfers.store_id()
    await step_engine.transfers.import_batch(TransferBatch(1, "mark", to, (settings,)), sender="other")
    assert await post(step_engine, "k", id="id-0") is DUPLICATE

    assert await post(step_engine, "k", id="new", ttl=1) is KEPT, "what is remembered is not kept"

    assert await post(step_engine, "k", id="id-1") is DUPLICATE
    assert await post(step_engine, "k", id="new") is DUPLICATE
    assert await post(step_engine, "k", id="id-0") is KEPT


async def test_a_queue_keeps_ten_thousand_signals(step_engine: Store, clock: ManualClock) -> None:
    for at in range(0, MAX_KEPT_SIGNALS, 100):
        many = [NewSignal(name="ok", key=f"k{n}", ttl=1_000) for n in range(at, at + 100)]
        assert await deliver(step_engine, *many) == [KEPT] * 100
    assert await post(step_engine, "more") is FULL
    clock.advance(1_000)
    assert await post(step_engine, "more") is KEPT, "those that are over do not count"


@pytest.mark.covers("R273")
async def test_a_signal_by_key_goes_to_the_job_that_waits_for_it(step_engine: Store) -> None:
    lease = (await running(step_engine)).lease
    assert (await receive(step_engine, lease, by="k")).row is None  # from now on it is sent here
    (answer,) = await steps_of(step_engine).deliver("q", [NewSignal(name="ok", key="k", payload="1", id="x")])
    assert answer == DeliveredSignal(KEPT, lease.id)
    (signal,) = await steps_of(step_engine).inbox("q", lease.id)
    assert (signal.name, signal.key, signal.id, signal.payload) == ("ok", "k", "x", "1")
    assert await payload(step_engine, lease, by="k") == "1"

    found = await resting(step_engine, lease, wait("ok", key="v", by="k"))
    assert found.state is State.DELAYED
    (answer,) = await steps_of(step_engine).deliver("q", [NewSignal(name="ok", key="k", payload="2")])
    assert answer == DeliveredSignal(WOKEN, lease.id)
    assert await payload(step_engine, (await claim_one(step_engine)).lease, key="v", by="k") == "2"


@pytest.mark.parametrize("end", ["received", "over", "completed", "kept", "failed", "removed", "cancelled"])
async def test_one_job_at_a_time_waits_for_a_key(step_engine: Store, clock: ManualClock, end: str) -> None:
    keep: dict[str, Any] = {"keep_completed": KEEP_ALL} if end == "kept" else {}
    lease = (await running(step_engine, **keep)).lease
    other = (await running(step_engine)).lease
    await write(step_engine, lease, "w", "p", '[["ok","k"]]', delay=100)
    await receive(step_engine, lease, by="k")
    assert (await receive(step_engine, other, by="k")).verdict is StepVerdict.CLASH
    assert (await receive(step_engine, other, "another", by="k")).verdict is StepVerdict.OK
    assert (await receive(step_engine, lease, by="k")).verdict is StepVerdict.OK

    match end:
        case "received":
            await post(step_engine, "k")
            await receive(step_engine, lease, by="k")
        case "over":
            clock.advance(100)
            await receive(step_engine, lease, by="k")
        case "completed" | "kept":
            await settle(step_engine, lease)
        case "failed":
            await settle(step_engine, lease, Failed(WHY))
        case "removed":
            await settle(step_engine, lease, Released())
            await step_engine.remove("q", [lease.id])
        case "cancelled":
            await settle(step_engine, lease, Released())
            await step_engine.cancel("q", [lease.id], reason="no")
        case _:
            raise AssertionError(end)

    assert (await receive(step_engine, other, by="k")).verdict is StepVerdict.OK


async def test_a_job_does_not_rest_for_a_key_that_goes_to_another(step_engine: Store) -> None:
    first, second = (await running(step_engine)).lease, (await running(step_engine)).lease
    await resting(step_engine, first, wait("ok", by="k"))

    found = await resting(step_engine, second, wait("ok", by="k"))

    assert (found.state, found.rest) == (State.WAITING, None)
    lease = (await claim_one(step_engine)).lease
    assert (await receive(step_engine, lease, by="k")).verdict is StepVerdict.CLASH


async def test_a_job_does_not_rest_for_a_signal_that_has_come(step_engine: Store) -> None:
    lease = (await running(step_engine)).lease
    await send(step_engine, lease.id)
    found = await resting(step_engine, lease, wait("ok"))
    assert (found.state, found.rest) == (State.WAITING, None)

    lease = (await claim_one(step_engine)).lease
    assert await payload(step_engine, lease) == "true"
    await post(step_engine, "k", "kept")
    found = await resting(step_engine, lease, wait("kept", key="v", by="k"), sleep())
    assert (found.state, found.rest) == (State.WAITING, None)
    lease = (await claim_one(step_engine)).lease
    assert await payload(step_engine, lease, "kept", key="v", by="k") == "true"


async def test_kept_signals_come_before_those_in_the_inbox(step_engine: Store, clock: ManualClock) -> None:
    lease = (await running(step_engine)).lease
    for n in range(2):
        await post(step_engine, "k", payload=f'"kept {n}"')
        clock.advance(1)
    await receive(step_engine, lease, "other", key="o", by="k")
    await send(step_engine, lease.id, "direct", '"direct"')
    await receive(step_engine, lease, "ok", key="w0", by="k")
    await steps_of(step_engine).receive(lease, "again", [SignalWait("ok", "k"), SignalWait("direct")])
    await write(step_engine, lease, "x", "p", '[["ok","k"]]')
    await receive(step_engine, lease, key="x", by="k")
    await post(step_engine, "k", payload='"inbox"')

    assert await payload(step_engine, lease, key="w0", by="k") == '"kept 0"'
    assert await payload(step_engine, lease, key="again", by="k") == '"kept 1"'
    assert await payload(step_engine, lease, key="x", by="k") == '"inbox"'
    assert await payload(step_engine, lease, "direct", key="d") == '"direct"'


async def test_what_nobody_has_read_stays_with_a_failed_job_and_goes_with_a_completed_one(step_engine: Store) -> None:
    kept = (await running(step_engine, keep_completed=KEEP_ALL)).lease
    await send(step_engine, kept.id, payload='"tell-tale"')
    await settle(step_engine, kept)
    assert await unread(step_engine, kept.id) == []
    assert not [line for lines in (await dump(step_engine)).values() for line in lines if "tell-tale" in line]

    failed = (await running(step_engine, keep_failed=KEEP_ALL)).lease
    await send(step_engine, failed.id, payload="1", id="x")
    await settle(step_engine, failed, Failed(WHY))
    assert await unread(step_engine, failed.id) == ["1"]
    await step_engine.retry("q", [failed.id])
    assert await payload(step_engine, (await claim_one(step_engine)).lease) == "1"

    dead = (await running(step_engine)).lease
    await send(step_engine, dead.id, payload="2", id="x")
    await settle(step_engine, dead, Failed(WHY))
    assert await unread(step_engine, dead.id) == []
    assert await unread(step_engine, dead.id, where="dead_letters") == ["2"]
    await step_engine.dead_letters.replay("q", [Replay(letter_id("q", dead.id))])
    assert await send(step_engine, dead.id, id="x") is DUPLICATE
    assert await payload(step_engine, (await claim_one(step_engine)).lease) == "2"


async def test_without_the_lease_nothing_is_received(step_engine: Store, clock: ManualClock) -> None:
    lease = (await running(step_engine)).lease
    await send(step_engine, lease.id)
    before = await dump(step_engine)

    for bad, verdict in (
        (Lease("q", lease.id, "no"), StepVerdict.LOST), (Lease("q", "77", lease.token), StepVerdict.MISSING),
        (Lease("nowhere", "1", lease.token), StepVerdict.MISSING),
    ):  # fmt: skip
        assert await receive(step_engine, bad, by="k") == StepAnswer(verdict, clock.now())
    assert await dump(step_engine) == before
    clock.advance(LEASE)
    assert (await receive(step_engine, lease)).verdict is StepVerdict.LOST
    assert await unread(step_engine, lease.id) == ["true"]


async def test_a_job_without_room_for_the_row_leaves_the_signal(step_engine: Store) -> None:
    lease = (await running(step_engine)).lease
    for at in range(0, MAX_STEPS, RECORDED_AT_ONCE):
        await recorded(step_engine, *(report(lease, f"k{n}") for n in range(at, at + RECORDED_AT_ONCE)))
    await send(step_engine, lease.id)

    answer = await receive(step_engine, lease)

    assert (answer.verdict, answer.row) == (StepVerdict.FULL, None)
    assert await unread(step_engine, lease.id) == ["true"]


async def test_a_delivery_that_is_sent_again_is_made_once(step_engine: Store) -> None:
    lease = (await running(step_engine)).lease
    await resting(step_engine, lease, wait("ok"))
    call = a_call()
    signals = [NewSignal(name="ok", job_id=lease.id), NewSignal(name="ok", key="k"), NewSignal(name="ok", job_id="77")]
    first = await steps_of(step_engine).deliver("q", signals, call=call)
    before = await dump(step_engine)

    assert await steps_of(step_engine).deliver("q", signals, call=call) == first
    assert [each.outcome for each in first] == [WOKEN, KEPT, MISSING]
    assert await dump(step_engine) == before
    with pytest.raises(CallTooLate):
        await steps_of(step_engine).deliver("q", signals, call=Call(call.sender, 0))


async def test_a_paused_queue_wakes_nobody_but_keeps_what_comes(step_engine: Store) -> None:
    lease = (await running(step_engine)).lease
    await resting(step_engine, lease, wait("ok"))
    await step_engine.configure("q", [Pause()])

    assert await send(step_engine, lease.id) is WOKEN
    assert (await claim(step_engine)).jobs == ()
    assert (await job(step_engine, lease.id)).state is State.WAITING


async def test_signals_of_one_batch_are_sent_in_order(step_engine: Store) -> None:
    one, two = (await running(step_engine)).lease, (await running(step_engine)).lease
    await resting(step_engine, one, wait("ok"))
    await resting(step_engine, two, wait("ok", by="k"))

    outcomes = await deliver(
        step_engine,
        NewSignal(name="ok", job_id=one.id, payload="1", id="x"),
        NewSignal(name="ok", job_id=one.id, payload="2", id="x"),
        NewSignal(name="ok", job_id=one.id, payload="3"),
        NewSignal(name="ok", key="k", payload="4"),
        NewSignal(name="ok", key="k", payload="5"),
        NewSignal(name="ok", key="free", payload="6", id="y"),
        NewSignal(name="ok", key="free", payload="7", id="y"),
    )

    assert outcomes == [WOKEN, DUPLICATE, KEPT, WOKEN, KEPT, KEPT, DUPLICATE]
    assert await unread(step_engine, one.id) == ["1", "3"]
    assert await unread(step_engine, two.id) == ["4", "5"]
    assert ids((await claim(step_engine)).jobs) == [two.id, one.id], "each goes to the very front"


async def test_what_is_no_signal_is_refused(step_engine: Store) -> None:
    lease = (await running(step_engine)).lease
    with pytest.raises(InvalidOption, match="at most 100 signals"):
        await deliver(step_engine, *[NewSignal(name="ok", job_id=lease.id)] * 101)
    with pytest.raises(InvalidName):
        await steps_of(step_engine).receive(lease, "", [SignalWait("ok")])
    with pytest.raises(InvalidOption):
        await steps_of(step_engine).receive(lease, "w", [SignalWait("ok")], digest="no")
    assert await deliver(step_engine) == []


async def test_signals_go_with_their_job(step_engine: Store) -> None:
    def traces(dumped: dict[str, list[str]]) -> Sequence[str]:
        return [line for lines in dumped.values() for line in lines if "tell-tale" in line]

    lease = (await running(step_engine)).lease
    await send(step_engine, lease.id, payload='"tell-tale"', id="tell-tale")
    await send(step_engine, lease.id, "other", payload='"tell-tale"')
    await receive(step_engine, lease, by="tell-tale")
    await post(step_engine, "tell-tale-too", payload='"tell-tale"', id="tell-tale")
    other = (await running(step_engine)).lease
    await receive(step_engine, other, by="tell-tale-too")
    await post(step_engine, "tell-tale-3", payload='"tell-tale"')
    await settle(step_engine, other)
    await settle(step_engine, lease, Released())
    await step_engine.remove("q", [lease.id])
    assert len(traces(await dump(step_engine))) >= 1, "what is kept by key belongs to the queue"
    await step_engine.obliterate("q")
    assert traces(await dump(step_engine)) == []


async def test_an_inbox_of_nobody_is_empty(step_engine: Store) -> None:
    found: list[list[SignalRow]] = [
        await steps_of(step_engine).inbox("q", "77"), await steps_of(step_engine).inbox("nowhere", "1"),
        await steps_of(step_engine).inbox("q", "77", where="dead_letters"),
    ]  # fmt: skip
    assert found == [[], [], []]
