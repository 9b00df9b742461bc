"""Groups: how many of one run at once, in which order, and what becomes of their places."""

import pytest

from tests.conformance.jobs import add, claim, claim_one, ids, job, names, settle
from toril.model import (
    KEEP_ALL,
    AddOutcome,
    Claim,
    Claimed,
    Completed,
    DeclareGroups,
    Dedup,
    Failed,
    Failure,
    Gate,
    GroupLimits,
    JobOptions,
    NewJob,
    Pause,
    Released,
    Resume,
    Retried,
    SetGroup,
    SetGroups,
    Settlement,
    Snoozed,
    Verdict,
)
from toril.model.states import State
from toril.store.engine import Store
from toril.testing import ManualClock

WHY = Failure("no")


def of(group: str, *names: str, delay: int = 0, priority: int = 0) -> list[NewJob]:
    return [NewJob(name=f"{group}{name}", group=group, delay=delay, priority=priority, attempts=9) for name in names]


async def limited(engine: Store, concurrency: int = 1, **more: int) -> None:
    await engine.configure("q", [SetGroups(GroupLimits(concurrency=concurrency, **more))])  # type: ignore[arg-type]


async def run_all(engine: Store, want: int = 1) -> list[str]:
    """Claim and settle until nothing more comes; the names in the order of their starts."""
    seen: list[str] = []
    while found := (await claim(engine, want)).jobs:
        seen += names(found)
        for each in found:
            await settle(engine, each.lease)
    return seen


@pytest.mark.covers("R257")
async def test_of_a_group_of_one_only_one_runs_and_in_order(engine: Store) -> None:
    await limited(engine)
    await add(engine, *of("a", "1", "2", "3"), *of("b", "1"))

    first = await claim(engine, worker="w1")
    second = await claim(engine, worker="w2")
    await settle(engine, first.jobs[0].lease)
    third = await claim(engine, worker="w2")

    assert (names(first.jobs), second.jobs, second.blocked_by) == (["a1", "b1"], (), Gate.GROUPS)
    assert names(third.jobs) == ["a2"]


async def test_settling_and_claiming_in_one_step_goes_on_with_the_group(engine: Store) -> None:
    await limited(engine)
    await add(engine, *of("a", "1", "2", "3"))
    (first,) = (await claim(engine)).jobs

    answer = await engine.exchange(
        "q", [Settlement(first.lease, Completed())], Claim(want=9, token="next", lease=1000, worker="w")
    )

    assert (answer.verdicts, names(answer.jobs)) == ((Verdict.OK,), ["a2"])


async def test_as_many_run_as_the_group_may(engine: Store) -> None:
    await limited(engine, 2)
    await add(engine, *of("a", "1", "2", "3", "4"), NewJob(name="plain"))

    first = await claim(engine)
    await settle(engine, first.jobs[0].lease)

    assert sorted(names(first.jobs)) == ["a1", "a2", "plain"]
    assert names((await claim(engine)).jobs) == ["a3"]


@pytest.mark.parametrize("said", ["by the code", "by hand", "for one"])
async def test_limits_can_be_said_in_three_ways(engine: Store, said: str) -> None:
    one = GroupLimits(concurrency=1)
    if said == "by the code":
        await engine.configure("q", [DeclareGroups(one)])
    elif said == "by hand":
        await engine.configure("q", [DeclareGroups(GroupLimits(concurrency=5)), SetGroups(one)])
    else:
        await engine.configure("q", [SetGroups(GroupLimits(concurrency=5))])
        await engine.groups.set("q", SetGroup(name="a", limits=one))
    await add(engine, *of("a", "1", "2"))

    assert names((await claim(engine)).jobs) == ["a1"]
    assert (await engine.groups.get("q", "a")).limits.concurrency == 1


async def test_what_is_set_by_hand_can_be_taken_back(engine: Store) -> None:
    await engine.configure("q", [DeclareGroups(GroupLimits(concurrency=3)), SetGroups(GroupLimits(concurrency=1))])
    await engine.groups.set("q", SetGroup(name="a", limits=GroupLimits(concurrency=2)))

    own = (await engine.groups.set("q", SetGroup(name="a", limits=GroupLimits()))).limits
    settings = await engine.configure("q", [SetGroups(None)])

    assert (own.concurrency, settings.groups) == (1, GroupLimits(concurrency=3))


