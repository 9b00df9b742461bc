"""Flows: stored whole or not at all; a parent runs once, when its children have ended as the policy says."""

import pytest

from tests.conformance.dumps import dump, unchanged
from tests.conformance.jobs import claim, claim_one, ids, job, new_job, settle
from toril import InvalidOption, NotFound, QueueFull, WrongState
from toril.engines.shared import CHILD_GONE
from toril.model import (
    BUILDING,
    KEEP_ALL,
    REMOVE,
    Added,
    AddOutcome,
    Call,
    Cancelled,
    Child,
    ChildCounts,
    ChildState,
    Completed,
    EventKind,
    Failed,
    Failure,
    FlowNode,
    GroupLimits,
    JobOptions,
    JobRef,
    Keep,
    NewJob,
    OnFailure,
    Replay,
    Rested,
    Retried,
    RunRow,
    RunStatus,
    SetGroups,
    SetMaxWaiting,
    Verdict,
)
from toril.model.states import State
from toril.store.engine import Store
from toril.testing import ManualClock

TOP = JobRef("p", "top")
WHY = Failure("no such user", "LookupError")


def parent(name: str = "top", *, queue: str = "p", under: JobRef | None = None, **options: object) -> FlowNode:
    new = new_job(name, id=name, **options)
    return FlowNode(queue=queue, job=new, parent=under, waits=True)


def child(
    name: str, *, queue: str = "q", under: JobRef = TOP, on_failure: OnFailure = OnFailure.FAIL, **options: object
) -> FlowNode:
    new = new_job(name, id=name, **options)
    return FlowNode(queue=queue, job=new, parent=under, on_failure=on_failure)


async def ended(engine: Store, name: str, outcome: object = None, *, queue: str = "q") -> None:
    """Claim this job, which is the next, and hand it in."""
    taken = await claim_one(engine, queue=queue)
    assert taken.lease.id == name
    assert await settle(engine, taken.lease, outcome or Completed(f'"{name}"')) is Verdict.OK  # type: ignore[arg-type]


async def known(engine: Store, ref: JobRef = TOP) -> dict[str, tuple[ChildState, str | None]]:
    """What a parent knows of its children, by their ids."""
    found: list[Child] = []
    cursor = None
    while True:
        page = await engine.flows.children(ref, cursor=cursor, limit=2)
        found += page.items
        cursor = page.cursor
        if cursor is None:
            return {each.ref.id: (each.state, each.text) for each in found}


async def state(engine: Store, ref: JobRef = TOP) -> State | None:
    (found,) = await engine.jobs(ref.queue, [ref.id])
    return None if found is None else found.state


async def kinds(engine: Store, queue: str = "p") -> list[tuple[EventKind, str | None]]:
    return [(each.kind, each.detail.get("prev")) for each in (await engine.events(queue)).items]


def added(*names: str, state: State = State.WAITING) -> list[Added]:
    return [Added(name, AddOutcome.ADDED, state) for name in names]


@pytest.mark.covers("R220", "R221", "F10")
async def test_a_parent_runs_once_when_its_last_child_has_ended(engine: Store) -> None:
    answers = await engine.flows.add([parent(), child("a"), child("b", queue="r")])

    assert answers == [Added("top", AddOutcome.ADDED, State.WAITING_CHILDREN), *added("a", "b")]
    assert (await engine.counts("p")).waiting_children == 1
    assert (await claim(engine, queue="p")).jobs == ()
    await ended(engine, "a")
    assert await state(engine) is State.WAITING_CHILDREN
    assert await known(engine) == {"b": (ChildState.OPEN, None), "a": (ChildState.COMPLETED, '"a"')}
    await ended(engine, "b", queue="r")
    assert await state(engine) is State.WAITING
    assert await known(engine) == {"a": (ChildState.COMPLETED, '"a"'), "b": (ChildState.COMPLETED, '"b"')}
    await ended(engine, "top", queue="p")
    assert (await claim(engine, queue="p")).jobs == ()
    assert await engine.flows.child_counts(TOP) == ChildCounts(), "it is gone, and so is what it knew"
    assert await kinds(engine) == [
        (EventKind.ADDED, None), (EventKind.WAITING_CHILDREN, None), (EventKind.WAITING, "waiting-children"),
        (EventKind.ACTIVE, None), (EventKind.COMPLETED, None), (EventKind.DRAINED, None),
    ]  # fmt: skip


async def test_whoever_waits_for_work_hears_that_a_parent_may_run(engine: Store) -> None:
    await engine.flows.add([parent(), child("a")])
    assert (await claim(engine, queue="p")).jobs == ()
    await ended(engine, "a")

    assert await engine.wait(["p"], timeout=5_000) == {"p"}


