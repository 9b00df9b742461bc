"""What docs/interop.md says about jobs that another library's worker runs: which promises do not reach that far."""

import asyncio
from typing import Any

import pytest

from tests.interop.node import Node
from tests.interop.side import Steps, Toril
from toril import QueueFull, RateLimit


async def test_node_knows_neither_a_timeout_nor_a_time_to_start_by(node: Node, toril: Toril) -> None:
    async with toril.queue("q") as queue:
        late = await queue.add("n", expires=0.01)
        slow = await queue.add("n", timeout=0.01)
        await asyncio.sleep(0.02)
        worker = await node.worker("q", {"n": [{"sleep": 50}, {"return": "ran"}]})
        await worker.until("completed", times=2)

        assert (await late.result(15), await slow.result(15)) == ("ran", "ran")


async def test_a_job_that_node_runs_is_not_stopped_by_a_cancellation(node: Node, toril: Toril) -> None:
    worker = await node.worker("q", {"n": [{"hold": True}, {"echo": True}]})
    async with toril.queue("q") as queue:
        job = await queue.add("n", {"a": 1})
        await worker.until("active", jobId=job.id)
        assert await job.cancel("enough") == "requested"
        await worker.release(job.id)

        assert await job.result(15) == {"a": 1}


@pytest.mark.parametrize("then", ["tried again", "retried by hand"])
async def test_what_was_cancelled_while_node_ran_it_ends_at_torils_next_claim(
    node: Node, toril: Toril, then: str
) -> None:
    """Unless somebody has it run again, who knows better."""
    steps, events, told = Steps(), await node.events("q"), list[Any]()
    worker = await node.worker("q", {"n": [{"hold": True}, {"fail": "told to"}]})
    async with toril.queue("q") as queue:
        job = await queue.add("n", attempts=2 if then == "tried again" else 1)
        await worker.until("active", jobId=job.id)
        await job.cancel("enough")
        await worker.release(job.id)
        await worker.until("failed", jobId=job.id)
        await worker.close()
        async with toril.working("q", {"n": steps.note}) as ours:
            ours.services.events.on("cancelled", told.append)
            if then == "retried by hand":
                await node.queue("q").of_job(job.id, "retry")
                await events.until("completed", jobId=job.id)
            else:
                await job.promote()
                (failed,) = await events.until("failed", jobId=job.id)
                assert failed["failedReason"] == "enough"

    assert [event.error for event in told] == ([] if then == "retried by hand" else ["enough"])
    assert steps.ran == ([job.id] if then == "retried by hand" else [])
    assert await node.redis("HEXISTS", f"bull:q:{job.id}", "toril:cancel") == 0


async def test_what_node_ends_has_no_run_record_and_no_kept_result(node: Node, toril: Toril) -> None:
    worker = await node.worker("q")
    async with toril.queue("q", keep_completed=0) as queue:
        job = await queue.add("n", {"a": 1}, result_ttl=600)
        await worker.until("completed", jobId=job.id)

        assert (await queue.runs()).items == ()
        assert await job.result(15) == {"a": 1}, "from the stream, for as long as it is there"
        await node.redis("DEL", "bull:q:events")
        assert await node.redis("EXISTS", "bull:q:toril:results") == 0


async def test_how_many_may_wait_binds_torils_producers_alone(node: Node, toril: Toril) -> None:
    async with toril.working("q", {"n": Steps().hold}, max_waiting=2) as queue:
        await queue.pause()
        await queue.add_many([("n", None)] * 2)
        with pytest.raises(QueueFull):
            await queue.add("n")
        await node.queue("q").add("n")

        counts = await node.queue("q").counts()
        assert counts["waiting"] + counts.get("paused", 0) == 3
        await queue.drain()
        await queue.resume()


async def test_a_sliding_limit_is_a_fixed_one_to_node(node: Node, toril: Toril) -> None:
    events = await node.events("q")
    async with toril.queue("q") as queue:
        await queue.set_rate_limit(RateLimit(2, 0.5))
        await queue.add_many([("n", None)] * 3)
    await node.worker("q", concurrency=10)
    await events.until("completed", times=3)

    assert await node.queue("q").call("getGlobalRateLimit") == {"max": 2, "duration": 500}
    first, _, third = sorted([(await node.queue("q").job(each))["processedOn"] for each in ("1", "2", "3")])
    assert third - first >= 480
