"""Dead letters: written by the step that ends a job, kept until someone acts, and moved back whole."""

from dataclasses import replace
from typing import Any

import pytest

from tests.conformance.dumps import unchanged
from tests.conformance.jobs import EVERY_OPTION, add, claim, claim_one, job, settle
from toril import InvalidOption
from toril.model import (
    KEEP_ALL,
    REMOVE,
    Backoff,
    Call,
    Cancelled,
    Cause,
    Checkpoint,
    Completed,
    ControlResult,
    DeadLetterRow,
    Failed,
    Failure,
    JobOptions,
    Keep,
    NewJob,
    Refused,
    Replay,
    Retried,
    RunStatus,
    Verdict,
    letter_id,
    letter_parts,
)
from toril.model.states import State
from toril.store.engine import Store
from toril.testing import ManualClock

WHY = Failure("no such user", "LookupError", "Traceback: here")
GREET = NewJob(
    name="greet",
    data='{"user": 7}',
    id="own",
    attempts=2,
    priority=3,
    metadata='{"a": 1}',
    options=replace(EVERY_OPTION, keep_failed=REMOVE),
)


async def failed(engine: Store, *jobs: NewJob, queue: str = "q") -> list[DeadLetterRow]:
    """These jobs, each added, run and failed for good; their letters, the oldest first."""
    for each in jobs:
        await add(engine, each, queue=queue)
        assert await settle(engine, (await claim_one(engine, queue=queue)).lease, Failed(WHY)) is Verdict.OK
    return list((await engine.dead_letters.page(order="oldest", limit=1000)).items)


@pytest.mark.covers("R074", "R075")
async def test_a_job_that_fails_for_good_becomes_a_letter_with_all_that_is_known_of_it(
    engine: Store, clock: ManualClock
) -> None:
    await add(engine, GREET)
    added_at = clock.now()
    clock.advance(10)
    first = await claim_one(engine)
    await engine.report("q", [Checkpoint(first.lease, "5")])
    await settle(engine, first.lease, Retried(Failure("once"), 0))
    clock.advance(10)
    (second,) = (await claim(engine, worker="w2")).jobs
    clock.advance(10)
    await settle(engine, second.lease, Failed(WHY))

    (letter,) = (await engine.dead_letters.page()).items

    assert letter == DeadLetterRow(
        id="q/own", queue="q", job_id="own", name="greet", data='{"user": 7}', cause=Cause.FAILED, failure=WHY,
        failed_at=added_at + 30, max_attempts=2, attempts_made=2, stalls=0, stall_cause=None, worker="w2",
        added_at=added_at, started_at=added_at + 20, priority=3, options=GREET.options,
        metadata='{"a": 1}',
        checkpoint="5",
    )  # fmt: skip
    assert await engine.jobs("q", ["own"]) == [None], "it is in one place"
    assert (await engine.runs("q", RunStatus.FAILED)).items[0].id == "own"


@pytest.mark.covers("R117")
async def test_a_job_that_stalled_too_often_is_one_and_tells_the_cause(engine: Store, clock: ManualClock) -> None:
    await add(engine, NewJob(name="n", attempts=5))
    await claim(engine, max_stalls=0)
    clock.advance(60_000)
    await engine.recover("q", cause="killed by signal 9")

    (letter,) = (await engine.dead_letters.page()).items

    assert (letter.cause, letter.stalls, letter.attempts_made) == (Cause.STALLED, 1, 0)
    assert letter.failure.reason.endswith("killed by signal 9")


async def test_who_was_cancelled_came_too_late_or_is_kept_is_none(engine: Store, clock: ManualClock) -> None:
    await add(
        engine,
        NewJob(name="running"),
        NewJob(name="kept", options=JobOptions(keep_failed=KEEP_ALL)),
        NewJob(name="fine"),
    )
    for outcome in (Cancelled("enough"), Failed(WHY), Completed()):
        await settle(engine, (await claim_one(engine)).lease, outcome)
    await add(engine, NewJob(name="waiting"), NewJob(name="late", expires=5))
    await engine.cancel("q", ["4"], reason="enough")
    clock.advance(10)
    await claim(engine)

    assert (await engine.dead_letters.page()).items == ()
    assert await engine.dead_letters.count() == 0
    assert (await job(engine, "2")).state is State.FAILED


async def test_a_refused_settlement_writes_none(engine: Store, clock: ManualClock) -> None:
    await add(engine, NewJob(name="n"))
    taken = await claim_one(engine, lease=100)
    clock.advance(200)

    assert await settle(engine, taken.lease, Failed(WHY)) is Verdict.LOST
    assert await engine.dead_letters.count() == 0


@pytest.mark.covers("R076")
async def test_pages_go_by_time_both_ways_and_see_each_once(engine: Store, clock: ManualClock) -> None:
    for n in range(7):
        await failed(engine, NewJob(name=f"n{n}"))
        clock.advance(n % 2)  # some at the same moment

    async def walk(order: Any) -> list[str]:
        seen, cursor = [], None
        while True:
            page = await engine.dead_letters.page(order=order, cursor=cursor, limit=2)
            seen += [letter.name for letter in page.items]
            cursor = page.cursor
            if cursor is None:
                return seen

    assert await walk("oldest") == [f"n{n}" for n in range(7)]
    assert await walk("newest") == [f"n{n}" for n in reversed(range(7))]
    assert await engine.dead_letters.count() == 7


