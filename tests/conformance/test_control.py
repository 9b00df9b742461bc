"""Engine.retry, promote, cancel, remove, update: what people and programs do to single jobs."""

import pytest

from tests.conformance.jobs import add, claim, claim_one, job, names, settle
from toril.errors import InvalidOption
from toril.model import (
    KEEP_ALL,
    AddOutcome,
    Call,
    Cause,
    Completed,
    ControlResult,
    EventKind,
    Failed,
    Failure,
    JobOptions,
    NewJob,
    Refused,
    RunStatus,
    SetData,
    SetDelay,
    SetPriority,
    Verdict,
)
from toril.model.states import State
from toril.store.engine import Store
from toril.testing import ManualClock


async def every_state(engine: Store) -> dict[str, str]:
    """One job in each state a job of one queue can be in; the ids are the states' names."""
    await add(
        engine,
        *(
            NewJob(name=name, id=name, options=JobOptions(keep_completed=KEEP_ALL, keep_failed=KEEP_ALL))
            for name in ("completed_", "failed_", "active_")
        ),
    )
    for outcome in (Completed(), Failed(Failure("x"))):
        await settle(engine, (await claim_one(engine)).lease, outcome)
    await claim_one(engine)
    await add(
        engine,
        NewJob(name="w", id="waiting_"),
        NewJob(name="p", id="prioritized_", priority=3),
        NewJob(name="d", id="delayed_", delay=1000),
    )
    return {name: f"{name}_" for name in ("waiting", "prioritized", "delayed", "active", "completed", "failed")}


@pytest.mark.covers("B66")
@pytest.mark.parametrize(
    ("verb", "allowed"),
    [
        ("retry", {"completed", "failed"}),
        ("promote", {"delayed"}),
        ("remove", {"waiting", "prioritized", "delayed", "completed", "failed"}),
        ("cancel", {"waiting", "prioritized", "delayed", "active"}),
        ("priority", {"waiting", "prioritized", "delayed"}),
        ("delay", {"delayed"}),
        ("data", {"waiting", "prioritized", "delayed", "active", "completed", "failed"}),
    ],
)
async def test_a_control_changes_only_what_its_state_allows(engine: Store, verb: str, allowed: set[str]) -> None:
    ids = await every_state(engine)
    everything = list(ids.values())

    match verb:
        case "cancel":
            changed = await engine.cancel("q", [*everything, "none"], reason="r")
        case "priority":
            changed = await engine.update("q", [SetPriority(i, 5) for i in [*everything, "none"]])
        case "delay":
            changed = await engine.update("q", [SetDelay(i, 5) for i in [*everything, "none"]])
        case "data":
            changed = await engine.update("q", [SetData(i, "1") for i in [*everything, "none"]])
        case _:
            changed = await getattr(engine, verb)("q", [*everything, "none"])

    assert {*changed.done, *changed.asked} == {ids[state] for state in allowed}
    refused = {ids[state]: State(state) for state in ids.keys() - allowed} | {"none": None}
    assert {each.id: each.state for each in changed.refused} == refused


async def test_a_job_retried_by_hand_starts_afresh(engine: Store) -> None:
    await add(engine, NewJob(name="n", attempts=1, options=JobOptions(keep_failed=KEEP_ALL)))
    stalled = await claim_one(engine)
    await engine.recover("q", dead=[stalled.lease])
    await settle(engine, (await claim_one(engine, alone=True)).lease, Failed(Failure("x")))

    await engine.retry("q", ["1"])

    found = await job(engine, "1")
    assert (found.state, found.attempts_made, found.stalls, found.failure) == (State.WAITING, 0, 0, None)
    assert (found.started_at, found.finished_at) == (None, None)
    assert (await claim_one(engine)).fence == 3


async def test_a_retried_job_keeps_its_priority(engine: Store) -> None:
    await add(engine, NewJob(name="n", priority=3, options=JobOptions(keep_completed=KEEP_ALL)))
    await settle(engine, (await claim_one(engine)).lease)

    await engine.retry("q", ["1"])

    assert (await job(engine, "1")).state is State.PRIORITIZED


@pytest.mark.covers("B67")
async def test_of_two_who_retry_one_wins(engine: Store) -> None:
    await add(engine, NewJob(name="n", options=JobOptions(keep_failed=KEEP_ALL)))
    await settle(engine, (await claim_one(engine)).lease, Failed(Failure("x")))

    first, second = await engine.retry("q", ["1"]), await engine.retry("q", ["1"])

    assert first.done == ("1",)
    assert second.refused == (Refused("1", State.WAITING),)


async def test_a_control_sent_again_has_no_second_effect(engine: Store) -> None:
    await add(engine, NewJob(name="n", options=JobOptions(keep_failed=KEEP_ALL)))
    await settle(engine, (await claim_one(engine)).lease, Failed(Failure("x")))
    first = await engine.retry("q", ["1", "none"], call=Call("me", 1))
    await settle(engine, (await claim_one(engine)).lease, Failed(Failure("x")))

    again = await engine.retry("q", ["1", "none"], call=Call("me", 1))

    assert again == first == ControlResult(("1",), (), (Refused("none", None),))
    assert (await job(engine, "1")).state is State.FAILED