async def test_flows_are_nested(engine: Store) -> None:
    middle = JobRef("q", "middle")
    await engine.flows.add([parent(), parent("middle", queue="q", under=TOP), child("leaf", queue="r", under=middle)])

    assert (await job(engine, "leaf", queue="r")).parent == middle
    assert (await job(engine, "middle")).parent == TOP
    assert [await state(engine, each) for each in (TOP, middle)] == [State.WAITING_CHILDREN] * 2
    await ended(engine, "leaf", queue="r")
    assert [await state(engine, each) for each in (TOP, middle)] == [State.WAITING_CHILDREN, State.WAITING]
    await ended(engine, "middle")
    await ended(engine, "top", queue="p")


async def test_children_and_parent_may_share_a_queue_and_an_exchange(engine: Store) -> None:
    nodes = [parent(queue="q"), *(child(name, under=JobRef("q", "top")) for name in "abc")]
    await engine.flows.add(nodes)
    taken = (await claim(engine)).jobs

    for each in taken:
        await settle(engine, each.lease)

    assert ids((await claim(engine)).jobs) == ["top"]


async def test_a_parent_keeps_its_priority_and_its_delay_begins_when_it_is_let_go(
    engine: Store, clock: ManualClock
) -> None:
    await engine.flows.add([parent("urgent", priority=3), child("a", under=JobRef("p", "urgent"))])
    await engine.flows.add([parent("later", delay=500), child("b", under=JobRef("p", "later"))])
    clock.advance(1_000)
    await ended(engine, "a")
    await ended(engine, "b")

    assert await state(engine, JobRef("p", "urgent")) is State.PRIORITIZED
    assert (await job(engine, "later", queue="p")).due == clock.now() + 500
    assert ids((await claim(engine, queue="p")).jobs) == ["urgent"]
    clock.advance(500)
    assert ids((await claim(engine, queue="p")).jobs) == ["later"]


@pytest.mark.covers("X19")
@pytest.mark.parametrize(
    ("policy", "first", "second", "kept"),
    [
        (OnFailure.FAIL, State.WAITING, State.WAITING, (ChildState.FAILED, None)),
        (OnFailure.CONTINUE, State.WAITING, State.WAITING, (ChildState.IGNORED, "no such user")),
        (OnFailure.IGNORE, State.WAITING_CHILDREN, State.WAITING, (ChildState.IGNORED, "no such user")),
        (OnFailure.REMOVE, State.WAITING_CHILDREN, State.WAITING, None),
        (OnFailure.WAIT, State.WAITING_CHILDREN, State.WAITING_CHILDREN, (ChildState.OPEN, None)),
    ],
)
async def test_what_a_childs_failure_does_is_its_policy(
    engine: Store, policy: OnFailure, first: State, second: State, kept: object
) -> None:
    await engine.flows.add([parent(), child("bad", on_failure=policy), child("good")])

    await ended(engine, "bad", Failed(WHY))
    assert await state(engine) is first
    assert (await known(engine)).get("bad") == kept
    await ended(engine, "good")
    assert await state(engine) is second
    taken = (await claim(engine, queue="p")).jobs
    assert ids(taken) == (["top"] if second is State.WAITING and policy is not OnFailure.FAIL else [])


async def test_a_parent_that_fails_for_its_child_is_a_dead_letter_with_the_cause(engine: Store) -> None:
    await engine.flows.add([parent(attempts=5), child("bad"), child("other")])
    await ended(engine, "bad", Failed(WHY))

    assert (await claim(engine, queue="p")).jobs == (), "it does not run"
    letters = {letter.job_id: letter for letter in (await engine.dead_letters.page()).items}
    assert letters["top"].failure == Failure("child q:bad failed: no such user", "ChildFailed")
    assert (letters["bad"].parent, letters["bad"].on_failure) == (TOP, OnFailure.FAIL)
    await ended(engine, "other")
    assert await state(engine) is None


async def test_failures_go_up_level_by_level(engine: Store) -> None:
    middle = JobRef("q", "middle")
    await engine.flows.add([parent(), parent("middle", queue="q", under=TOP), child("leaf", queue="r", under=middle)])

    await ended(engine, "leaf", Failed(WHY), queue="r")
    assert (await claim(engine)).jobs == ()
    assert (await claim(engine, queue="p")).jobs == ()

    reasons = {letter.job_id: letter.failure.reason for letter in (await engine.dead_letters.page()).items}
    assert reasons["top"] == "child q:middle failed: child r:leaf failed: no such user"


@pytest.mark.parametrize("how", ["cancelled", "expired", "stalled"])
async def test_every_way_of_failing_counts(engine: Store, clock: ManualClock, how: str) -> None:
    await engine.flows.add([parent(), child("a", expires=100)])
    if how == "cancelled":
        assert (await engine.cancel("q", ["a"], reason="enough")).done == ("a",)
    elif how == "stalled":
        await claim(engine, max_stalls=0)
        clock.advance(60_000)
        assert (await engine.recover("q")).failed == ("a",)
    else:
        clock.advance(200)
        await claim(engine)

    assert await state(engine) is State.WAITING
    assert (await claim(engine, queue="p")).jobs == ()
    assert await state(engine) is None


