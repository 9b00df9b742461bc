"""Engine.add: all or none, in order, a taken id answered."""

import json
from dataclasses import fields, replace
from typing import Any

import pytest

from tests.conformance.jobs import EVERY_OPTION, add, claim, claim_one, ids, job, names, new_job, settle
from toril.errors import InvalidOption, QueueFull
from toril.model import (
    KEEP_ALL,
    AddOutcome,
    Call,
    EventKind,
    JobOptions,
    Limits,
    NewJob,
    NewJobs,
    Precedence,
    SetMaxWaiting,
)
from toril.model.states import State
from toril.store.engine import Store
from toril.testing import ManualClock


@pytest.mark.covers("R016", "R038")
async def test_ids_grow_in_the_order_of_adding(engine: Store) -> None:
    first = await add(engine, NewJob(name="a"), NewJob(name="b"))
    second = await add(engine, NewJob(name="c"))

    assert [answer.id for answer in first + second] == ["1", "2", "3"]
    assert all(answer.outcome is AddOutcome.ADDED for answer in first)


@pytest.mark.covers("R017")
async def test_a_thousand_jobs_leave_in_the_order_in_which_they_came(engine: Store) -> None:
    await add(engine, *(NewJob(name="n", data=str(i)) for i in range(1000)))

    seen = []
    for _ in range(10):
        seen += [int(each.data) for each in (await claim(engine, 100)).jobs]

    assert seen == list(range(1000))


@pytest.mark.covers("R017", "R041")
@pytest.mark.parametrize("beside", [{}, {"delay": 50}, {"priority": 2}, {"id": "own"}], ids=str)
async def test_jobs_of_a_kind_are_stored_as_if_each_had_been_given(engine: Store, beside: dict[str, Any]) -> None:
    many, few = NewJob(name="many", data="0", attempts=3), NewJob(name="few", options=JobOptions(timeout=7))
    jobs = NewJobs([
        (many, ["0", "1", "2"]), (new_job("one", data="3", **beside), ["3"]), (many, ["4"]), (few, ["5", "6"]),
    ])  # fmt: skip

    answers = await engine.add("q", jobs)
    single = [answer for each in jobs for answer in await engine.add("single", [each])]
    records = await engine.jobs("q", [answer.id for answer in answers])

    assert answers == single
    assert [record.data for record in records if record] == ["0", "1", "2", "3", "4", "5", "6"]
    alone = await engine.jobs("single", [answer.id for answer in single])
    assert records == [replace(each, queue="q") for each in alone if each]
    told, apart = [
        sorted((event.kind, event.job_id) for event in (await engine.events(queue)).items) for queue in ("q", "single")
    ]
    assert told == apart


@pytest.mark.covers("R041", "R179")
async def test_a_record_holds_all_that_was_given(engine: Store, clock: ManualClock) -> None:
    given = NewJob(
        name="n",
        data='{"a": [1, "ü"]}',
        id="mine",
        priority=7,
        attempts=4,
        options=EVERY_OPTION,
        expires=60_000,
        metadata='{"actor": "x"}',
    )
    await add(engine, given)

    found = await job(engine, "mine")

    for name in ("name", "data", "priority", "options", "metadata"):
        assert getattr(found, name) == getattr(given, name), name
    assert found.max_attempts == given.attempts
    assert found.state is State.PRIORITIZED
    assert found.expires_at == clock.now() + 60_000
    assert found.added_at == clock.now()
    assert (found.attempts_made, found.stalls, found.starts, found.fence) == (0, 0, 0, 0)


def test_every_option_is_looked_at() -> None:
    plain = [field.name for field in fields(JobOptions) if getattr(EVERY_OPTION, field.name) == field.default]

    assert plain == [], "give it another value there: then it is seen where jobs are claimed, replayed and moved"


@pytest.mark.covers("R013")
async def test_a_claim_carries_what_running_needs(engine: Store, clock: ManualClock) -> None:
    await add(
        engine,
        NewJob(
            name="n",
            data="[]",
            attempts=3,
            options=EVERY_OPTION,
            metadata="{}",
        ),
    )

    claimed = await claim_one(engine)

    assert (claimed.name, claimed.data, claimed.max_attempts) == ("n", "[]", 3)
    assert claimed.options == EVERY_OPTION
    assert (claimed.metadata, claimed.checkpoint) == ("{}", None)
    assert (claimed.attempts_made, claimed.stalls, claimed.starts, claimed.fence) == (0, 0, 1, 1)
    assert claimed.added_at == clock.now()


