"""Groups: whoever has a place in one gives it up when it stands elsewhere, and no other takes it meanwhile."""

from tests.conformance.claims import add, claim, claim_one, names, settle
from tests.conformance.test_groups import WHY, limited, of
from toril.engine import Store
from toril.model import Failed, FlowNode, JobRef, NewJob, Snoozed


async def test_a_put_off_job_that_fails_for_its_child_gives_its_place_up(engine: Store) -> None:
    await limited(engine)
    await add(engine, NewJob(name="parent", id="parent", group="a"), *of("a", "1"))
    parent = await claim_one(engine)
    await engine.add_flow([FlowNode(queue="c", job=NewJob(name="child", id="child"), parent=JobRef("q", "parent"))])
    await settle(engine, parent.lease, Snoozed(60_000))
    child = await claim_one(engine, queue="c")
    await settle(engine, child.lease, Failed(WHY))

    following = await claim(engine)

    assert (names(following.jobs), [each.id for each in following.unstarted]) == (["a1"], ["parent"])