async def test_a_retry_is_no_end(engine: Store) -> None:
    await engine.flows.add([parent(), child("a", attempts=2)])

    await ended(engine, "a", Retried(WHY, 0))
    assert await state(engine) is State.WAITING_CHILDREN
    await ended(engine, "a")
    assert await state(engine) is State.WAITING


async def test_a_call_sent_again_adds_nothing(engine: Store) -> None:
    call = Call("me", 1)
    first = await engine.flows.add([parent(), child("a")], call=call)
    await ended(engine, "a")

    assert await engine.flows.add([parent(), child("a")], call=call) == first
    assert (await engine.counts("q")).waiting == 0


async def test_a_flow_whose_first_job_is_there_is_left_out_as_a_whole(engine: Store) -> None:
    await engine.flows.add([parent(), child("a")])

    answers = await engine.flows.add([parent(), child("b")])

    assert [each.outcome for each in answers] == [AddOutcome.DUPLICATE] * 2
    assert await engine.jobs("q", ["b"]) == [None]
    await ended(engine, "a")
    await ended(engine, "top", queue="p")


async def test_a_flow_that_is_whole_is_held_back_by_nobody(engine: Store) -> None:
    await engine.flows.add([parent(), child("a")])
    await engine.flows.add([parent(), child("b")], held=[TOP])

    await ended(engine, "a")

    assert await state(engine) is State.WAITING


@pytest.mark.covers("F118")
async def test_a_child_of_another_live_parent_is_refused_and_nothing_is_added(engine: Store) -> None:
    await engine.flows.add([parent(), child("shared")])
    other = JobRef("p", "other")

    async with unchanged(engine):
        with pytest.raises(WrongState, match="q:shared is already a child of p:top"):
            await engine.flows.add([parent("other"), child("new", under=other), child("shared", under=other)])


@pytest.mark.parametrize("done", [False, True])
async def test_a_job_that_is_nobodys_becomes_a_child(engine: Store, done: bool) -> None:
    await engine.add("q", [NewJob(name="n", id="a", options=JobOptions(keep_completed=KEEP_ALL))])
    if done:
        await ended(engine, "a")

    (_, answer) = await engine.flows.add([parent(), child("a")])

    assert answer == Added("a", AddOutcome.DUPLICATE, State.COMPLETED if done else State.WAITING)
    if not done:
        await ended(engine, "a")
    assert await known(engine) == {"a": (ChildState.COMPLETED, '"a"')}
    await ended(engine, "top", queue="p")


async def test_a_failed_job_and_one_with_children_become_nobodys(engine: Store) -> None:
    await engine.add("q", [NewJob(name="n", id="bad", options=JobOptions(keep_failed=KEEP_ALL))])
    await ended(engine, "bad", Failed(WHY))
    await engine.flows.add([parent(), child("a")])
    other = JobRef("q", "other")

    async with unchanged(engine):
        with pytest.raises(WrongState, match="q:bad has failed"):
            await engine.flows.add([parent("other", queue="q"), child("bad", under=other)])
        with pytest.raises(WrongState, match="p:top already has children"):
            await engine.flows.add([parent("other", queue="q"), child("top", queue="p", under=other)])


@pytest.mark.covers("B52")
async def test_a_parent_that_is_missing_or_has_not_got_there_or_has_ended_is_refused(engine: Store) -> None:
    await engine.add(
        "p", [NewJob(name="n", id="plain"), NewJob(name="n", id="over", options=JobOptions(keep_completed=KEEP_ALL))]
    )
    (_, over) = (await claim(engine, queue="p")).jobs
    await settle(engine, over.lease)

    async with unchanged(engine):
        with pytest.raises(NotFound, match="as a child of p:nowhere: there is no such job"):
            await engine.flows.add([child("a", under=JobRef("p", "nowhere"))])
        with pytest.raises(WrongState, match="p:over is completed"):
            await engine.flows.add([child("a", under=JobRef("p", "over"))])


async def test_a_waiting_parent_can_be_given_more(engine: Store) -> None:
    await engine.flows.add([parent(), child("a")])
    await engine.flows.add([child("b")])
    await ended(engine, "a")
    assert await state(engine) is State.WAITING_CHILDREN
    await ended(engine, "b")
    assert await state(engine) is State.WAITING


@pytest.mark.covers("B50")
async def test_deduplication_and_a_flow_exclude_each_other() -> None:
    from toril.model import Dedup

    with pytest.raises(InvalidOption, match="a job of a flow cannot have dedup"):
        child("a", dedup=Dedup("k"))


async def test_a_full_queue_refuses_the_whole_flow(engine: Store) -> None:
    await engine.configure("q", [SetMaxWaiting(1)])

    async with unchanged(engine):
        with pytest.raises(QueueFull, match="'q' has 0 of at most 1 waiting"):
            await engine.flows.add([parent(), child("a", queue="r"), child("b"), child("c")])