@pytest.mark.covers("B16", "Q5", "X03", "X05")
@pytest.mark.parametrize("state", ["waiting", "active", "delayed", "completed", "failed"])
async def test_a_taken_id_is_left_as_it_stands(engine: Store, state: str) -> None:
    delay = 1000 if state == "delayed" else 0
    first = NewJob(
        name="first",
        data="1",
        id="mine",
        delay=delay,
        options=JobOptions(keep_completed=KEEP_ALL, keep_failed=KEEP_ALL, result_ttl=1000),
    )
    await add(engine, first)
    if state not in {"waiting", "delayed"}:
        claimed = await claim_one(engine)
        if state == "completed":
            await settle(engine, claimed.lease)
        elif state == "failed":
            await engine.recover("q", dead=[claimed.lease], cause="gone")
            again = await claim_one(engine, alone=True)
            await engine.recover("q", dead=[again.lease], cause="gone")

    before = await job(engine, "mine")
    (answer,) = await add(engine, NewJob(name="second", data="2", id="mine", options=JobOptions(result_ttl=60_000)))

    assert (answer.id, answer.outcome, answer.state) == ("mine", AddOutcome.DUPLICATE, State(state))
    assert await job(engine, "mine") == before
    assert (before.name, before.options.result_ttl) == ("first", 1000)


async def test_an_id_taken_within_the_same_batch_is_answered_too(engine: Store) -> None:
    first, second = await add(engine, NewJob(name="a", id="x"), NewJob(name="b", id="x"))

    assert (first.outcome, second.outcome) == (AddOutcome.ADDED, AddOutcome.DUPLICATE)
    assert names((await claim(engine)).jobs) == ["a"]


@pytest.mark.covers("R208")
async def test_an_id_is_free_again_once_its_job_is_gone(engine: Store) -> None:
    await add(engine, NewJob(name="a", id="x"))
    await settle(engine, (await claim_one(engine)).lease)

    (answer,) = await add(engine, NewJob(name="b", id="x"))

    assert answer.outcome is AddOutcome.ADDED


@pytest.mark.covers("R194", "G5")
async def test_a_delayed_job_waits_until_it_is_due(engine: Store, clock: ManualClock) -> None:
    await add(engine, NewJob(name="n", delay=500))

    early = await claim(engine)
    clock.advance(499)
    still_early = await claim(engine)
    clock.advance(1)

    assert (early.jobs, still_early.jobs) == ((), ())
    assert early.wake_at == early.now + 500
    assert len((await claim(engine)).jobs) == 1


async def test_a_due_time_is_taken_as_given(engine: Store, clock: ManualClock) -> None:
    (later, past) = await add(engine, NewJob(name="later", due=clock.now() + 100), NewJob(name="past", due=5))

    assert (later.state, past.state) == (State.DELAYED, State.WAITING)
    assert (await job(engine, later.id)).due == clock.now() + 100


@pytest.mark.covers("R198", "R177")
async def test_a_lower_number_goes_first_and_equals_in_order(engine: Store) -> None:
    await add(engine, *(NewJob(name=f"{p}{i}", priority=p) for i in "ab" for p in (5, 1, 3)))

    assert names((await claim(engine)).jobs) == ["1a", "1b", "3a", "3b", "5a", "5b"]


@pytest.mark.covers("S22")
async def test_jobs_without_a_priority_go_before_those_with_one(engine: Store) -> None:
    await add(engine, NewJob(name="urgent", priority=1), NewJob(name="plain"))

    assert names((await claim(engine)).jobs) == ["plain", "urgent"]


@pytest.mark.covers("R199", "S22")
async def test_a_queue_can_put_priorities_first(engine: Store) -> None:
    await add(engine, NewJob(name="plain"), NewJob(name="urgent", priority=2_097_151))

    taken = await claim(engine, limits=Limits(precedence=Precedence.PRIORITY_FIRST))

    assert names(taken.jobs) == ["urgent", "plain"]


async def test_last_in_first_out_goes_to_the_front(engine: Store) -> None:
    await add(engine, NewJob(name="a"), NewJob(name="b", lifo=True), NewJob(name="c", lifo=True))

    assert names((await claim(engine)).jobs) == ["c", "b", "a"]


