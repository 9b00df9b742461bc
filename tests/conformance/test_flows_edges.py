"""Flows where one job is two things at once: parent and child, or ending and adopted."""

import pytest

from tests.conformance.claims import claim_one
from tests.conformance.claims import settle as hand_in
from tests.conformance.dumps import unchanged
from tests.conformance.test_flows import TOP, child, parent
from toril import App, InvalidOption, JobContext, WrongState
from toril.engine import Store
from toril.model import JobRef, NewJob, Parked

MIDDLE = JobRef("q", "middle")


@pytest.mark.parametrize("between", [False, True])
async def test_no_job_becomes_its_own_child(engine: Store, between: bool) -> None:
    await engine.add("p", [NewJob(name="n", id="top")])
    taken = await claim_one(engine, queue="p")
    circle = [child("top", queue="p")]
    if between:
        circle = [parent("middle", queue="q", under=TOP), child("top", queue="p", under=MIDDLE)]

    async with unchanged(engine):
        with pytest.raises(WrongState, match="p:top has children of its own"):
            await engine.add_children(taken.lease, circle)
    await hand_in(engine, taken.lease, Parked(tuple(circle), 1))

    (letter,) = (await engine.letters()).items
    assert (letter.job_id, letter.failure.kind) == ("top", "WrongState")


async def test_a_handler_that_waits_for_its_own_job_is_told_so() -> None:
    app = App("memory://")
    queue = app.queue("q")
    told: list[str] = []

    @queue.handler
    async def work(ctx: JobContext[int]) -> None:
        try:
            await ctx.wait_for_children([queue.new(work, 1, job_id=ctx.job_id)])
        except InvalidOption as error:
            told.append(str(error))

    async with app:
        await queue.add(work, 0, job_id="x")
        await app.run(burst=True)

    assert told == ["job q:x is in the flow twice: ids are unique, and no job waits for itself"]
