"""Flows where one job is two things at once: parent and child, or ending and adopted."""

from collections.abc import Awaitable, Callable
from typing import TypeVar, cast

import pytest

from tests.conformance.dumps import unchanged
from tests.conformance.jobs import claim, claim_one, settle
from tests.conformance.test_flows import TOP, WHY, child, known, parent, state
from toril import App, InvalidOption, JobContext, WrongState
from toril.flow import Flow, Flows, gather
from toril.model import (
    BATCH,
    KEEP_ALL,
    Call,
    ChildState,
    Claim,
    Completed,
    Failed,
    JobOptions,
    JobRef,
    NewJob,
    OnFailure,
    Outcome,
    Released,
    Rested,
    Settlement,
    Verdict,
)
from toril.model.states import State
from toril.runtime.clock import SystemClock
from toril.runtime.services import Services
from toril.store.engine import Store

T = TypeVar("T")
MIDDLE = JobRef("q", "middle")


@pytest.mark.parametrize("between", [False, True])
async def test_no_job_becomes_its_own_child(engine: Store, between: bool) -> None:
    await engine.add("p", [NewJob(name="n", id="top")])
    taken = await claim_one(engine, queue="p")
    circle = [child("top", queue="p")]
    if between:
        circle = [parent("middle", queue="q", under=TOP), child("top", queue="p", under=MIDDLE)]

    async with unchanged(engine):
        with pytest.raises(WrongState, match="p:top already has children"):
            await engine.flows.add_children(taken.lease, circle)
    await settle(engine, taken.lease, Rested(tuple(circle), 1))

    (letter,) = (await engine.dead_letters.page()).items
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

    assert told == ["job q:x occurs twice in the flow; give each job an id of its own"]


async def together(engine: Store, outcomes: dict[str, Outcome], order: list[str]) -> None:
    """These jobs of one queue run, and are handed in by one exchange, in this order."""
    await engine.add("p", [NewJob(name="n", id=name, options=JobOptions(keep_completed=KEEP_ALL)) for name in outcomes])
    leases = {taken.lease.id: taken.lease for taken in (await claim(engine, queue="p")).jobs}
    batch = [Settlement(leases[name], outcomes[name]) for name in order]
    none = Claim(want=0, token="none", lease=1_000, worker="w")
    assert set((await engine.exchange("p", batch, none)).verdicts) == {Verdict.OK}


@pytest.mark.parametrize("order", [["top", "a"], ["a", "top"]])
async def test_who_adopts_a_job_that_ends_in_the_same_exchange_reads_what_it_returned(
    engine: Store, order: list[str]
) -> None:
    adopting = Rested((child("a", queue="p"),), 1)

    await together(engine, {"top": adopting, "a": Completed('"real"')}, order)

    assert await known(engine) == {"a": (ChildState.COMPLETED, '"real"')}
    assert (await claim_one(engine, queue="p")).lease.id == "top"


@pytest.mark.parametrize("order", [["top", "a"], ["a", "top"]])
async def test_who_adopts_a_job_that_fails_or_is_given_back_in_the_same_exchange_does_not_take_it_for_completed(
    engine: Store, order: list[str]
) -> None:
    adopting = Rested((child("a", queue="p", on_failure=OnFailure.IGNORE),), 1)

    await together(engine, {"top": adopting, "a": Released()}, order)
    assert await known(engine) == {"a": (ChildState.OPEN, None)}
    await settle(engine, (await claim_one(engine, queue="p")).lease, Failed(WHY))

    assert await known(engine) == {"a": (ChildState.IGNORED, WHY.reason)}
    assert await state(engine) is State.WAITING


@pytest.mark.parametrize("order", [["top", "a"], ["a", "top"]])
async def test_of_two_that_adopt_each_other_in_the_same_exchange_one_fails_and_none_waits_for_ever(
    engine: Store, order: list[str]
) -> None:
    each_other: dict[str, Outcome] = {
        "top": Rested((child("a", queue="p"),), 1),
        "a": Rested((child("top", queue="p", under=JobRef("p", "a")),), 1),
    }

    await together(engine, each_other, order)

    counts = await engine.counts("p")
    assert (counts.waiting_children, len((await engine.dead_letters.page()).items)) == (0, 1)


async def test_those_that_park_with_children_that_have_ended_go_on_in_their_order(engine: Store) -> None:
    names = ["x", "y", "z"]
    await engine.add("q", [NewJob(name="n", id=name, options=JobOptions(keep_completed=KEEP_ALL)) for name in names])
    for done in (await claim(engine, queue="q")).jobs:
        await settle(engine, done.lease)

    adopting: dict[str, Outcome] = {name: Rested((child(name, under=JobRef("p", name)),), 1) for name in names}
    await together(engine, adopting, names)

    assert [each.lease.id for each in (await claim(engine, queue="p")).jobs] == names


class DyingServices:
    """Sends calls to an engine, until its program dies before the call of this number."""

    def __init__(self, engine: Store, dies_at: int) -> None:
        self.store, self.tracing, self.clock = engine, None, SystemClock()
        self._calls, self._dies_at = 0, dies_at

    async def call(self, make: Callable[[Call], Awaitable[T]]) -> T:
        self._calls += 1
        if self._calls == self._dies_at:
            raise ConnectionError("the program died")
        return await make(Call(f"producer-{self._dies_at}", self._calls))


def producer(engine: Store, dies_at: int) -> Flows:
    """Adds flows; its program dies before the call of this number."""
    return Flows(cast("Services", DyingServices(engine, dies_at)))


@pytest.mark.parametrize("named", [False, True])
async def test_a_large_flow_sent_again_goes_on_only_if_its_jobs_have_ids(engine: Store, named: bool) -> None:
    async def work(ctx: JobContext[int]) -> None: ...

    queue = App("memory://").queue("p", {"work": work})
    children = [queue.new(work, n, job_id=f"c{n}") if named else queue.new(work, n) for n in range(BATCH + 1)]
    with pytest.raises(ConnectionError):
        await producer(engine, 2).add(queue.new(work, 0, job_id="top"), children)

    again = producer(engine, 0).add(queue.new(work, 0, job_id="top"), children)
    if named:
        assert (await again).added
    else:
        with pytest.raises(WrongState, match="p:top was stored only in part"):
            await again

    assert (await engine.counts("p")).waiting == (BATCH + 1 if named else BATCH - 1)


async def test_gather_speaks_only_for_jobs_that_do_not_speak_themselves(engine: Store) -> None:
    async def work(ctx: JobContext[int]) -> None: ...

    queue = App("memory://").queue("q", {"work": work})
    own = Flow(queue.new(work, 0, job_id="own"), on_failure="remove")
    both = gather(
        [own, queue.new(work, 0, job_id="other")], then=queue.new(work, 0, job_id="then"), on_failure="ignore"
    )

    await producer(engine, 0).add(both)
    for taken in (await claim(engine)).jobs:
        await settle(engine, taken.lease, Failed(WHY))

    assert await known(engine, JobRef("q", "then")) == {"other": (ChildState.IGNORED, WHY.reason)}