async def test_a_walk_goes_on_while_letters_are_taken_away(engine: Store) -> None:
    await failed(engine, *(NewJob(name=f"n{n}") for n in range(6)))
    first = await engine.dead_letters.page(order="oldest", limit=3)
    await engine.dead_letters.discard([letter.id for letter in first.items])

    rest = await engine.dead_letters.page(order="oldest", limit=3, cursor=first.cursor)

    assert [letter.name for letter in (*first.items, *rest.items)] == [f"n{n}" for n in range(6)]


@pytest.mark.parametrize("cursor", ["", "x", "12", "-1:q/1", "1:\ud800", "9" * 20 + ":q/1", 7])
async def test_odd_cursors_orders_and_limits_are_refused(engine: Store, cursor: Any) -> None:
    with pytest.raises(InvalidOption, match="cursor"):
        await engine.dead_letters.page(cursor=cursor)
    with pytest.raises(InvalidOption, match="order"):
        await engine.dead_letters.page(order="odd")  # type: ignore[arg-type]
    with pytest.raises(InvalidOption, match="limit"):
        await engine.dead_letters.page(limit=0)


@pytest.mark.covers("R077", "R079", "R083")
async def test_a_replayed_job_is_back_under_its_own_name_and_id_with_nothing_tried(
    engine: Store, clock: ManualClock
) -> None:
    (letter,) = await failed(engine, GREET)
    clock.advance(1_000)

    assert await engine.dead_letters.replay("q", [Replay(letter.id)]) == ControlResult(("q/own",))

    found = await job(engine, "own")
    assert (found.name, found.data, found.priority, found.metadata) == ("greet", '{"user": 7}', 3, '{"a": 1}')
    assert (found.state, found.max_attempts, found.attempts_made, found.stalls) == (State.PRIORITIZED, 2, 0, 0)
    assert found.options == GREET.options
    assert (found.failure, found.finished_at, found.started_at) == (None, None, None)
    assert await engine.dead_letters.count() == 0
    again = await claim_one(engine)
    assert (again.lease.id, again.attempts_made, again.starts) == ("own", 0, 1)
    await settle(engine, again.lease)
    assert (await engine.runs("q", RunStatus.COMPLETED)).items[0].id == "own"


@pytest.mark.covers("R078", "R082")
async def test_a_replay_may_bring_another_payload_attempts_and_backoff(engine: Store) -> None:
    (letter,) = await failed(
        engine, NewJob(name="n", data="1", options=JobOptions(timeout=500, backoff=Backoff(kind="fixed", delay=1)))
    )
    slower = Backoff(kind="exponential", delay=5_000)

    await engine.dead_letters.replay("q", [Replay(letter.id, data="2", attempts=5, backoff=slower)])

    found = await job(engine, "1")
    assert (found.data, found.max_attempts, found.options.backoff, found.options.timeout) == ("2", 5, slower, 500)


async def test_a_checkpoint_outlives_death_and_replay(engine: Store) -> None:
    await add(engine, NewJob(name="n"))
    taken = await claim_one(engine)
    await engine.report("q", [Checkpoint(taken.lease, '"half"')])
    await settle(engine, taken.lease, Failed(WHY))

    await engine.dead_letters.replay("q", [Replay("q/1")])

    again = await claim_one(engine)
    assert again.checkpoint == '"half"'
    assert again.fence > taken.fence


async def test_a_job_that_dies_again_is_a_letter_again_and_once(engine: Store, clock: ManualClock) -> None:
    await failed(engine, NewJob(name="n"))
    clock.advance(5)
    await engine.dead_letters.replay("q", [Replay("q/1")])
    await settle(engine, (await claim_one(engine)).lease, Failed(Failure("again", "E")))

    (letter,) = (await engine.dead_letters.page()).items
    assert (letter.id, letter.failure.reason, letter.attempts_made) == ("q/1", "again", 1)
    assert await engine.dead_letters.replay("q", [Replay("q/1"), Replay("q/1")]) == ControlResult(
        ("q/1",), (), (Refused("q/1", None),)
    )


async def test_an_id_that_is_taken_meanwhile_refuses_the_replay(engine: Store) -> None:
    (letter,) = await failed(engine, NewJob(name="n", id="own"))
    await add(engine, NewJob(name="other", id="own"))

    assert await engine.dead_letters.replay("q", [Replay(letter.id)]) == ControlResult(
        (), (), (Refused("q/own", State.WAITING),)
    )
    assert await engine.dead_letters.count() == 1
    assert (await job(engine, "own")).name == "other"


async def test_the_newer_of_two_jobs_of_one_id_is_the_letter(engine: Store, clock: ManualClock) -> None:
    await failed(engine, NewJob(name="older", id="own"), NewJob(name="between"))
    clock.advance(5)
    letters = await failed(engine, NewJob(name="newer", id="own"))

    assert [letter.name for letter in letters] == ["between", "newer"]
    assert await engine.dead_letters.count() == 2