async def test_a_wider_limit_lets_more_in_at_once(engine: Store) -> None:
    await limited(engine)
    await add(engine, *of("a", "1", "2", "3", "4"))
    await claim(engine)

    await engine.groups.set("q", SetGroup(name="a", limits=GroupLimits(concurrency=2)))
    second = await claim(engine)
    await limited(engine, 9)
    await engine.groups.set("q", SetGroup(name="a", limits=GroupLimits()))

    assert names(second.jobs) == ["a2"]
    assert names((await claim(engine)).jobs) == ["a3", "a4"]


async def test_groups_without_limits_take_turns(engine: Store) -> None:
    await add(engine, *of("a", *"12345"), *of("b", *"12"), *of("c", "1"))

    assert await run_all(engine) == ["a1", "b1", "c1", "a2", "b2", "a3", "a4", "a5"]


async def test_one_claim_for_many_takes_by_turns_too(engine: Store) -> None:
    await add(engine, *of("a", *"12345"), *of("b", *"12"), *of("c", "1"))

    assert names((await claim(engine, 7)).jobs) == ["a1", "b1", "c1", "a2", "b2", "a3", "a4"]


async def test_one_group_alone_gets_all_slots(engine: Store) -> None:
    await add(engine, *of("a", *map(str, range(250))))

    taken = [names((await claim(engine, 100)).jobs) for _ in range(3)]

    assert [name for part in taken for name in part] == [f"a{n}" for n in range(250)]


async def test_who_comes_with_one_job_is_the_next_to_start(engine: Store) -> None:
    await add(engine, *of("big", *map(str, range(50))))
    running = (await claim(engine, 3)).jobs
    await add(engine, *of("small", "1"))

    await settle(engine, running[0].lease)

    assert names((await claim(engine, 1)).jobs) == ["small1"]


async def test_a_group_that_others_outnumber_gets_its_turn(engine: Store) -> None:
    """Newcomers go first only once: whoever has nothing in the line stands at its end."""
    await add(engine, *of("a", *"123456"))
    seen = []
    for n in range(6):
        await add(engine, *of(f"new{n}", "x"), *of(f"more{n}", "x"))
        for _ in range(3):
            one = await claim_one(engine)
            seen.append(one.name)
            await settle(engine, one.lease)

    assert [name for name in seen if name.startswith("a")] == ["a1", "a2", "a3", "a4", "a5", "a6"]


async def test_a_weight_is_a_share(engine: Store) -> None:
    await engine.groups.set("q", SetGroup(name="a", limits=GroupLimits(weight=3)))
    await add(engine, *of("a", *map(str, range(30))), *of("b", *map(str, range(30))))

    seen = await run_all(engine)

    assert sum(name.startswith("a") for name in seen[:20]) == 15


async def test_jobs_of_a_group_go_by_priority_then_by_age(engine: Store) -> None:
    await limited(engine)
    await add(engine, *of("a", "0"), *of("a", "low", priority=9), *of("a", "high", priority=1), *of("a", "plain"))
    await add(engine, NewJob(name="afront", group="a", lifo=True))

    assert await run_all(engine) == ["a0", "afront", "aplain", "ahigh", "alow"]


# what comes back keeps its place


@pytest.mark.parametrize("outcome", [Retried(WHY), Released()])
@pytest.mark.parametrize("limit", [1, 2])
async def test_what_comes_back_goes_before_its_younger_siblings(
    engine: Store, limit: int, outcome: Retried | Released
) -> None:
    await limited(engine, limit)
    await add(engine, *of("a", *"1234"))
    first = (await claim(engine)).jobs[0]

    await settle(engine, first.lease, outcome)

    assert names((await claim(engine, 1)).jobs) == ["a1"]


@pytest.mark.parametrize("outcome", [Retried(WHY, 500), Snoozed(500)])
async def test_a_group_of_one_waits_for_what_is_put_off(
    engine: Store, clock: ManualClock, outcome: Retried | Snoozed
) -> None:
    await limited(engine)
    await add(engine, *of("a", "1", "2"), *of("b", "1"))
    first, other = (await claim(engine)).jobs
    await settle(engine, first.lease, outcome)
    await settle(engine, other.lease)

    before = await claim(engine)
    clock.advance(500)

    assert (before.jobs, before.wake_at) == ((), clock.now())
    assert await run_all(engine) == ["a1", "a2"]


