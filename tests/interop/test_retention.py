"""How long ended jobs, log lines and stack traces are kept, whoever ends them."""

from typing import Any

import pytest

from tests.interop.node import Node, NodeError
from tests.interop.operators import add_by
from tests.interop.side import Toril
from toril import JobContext, Keep, PermanentError

AGE = 60  # s


async def either(ctx: JobContext[Any]) -> None:
    if ctx.data["bad"]:
        raise PermanentError("told to")


@pytest.mark.parametrize("adds", ["node", "toril"])
@pytest.mark.parametrize("first", ["node", "toril"])
@pytest.mark.parametrize("second", ["node", "toril"])
@pytest.mark.parametrize(("bad", "state"), [(False, "completed"), (True, "failed")])
async def test_old_ones_go_when_another_ends(
    node: Node, toril: Toril, adds: str, first: str, second: str, bad: bool, state: str
) -> None:
    """Two that one side has ended; one of them long ago, when the other side ends a third."""
    events = await node.events("q")
    keep: dict[str, Any] = {"age": AGE, "count": 100}
    kept: Any = Keep(count=100, age=AGE)
    theirs = {"removeOnComplete": keep, "removeOnFail": keep}
    ours = {"keep_completed": kept, "keep_failed": kept}
    steps: list[dict[str, Any]] = [{"fail": "told to"}] if bad else []

    async def end(who: str, jobs: int, so_far: int) -> list[str]:
        async with toril.queue("q") as queue:
            options = theirs if adds == "node" else ours
            ids = [await add_by(adds, node, queue, "either", {"bad": bad}, **options) for _ in range(jobs)]
        if who == "toril":
            async with toril.working("q", {"either": either}):
                await events.until(state, times=so_far + jobs)
        else:
            worker = await node.worker("q", {"either": steps})
            await events.until(state, times=so_far + jobs)
            await worker.close()
        return ids

    old, young = await end(first, 2, 0)
    await node.redis("ZINCRBY", f"bull:q:{state}", -2 * AGE * 1000, old)
    (last,) = await end(second, 1, 2)

    assert sorted(await node.redis("ZRANGE", f"bull:q:{state}", 0, -1)) == [young, last]
    assert await node.redis("EXISTS", f"bull:q:{old}", f"bull:q:{young}") == 1


@pytest.mark.parametrize("works", ["node", "toril"])
@pytest.mark.parametrize("limit", [0, 1, 3])
async def test_stack_traces_are_kept_up_to_their_limit(node: Node, toril: Toril, works: str, limit: int) -> None:
    async def fails(ctx: JobContext[Any]) -> None:
        raise ValueError(f"attempt {ctx.attempt}")

    events = await node.events("q")
    job = await node.queue("q").add("fails", attempts=4, stackTraceLimit=limit)
    if works == "toril":
        async with toril.working("q", {"fails": fails}):
            await events.until("failed", jobId=job["id"])
    else:
        await node.worker("q", {"fails": [{"fail": "attempt 4"}]})
        await events.until("failed", jobId=job["id"])

    found = (await node.queue("q").job(job["id"]))["stacktrace"]
    assert len(found) == limit
    assert all("attempt" in trace for trace in found)
    async with toril.queue("q") as queue:
        seen = await queue.job(job["id"])
    assert seen is not None
    assert seen.record is not None
    assert seen.record.failure is not None
    assert ("attempt 4" in seen.record.failure.traceback) == (limit > 0)


@pytest.mark.parametrize("works", ["node", "toril"])
async def test_log_lines_are_kept_up_to_their_limit_and_read_by_both(node: Node, toril: Toril, works: str) -> None:
    async def talks(ctx: JobContext[Any]) -> None:
        for number in range(5):
            await ctx.log(f"line {number}")

    events = await node.events("q")
    job = (await node.queue("q").add("talks", keepLogs=3))["id"]
    async with toril.queue("q") as queue:
        if works == "toril":
            async with toril.working("q", {"talks": talks}):
                await events.until("completed", jobId=job)
        else:
            await node.worker("q", {"talks": [{"log": f"line {number}"} for number in range(5)]})
            await events.until("completed", jobId=job)
        await node.queue("q").call("addJobLog", job, "afterwards", 3)
        found = await queue.job(job)
        assert found is not None

        lines = ["line 3", "line 4", "afterwards"]
        assert await found.logs() == lines
    assert await node.queue("q").call("getJobLogs", job) == {"logs": lines, "count": 3}
    assert (await node.queue("q").call("getJobLogs", job, 0, 0, False))["logs"] == ["afterwards"]


async def test_the_limit_of_a_jobs_size_is_its_producers(node: Node, toril: Toril) -> None:
    """Node refuses it before it is stored; a job that is stored runs, with whatever it has been given since."""
    with pytest.raises(NodeError, match="exceeds"):
        await node.queue("q").add("n", {"text": "x" * 100}, sizeLimit=50)
    job = (await node.queue("q").add("echo", {"text": "x"}, sizeLimit=50))["id"]
    events = await node.events("q")
    async with toril.queue("q") as queue:
        found = await queue.job(job)
        assert found is not None
        await found.update_data({"text": "y" * 100})
    async with toril.working("q"):
        (completed,) = await events.until("completed", jobId=job)

    assert completed["returnvalue"] == {"text": "y" * 100}
    assert (await node.queue("q").job(job))["opts"]["sizeLimit"] == 50