async def test_a_promoted_job_is_ready_at_once(engine: Store) -> None:
    await add(engine, NewJob(name="d", delay=1000), NewJob(name="p", delay=1000, priority=1), NewJob(name="w"))

    await engine.promote("q", ["1", "2"])

    assert names((await claim(engine)).jobs) == ["w", "d", "p"]


@pytest.mark.covers("R100", "X04")
async def test_a_cancelled_job_never_runs_and_its_id_is_free(engine: Store) -> None:
    await add(engine, NewJob(name="first", id="x"), NewJob(name="later", id="y", delay=5))

    changed = await engine.cancel("q", ["x", "y"], reason="not needed")

    assert changed.done == ("x", "y")
    assert (await engine.counts("q")).waiting == 0
    assert {run.cause for run in (await engine.runs("q", RunStatus.CANCELLED)).items} == {Cause.CANCELLED}
    assert (await add(engine, NewJob(name="second", id="x")))[0].outcome is AddOutcome.ADDED
    assert names((await claim(engine)).jobs) == ["second"]


@pytest.mark.covers("R094", "X04")
async def test_a_running_job_is_asked_to_stop(engine: Store) -> None:
    await add(engine, NewJob(name="n"))
    claimed = await claim_one(engine)

    changed = await engine.cancel("q", ["1"], reason="stop")

    assert changed.asked == ("1",)
    found = await job(engine, "1")
    assert (found.state, found.cancelling) == (State.ACTIVE, "stop")
    assert await settle(engine, claimed.lease) is Verdict.OK


@pytest.mark.covers("R044")
async def test_a_removed_job_leaves_nothing(engine: Store) -> None:
    await add(engine, NewJob(name="n", id="x"), NewJob(name="m"))

    await engine.remove("q", ["x"])

    assert await engine.jobs("q", ["x"]) == [None]
    assert names((await claim(engine)).jobs) == ["m"]
    removed = [e for e in (await engine.events("q")).items if e.kind is EventKind.REMOVED]
    assert [(e.job_id, e.detail) for e in removed] == [("x", {"prev": "wait"})]


async def test_data_can_be_changed(engine: Store) -> None:
    await add(engine, NewJob(name="n", data="1"))

    await engine.update("q", [SetData("1", '{"new": true}')])

    assert (await claim_one(engine)).data == '{"new": true}'


async def test_priority_can_be_changed(engine: Store) -> None:
    await add(
        engine, NewJob(name="a"), NewJob(name="b", priority=9), NewJob(name="c", priority=9), NewJob(name="d", delay=10)
    )

    await engine.update("q", [SetPriority("1", 5), SetPriority("3", 9, lifo=True), SetPriority("4", 2)])

    assert names((await claim(engine)).jobs) == ["a", "c", "b"]
    assert (await job(engine, "4")).priority == 2


async def test_a_suspect_stays_one_whatever_its_priority(engine: Store) -> None:
    await add(engine, NewJob(name="n"))
    await engine.recover("q", dead=[(await claim_one(engine)).lease])

    await engine.update("q", [SetPriority("1", 3)])

    assert (await claim(engine)).jobs == ()
    assert (await claim_one(engine, alone=True)).priority == 3


async def test_a_priority_taken_away_makes_a_plain_job(engine: Store) -> None:
    await add(engine, NewJob(name="a"), NewJob(name="b", priority=9))

    await engine.update("q", [SetPriority("2", 0, lifo=True)])

    assert names((await claim(engine)).jobs) == ["b", "a"]


async def test_a_delay_can_be_changed(engine: Store, clock: ManualClock) -> None:
    await add(engine, NewJob(name="n", delay=10_000))

    await engine.update("q", [SetDelay("1", 50)])

    assert (await claim(engine)).wake_at == clock.now() + 50
    clock.advance(50)
    assert names((await claim(engine)).jobs) == ["n"]


async def test_an_id_named_twice_is_changed_once(engine: Store) -> None:
    await add(engine, NewJob(name="n"))

    assert await engine.remove("q", ["1", "1"]) == ControlResult(done=("1",))


async def test_a_control_is_bounded(engine: Store) -> None:
    with pytest.raises(InvalidOption, match="at most 1000 jobs, not 1001"):
        await engine.remove("q", [str(i) for i in range(1, 1002)])


async def test_controls_of_an_unknown_queue_make_no_queue(engine: Store) -> None:
    assert (await engine.remove("never", ["1"])).refused == (Refused("1", None),)
    assert (await engine.update("never", [SetData("1", "1")])).refused == (Refused("1", None),)

    assert await engine.queues() == []


async def test_each_update_that_is_refused_is_answered_once(engine: Store) -> None:
    await add(engine, NewJob(name="n"), NewJob(name="m"))

    changed = await engine.update("q", [SetData("1", "2"), SetDelay("1", 5), SetDelay("2", 5), SetPriority("1", 3)])

    assert changed.done == ("1", "1")
    assert changed.refused == (Refused("1", State.WAITING), Refused("2", State.WAITING))