@pytest.mark.covers("F11")
async def test_a_parent_is_held_back_until_the_last_part_of_its_flow(engine: Store) -> None:
    await engine.flows.add([parent(), child("a")], held=[TOP])
    await ended(engine, "a")
    assert await state(engine) is State.WAITING_CHILDREN
    assert (await engine.flows.child_counts(TOP)).open == 0
    await engine.flows.add([child("b")], closed=[TOP])
    assert await state(engine) is State.WAITING_CHILDREN
    await ended(engine, "b")
    assert await state(engine) is State.WAITING


async def test_a_flow_whose_children_have_all_ended_is_let_go_by_its_last_part(engine: Store) -> None:
    await engine.flows.add([parent(), child("a")], held=[TOP])
    await ended(engine, "a")
    await engine.flows.add([], closed=[TOP])

    assert await state(engine) is State.WAITING


async def test_a_flow_that_stopped_half_way_goes_on_when_it_is_sent_again(engine: Store) -> None:
    await engine.flows.add([parent(), child("a")], held=[TOP])
    await ended(engine, "a")

    answers = await engine.flows.add([parent(), child("a")], held=[TOP])
    await engine.flows.add([child("b")], closed=[TOP])

    assert [each.outcome for each in answers] == [AddOutcome.ADDED, AddOutcome.DUPLICATE]
    await ended(engine, "b")
    await ended(engine, "top", queue="p")
    assert (await engine.counts("q")).waiting == 0


@pytest.mark.covers("F11", "R251")
async def test_a_flow_whose_rest_never_comes_is_taken_back(engine: Store, clock: ManualClock) -> None:
    middle = JobRef("q", "middle")
    whole = [parent("middle", queue="q", under=TOP), child("leaf", queue="r", under=middle)]
    await engine.flows.add([parent(), child("ran"), child("left", delay=1), *whole], held=[TOP])
    await ended(engine, "ran")
    clock.advance(BUILDING - 1)
    await engine.prune("p")
    assert await state(engine) is State.WAITING_CHILDREN
    clock.advance(2)
    for _ in range(2):
        for queue in "pqr":
            await engine.prune(queue)

    for queue in "pqr":
        counts = await engine.counts(queue)
        assert sum(counts.values()) == 0, queue
    with pytest.raises(NotFound):
        await engine.flows.add([child("late")], closed=[TOP])


async def test_a_running_job_gets_children_and_rests_until_they_have_ended(engine: Store) -> None:
    await engine.add("p", [NewJob(name="n", id="top", attempts=2)])
    taken = await claim_one(engine, queue="p")

    assert await engine.flows.add_children(taken.lease, [child("early")]) is Verdict.OK
    await ended(engine, "early")
    assert await settle(engine, taken.lease, Rested((child("a"), child("b")), 1)) is Verdict.OK
    assert await state(engine) is State.WAITING_CHILDREN
    assert await settle(engine, taken.lease) is Verdict.LOST
    await ended(engine, "a")
    await ended(engine, "b")

    again = await claim_one(engine, queue="p")
    assert (again.lease.id, again.attempts_made, again.parked, again.starts) == ("top", 0, 1, 2)
    assert set(await known(engine)) == {"a", "b", "early"}
    assert await settle(engine, again.lease) is Verdict.OK
    assert [each for each in await kinds(engine) if each[0] is EventKind.WAITING_CHILDREN] == [
        (EventKind.WAITING_CHILDREN, "active")
    ]


@pytest.mark.covers("F28")
async def test_who_has_lost_the_lease_adds_no_children(engine: Store, clock: ManualClock) -> None:
    await engine.add("p", [NewJob(name="n", id="top")])
    taken = await claim_one(engine, queue="p", lease=100)
    clock.advance(200)

    assert await engine.flows.add_children(taken.lease, [child("a")]) is Verdict.LOST
    assert await settle(engine, taken.lease, Rested((child("b"),), 1)) is Verdict.LOST
    assert await engine.jobs("q", ["a", "b"]) == [None, None]


async def test_a_job_that_parks_with_nothing_to_wait_for_runs_again_at_once(engine: Store) -> None:
    await engine.add("p", [NewJob(name="n", id="top"), NewJob(name="n", id="next")])
    taken = await claim_one(engine, queue="p")

    await settle(engine, taken.lease, Rested())

    assert ids((await claim(engine, queue="p")).jobs) == ["top", "next"]


async def test_a_job_that_parks_with_a_child_of_another_fails(engine: Store) -> None:
    await engine.flows.add([parent("other"), child("shared", under=JobRef("p", "other"))])
    await engine.add("p", [NewJob(name="n", id="top")])

    await settle(engine, (await claim_one(engine, queue="p")).lease, Rested((child("shared"),), 1))

    (letter,) = (await engine.dead_letters.page()).items
    assert (letter.job_id, letter.failure.kind) == ("top", "WrongState")


async def test_a_running_parent_whose_child_fails_cannot_end_well(engine: Store) -> None:
    await engine.add("p", [NewJob(name="n", id="top")])
    taken = await claim_one(engine, queue="p")
    await engine.flows.add_children(taken.lease, [child("bad")])
    await ended(engine, "bad", Failed(WHY))

    assert await settle(engine, taken.lease) is Verdict.OK

    assert {letter.job_id for letter in (await engine.dead_letters.page()).items} == {"bad", "top"}


