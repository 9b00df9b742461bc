"""Node adds, Toril works."""

from typing import Any

import pytest

from tests.interop.node import Node
from tests.interop.side import Steps, Toril
from toril import JobContext, PermanentError

ODD: dict[str, Any] = {
    "text": 'é ✓ \u0000 \\/ "',
    "none": None,
    "float": 1.5,
    "big": 2**53 - 1,
    "list": [],
    "map": {},
    "deep": [[{}]],
}


async def test_a_job_runs_and_its_result_is_read_by_node(node: Node, toril: Toril) -> None:
    events = await node.events("q")
    job = await node.queue("q").add("echo", ODD)

    async with toril.working("q"):
        (completed,) = await events.until("completed", jobId=job["id"])

    found = await node.queue("q").job(job["id"])
    assert completed["returnvalue"] == found["returnvalue"] == found["data"] == ODD
    assert await node.queue("q").state(job["id"]) == "completed"
    assert (found["attemptsMade"], found["attemptsStarted"]) == (1, 1)
    assert job["timestamp"] <= found["processedOn"] <= found["finishedOn"]
    assert found["processedBy"]


async def test_nothing_returned_is_null(node: Node, toril: Toril) -> None:
    async def nothing(ctx: JobContext[Any]) -> None: ...

    events = await node.events("q")
    job = await node.queue("q").add("nothing")

    async with toril.working("q", {"nothing": nothing}):
        (completed,) = await events.until("completed", jobId=job["id"])

    assert completed["returnvalue"] is None
    assert await node.redis("HGET", f"bull:q:{job['id']}", "returnvalue") == "null"


async def test_a_waiting_node_producer_gets_the_result(node: Node, toril: Toril) -> None:
    await node.events("q")
    async with toril.working("q"):
        job = await node.queue("q").add("echo", {"a": 1})

        assert await node.driver.do("result", queue="q", jobId=job["id"]) == {"a": 1}


async def test_an_idle_toril_is_woken_by_nodes_job(node: Node, toril: Toril) -> None:
    events = await node.events("q")
    async with toril.working("q"):
        first = await node.queue("q").add("echo")
        await events.until("completed", jobId=first["id"])

        second = await node.queue("q").add("echo")
        await events.until("completed", jobId=second["id"], deadline=7)  # sooner than any poll


async def test_a_delayed_job_waits_for_its_time(node: Node, toril: Toril) -> None:
    events = await node.events("q")
    async with toril.working("q"):
        job = await node.queue("q").add("echo", delay=400)
        await events.until("completed", jobId=job["id"])

    found = await node.queue("q").job(job["id"])
    assert found["processedOn"] >= job["timestamp"] + 400
    assert found["delay"] == 0
    assert await events.names(job["id"]) == ["added", "delayed", "waiting", "active", "completed"]


async def test_priorities_are_kept(node: Node, toril: Toril) -> None:
    steps, queue, events = Steps(), node.queue("q"), await node.events("q")
    added = [await queue.add("note", jobId=f"p{rank}", **options) for rank, options in _RANKED]

    async with toril.working("q", {"note": steps.note}):
        await events.until("completed", times=len(added))

    assert steps.ran == sorted(steps.ran)


_RANKED: list[tuple[int, dict[str, Any]]] = [
    (5, {"priority": 20}),
    (3, {"priority": 3}),
    (4, {"priority": 3}),
    (2, {}),  # one without a priority goes before all that have one
    (1, {"lifo": True}),
]


async def test_the_last_in_is_first_out(node: Node, toril: Toril) -> None:
    steps, queue, events = Steps(), node.queue("q"), await node.events("q")
    for name in ("second", "first"):
        await queue.add("note", jobId=name, lifo=True)
    await queue.add("note", jobId="third")

    async with toril.working("q", {"note": steps.note}):
        await events.until("completed", times=3)

    assert steps.ran == ["first", "second", "third"]


async def test_an_id_is_taken_only_once(node: Node, toril: Toril) -> None:
    events = await node.events("q")
    await node.queue("q").add("echo", {"first": True}, jobId="mine")

    async with toril.queue("q") as queue:
        again = await queue.add("echo", {"first": False}, job_id="mine")

    await events.until("duplicated", jobId="mine")
    assert (again.id, again.added) == ("mine", False)
    assert (await node.queue("q").job("mine"))["data"] == {"first": True}
    assert (await node.queue("q").counts())["waiting"] == 1