@pytest.mark.covers("R015", "F123")
async def test_a_full_queue_refuses_the_whole_batch(engine: Store) -> None:
    await engine.configure("q", [SetMaxWaiting(3)])
    await add(engine, NewJob(name="a"), NewJob(name="b", delay=1000))

    with pytest.raises(QueueFull, match="'q' has 2 of at most 3 waiting jobs; 2 more do not fit"):
        await add(engine, NewJob(name="c"), NewJob(name="d"))

    counts = await engine.counts("q")
    assert (counts.waiting, counts.delayed) == (1, 1)
    assert (await add(engine, NewJob(name="e")))[0].outcome is AddOutcome.ADDED


async def test_running_jobs_do_not_fill_the_queue(engine: Store) -> None:
    await engine.configure("q", [SetMaxWaiting(1)])
    await add(engine, NewJob(name="a"))
    await claim(engine)

    assert (await add(engine, NewJob(name="b")))[0].outcome is AddOutcome.ADDED


@pytest.mark.covers("F121")
async def test_a_call_sent_again_adds_nothing_and_gets_the_first_answer(engine: Store) -> None:
    jobs = [NewJob(name="a"), NewJob(name="b", id="x")]
    first = await engine.add("q", jobs, call=Call("sender", 7))
    again = await engine.add("q", jobs, call=Call("sender", 7))

    assert again == first
    assert (await engine.counts("q")).waiting == 2
    assert (await engine.add("q", [NewJob(name="c")], call=Call("sender", 8)))[0].id == "3"


async def test_more_than_a_thousand_are_refused_whole(engine: Store) -> None:
    with pytest.raises(InvalidOption, match="at most 1000 jobs, not 1001"):
        await add(engine, *(NewJob(name="n") for _ in range(1001)))

    assert (await engine.counts("q")).waiting == 0


@pytest.mark.covers("B71")
async def test_adding_nothing_answers_nothing(engine: Store) -> None:
    assert await engine.add("q", []) == []


@pytest.mark.covers("R042", "R186")
async def test_each_add_has_its_events(engine: Store, clock: ManualClock) -> None:
    await add(engine, NewJob(name="n"), NewJob(name="d", delay=50), NewJob(name="x", id="x"), NewJob(name="x", id="x"))

    events = (await engine.events("q")).items

    assert [(e.kind, e.job_id) for e in events if e.kind is EventKind.ADDED] == [
        (EventKind.ADDED, "1"), (EventKind.ADDED, "2"), (EventKind.ADDED, "x"),
    ]  # fmt: skip
    assert [e.job_id for e in events if e.kind is EventKind.WAITING] == ["1", "x"]
    assert [(e.job_id, e.detail["delay"]) for e in events if e.kind is EventKind.DELAYED] == [
        ("2", str(clock.now() + 50))
    ]
    assert [e.job_id for e in events if e.kind is EventKind.DUPLICATED] == ["x"]
    assert next(e for e in events if e.job_id == "1").detail == {"name": "n"}


@pytest.mark.covers("R166", "F81", "B29")
@pytest.mark.parametrize(
    "data", ["null", "0", '""', "[]", "{}", "12345678901234567890", json.dumps("\x00\u2028😀"), "[" * 100 + "]" * 100]
)
async def test_data_comes_back_byte_for_byte(engine: Store, data: str) -> None:
    await add(engine, NewJob(name="n", data=data))

    assert (await job(engine, "1")).data == data
    assert (await claim_one(engine)).data == data


@pytest.mark.covers("R008")
async def test_queues_do_not_share_jobs_or_ids(engine: Store) -> None:
    await add(engine, NewJob(name="a", id="x"), queue="one")
    await add(engine, NewJob(name="b", id="x"), NewJob(name="c"), queue="two")

    assert names((await claim(engine, queue="one")).jobs) == ["a"]
    assert ids((await claim(engine, queue="two")).jobs) == ["x", "2"]
    assert await engine.queues() == ["one", "two"]


async def test_what_is_sent_for_tracing_reaches_whoever_runs_the_job(engine: Store) -> None:
    carrier = '{"traceparent":"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}'
    await add(engine, NewJob(name="n", trace=carrier), NewJob(name="n", trace=carrier, delay=5, attempts=3))
    await add(engine, NewJob(name="n"))

    plain = (await claim(engine)).jobs
    assert [job.trace for job in plain] == [carrier, None]