async def test_a_cancelled_job_does_not_rest(engine: Store) -> None:
    await engine.add("p", [NewJob(name="n", id="top")])
    taken = await claim_one(engine, queue="p")
    await engine.cancel("p", ["top"], reason="enough")

    await settle(engine, taken.lease, Rested((child("a"),), 1))

    assert await state(engine) is None
    assert await engine.jobs("q", ["a"]) == [None]


@pytest.mark.parametrize("way", ["remove", "drain", "clean", "obliterate"])
@pytest.mark.covers("F118")
async def test_a_child_that_is_removed_is_waited_for_no_longer(engine: Store, way: str) -> None:
    await engine.flows.add([parent(), child("a")])

    match way:
        case "remove":
            await engine.remove("q", ["a"])
        case "drain":
            await engine.drain("q", states=frozenset({State.WAITING}))
        case "clean":
            await engine.clean("q", state=State.WAITING, grace=0)
        case _:
            await engine.obliterate("q")

    assert await state(engine) is State.WAITING
    assert await engine.flows.child_counts(TOP) == ChildCounts()


async def test_draining_a_queue_lets_a_parent_of_the_same_queue_go_on(engine: Store) -> None:
    await engine.flows.add([parent(queue="q"), child("a", under=JobRef("q", "top"))])

    assert (await engine.drain("q", states=frozenset({State.WAITING}))).ids == ("a",)

    assert ids((await claim(engine)).jobs) == ["top"]


@pytest.mark.parametrize("way", ["remove", "obliterate", "cancel"])
async def test_children_of_a_parent_that_is_gone_go_on_alone(engine: Store, way: str) -> None:
    await engine.flows.add([parent(), child("a"), child("b")])

    match way:
        case "remove":
            assert (await engine.remove("p", ["top"])).done == ("top",)
        case "cancel":
            assert (await engine.cancel("p", ["top"], reason="enough")).done == ("top",)
        case _:
            await engine.obliterate("p")

    assert await state(engine) is None
    await ended(engine, "a")
    await ended(engine, "b", Failed(WHY))
    assert sum((await engine.counts("p")).values()) == 0
    assert await state(engine) is None


async def test_a_waiting_parent_can_be_neither_promoted_nor_retried(engine: Store) -> None:
    await engine.flows.add([parent(), child("a")])

    for control in (engine.promote, engine.retry):
        (refused,) = (await control("p", ["top"])).refused
        assert refused.state is State.WAITING_CHILDREN


async def test_what_a_child_returned_stays_with_the_parent_when_the_child_is_removed(engine: Store) -> None:
    await engine.flows.add([parent(), child("a", keep_completed=KEEP_ALL), child("b")])
    await ended(engine, "a")
    await engine.remove("q", ["a"])

    assert (await known(engine))["a"] == (ChildState.COMPLETED, '"a"')
    assert await state(engine) is State.WAITING_CHILDREN


async def test_a_failed_child_that_is_retried_in_time_is_waited_for_again(engine: Store) -> None:
    await engine.flows.add([
        parent(), child("bad", on_failure=OnFailure.IGNORE, keep_failed=KEEP_ALL), child("good"),
    ])  # fmt: skip
    await ended(engine, "bad", Failed(WHY))
    await engine.retry("q", ["bad"])
    assert (await known(engine))["bad"] == (ChildState.OPEN, None)
    await ended(engine, "good")
    assert await state(engine) is State.WAITING_CHILDREN
    await ended(engine, "bad")
    assert await state(engine) is State.WAITING
    assert (await known(engine))["bad"] == (ChildState.COMPLETED, '"bad"')


async def test_a_dead_child_that_is_replayed_rejoins_a_parent_that_waits(engine: Store) -> None:
    await engine.flows.add([parent(), child("bad", on_failure=OnFailure.WAIT)])
    await ended(engine, "bad", Failed(WHY))
    assert await state(engine) is State.WAITING_CHILDREN

    assert (await engine.dead_letters.replay("q", [Replay("q/bad")])).done == ("q/bad",)
    await ended(engine, "bad")

    assert await state(engine) is State.WAITING
    await ended(engine, "top", queue="p")


async def test_a_dead_child_that_is_replayed_too_late_runs_alone(engine: Store) -> None:
    await engine.flows.add([parent(), child("bad", on_failure=OnFailure.IGNORE), child("good")])
    await ended(engine, "bad", Failed(WHY))
    await ended(engine, "good")

    await engine.dead_letters.replay("q", [Replay("q/bad")])
    await ended(engine, "bad")

    assert (await known(engine))["bad"] == (ChildState.IGNORED, "no such user")
    await ended(engine, "top", queue="p")