async def test_a_wider_group_goes_on_while_one_is_put_off(engine: Store, clock: ManualClock) -> None:
    await limited(engine, 2)
    await add(engine, *of("a", *"12345"))
    first, second = (await claim(engine)).jobs
    await settle(engine, first.lease, Snoozed(500))

    meanwhile = await claim(engine)
    clock.advance(500)
    await settle(engine, second.lease)

    assert names(meanwhile.jobs) == ["a3"]
    assert names((await claim(engine)).jobs) == ["a1"]


async def test_a_delayed_job_takes_its_place_when_it_is_due(engine: Store, clock: ManualClock) -> None:
    await limited(engine)
    await add(engine, *of("a", "early", delay=100), *of("a", "1", "2"))

    first = await claim_one(engine)
    clock.advance(100)
    await claim(engine)
    await settle(engine, first.lease)

    assert first.name == "a1"
    assert await run_all(engine) == ["aearly", "a2"]


@pytest.mark.covers("R257")
async def test_a_crash_frees_the_place_by_time(engine: Store, clock: ManualClock) -> None:
    await limited(engine)
    await add(engine, *of("a", "1", "2"))
    lost = (await claim(engine, lease=100)).jobs[0]
    clock.advance(100)

    assert (await claim(engine)).jobs == ()
    assert (await engine.recover("q")).returned == (lost.lease.id,)
    (again,) = (await claim(engine, alone=True)).jobs
    late = await settle(engine, lost.lease)
    nothing = await claim(engine)
    await settle(engine, again.lease)

    assert (again.name, late, nothing.jobs) == ("a1", Verdict.LOST, ())
    assert names((await claim(engine)).jobs) == ["a2"]


async def test_a_job_that_stalls_once_too_often_gives_its_place_up(engine: Store, clock: ManualClock) -> None:
    await limited(engine)
    await add(engine, *of("a", "1", "2"))
    await claim(engine, lease=100, max_stalls=0)
    clock.advance(100)

    assert len((await engine.recover("q")).failed) == 1
    assert names((await claim(engine)).jobs) == ["a2"]


async def test_a_failed_job_gives_its_place_up(engine: Store) -> None:
    await limited(engine)
    await add(engine, *of("a", "1", "2"))

    await settle(engine, (await claim_one(engine)).lease, Failed(WHY))

    assert names((await claim(engine)).jobs) == ["a2"]


async def test_a_job_that_came_too_late_gives_its_place_up(engine: Store, clock: ManualClock) -> None:
    await limited(engine)
    await add(engine, NewJob(name="late", group="a", expires=10), *of("a", "2"))
    clock.advance(10)

    assert names((await claim(engine)).jobs) == ["a2"]


async def test_a_job_that_runs_again_is_of_its_group(engine: Store) -> None:
    await limited(engine)
    await add(engine, NewJob(name="kept", group="a", options=JobOptions(keep_failed=KEEP_ALL)), *of("a", "2", "3"))
    kept = await claim_one(engine)
    await settle(engine, kept.lease, Failed(WHY))
    second = await claim_one(engine)

    await engine.retry("q", [kept.lease.id])
    blocked = await claim(engine)
    await settle(engine, second.lease)

    assert blocked.jobs == ()
    assert await run_all(engine) == ["kept", "a3"]


async def test_a_dead_letter_comes_back_into_its_group(engine: Store) -> None:
    from toril.model import Replay

    await limited(engine)
    await add(engine, *of("a", "1", "2"))
    await settle(engine, (await claim_one(engine)).lease, Failed(WHY))
    running = await claim_one(engine)
    (letter,) = (await engine.dead_letters.page()).items

    await engine.dead_letters.replay("q", [Replay(letter.id)])
    blocked = await claim(engine)
    await settle(engine, running.lease)

    assert (letter.group, blocked.jobs) == ("a", ())
    assert names((await claim(engine)).jobs) == ["a1"]


