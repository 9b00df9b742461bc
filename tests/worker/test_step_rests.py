"""When a run ends by resting: sleeps, waits, calls, and branches that rest beside others that run."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from tests.worker.step_store import StepJob
from toril import App, JobContext, LeaseLost, Retry
from toril.errors import InvalidOption, Resting, StepClash, StepFailed
from toril.model import (
    BATCH,
    Child,
    ChildState,
    Claimed,
    FlowNode,
    Rested,
    SignalWait,
    StepKind,
    StepVerdict,
    Verdict,
)
from toril.policy.retry import Fixed
from toril.worker.steps import AttemptSteps

DAY = 86_400_000
APPROVAL, REFUSAL = SignalWait("approval"), SignalWait("refusal")


@pytest.fixture
def job() -> StepJob:
    return StepJob()


def keys(rested: Any) -> list[str]:
    assert isinstance(rested, Rested)
    return [rest.key for rest in rested.rests]


async def test_a_sleep_is_over_when_its_time_has_passed_by_the_stores_clock(job: StepJob) -> None:
    async def handler(ctx: AttemptSteps) -> str:
        await ctx.sleep("cool-off", delay=3 * DAY)
        return "awake"

    for passed in (0, DAY, 2 * DAY - 1):
        assert keys(await job.run(handler)) == ["cool-off"]
        job.clock.advance(passed)
    assert keys(await job.run(handler)) == ["cool-off"], "one millisecond early"
    job.clock.advance(1)

    assert await job.run(handler) == "awake"


async def test_a_sleep_until_a_time_is_recorded_with_it(job: StepJob) -> None:
    start = job.clock.now()

    async def handler(ctx: AttemptSteps) -> str:
        await ctx.sleep("past", until=start - 5)
        await ctx.sleep("night", until=start + 5_000)
        return "awake"

    rested = await job.run(handler)
    assert keys(rested) == ["night"]
    assert rested.rests[0].recorded
    assert await job.finish(handler) == "awake"
    assert job.clock.now() - start == 5_000


async def test_a_handler_that_catches_its_rest_is_told_again(job: StepJob) -> None:
    caught: list[bool] = []

    async def handler(ctx: AttemptSteps) -> None:
        try:
            await ctx.sleep("a", delay=1)
        except BaseException:
            caught.append(ctx.resting)
        await ctx.step("b", int)

    assert keys(await job.run(handler)) == ["a"]
    assert caught == [True]
    assert list(job.store.rows) == ["a"]


async def test_the_oldest_of_several_signals_is_received(job: StepJob) -> None:
    async def handler(ctx: AttemptSteps) -> Any:
        return await ctx.wait_for({APPROVAL: int, REFUSAL: str})

    rested = await job.run(handler)
    assert keys(rested) == ["approval+refusal"]
    assert rested.rests[0].signals == (APPROVAL, REFUSAL)
    job.store.signals += [(REFUSAL, '"no"'), (APPROVAL, "1")]

    assert await job.run(handler) == (REFUSAL, "no")


async def test_a_signal_that_does_not_fit_is_set_aside_and_the_wait_goes_on(job: StepJob) -> None:
    async def handler(ctx: AttemptSteps) -> Any:
        return await ctx.wait_for({APPROVAL: bool}, timeout=DAY)

    job.clock.advance(0)
    first = await job.run(handler)
    until = job.until
    job.store.signals.append((APPROVAL, '"yeah"'))
    job.clock.advance(5)
    second = await job.run(handler)

    assert keys(first) == keys(second) == ["approval"]
    assert job.until == until, "the time of the wait does not begin anew"
    assert len(job.unfit) == len(job.reports.lines) == 1
    job.store.signals += [(APPROVAL, "7.5"), (APPROVAL, "true")]
    assert await job.run(handler) == (APPROVAL, True)


async def test_two_jobs_cannot_wait_for_one_key(job: StepJob) -> None:
    job.store.verdict = StepVerdict.CLASH

    async def handler(ctx: AttemptSteps) -> Any:
        return await ctx.wait_for({SignalWait("paid", "invoice:7"): Any})

    with pytest.raises(StepClash, match="another job"):
        await job.run(handler)


async def test_a_call_returns_the_result_of_another_job(job: StepJob) -> None:
    app = App("memory://")

    async def report(ctx: JobContext[int]) -> dict[str, int]:
        return {"pages": ctx.data}

    reports = app.queue("reports", {"report": report})

    async def handler(ctx: AttemptSteps) -> Any:
        return await ctx.call("report", [reports.new(report, 3), reports.new(report, 4)])

    rested = await job.run(handler)
    assert keys(rested) == ["report"]
    assert [node.on_failure for node in rested.children] == ["ignore", "ignore"]
    ids = [node.ref for node in rested.children]
    assert keys(await job.run(handler)) == ["report"], "one of them is still open"
    for ref, text in zip(ids, ('{"pages": 3}', '{"pages": 4}'), strict=True):
        job.store.children[ref] = Child(ref, ChildState.COMPLETED, text, "report", None)

    assert await job.run(handler) == [{"pages": 3}, {"pages": 4}]
    job.store.children[ids[0]] = Child(ids[0], ChildState.IGNORED, "no paper", "report", None)
    with pytest.raises(StepFailed, match="ChildFailed: no paper"):
        await job.run(handler)


# branches


async def test_branches_run_beside_each_other_each_within_its_scope(job: StepJob) -> None:
    async def branch(ctx: AttemptSteps, number: int) -> int:
        return int(await ctx.step("parse", int, (number,))) + int(await ctx.step("parse", int, (10,)))

    async def handler(ctx: AttemptSteps) -> list[Any]:
        first = await ctx.gather(branch(ctx, 1), branch(ctx, 2), limit=1)
        return [*first, *await ctx.gather(branch(ctx, 3), name="more"), *await ctx.gather(branch(ctx, 4))]

    assert [await job.run(handler) for _ in range(2)] == [[11, 12, 13, 14]] * 2
    assert list(job.store.rows) == [
        "gather[0]/parse", "gather[0]/parse#2", "gather[1]/parse", "gather[1]/parse#2",
        "more[0]/parse", "more[0]/parse#2", "gather#2[0]/parse", "gather#2[0]/parse#2",
    ]  # fmt: skip


async def test_a_job_rests_for_all_of_its_branches_at_once(job: StepJob) -> None:
    async def branch(ctx: AttemptSteps, days: int) -> int:
        await ctx.sleep("nap", delay=days * DAY)
        return days

    async def handler(ctx: AttemptSteps) -> list[int]:
        inner = ctx.gather(branch(ctx, 1), branch(ctx, 2))
        return [*await ctx.gather(branch(ctx, 3), inner, name="outer")]  # type: ignore[list-item]

    rested = await job.run(handler)

    assert sorted(keys(rested)) == ["outer[0]/nap", "outer[1]/gather[0]/nap", "outer[1]/gather[1]/nap"]
    assert job.until == job.clock.now() + DAY
    assert await job.finish(handler) == [3, [1, 2]]
    assert job.runs == 5, "the second came before anything was over"


async def test_more_branches_may_rest_than_may_run_at_once(job: StepJob) -> None:
    async def branch(ctx: AttemptSteps) -> None:
        await ctx.sleep("nap", delay=DAY)

    async def handler(ctx: AttemptSteps) -> list[None]:
        return await ctx.gather(*(branch(ctx) for _ in range(20)), limit=3)

    assert len(keys(await job.run(handler))) == 20
    assert await job.finish(handler) == [None] * 20


async def test_a_branch_that_rests_beside_a_step_has_its_time_fixed_and_goes_on_in_place(job: StepJob) -> None:
    done: list[str] = []

    async def nap(ctx: AttemptSteps) -> None:
        await ctx.sleep("nap", delay=60_000)
        done.append("nap")
        await ctx.sleep("long", delay=DAY)

    async def slow() -> None:
        await job.clock.sleep(120)
        done.append("slow")

    async def handler(ctx: AttemptSteps) -> None:
        await ctx.gather(nap(ctx), ctx.step("slow", slow))

    async with job.clock.running():
        rested = await job.run(handler)

    assert keys(rested) == ["gather[0]/long"]
    assert rested.rests[0].recorded, "its time has begun while the step was under way"
    assert done == ["nap", "slow"]


async def test_a_branch_that_waits_beside_a_step_looks_for_its_signal(job: StepJob) -> None:
    async def approved(ctx: AttemptSteps) -> Any:
        return await ctx.wait_for({APPROVAL: bool})

    async def slow() -> str:
        await job.clock.sleep(10)
        job.store.signals.append((APPROVAL, "true"))
        await job.clock.sleep(10)
        return "slow"

    async def handler(ctx: AttemptSteps) -> Any:
        return await ctx.gather(approved(ctx), ctx.step("slow", slow))

    async with job.clock.running():
        assert await job.run(handler) == [(APPROVAL, True), "slow"]


async def test_a_step_whose_retry_is_due_beside_others_is_tried_in_place(job: StepJob) -> None:
    tries: list[int] = []

    async def flaky() -> int:
        tries.append(1)
        if len(tries) < 2:
            raise ConnectionError("away")
        return 1

    async def slow() -> None:
        while len(tries) < 2:
            await job.clock.sleep(1)

    async def handler(ctx: AttemptSteps) -> Any:
        flaking = ctx.step("flaky", flaky, retry=Retry(3, Fixed(5)))
        return await ctx.gather(flaking, ctx.step("slow", slow))

    async with job.clock.running():
        assert await job.run(handler) == [1, None]
    assert job.store.calls == ["t flaky", "d flaky", "d slow"]


async def test_a_branch_that_fails_lets_steps_end_and_leaves_the_rest(job: StepJob) -> None:
    ended: list[str] = []
    go = asyncio.Event()

    async def fails(ctx: AttemptSteps) -> None:
        await ctx.step("ok", int)
        raise ValueError("no")

    async def naps(ctx: AttemptSteps) -> None:
        try:
            await ctx.sleep("nap", delay=DAY)
        finally:
            ended.append("nap")
            go.set()

    async def slow() -> None:
        await go.wait()
        ended.append("slow")

    async def steps(ctx: AttemptSteps) -> None:
        await ctx.step("slow", slow)
        await ctx.step("never", int)

    async def handler(ctx: AttemptSteps) -> None:
        await ctx.gather(fails(ctx), naps(ctx), steps(ctx))

    with pytest.raises(ValueError, match="no"):
        await job.run(handler)
    assert ended == ["nap", "slow"]
    assert "gather[2]/slow" in job.store.rows, "a step that was under way is recorded"
    assert "gather[2]/never" not in job.store.rows


async def test_a_place_is_free_while_all_of_its_branch_rests(job: StepJob) -> None:
    async def approved(ctx: AttemptSteps) -> Any:
        return await ctx.gather(ctx.wait_for({APPROVAL: bool}))

    async def handler(ctx: AttemptSteps) -> Any:
        return await ctx.gather(approved(ctx), ctx.sleep("nap", delay=DAY), ctx.step("count", int), limit=1)

    rested = await asyncio.wait_for(job.run(handler), 5)

    assert sorted(keys(rested)) == ["gather[0]/approval", "nap"]
    assert "count" in job.store.rows
    job.store.signals.append((APPROVAL, "true"))
    job.clock.advance(DAY)
    assert await job.run(handler) == [[(APPROVAL, True)], None, 0]


async def test_a_job_with_a_branch_that_has_failed_is_not_told_to_rest(job: StepJob) -> None:
    async def fails() -> None:
        raise ValueError("no")

    async def inner(ctx: AttemptSteps) -> Any:
        with pytest.raises(ValueError, match="no"):
            await ctx.gather(fails(), ctx.gather(ctx.gather(ctx.sleep("inner", delay=DAY))))
        assert not ctx.resting
        return await ctx.step("compensate", int)

    async def handler(ctx: AttemptSteps) -> Any:
        return await ctx.gather(inner(ctx), ctx.sleep("outer", delay=DAY))

    for _ in range(2):
        assert keys(await job.run(handler)) == ["outer"]
    assert "gather[0]/compensate" in job.store.rows


@pytest.mark.parametrize("plain", [False, True])
async def test_a_failure_that_was_caught_is_recorded_before_the_job_rests(job: StepJob, plain: bool) -> None:
    ran: list[str] = []

    async def boom() -> None:
        ran.append("boom")
        await turns()
        raise ValueError("no")

    async def tolerates(ctx: AttemptSteps) -> str:
        with pytest.raises(StepFailed):
            await ctx.step("boom", boom)
        return "tolerated"

    async def naps(ctx: AttemptSteps) -> None:
        await ctx.sleep("one", delay=DAY)
        await ctx.sleep("two", delay=DAY)

    async def handler(ctx: AttemptSteps) -> list[Any]:
        if plain:
            return [*await asyncio.gather(tolerates(ctx), naps(ctx))]
        return await ctx.gather(tolerates(ctx), naps(ctx))

    await job.run(handler)
    assert [row.kind for key in job.store.rows if "boom" in key and (row := job.store.row(key))] == [StepKind.FAILED]
    assert await job.finish(handler) == ["tolerated", None]
    assert ran == ["boom"]


async def test_a_failure_that_cannot_be_recorded_reaches_who_would_rest(job: StepJob) -> None:
    async def boom() -> None:
        await turns()
        job.store.verdict = StepVerdict.LOST
        raise ValueError("no")

    async def tolerates(ctx: AttemptSteps) -> None:
        with pytest.raises(StepFailed):
            await ctx.step("boom", boom)

    async def handler(ctx: AttemptSteps) -> None:
        await ctx.gather(tolerates(ctx), ctx.sleep("nap", delay=DAY))

    with pytest.raises(LeaseLost):
        await asyncio.wait_for(job.run(handler), 5)


@pytest.mark.parametrize("deep", [False, True])
async def test_a_step_is_not_tried_again_in_a_branch_that_is_left(job: StepJob, deep: bool) -> None:
    tries: list[int] = []
    failed = asyncio.Event()

    async def flaky() -> None:
        tries.append(1)
        await failed.wait()
        for _ in range(20):  # by then its branch is to be left
            await asyncio.sleep(0)
        raise ConnectionError("away")

    async def fails() -> None:
        failed.set()
        raise ValueError("no")

    async def handler(ctx: AttemptSteps) -> None:
        step: Any = ctx.step("flaky", flaky, retry=Retry(5, Fixed(0)))
        await ctx.gather(ctx.gather(step) if deep else step, fails())

    with pytest.raises(ValueError, match="no"):
        await job.run(handler)
    assert len(tries) == 1


async def test_tasks_that_are_no_branches_count_as_quiet_after_some_turns(job: StepJob) -> None:
    async def nap(ctx: AttemptSteps, number: int) -> int:
        await ctx.step("first", int, key=str(number))
        await ctx.sleep(f"nap-{number}", delay=number * DAY)
        return number

    async def handler(ctx: AttemptSteps) -> list[int]:
        return [*await asyncio.gather(nap(ctx, 1), nap(ctx, 2))]

    assert sorted(keys(await job.run(handler))) == ["nap-1", "nap-2"]
    assert await job.finish(handler) == [1, 2]


async def turns() -> None:
    """As long as a store takes to answer."""
    for _ in range(50):
        await asyncio.sleep(0)


@pytest.mark.parametrize("called", [1, 2 * BATCH // 3])
async def test_a_job_does_not_rest_while_a_call_looks_for_its_children(
    job: StepJob, monkeypatch: pytest.MonkeyPatch, called: int
) -> None:
    app = App("memory://")
    queue = app.queue("reports", {"report": lambda _: None})
    read, add = job.reports.children, job.reports.add_children

    async def slow_read(claimed: Claimed) -> list[Child]:
        await turns()
        return await read(claimed)

    async def slow_add(claimed: Claimed, nodes: Sequence[FlowNode]) -> Verdict:
        await turns()
        return await add(claimed, nodes)

    monkeypatch.setattr(job.reports, "children", slow_read)
    monkeypatch.setattr(job.reports, "add_children", slow_add)

    async def pipeline(ctx: AttemptSteps, name: str) -> None:
        await ctx.call(name, [queue.new("report") for _ in range(called)])
        await ctx.step(f"after-{name}", int)

    async def handler(ctx: AttemptSteps) -> None:
        await asyncio.gather(pipeline(ctx, "a"), pipeline(ctx, "b"), ctx.sleep("nap", delay=DAY))

    assert sorted(keys(await job.run(handler))) == ["a", "b", "nap"], "it rests for all of them"
    assert len(job.store.children) == 2 * called
    for ref, child in list(job.store.children.items()):
        job.store.children[ref] = replace(child, state=ChildState.COMPLETED)
    assert keys(await job.run(handler)) == ["nap"], "the steps after the calls have run"
    assert {"after-a", "after-b"} <= job.store.rows.keys()


async def test_a_task_group_that_rests_is_one_rest(job: StepJob) -> None:
    async def handler(ctx: AttemptSteps) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(ctx.sleep("a", delay=DAY))
            group.create_task(ctx.sleep("b", delay=DAY))

    with pytest.raises(BaseExceptionGroup) as found:
        await job.run(handler)
    assert found.value.subgroup(Resting) is not None
    assert job.steps is not None
    assert job.steps.rested is not None
    assert keys(job.steps.rested) == ["a", "b"]


async def test_a_job_that_is_cancelled_cuts_its_branches(job: StepJob) -> None:
    ended: list[str] = []
    begun = asyncio.Event()

    async def slow() -> None:
        begun.set()
        await asyncio.Event().wait()

    async def branch(ctx: AttemptSteps) -> None:
        try:
            await ctx.step("slow", slow)
        finally:
            ended.append("cut")

    async def handler(ctx: AttemptSteps) -> None:
        await ctx.gather(branch(ctx), branch(ctx))

    task = asyncio.ensure_future(job.run(handler))
    await begun.wait()
    task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended == ["cut", "cut"]


async def test_impossible_gathers_are_refused(job: StepJob) -> None:
    async def handler(ctx: AttemptSteps) -> None:
        assert await ctx.gather() == []
        with pytest.raises(InvalidOption, match="limit"):
            await ctx.gather(ctx.step("a", int), limit=0)
        with pytest.raises(InvalidOption, match="branches"):
            await ctx.gather(*(ctx.step("b", int) for _ in range(1_001)))

    await job.run(handler)


@pytest.mark.parametrize("kind", ["task", "function", "value"])
async def test_a_gather_of_what_is_no_coroutine_begins_nothing(job: StepJob, kind: str) -> None:
    ran: list[str] = []

    async def branch(name: str) -> None:
        ran.append(name)

    async def handler(ctx: AttemptSteps) -> None:
        given: dict[str, Any] = {"task": asyncio.ensure_future(branch("task")), "function": branch, "value": 1}
        with pytest.raises(InvalidOption, match="branches of a gather are coroutines"):
            await ctx.gather(branch("before"), given[kind], branch("after"))
        given["task"].cancel()
        await ctx.sleep("nap", delay=DAY)

    assert keys(await asyncio.wait_for(job.run(handler), 5)) == ["nap"], "the job can rest after it"
    assert ran == []


async def test_without_its_lease_a_branch_that_waits_learns_so(job: StepJob) -> None:
    async def handler(ctx: AttemptSteps) -> Any:
        return await ctx.gather(ctx.wait_for({APPROVAL: bool}), ctx.step("slow", job.clock.sleep, (5,)))

    async def lose() -> None:
        await job.clock.sleep(2)
        job.store.verdict = StepVerdict.LOST

    async with job.clock.running():
        losing = asyncio.ensure_future(lose())
        with pytest.raises(LeaseLost):
            await job.run(handler)
    await losing
    assert all(text[0] == StepKind.WAIT.value for text in job.store.rows.values())