async def test_a_dead_child_that_is_discarded_is_waited_for_no_longer(engine: Store) -> None:
    await engine.flows.add([parent(), child("bad", on_failure=OnFailure.WAIT)])
    await ended(engine, "bad", Failed(WHY))

    await engine.dead_letters.discard(["q/bad"])

    assert await state(engine) is State.WAITING


async def dead_family(engine: Store, keep: Keep = REMOVE) -> None:
    """A parent that has failed, and a child of each kind. What had not ended then ends later."""
    await engine.flows.add([
        parent(keep_failed=keep), child("good"), child("odd", on_failure=OnFailure.IGNORE), child("bad"),
        child("far", queue="r"), child("late", queue="s"), child("open", queue="t"),
    ])  # fmt: skip
    await ended(engine, "good")
    await ended(engine, "odd", Failed(WHY))
    await ended(engine, "bad", Failed(WHY))
    assert (await claim(engine, queue="p")).jobs == ()
    await ended(engine, "far", Failed(WHY), queue="r")
    await ended(engine, "late", queue="s")


async def test_a_dead_parent_that_is_replayed_waits_for_children_that_have_not_succeeded(engine: Store) -> None:
    await dead_family(engine)

    changed = await engine.dead_letters.replay("p", [Replay("p/top")], call=Call("me", 1))

    assert (set(changed.done), changed.refused) == ({"p/top", "q/bad", "r/far"}, ())
    assert await engine.dead_letters.replay("p", [Replay("p/top")], call=Call("me", 1)) == changed, "once"
    assert await state(engine) is State.WAITING_CHILDREN
    assert await known(engine) == {
        "good": (ChildState.COMPLETED, '"good"'), "late": (ChildState.COMPLETED, '"late"'),
        "odd": (ChildState.IGNORED, "no such user"), "bad": (ChildState.OPEN, None), "far": (ChildState.OPEN, None),
        "open": (ChildState.OPEN, None),
    }  # fmt: skip
    assert [(each.id, each.attempts_made) for each in await engine.jobs("r", ["far"]) if each] == [("far", 0)]
    await ended(engine, "bad")
    await ended(engine, "far", queue="r")
    assert await state(engine) is State.WAITING_CHILDREN
    await ended(engine, "open", queue="t")
    assert await state(engine) is State.WAITING
    completed = {name for name, (how, _) in (await known(engine)).items() if how is ChildState.COMPLETED}
    assert completed == {"good", "late", "bad", "far", "open"}
    await ended(engine, "top", queue="p")
    assert await engine.flows.child_counts(TOP) == ChildCounts()
    assert [letter.id for letter in (await engine.dead_letters.page()).items] == ["q/odd"]


async def test_a_child_that_is_replayed_before_its_dead_parent_tells_it_what_it_returned(engine: Store) -> None:
    await engine.flows.add([parent(), child("bad"), child("worse")])
    await ended(engine, "bad", Failed(WHY))
    await ended(engine, "worse", Failed(WHY))
    assert (await claim(engine, queue="p")).jobs == ()

    await engine.dead_letters.replay("q", [Replay("q/bad", data='"mended"'), Replay("q/worse")])
    await ended(engine, "bad")
    await engine.dead_letters.replay("p", [Replay("p/top")])

    assert await known(engine) == {"bad": (ChildState.COMPLETED, '"bad"'), "worse": (ChildState.OPEN, None)}
    await ended(engine, "worse", Failed(WHY))
    assert (await claim(engine, queue="p")).jobs == (), "it fails for its child once more"
    assert await engine.dead_letters.count() == 2


async def test_of_a_child_that_is_gone_a_replayed_parent_knows_that_it_failed(engine: Store) -> None:
    await engine.flows.add([parent(), child("good"), child("bad")])
    await ended(engine, "good")
    await ended(engine, "bad", Failed(WHY))
    assert (await claim(engine, queue="p")).jobs == ()
    await engine.dead_letters.discard(["q/bad"])

    assert (await engine.dead_letters.replay("p", [Replay("p/top")])).done == ("p/top",)

    assert await known(engine) == {"good": (ChildState.COMPLETED, '"good"'), "bad": (ChildState.IGNORED, CHILD_GONE)}
    await ended(engine, "top", queue="p")


async def test_a_whole_tree_of_dead_letters_runs_again_with_its_top(engine: Store) -> None:
    mid = JobRef("p", "mid")
    await engine.flows.add(
        [parent(), parent("mid", under=TOP), child("leaf", under=mid), child("kept", keep_failed=KEEP_ALL)]
    )
    await ended(engine, "leaf", Failed(WHY))
    await ended(engine, "kept", Failed(WHY))
    for _ in range(2):
        assert (await claim(engine, queue="p")).jobs == ()
    assert await engine.dead_letters.count() == 3

    changed = await engine.dead_letters.replay("p", [Replay("p/top"), Replay("p/mid")])

    assert (sorted(changed.done), changed.refused) == (["p/mid", "p/top", "q/leaf"], ())
    assert [await state(engine, ref) for ref in (TOP, mid)] == [State.WAITING_CHILDREN] * 2
    for taken in (await claim(engine)).jobs:
        await settle(engine, taken.lease)
    for name in ("mid", "top"):
        await ended(engine, name, queue="p")
    assert await engine.dead_letters.count() == 0