# pause


async def test_a_paused_group_starts_nothing_and_others_go_on(engine: Store) -> None:
    await limited(engine, 2)
    await add(engine, *of("a", *"123"), *of("b", "1"))
    running = await claim_one(engine)

    view = await engine.groups.set("q", SetGroup(name="a", paused=True))
    others = await claim(engine)
    await add(engine, *of("a", "4"))
    await settle(engine, running.lease, Retried(WHY))
    await engine.groups.set("q", SetGroup(name="a", paused=False))

    assert (running.name, view.paused, view.waiting, view.running) == ("a1", True, 2, 1)
    assert (names(others.jobs), others.blocked_by) == (["b1"], Gate.GROUPS)
    assert names((await claim(engine)).jobs) == ["a1", "a2"]


async def test_a_paused_group_keeps_what_falls_due_or_has_stalled(engine: Store, clock: ManualClock) -> None:
    await limited(engine)
    await add(engine, *of("a", "1", "2"), *of("b", "1", "2"))
    a, b = (await claim(engine, lease=100)).jobs
    await settle(engine, a.lease, Snoozed(100))
    for group in "ab":
        await engine.groups.set("q", SetGroup(name=group, paused=True))
    clock.advance(100)
    await engine.recover("q")

    nothing = await claim(engine, alone=True)
    for group in "ab":
        await engine.groups.set("q", SetGroup(name=group, paused=False))
    stalled = await claim(engine, alone=True)

    assert nothing.jobs == ()
    assert (ids(stalled.jobs), stalled.jobs[0].suspect) == ([b.lease.id], True)
    assert names((await claim(engine)).jobs) == ["a1"]


async def test_a_stalled_job_of_a_paused_group_waits_with_it(engine: Store, clock: ManualClock) -> None:
    await limited(engine)
    await add(engine, *of("a", "1", "2"))
    (lost,) = (await claim(engine, lease=100)).jobs
    clock.advance(100)
    await engine.recover("q")
    await engine.groups.set("q", SetGroup(name="a", paused=True))

    nothing = await claim(engine, alone=True)
    await engine.groups.set("q", SetGroup(name="a", paused=False))

    assert nothing.jobs == ()
    assert ids((await claim(engine, alone=True)).jobs) == [lost.lease.id]


async def test_pausing_the_queue_and_pausing_a_group_are_two_things(engine: Store) -> None:
    await add(engine, *of("a", "1"))
    await engine.configure("q", [Pause()])
    await engine.groups.set("q", SetGroup(name="a", paused=True))

    await engine.groups.set("q", SetGroup(name="a", paused=False))
    held = await claim(engine)
    await engine.configure("q", [Resume()])

    assert (held.jobs, held.blocked_by) == ((), Gate.PAUSED)
    assert names((await claim(engine)).jobs) == ["a1"]


# what people do to jobs of groups


async def one_running_two_parked(engine: Store) -> Claimed:
    await limited(engine)
    await add(engine, *of("a", "1", "2", "3"))
    return await claim_one(engine)


@pytest.mark.parametrize("verb", ["remove", "cancel"])
async def test_a_parked_job_can_be_taken_away(engine: Store, verb: str) -> None:
    running = await one_running_two_parked(engine)

    await (engine.remove("q", ["2"]) if verb == "remove" else engine.cancel("q", ["2"], reason="enough"))
    await settle(engine, running.lease)

    assert names((await claim(engine)).jobs) == ["a3"]


@pytest.mark.parametrize("verb", ["remove", "cancel"])
async def test_taking_away_what_was_let_in_lets_the_next_in(engine: Store, verb: str) -> None:
    await limited(engine)
    await add(engine, *of("a", "1", "2"))

    await (engine.remove("q", ["1"]) if verb == "remove" else engine.cancel("q", ["1"], reason="enough"))

    assert names((await claim(engine)).jobs) == ["a2"]


async def test_parked_jobs_are_waiting_jobs(engine: Store) -> None:
    await one_running_two_parked(engine)

    record = await job(engine, "3")
    pages = [
        [each.id for each in (await engine.page("q", State.WAITING, limit=1)).items],
        [each.id for each in (await engine.page("q", State.WAITING, limit=9)).items],
    ]

    assert (await engine.counts("q")).waiting == 2
    assert (record.state, record.group, pages) == (State.WAITING, "a", [["2"], ["2", "3"]])


