"""Groups: their rates, how many of one may wait, and what is told of them."""

import pytest

from tests.conformance.dumps import dump
from tests.conformance.jobs import add, claim, claim_one, names, settle
from tests.conformance.test_groups import limited, of
from toril.errors import QueueFull
from toril.model import (
    NO_LIMITS,
    Failure,
    FlowNode,
    GroupLimits,
    GroupRow,
    JobRef,
    Limits,
    NewJob,
    RateLimit,
    Retried,
    SetGroup,
    SetGroups,
    SetMaxWaiting,
    Snoozed,
)
from toril.store.engine import Store
from toril.testing import ManualClock


async def rated(engine: Store, most: int, per: float = 1.0, **more: int) -> None:
    limits = GroupLimits(rate_limit=RateLimit(most, per), **more)
    await engine.configure("q", [SetGroups(limits)])


@pytest.mark.parametrize(("most", "per"), [(3, 1.0), (150, 1.0)])
async def test_in_no_window_do_more_of_a_group_start_than_its_rate_allows(
    engine: Store, clock: ManualClock, most: int, per: float
) -> None:
    await rated(engine, most, per)
    await add(engine, *of("a", *map(str, range(most * 3))), *of("b", *map(str, range(most))))
    starts: dict[str, list[int]] = {"a": [], "b": []}
    seen: list[str] = []
    for _ in range(200):
        jobs = (await claim(engine, 50)).jobs
        for each in jobs:
            starts[each.name[0]].append(clock.now())
            seen += [each.name] if each.name[0] == "a" else []
            await settle(engine, each.lease)
        if len(seen) == most * 3:
            break
        clock.advance(37)

    assert seen == [f"a{n}" for n in range(most * 3)]
    assert len(starts["b"]) == most
    for times in starts.values():
        for start in times:
            assert len([each for each in times if start - 1000 < each <= start]) <= most
    assert starts["a"][-1] - starts["a"][0] <= 2 * 1200


async def test_a_claim_says_when_a_group_may_go_on(engine: Store, clock: ManualClock) -> None:
    await rated(engine, 2)
    await add(engine, *of("a", *"123"))
    first = await claim(engine)
    clock.advance(400)

    nothing = await claim(engine)
    view = await engine.groups.get("q", "a")
    clock.advance(600)

    assert (names(first.jobs), first.wake_at, nothing.jobs) == (["a1", "a2"], first.now + 1000, ())
    assert (nothing.wake_at, view.till) == (first.now + 1000, first.now + 1000)
    assert names((await claim(engine)).jobs) == ["a3"]
    assert (await engine.groups.get("q", "b")).till is None


async def test_who_sleeps_learns_that_a_limited_job_came(engine: Store, clock: ManualClock) -> None:
    await rated(engine, 1)
    await add(engine, *of("a", "1"))
    await claim(engine)
    await claim(engine)
    await add(engine, *of("a", "2"))

    assert await engine.wait(["q"], timeout=2000) == {"q"}
    assert (await claim(engine)).wake_at == clock.now() + 1000


async def test_what_comes_back_counts_when_it_starts_again(engine: Store, clock: ManualClock) -> None:
    await rated(engine, 2, concurrency=1)
    await add(engine, *of("a", *"12"))
    for _ in range(2):
        await settle(engine, (await claim_one(engine)).lease, Retried(Failure("no")))

    nothing = await claim(engine)
    clock.advance(1000)

    assert (nothing.jobs, nothing.wake_at) == ((), clock.now())
    assert names((await claim(engine)).jobs) == ["a1"]


async def test_a_put_off_job_of_a_limited_group_waits_for_the_rate_too(engine: Store, clock: ManualClock) -> None:
    await rated(engine, 1, 10.0, concurrency=1)
    await add(engine, *of("a", *"12"))
    await settle(engine, (await claim_one(engine)).lease, Snoozed(100))
    clock.advance(100)

    nothing = await claim(engine)
    clock.advance(9900)

    assert nothing.jobs == ()
    assert names((await claim(engine)).jobs) == ["a1"]


async def test_starts_of_long_ago_are_forgotten(engine: Store, clock: ManualClock) -> None:
    await rated(engine, 2)
    await add(engine, *of("a", "1"))
    await settle(engine, (await claim_one(engine)).lease)
    clock.advance(32 * 86_400_000)

    await engine.prune("q")

    left = {
        name: rows for name, rows in (await dump(engine)).items() if name.endswith(("group_starts", "group-starts"))
    }
    assert not any(left.values())


async def test_no_more_of_a_group_wait_than_may(engine: Store) -> None:
    await limited(engine, max_waiting=3)
    await add(engine, *of("a", *"12"), *of("a", "later", delay=1000))

    with pytest.raises(QueueFull, match="group 'a' of queue 'q' has 3 of at most 3 waiting jobs; 2 more do not fit"):
        await add(engine, *of("b", "1"), *of("a", *"34"))
    await claim(engine)
    await add(engine, *of("a", "3"))

    assert (await engine.groups.get("q", "b")) == GroupRow(name="b", limits=GroupLimits(concurrency=1, max_waiting=3))
    assert (await engine.groups.get("q", "a")).waiting == 3