async def test_a_failed_parent_that_is_retried_waits_for_children_that_have_not_succeeded(engine: Store) -> None:
    await dead_family(engine, KEEP_ALL)
    assert await state(engine) is State.FAILED

    changed = await engine.retry("p", ["top"], call=Call("me", 1))

    assert (changed.done, changed.refused) == (("top",), ())
    assert await engine.retry("p", ["top"], call=Call("me", 1)) == changed, "once"
    assert await state(engine) is State.WAITING_CHILDREN
    assert await known(engine) == {
        "good": (ChildState.COMPLETED, '"good"'), "late": (ChildState.COMPLETED, '"late"'),
        "odd": (ChildState.IGNORED, "no such user"), "bad": (ChildState.OPEN, None), "far": (ChildState.OPEN, None),
        "open": (ChildState.OPEN, None),
    }  # fmt: skip
    last = (await engine.events("p")).items[-1]
    assert (last.kind, last.job_id, last.detail["prev"]) == (EventKind.WAITING_CHILDREN, "top", "failed")
    await ended(engine, "bad")
    await ended(engine, "far", queue="r")
    assert await state(engine) is State.WAITING_CHILDREN
    await ended(engine, "open", queue="t")
    assert await state(engine) is State.WAITING
    await ended(engine, "top", queue="p")
    assert await engine.flows.child_counts(TOP) == ChildCounts()
    assert [letter.id for letter in (await engine.dead_letters.page()).items] == ["q/odd"]


async def test_a_parent_that_failed_by_itself_is_retried_at_once(engine: Store) -> None:
    await engine.flows.add([parent(keep_failed=KEEP_ALL), child("good")])
    await ended(engine, "good")
    await ended(engine, "top", Failed(WHY), queue="p")

    await engine.retry("p", ["top"])

    assert await known(engine) == {"good": (ChildState.COMPLETED, '"good"')}
    await ended(engine, "top", queue="p")


@pytest.mark.parametrize("first", ["parent", "child"])
async def test_a_kept_family_is_retried_in_one_call_in_any_order(engine: Store, first: str) -> None:
    mid = JobRef("p", "mid")
    await engine.flows.add([
        parent(keep_failed=KEEP_ALL), parent("mid", under=TOP, keep_failed=KEEP_ALL),
        child("leaf", queue="p", under=mid, keep_failed=KEEP_ALL), child("far", under=mid, keep_failed=KEEP_ALL),
    ])  # fmt: skip
    await ended(engine, "leaf", Failed(WHY), queue="p")
    for _ in range(2):
        assert (await claim(engine, queue="p")).jobs == ()
    await ended(engine, "far", Failed(WHY))
    names = ["top", "mid", "leaf"]

    changed = await engine.retry("p", names if first == "parent" else names[::-1])

    assert (set(changed.done), changed.refused) == (set(names), ())
    assert [await state(engine, ref) for ref in (TOP, mid)] == [State.WAITING_CHILDREN] * 2
    counts = await engine.counts("p")
    assert (counts.waiting, counts.waiting_children, counts.failed) == (1, 2, 0)
    await ended(engine, "leaf", queue="p")
    await ended(engine, "far")
    await ended(engine, "mid", queue="p")
    await ended(engine, "top", queue="p")
    assert (await engine.counts("p")).waiting == 0
    async for look in engine.repairs.scan(["p", "q"]):
        assert list(look) == []


async def test_a_child_that_is_retried_before_its_kept_parent_tells_it_what_it_returned(engine: Store) -> None:
    await engine.flows.add([parent(keep_failed=KEEP_ALL), child("bad", keep_failed=KEEP_ALL), child("worse")])
    await ended(engine, "bad", Failed(WHY))
    await ended(engine, "worse", Failed(WHY))
    assert (await claim(engine, queue="p")).jobs == ()

    await engine.retry("q", ["bad"])
    await engine.dead_letters.replay("q", [Replay("q/worse")])
    await ended(engine, "bad")
    assert await state(engine) is State.FAILED, "it runs again when it is retried itself"
    await engine.retry("p", ["top"])

    assert await known(engine) == {"bad": (ChildState.COMPLETED, '"bad"'), "worse": (ChildState.OPEN, None)}
    await ended(engine, "worse", Failed(WHY))
    assert (await claim(engine, queue="p")).jobs == (), "it fails for its child once more"
    assert await state(engine) is State.FAILED


async def test_of_a_child_that_is_gone_a_retried_parent_knows_that_it_failed(engine: Store) -> None:
    await engine.flows.add([parent(keep_failed=KEEP_ALL), child("good"), child("bad")])
    await ended(engine, "good")
    await ended(engine, "bad", Failed(WHY))
    assert (await claim(engine, queue="p")).jobs == ()
    await engine.dead_letters.discard(["q/bad"])

    await engine.retry("p", ["top"])

    assert await known(engine) == {"good": (ChildState.COMPLETED, '"good"'), "bad": (ChildState.IGNORED, CHILD_GONE)}
    await ended(engine, "top", queue="p")


