"""Rewinding: a job forgets what it recorded from one step on, and runs again."""

from itertools import count
from typing import Any

import pytest

from tests.conformance.dumps import dump, unchanged
from tests.conformance.jobs import LEASE, add, claim, claim_one, ids, job, new_job, settle
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
from toril.errors import NotFound
from toril.model import (
    KEEP_ALL,
    Call,
    Completed,
    ControlResult,
    Failed,
    FlowNode,
    JobRef,
    NewSignal,
    RecordedSteps,
    Refused,
    Released,
    Retried,
    SignalOutcome,
    SignalWait,
    StepVerdict,
)
from toril.model.states import State
from toril.store.engine import Store
from toril.testing import ManualClock

_senders = count(1)


async def rewind(engine: Store, job_id: str, to: str | None = None, call: Call | None = None) -> ControlResult:
    return await steps_of(engine).rewind("q", job_id, to, call=call)


@pytest.mark.covers("R277")
async def test_a_row_and_all_after_it_are_forgotten(step_engine: Store, clock: ManualClock) -> None:
    lease = (await with_steps(step_engine, "z", "b", "a", "m")).lease
    await settle(step_engine, lease, Released())

    assert await rewind(step_engine, lease.id, "a") == ControlResult((lease.id,))

    again = await claim_one(step_engine)
    assert rows_of(again) == ["b", "z"]
    assert again.steps is not None
    assert (again.steps.reruns, again.steps.epoch, again.steps.now) == (1, 1, clock.now())
    (answer,) = await recorded(step_engine, report(again.lease, "new"))
    rows = await all_rows(step_engine, lease.id)
    assert list(rows) == ["z", "b", "new"]
    assert (answer.steps, answer.bytes) == (3, sum(len(key) + len(text) for key, text in rows.items()))
    assert " 1.0 " in rows["new"]


async def test_a_row_that_was_replaced_counts_from_when_it_was_written_last(step_engine: Store) -> None:
    lease = (await running(step_engine)).lease
    await write(step_engine, lease, "first", "t", '[1,"K",""]', delay=0)
    await write(step_engine, lease, "second")
    await write(step_engine, lease, "first")
    await settle(step_engine, lease, Released())

    await rewind(step_engine, lease.id, "first")

    assert list(await all_rows(step_engine, lease.id)) == ["second"]


async def test_to_the_beginning_all_is_forgotten(step_engine: Store, clock: ManualClock) -> None:
    lease = (await with_steps(step_engine, "a", "b")).lease
    await settle(step_engine, lease, Released())

    await rewind(step_engine, lease.id)

    assert await all_rows(step_engine, lease.id) == {}
    assert (await claim_one(step_engine)).steps == RecordedSteps({}, 1, 1, clock.now())


@pytest.mark.parametrize("how", ["rewind", "retry"])
async def test_numbers_go_on_after_all_rows_were_forgotten(step_engine: Store, how: str) -> None:
    lease = (await with_steps(step_engine, "a", "b", keep_completed=KEEP_ALL)).lease
    await settle(step_engine, lease, Completed())

    if how == "rewind":
        await rewind(step_engine, lease.id)
    else:
        await step_engine.retry("q", [lease.id])
    again = (await claim_one(step_engine)).lease

    assert (await write(step_engine, again, "c")).seq == 3
    (answer,) = await recorded(step_engine, report(again, "d"))
    rows = await all_rows(step_engine, lease.id)
    assert (answer.steps, answer.bytes) == (2, sum(len(key) + len(text) for key, text in rows.items()))


@pytest.mark.parametrize("where", ["waiting", "prioritized", "backoff", "resting", "children", "failed", "completed"])
async def test_from_wherever_it_stands_a_job_runs_again_with_all_its_attempts(
    step_engine: Store, clock: ManualClock, where: str
) -> None:
    options: dict[str, Any] = {"attempts": 3, "keep_completed": KEEP_ALL, "keep_failed": KEEP_ALL}
    claimed = await with_steps(step_engine, "a", "b", priority=5 if where == "prioritized" else 0, **options)
    await settle(step_engine, claimed.lease, Retried(WHY))
    await claim_one(step_engine)
    clock.advance(LEASE)
    await step_engine.recover("q")
    lease = (await claim_one(step_engine, alone=True)).lease
    match where:
        case "waiting" | "prioritized":
            await settle(step_engine, lease, Released())
        case "backoff":
            await settle(step_engine, lease, Retried(WHY, 5_000))
        case "resting":
            await resting(step_engine, lease, sleep(), wait("ok", by="k"))
        case "children":
            await resting(step_engine, lease, called(JobRef("c", "a")), children=[child("a", lease.id)])
        case "failed":
            await settle(step_engine, lease, Failed(WHY))
        case _:
            await settle(step_engine, lease, Completed("1"))
    await add(step_engine, new_job("behind", priority=5 if where == "prioritized" else 0))

    assert (await rewind(step_engine, lease.id, "b")).done == (lease.id,)

    found = await job(step_engine, lease.id)
    assert found.state is (State.PRIORITIZED if where == "prioritized" else State.WAITING)
    assert (found.attempts_made, found.stalls, found.rest, found.failure, found.result) == (0, 0, None, None, None)
    assert (found.finished_at, found.due, found.starts) == (None, None, 3)
    assert await at_rest(step_engine) == []
    counts = await step_engine.counts("q")
    assert (counts.resting, counts.delayed, counts.failed, counts.completed, counts.waiting_children) == (0,) * 5
    jobs = (await claim(step_engine)).jobs
    assert ids(jobs) == ["2", lease.id], "it goes to the back"
    again = jobs[1]
    assert (again.attempts_made, again.starts, again.suspect, rows_of(again)) == (0, 4, False, ["a"])
    assert again.fence > claimed.fence


