"""Groups: whoever has a place in one gives it up when it stands elsewhere, and no other takes it meanwhile."""

import pytest

from tests.conformance.jobs import add, claim, claim_one, names, settle
from tests.conformance.plants import tell
from tests.conformance.test_groups import WHY, limited, of, run_all
from tests.kinds import REDIS
from toril.engines.redis import RedisEngine
from toril.model import Failed, FlowNode, JobRef, NewJob, Released, Snoozed
from toril.store.engine import Store
from toril.testing import ManualClock


async def test_a_put_off_job_that_fails_for_its_child_gives_its_place_up(engine: Store) -> None:
    await limited(engine)
    await add(engine, NewJob(name="parent", id="parent", group="a"), *of("a", "1"))
    parent = await claim_one(engine)
    await engine.flows.add([FlowNode(queue="c", job=NewJob(name="child", id="child"), parent=JobRef("q", "parent"))])
    await settle(engine, parent.lease, Snoozed(60_000))
    child = await claim_one(engine, queue="c")
    await settle(engine, child.lease, Failed(WHY))

    following = await claim(engine)

    assert (names(following.jobs), [each.id for each in following.unstarted]) == (["a1"], ["parent"])


async def test_a_stalled_job_that_is_given_back_goes_before_younger_ones(engine: Store, clock: ManualClock) -> None:
    await limited(engine)
    await add(engine, *of("a", "1", "2"))
    await claim_one(engine, lease=50)
    clock.advance(60)
    await engine.recover("q")
    again = await claim_one(engine, alone=True)
    await settle(engine, again.lease, Released())

    meanwhile = await claim(engine)
    last = await claim_one(engine, alone=True)

    assert (again.name, meanwhile.jobs, last.name) == ("a1", (), "a1")


async def test_who_sleeps_hears_of_a_parent_in_a_group_that_goes_on(engine: Store) -> None:
    await limited(engine)
    await engine.flows.add([
        FlowNode(queue="q", job=NewJob(name="parent", id="parent", group="a"), waits=True),
        FlowNode(queue="q", job=NewJob(name="child", id="child", delay=60_000), parent=JobRef("q", "parent")),
    ])  # fmt: skip
    await claim(engine)

    await engine.remove("q", ["child"])

    assert await engine.wait(["q"], timeout=2000) == {"q"}
    assert names((await claim(engine)).jobs) == ["parent"]


@pytest.mark.parametrize("engine", REDIS, indirect=True)
async def test_one_claim_parks_a_bounded_number_of_what_others_put_into_the_line(engine: RedisEngine) -> None:
    await limited(engine)
    await add(engine, *of("a", *map(str, range(500))))
    for each in await tell(engine, "ZRANGE", "bull:q:toril:parked", 0, -1):
        await tell(engine, "LPUSH", "bull:q:wait", each.rpartition("w")[2])
    await tell(engine, "DEL", "bull:q:toril:parked")

    first = await claim(engine)
    parked = await tell(engine, "ZCARD", "bull:q:toril:parked")

    assert (names(first.jobs), first.wake_at) == (["a0"], first.now)
    assert 0 < parked < 300
    while (following := await claim(engine)).wake_at == following.now:
        assert not following.jobs
    assert await tell(engine, "ZCARD", "bull:q:toril:parked") == 499
    await settle(engine, first.jobs[0].lease)
    assert names((await claim(engine)).jobs) == ["a1"]


@pytest.mark.parametrize("run_by", ["us", "others"])
@pytest.mark.parametrize("engine", REDIS, indirect=True)
async def test_what_others_promote_is_put_off_no_more(engine: RedisEngine, run_by: str) -> None:
    await limited(engine, 2, max_waiting=3)
    jobs = await add(engine, *of("a", "1", "2", "3", delay=60_000))
    await tell(engine, "DEL", "bull:q:delayed")
    if run_by == "us":
        await tell(engine, "LPUSH", "bull:q:wait", *(each.id for each in jobs))
        assert await run_all(engine) == ["a1", "a2", "a3"]
    else:
        await tell(engine, "ZADD", "bull:q:completed", *(word for each in jobs for word in (1, each.id)))
        await engine.recover("q")

    assert (await engine.groups.get("q", "a")).waiting == 0