async def test_a_dead_parent_that_is_discarded_leaves_nothing(engine: Store) -> None:
    await engine.flows.add([parent(), child("good"), child("bad")])
    await ended(engine, "good")
    await ended(engine, "bad", Failed(WHY))
    await claim(engine, queue="p")

    await engine.dead_letters.discard(["p/top", "q/bad"])

    left = await dump(engine)
    assert [name for name, rows in left.items() if ":processed" in name or (name == "children" and rows)] == []
    assert await engine.dead_letters.count() == 0


async def test_parents_whose_children_are_gone_without_a_word_are_found(engine: Store) -> None:
    await engine.flows.add([parent(), child("bad", on_failure=OnFailure.WAIT, keep_failed=KEEP_ALL)])
    await ended(engine, "bad", Failed(WHY))
    await engine.prune("p")
    assert await state(engine) is State.WAITING_CHILDREN

    await engine.clean("q", state=State.FAILED, grace=0)
    await engine.prune("p")

    assert await state(engine) is State.WAITING


async def test_explain_names_the_children_that_are_open(engine: Store) -> None:
    from toril.model import Limits

    await engine.flows.add([parent(), *(child(name) for name in "abc")])
    await ended(engine, "a")

    family = (await engine.explain("p", "top", Limits())).family

    assert family == ChildCounts(open=2, completed=1, first_open=(JobRef("q", "b"), JobRef("q", "c")))


async def test_a_cancelled_child_that_nobody_can_run_again_is_not_waited_for(engine: Store) -> None:
    await engine.flows.add([parent(), child("a", on_failure=OnFailure.WAIT)])

    await ended(engine, "a", Cancelled("enough"))

    assert await state(engine) is State.WAITING


async def test_a_parent_of_a_group_waits_for_its_turn_there(engine: Store) -> None:
    await engine.configure("p", [SetGroups(GroupLimits(concurrency=1))])
    await engine.add("p", [NewJob(name="n", id="first", group="g")])
    running = await claim_one(engine, queue="p")
    await engine.flows.add([parent(group="g"), child("a")])
    await ended(engine, "a")

    assert (await claim(engine, queue="p")).jobs == ()
    await settle(engine, running.lease)
    await ended(engine, "top", queue="p")


async def test_a_run_record_names_the_parent_however_the_child_ended(engine: Store, clock: ManualClock) -> None:
    policy = OnFailure.IGNORE
    await engine.flows.add([
        parent(), child("a", subject="x"), child("b", on_failure=policy), child("c", on_failure=policy),
        child("d", on_failure=policy, expires=10), child("e", on_failure=policy, delay=60_000), parent("f", under=TOP),
        child("g", under=JobRef("p", "f"), keep_completed=KEEP_ALL),
    ])  # fmt: skip
    await ended(engine, "a")
    await ended(engine, "b", Failed(WHY))
    await ended(engine, "c", Cancelled("enough"))
    clock.advance(20)
    await ended(engine, "g")
    await engine.cancel("q", ["e"], reason="not wanted")
    await ended(engine, "f", queue="p")
    await ended(engine, "top", queue="p")
    await engine.add("q", [NewJob(name="alone", id="alone")])
    await ended(engine, "alone")
    found = await _remembered(engine)

    assert {run.id: run.parent for run in found if run.flow} == {
        **dict.fromkeys("abcdef", TOP), "g": JobRef("p", "f"), "top": None,
    }  # fmt: skip
    assert [run.id for run in found if not run.flow] == ["alone"]


async def test_a_run_record_tells_the_top_of_a_flow_however_it_ended(engine: Store, clock: ManualClock) -> None:
    await engine.flows.add([parent("one"), child("x", under=JobRef("p", "one"))])
    await ended(engine, "x", Failed(WHY))
    assert (await claim(engine, queue="p")).jobs == ()  # it fails with its child
    await engine.flows.add([parent("two", subject="s"), child("y", under=JobRef("p", "two"))])
    await engine.cancel("p", ["two"], reason="not wanted")
    await engine.flows.add([parent("three"), child("z", under=JobRef("p", "three"))])
    await ended(engine, "y")
    await ended(engine, "z")
    await ended(engine, "three", Cancelled("enough"), queue="p")

    assert {run.id: (run.ending.value, run.flow, run.parent) for run in await _remembered(engine, "p")} == {
        "one": ("failed", True, None), "two": ("cancelled", True, None), "three": ("cancelled", True, None),
    }  # fmt: skip


async def _remembered(engine: Store, *queues: str) -> list[RunRow]:
    return [
        run
        for queue in queues or ("p", "q")
        for ending in RunStatus
        for run in (await engine.runs(queue, ending)).items
    ]