async def test_what_runs_is_refused_and_so_is_what_is_not_there(step_engine: Store) -> None:
    lease = (await with_steps(step_engine, "a")).lease
    dead = (await with_steps(step_engine, "a")).lease
    await settle(step_engine, dead, Failed(WHY))

    async with unchanged(step_engine):
        assert await rewind(step_engine, lease.id) == ControlResult((), (), (Refused(lease.id, State.ACTIVE),))
        assert await rewind(step_engine, "77") == ControlResult((), (), (Refused("77", None),))
        assert await rewind(step_engine, dead.id) == ControlResult((), (), (Refused(dead.id, None),))
        nowhere = await steps_of(step_engine).rewind("nowhere", "1", None)
        assert nowhere == ControlResult((), (), (Refused("1", None),))
    await settle(step_engine, lease, Released())
    async with unchanged(step_engine):
        with pytest.raises(NotFound, match="'other'"):
            await rewind(step_engine, lease.id, "other")


async def test_a_flow_that_is_still_being_added_is_refused(step_engine: Store) -> None:
    top = JobRef("q", "top")
    nodes = [FlowNode(queue="q", job=new_job(id="top"), waits=True), child("a", "top")]
    await step_engine.flows.add(nodes, held=[top])

    assert (await rewind(step_engine, "top")).refused == (Refused("top", State.WAITING_CHILDREN),)
    await step_engine.flows.add([], closed=[top])
    assert (await rewind(step_engine, "top")).done == ("top",)
    assert (await job(step_engine, "top")).state is State.WAITING_CHILDREN, "its child has not ended"


async def test_a_rewind_that_is_sent_again_is_made_once(step_engine: Store) -> None:
    lease, call = (await with_steps(step_engine, "a", "b")).lease, Call(f"s-{next(_senders)}", 1)
    await settle(step_engine, lease, Released())
    first = await rewind(step_engine, lease.id, "b", call)
    before = await dump(step_engine)

    assert await rewind(step_engine, lease.id, "b", call) == first
    assert await dump(step_engine) == before


async def test_of_a_rewind_and_a_claim_the_first_counts(step_engine: Store) -> None:
    lease = (await with_steps(step_engine, "a")).lease
    await settle(step_engine, lease, Released())
    await rewind(step_engine, lease.id)
    claimed = await claim_one(step_engine)

    assert (await rewind(step_engine, lease.id)).refused == (Refused(lease.id, State.ACTIVE),)
    (late,) = await recorded(step_engine, report(lease, "late"))
    assert late.verdict is StepVerdict.LOST
    assert rows_of(claimed) == []


async def test_signals_that_nobody_has_read_stay_and_keys_are_free(step_engine: Store) -> None:
    lease = (await running(step_engine)).lease
    steps = steps_of(step_engine)
    for payload in ("1", "2"):
        await steps.deliver("q", [NewSignal(name="ok", payload=payload, job_id=lease.id, id=payload)])
    await steps.receive(lease, "w", [SignalWait("ok")])
    await resting(step_engine, lease, wait("no", by="k"))

    await rewind(step_engine, lease.id)

    assert [each.payload for each in await steps.inbox("q", lease.id)] == ["2"]
    (answer,) = await steps.deliver("q", [NewSignal(name="ok", job_id=lease.id, id="1")])
    assert answer.outcome is SignalOutcome.DUPLICATE
    other = (await running(step_engine)).lease
    assert (await steps.receive(other, "w", [SignalWait("no", "k")])).verdict is StepVerdict.OK


async def test_a_child_that_is_rewound_is_waited_for_again(step_engine: Store) -> None:
    await step_engine.flows.add([
        FlowNode(queue="c", job=new_job(id="top"), waits=True),
        FlowNode(queue="q", job=new_job(id="a", keep_completed=KEEP_ALL), parent=JobRef("c", "top")),
        FlowNode(queue="q", job=new_job(id="b"), parent=JobRef("c", "top")),
    ])  # fmt: skip
    await settle(step_engine, (await claim_one(step_engine)).lease)

    await rewind(step_engine, "a")
    await settle(step_engine, (await claim_one(step_engine)).lease)
    assert (await claim(step_engine, queue="c")).jobs == ()
    await settle(step_engine, (await claim_one(step_engine)).lease)

    assert ids((await claim(step_engine, queue="c")).jobs) == ["top"]