async def test_a_bulk_runs_in_order(node: Node, toril: Toril) -> None:
    steps, events = Steps(), await node.events("q")
    jobs = await node.queue("q").call("addBulk", [{"name": "note", "data": {"n": n}} for n in range(250)])

    async with toril.working("q", {"note": steps.note}):
        await events.until("completed", times=250)

    assert steps.ran == [job["id"] for job in jobs]


@pytest.mark.parametrize(
    ("backoff", "delays"),
    [
        ({"type": "fixed", "delay": 60_000}, [60_000, 60_000, 60_000]),
        ({"type": "exponential", "delay": 60_000}, [60_000, 120_000, 240_000]),
        (60_000, [60_000, 60_000, 60_000]),
    ],
)
async def test_retries_wait_as_node_asked(node: Node, toril: Toril, backoff: Any, delays: list[int]) -> None:
    async def shaky(ctx: JobContext[Any]) -> int:
        if ctx.attempt < 4:
            raise ValueError(f"attempt {ctx.attempt}")
        return ctx.attempt

    queue, events = node.queue("q"), await node.events("q")
    job = await queue.add("shaky", attempts=4, backoff=backoff)

    waited = []
    async with toril.working("q", {"shaky": shaky}):
        for turn in range(1, 4):
            await events.until("delayed", jobId=job["id"], times=turn)
            waited.append((await queue.job(job["id"]))["delay"])
            await queue.of_job(job["id"], "promote")
        await events.until("completed", jobId=job["id"])

    found = await queue.job(job["id"])
    assert waited == delays
    assert (found["returnvalue"], found["attemptsMade"], found["attemptsStarted"]) == (4, 4, 4)
    assert len(found["stacktrace"]) == 3


async def test_a_retry_without_backoff_is_at_once(node: Node, toril: Toril) -> None:
    async def shaky(ctx: JobContext[Any]) -> None:
        if ctx.attempt < 3:
            raise ValueError("not yet")

    events = await node.events("q")
    job = await node.queue("q").add("shaky", attempts=3)

    async with toril.working("q", {"shaky": shaky}):
        await events.until("completed", jobId=job["id"])

    assert await events.names(job["id"]) == [
        "added", "waiting", "active", "waiting", "active", "waiting", "active", "completed",
    ]  # fmt: skip


@pytest.mark.parametrize("attempts", [0, 1, 2])
async def test_a_failure_carries_reason_and_stack_trace(node: Node, toril: Toril, attempts: int) -> None:
    async def fails(ctx: JobContext[Any]) -> None:
        raise ValueError("no such bull")

    events = await node.events("q")
    job = await node.queue("q").add("fails", attempts=attempts)

    async with toril.working("q", {"fails": fails}):
        (failed,) = await events.until("failed", jobId=job["id"])
        (exhausted,) = await events.until("retries-exhausted", jobId=job["id"])

    found = await node.queue("q").job(job["id"])
    assert failed["failedReason"] == found["failedReason"] == "no such bull"
    assert int(exhausted["attemptsMade"]) == found["attemptsMade"] == max(1, attempts)
    assert len(found["stacktrace"]) == max(1, attempts)
    assert "ValueError: no such bull" in found["stacktrace"][-1]
    assert "in fails" in found["stacktrace"][-1]


async def test_the_stack_traces_limit_is_kept(node: Node, toril: Toril) -> None:
    async def fails(ctx: JobContext[Any]) -> None:
        raise ValueError(f"attempt {ctx.attempt}")

    events = await node.events("q")
    job = await node.queue("q").add("fails", attempts=4, stackTraceLimit=2)

    async with toril.working("q", {"fails": fails}):
        await events.until("failed", jobId=job["id"])

    first, last = (await node.queue("q").job(job["id"]))["stacktrace"]
    assert "attempt 3" in first
    assert "attempt 4" in last


async def test_a_permanent_error_leaves_attempts_unused(node: Node, toril: Toril) -> None:
    async def fails(ctx: JobContext[Any]) -> None:
        raise PermanentError("never")

    events = await node.events("q")
    job = await node.queue("q").add("fails", attempts=5)

    async with toril.working("q", {"fails": fails}):
        await events.until("failed", jobId=job["id"])

    assert (await node.queue("q").job(job["id"]))["attemptsMade"] == 1
    assert "retries-exhausted" not in await events.names(job["id"])