async def test_a_number_is_not_given_out_twice_after_a_replay_into_a_new_queue(engine: Store) -> None:
    await failed(engine, *(NewJob(name=f"n{n}") for n in range(3)))
    while (await engine.obliterate("q")).more:
        pass
    assert await engine.dead_letters.replay("q", [Replay("q/3")]) == ControlResult(("q/3",))

    (added,) = await add(engine, NewJob(name="new"))

    assert added.id == "4"
    assert (await job(engine, "3")).name == "n2"


async def test_what_is_no_letter_of_the_queue_is_refused_and_changes_nothing(engine: Store) -> None:
    await failed(engine, NewJob(name="n"))
    await failed(engine, NewJob(name="n"), queue="other")
    async with unchanged(engine):
        assert await engine.dead_letters.replay(
            "q", [Replay("other/1"), Replay("q/9"), Replay("rubbish")]
        ) == ControlResult((), (), (Refused("other/1", None), Refused("q/9", None), Refused("rubbish", None)))
        assert await engine.dead_letters.discard(["q/9", "rubbish"]) == ControlResult(
            (), (), (Refused("q/9", None), Refused("rubbish", None))
        )
        assert await engine.dead_letters.get(["q/9", "rubbish"]) == [None, None]


@pytest.mark.covers("R080")
async def test_a_discard_deletes_what_it_names_and_nothing_else(engine: Store) -> None:
    await failed(engine, *(NewJob(name=f"n{n}") for n in range(4)))

    assert await engine.dead_letters.discard(["q/2", "q/4", "q/2"]) == ControlResult(("q/2", "q/4"))

    assert [letter.id for letter in (await engine.dead_letters.page(order="oldest")).items] == ["q/1", "q/3"]
    assert [each and each.name for each in await engine.dead_letters.get(["q/3", "q/2"])] == ["n2", None]


async def test_a_call_sent_again_gets_the_first_answer(engine: Store) -> None:
    await failed(engine, NewJob(name="a"), NewJob(name="b"))
    for _ in range(2):
        assert await engine.dead_letters.replay("q", [Replay("q/1")], call=Call("me", 1)) == ControlResult(("q/1",))
    for _ in range(2):
        assert await engine.dead_letters.discard(["q/2"], call=Call("me", 2)) == ControlResult(("q/2",))
    assert await engine.dead_letters.count() == 0
    assert (await engine.counts("q")).waiting == 1


@pytest.mark.covers("R081")
async def test_letters_stay_until_their_own_retention_is_over(engine: Store, clock: ManualClock) -> None:
    assert await engine.dead_letters.keep(None) == KEEP_ALL
    for n in range(5):
        await failed(engine, NewJob(name=f"n{n}"))
        clock.advance(1_000)
    await engine.prune("q")
    assert await engine.dead_letters.count() == 5

    assert await engine.dead_letters.keep(Keep(3)) == Keep(3)
    await engine.prune("q")
    assert [letter.name for letter in (await engine.dead_letters.page()).items] == ["n4", "n3", "n2"]

    assert await engine.dead_letters.keep(Keep(None, 1.5)) == Keep(None, 1.5)
    await engine.prune("q")
    assert [letter.name for letter in (await engine.dead_letters.page()).items] == ["n4"]
    assert await engine.dead_letters.keep(KEEP_ALL) == KEEP_ALL


@pytest.mark.parametrize(
    "data", ["null", '"text"', "[]", "{}", "not json", "", "NaN", '{"a": "ü/\\u0000"}', "1e3", "{" * 2000]
)
async def test_whatever_the_payload_is_it_comes_back_as_it_was(engine: Store, data: str) -> None:
    (letter,) = await failed(engine, NewJob(name="n", data=data))

    assert letter.data == data
    await engine.dead_letters.replay("q", [Replay(letter.id)])
    assert (await job(engine, "1")).data == data


@pytest.mark.parametrize("own", ["a/b", "100%", "%25", "repeat:x:123", "ü b", "a:b:c%3A"])
async def test_whatever_the_id_is_its_letter_is_its_own(engine: Store, own: str) -> None:
    (letter,) = await failed(engine, NewJob(name="n", id=own))

    assert (letter.queue, letter.job_id) == ("q", own)
    assert letter_parts(letter.id) == ("q", own)
    assert letter.id == letter_id("q", own)
    assert await engine.dead_letters.replay("q", [Replay(letter.id)]) == ControlResult((letter.id,))
    assert (await job(engine, own)).name == "n"


async def test_dead_letters_are_no_queue_to_work(engine: Store) -> None:
    await failed(engine, NewJob(name="n"))

    assert await engine.queues() == ["q"]
    assert (await claim(engine, queue="dead-letter")).jobs == ()


async def test_a_replayed_job_wakes_those_who_wait(engine: Store) -> None:
    await failed(engine, NewJob(name="n"))
    await claim(engine)
    await engine.dead_letters.replay("q", [Replay("q/1")])

    assert await engine.wait(["q"], timeout=5_000) == {"q"}