async def test_a_flow_that_would_overfill_a_group_is_refused(engine: Store) -> None:
    await limited(engine, max_waiting=3)
    await add(engine, *of("a", *"12"))
    top = FlowNode(queue="q", job=NewJob(name="top", id="top", group="a"), waits=True)
    children = [FlowNode(queue="q", job=NewJob(name=n, id=n, group="a"), parent=JobRef("q", "top")) for n in "xy"]

    with pytest.raises(QueueFull, match="group 'a' of queue 'q' has 2 of at most 3 waiting jobs; 2 more do not fit"):
        await engine.flows.add([top, *children])

    assert await engine.jobs("q", ["top", "x", "y"]) == [None, None, None]
    await engine.flows.add([top, children[0]])
    assert (await engine.groups.get("q", "a")).waiting == 3


async def test_parked_jobs_count_among_the_waiting_ones_of_the_queue(engine: Store) -> None:
    await engine.configure("q", [SetMaxWaiting(3), SetGroups(GroupLimits(concurrency=1))])
    await add(engine, *of("a", *"123"))

    with pytest.raises(QueueFull):
        await add(engine, NewJob(name="n"))


async def test_groups_are_listed_by_name_page_by_page(engine: Store) -> None:
    await limited(engine)
    await add(engine, *of("b", *"123"), *of("a", "1"), *of("c", "1", delay=1000), NewJob(name="plain"))
    await engine.groups.set("q", SetGroup(name="d", limits=GroupLimits(weight=5)))
    await engine.groups.set("q", SetGroup(name="b", paused=True))
    await claim(engine)

    first = await engine.groups.page("q", limit=3)
    rest = await engine.groups.page("q", cursor=first.cursor, limit=3)

    common = GroupLimits(concurrency=1)
    assert list(first) == [
        GroupRow(name="a", running=1, limits=common), GroupRow(name="b", waiting=3, limits=common, paused=True),
        GroupRow(name="c", waiting=1, limits=common),
    ]  # fmt: skip
    heavy = GroupLimits(weight=5)
    assert list(rest) == [GroupRow(name="d", limits=heavy.over(common), own=heavy)]
    assert rest.cursor is None


async def test_a_group_of_nothing_is_forgotten(engine: Store) -> None:
    await add(engine, *of("a", *"12"))
    while jobs := (await claim(engine)).jobs:
        for each in jobs:
            await settle(engine, each.lease)

    assert list(await engine.groups.page("q")) == []
    assert await engine.groups.get("q", "a") == GroupRow(name="a")
    assert list(await engine.groups.page("never")) == []


async def test_what_its_group_keeps_a_job_from_is_told(engine: Store) -> None:
    await limited(engine)
    jobs = await add(engine, *of("a", *"123"), NewJob(name="plain"))
    running = await claim_one(engine)

    third = (await engine.explain("q", jobs[2].id, Limits())).group
    plain = (await engine.explain("q", jobs[3].id, Limits())).group

    assert third is not None
    assert (third.name, third.let_in, third.ahead, third.holders) == ("a", False, 1, (running.lease.id,))
    assert (third.limits, third.paused, third.till) == (GroupLimits(concurrency=1), False, None)
    assert plain is None


async def test_a_parent_in_a_group_holds_no_place_while_it_waits_for_its_children(engine: Store) -> None:
    await limited(engine)
    parent, child = JobRef("q", "parent"), NewJob(name="child", id="child", group="a")
    await engine.flows.add([
        FlowNode(queue="q", job=NewJob(name="parent", id="parent", group="a"), waits=True),
        FlowNode(queue="q", job=child, parent=parent),
    ])  # fmt: skip
    await add(engine, *of("a", "1", "2"))

    first = await claim_one(engine)
    await settle(engine, first.lease)
    second = await claim(engine)
    blocked = await claim(engine)
    await settle(engine, second.jobs[0].lease)

    assert (first.name, names(second.jobs), blocked.jobs) == ("child", ["parent"], ())
    assert names((await claim(engine)).jobs) == ["a1"]


def test_limits_say_what_is_wrong_with_them() -> None:
    from toril.errors import InvalidName, InvalidOption

    for wrong in ({"concurrency": 0}, {"weight": 101}, {"max_waiting": 0}, {"rate_limit": 5}):
        with pytest.raises(InvalidOption, match="a group's"):
            GroupLimits(**wrong)  # type: ignore[arg-type]
    with pytest.raises(InvalidOption, match="sliding"):
        GroupLimits(rate_limit=RateLimit(1, 1, "fixed"))
    for name in ("", "a\nb", "x" * 129, 7):
        with pytest.raises(InvalidName, match="a group's name"):
            NewJob(name="n", group=name)  # type: ignore[arg-type]
    assert GroupLimits.load(NO_LIMITS.dump()) == NO_LIMITS