async def test_progress_and_logs_are_read_by_node(node: Node, toril: Toril) -> None:
    async def talks(ctx: JobContext[Any]) -> None:
        await ctx.update_progress({"done": 0.5})
        await ctx.log("first")
        await ctx.log("second é")

    events = await node.events("q")
    job = await node.queue("q").add("talks")

    async with toril.working("q", {"talks": talks}):
        (progress,) = await events.until("progress", jobId=job["id"])
        await events.until("completed", jobId=job["id"])

    assert progress["data"] == (await node.queue("q").job(job["id"]))["progress"] == {"done": 0.5}
    assert await node.queue("q").call("getJobLogs", job["id"]) == {"logs": ["first", "second é"], "count": 2}


async def test_only_so_many_log_lines_are_kept(node: Node, toril: Toril) -> None:
    async def talks(ctx: JobContext[Any]) -> None:
        for number in range(5):
            await ctx.log(f"line {number}")

    events = await node.events("q")
    job = await node.queue("q").add("talks", keepLogs=2)

    async with toril.working("q", {"talks": talks}):
        await events.until("completed", jobId=job["id"])

    assert (await node.queue("q").call("getJobLogs", job["id"]))["logs"] == ["line 3", "line 4"]


async def test_what_a_handler_writes_into_its_data_stays(node: Node, toril: Toril) -> None:
    async def writes(ctx: JobContext[Any]) -> None:
        await ctx.update_data({"seen": True})

    events = await node.events("q")
    job = await node.queue("q").add("writes", {"seen": False})

    async with toril.working("q", {"writes": writes}):
        await events.until("completed", jobId=job["id"])

    assert (await node.queue("q").job(job["id"]))["data"] == {"seen": True}


@pytest.mark.parametrize(
    ("option", "left"), [(True, 0), (False, 6), (2, 2), ({"count": 3}, 3), ({"age": 3600, "count": 4}, 4)]
)
async def test_finished_jobs_are_kept_as_node_asked(node: Node, toril: Toril, option: Any, left: int) -> None:
    async def either(ctx: JobContext[Any]) -> None:
        if ctx.data["fail"]:
            raise PermanentError("told to")

    events = await node.events("q")
    for number in range(12):
        data = {"fail": number % 2 == 1}
        await node.queue("q").add("either", data, removeOnComplete=option, removeOnFail=option)

    async with toril.working("q", {"either": either}):
        await events.until("completed", times=6)
        await events.until("failed", times=6)

    counts = await node.queue("q").counts()
    assert (counts["completed"], counts["failed"]) == (left, left)
    hashes = [key for key in await node.redis("KEYS", "bull:q:*") if key.rpartition(":")[2].isdigit()]
    assert len(hashes) == 2 * left


async def test_a_job_that_must_fail_does_not_run(node: Node, toril: Toril) -> None:
    steps, events = Steps(), await node.events("q")
    job = await node.queue("q").add("note", attempts=3)
    await node.redis("HSET", f"bull:q:{job['id']}", "defa", "child bull:c:1 failed")

    async with toril.working("q", {"note": steps.note}):
        (failed,) = await events.until("failed", jobId=job["id"])

    assert failed["failedReason"] == "child bull:c:1 failed"
    assert steps.ran == []
    assert (await node.queue("q").job(job["id"]))["attemptsMade"] == 1
    assert await node.redis("HEXISTS", f"bull:q:{job['id']}", "defa") == 0


async def test_a_failed_job_retried_by_node_runs_again(node: Node, toril: Toril) -> None:
    async def once(ctx: JobContext[Any]) -> None:
        if ctx.data["bad"]:
            raise PermanentError("bad data")

    queue, events = node.queue("q"), await node.events("q")
    job = await queue.add("once", {"bad": True})

    async with toril.working("q", {"once": once}):
        await events.until("failed", jobId=job["id"])
        await queue.of_job(job["id"], "updateData", {"bad": False})
        await queue.of_job(job["id"], "retry")
        await events.until("completed", jobId=job["id"])

    assert await queue.state(job["id"]) == "completed"


async def test_a_removed_job_does_not_run(node: Node, toril: Toril) -> None:
    steps, events, queue = Steps(), await node.events("q"), node.queue("q")
    gone, kept = await queue.add("note"), await queue.add("note")
    await queue.of_job(gone["id"], "remove")

    async with toril.working("q", {"note": steps.note}):
        await events.until("completed", jobId=kept["id"])

    assert steps.ran == [kept["id"]]