async def test_parked_jobs_are_walked_page_by_page(engine: Store) -> None:
    await add(engine, NewJob(name="plain"), *of("a", *"12345"), *of("b", *"123"))
    seen, cursor = [], None
    while True:
        page = await engine.page("q", State.WAITING, cursor=cursor, limit=2)
        seen += [each.name for each in page.items]
        cursor = page.cursor
        if cursor is None:
            break

    assert sorted(seen) == ["a1", "a2", "a3", "a4", "a5", "b1", "b2", "b3", "plain"]


async def test_draining_takes_parked_jobs_too(engine: Store) -> None:
    running = await one_running_two_parked(engine)

    swept = await engine.drain("q", states=frozenset({State.WAITING}))
    await settle(engine, running.lease)
    await add(engine, *of("a", "new"))

    assert swept.ids == ("2", "3")
    assert names((await claim(engine)).jobs) == ["anew"]


async def test_draining_what_was_let_in_lets_others_in(engine: Store) -> None:
    await limited(engine)
    await add(engine, *of("a", "1", priority=5), *of("a", "2", "3"))
    await engine.drain("q", states=frozenset({State.PRIORITIZED}))

    assert names((await claim(engine)).jobs) == ["a2"]


async def test_cleaning_takes_old_parked_jobs(engine: Store, clock: ManualClock) -> None:
    await one_running_two_parked(engine)
    clock.advance(1000)
    await add(engine, *of("a", "young"))

    swept = await engine.clean("q", state=State.WAITING, grace=500)

    assert set(swept.ids) == {"2", "3"}
    assert (await engine.groups.get("q", "a")).waiting == 1


async def test_obliterating_leaves_nothing_of_groups(engine: Store) -> None:
    await engine.groups.set("q", SetGroup(name="b", paused=True))
    await one_running_two_parked(engine)
    await engine.obliterate("q", running="remove")

    await add(engine, *of("a", "1", "2"), *of("b", "1"))
    await engine.configure("q", [Resume()])

    assert names((await claim(engine)).jobs) == ["a1", "b1", "a2"]


async def test_a_parked_job_gets_another_priority(engine: Store) -> None:
    from toril.model import SetPriority

    running = await one_running_two_parked(engine)
    await engine.update("q", [SetPriority("2", 7)])
    await settle(engine, running.lease)

    assert await run_all(engine) == ["a3", "a2"]


async def test_a_parked_job_owns_its_deduplication_key(engine: Store) -> None:
    await limited(engine)
    parked = NewJob(name="n", group="a", dedup=Dedup("k"))
    await add(engine, *of("a", "1"), parked)

    (again,) = await add(engine, parked)
    await engine.remove("q", ["2"])
    (fresh,) = await add(engine, parked)

    assert (again.outcome, again.id, again.state) == (AddOutcome.DEDUPLICATED, "2", State.WAITING)
    assert fresh.outcome is AddOutcome.ADDED


async def test_a_put_off_job_that_is_replaced_gives_its_place_up(engine: Store, clock: ManualClock) -> None:
    await limited(engine)
    replaced = NewJob(name="old", group="a", dedup=Dedup("k", mode="replace"))
    await add(engine, replaced, *of("a", "2"))
    await settle(engine, (await claim_one(engine)).lease, Snoozed(500))

    (new,) = await add(engine, NewJob(name="new", group="b", dedup=Dedup("k", mode="replace")))

    assert new.outcome is AddOutcome.REPLACED
    assert sorted(names((await claim(engine)).jobs)) == ["a2", "new"]


async def test_what_was_kept_for_the_end_of_its_owner_has_its_group(engine: Store) -> None:
    await limited(engine)
    last = NewJob(name="n", group="a", dedup=Dedup("k", mode="keep_last"))
    await add(engine, last, *of("a", "2"))
    owner = await claim_one(engine)
    await add(engine, last)

    await settle(engine, owner.lease)

    assert (await engine.groups.get("q", "a")).waiting == 2
    assert await run_all(engine) == ["a2", "n"]
