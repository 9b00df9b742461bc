"""Toril adds, Node works."""

import asyncio
from typing import Any

import pytest

from tests.interop.node import Node
from tests.interop.side import Toril
from toril import Exponential, Fixed, Job, JobContext, JobFailed, Keep, ResultGone
from toril.model import Replay
from toril.model.states import State

DATA: dict[str, Any] = {
    "text": 'é ✓ \\/ "',
    "none": None,
    "float": 1.5,
    "big": 2**53 - 1,
    "list": [],
    "map": {},
    "deep": [[{}]],
}


async def test_a_job_runs_and_its_result_is_read_by_toril(node: Node, toril: Toril) -> None:
    await node.worker("q")
    async with toril.queue("q") as queue:
        job = await queue.add("anything", DATA)

        assert await job.result(15) == DATA
        await job.refresh()

    assert await node.queue("q").state(job.id) == "completed"
    assert (job.attempts_made, job.data) == (1, DATA)
    assert job.finished_at is not None


async def test_the_result_of_a_job_that_is_not_kept_can_be_waited_for(node: Node, toril: Toril) -> None:
    worker = await node.worker("q", {"slow": [{"hold": True}, {"return": {"a": 1}}]})
    async with toril.queue("q", keep_completed=0) as queue:
        job = await queue.add("slow")
        await worker.until("active", jobId=job.id)
        await worker.release(job.id)

        assert await job.result(15) == {"a": 1}


async def test_a_failure_of_a_job_that_is_not_kept_can_be_waited_for(node: Node, toril: Toril) -> None:
    worker = await node.worker("q", {"slow": [{"hold": True}, {"fail": "no such bull"}]})
    async with toril.queue("q", keep_failed=0) as queue:
        job = await queue.add("slow", attempts=1)
        await worker.until("active", jobId=job.id)
        await worker.release(job.id)

        with pytest.raises(JobFailed, match="no such bull"):
            await job.result(15)


async def test_the_result_of_a_job_that_was_removed_is_gone(node: Node, toril: Toril) -> None:
    worker = await node.worker("q")
    async with toril.queue("q") as queue:
        job = await queue.add("n", {"a": 1})
        await worker.until("completed", jobId=job.id)
        await node.queue("q").of_job(job.id, "remove")

        with pytest.raises(ResultGone):
            await job.result(15)


async def test_an_idle_node_is_woken_by_torils_job(node: Node, toril: Toril) -> None:
    worker = await node.worker("q")
    async with toril.queue("q") as queue:
        for _ in range(2):
            job = await queue.add("n")
            await worker.until("completed", jobId=job.id)


async def test_a_delayed_job_waits_for_its_time(node: Node, toril: Toril) -> None:
    worker, events = await node.worker("q"), await node.events("q")
    async with toril.queue("q") as queue:
        job = await queue.add("n", delay=0.4)
        await worker.until("completed", jobId=job.id)
        await events.until("completed", jobId=job.id)

    found = await node.queue("q").job(job.id)
    assert found["processedOn"] >= found["timestamp"] + 400
    assert await events.names(job.id) == ["added", "delayed", "waiting", "active", "completed"]


async def test_order_is_kept(node: Node, toril: Toril) -> None:
    ranked: list[tuple[str, dict[str, Any]]] = [
        ("6", {"priority": 20}), ("4", {"priority": 3}), ("5", {"priority": 3}),
        ("3", {}), ("2", {"lifo": True}), ("1", {"lifo": True}),
    ]  # fmt: skip
    async with toril.queue("q") as queue:
        await queue.add_many([("n", None, {"job_id": f"r{rank}", **options}) for rank, options in ranked])

    worker = await node.worker("q")
    ran = await worker.until("active", times=6)

    assert [entry["jobId"] for entry in ran] == ["r1", "r2", "r3", "r4", "r5", "r6"]


async def test_an_id_is_taken_only_once(node: Node, toril: Toril) -> None:
    async with toril.queue("q") as queue:
        await queue.add("n", {"first": True}, job_id="mine")

    again = await node.queue("q").add("n", {"first": False}, jobId="mine")

    assert again["id"] == "mine"
    assert (await node.queue("q").job("mine"))["data"] == {"first": True}
    assert (await node.queue("q").counts())["waiting"] == 1


async def test_numbers_given_by_both_are_one_sequence(node: Node, toril: Toril) -> None:
    async with toril.queue("q") as queue:
        ids = []
        for _ in range(2):
            ids += [(await queue.add("n")).id, (await node.queue("q").add("n"))["id"]]
        ids += [job.id for job in await queue.add_many([("n", None)] * 3)]
        ids.append((await node.queue("q").add("n"))["id"])

    assert len(set(ids)) == len(ids) == 8
    assert await node.redis("GET", "bull:q:id") == "8"


async def test_a_bulk_runs_in_order(node: Node, toril: Toril) -> None:
    async with toril.queue("q") as queue:
        jobs = await queue.add_many([("n", {"n": n}) for n in range(1200)])

    worker = await node.worker("q", {"n": []}, concurrency=50)
    ran = await worker.until("active", times=1200)

    assert [entry["jobId"] for entry in ran] == [job.id for job in jobs]


@pytest.mark.parametrize(
    ("backoff", "delays"),
    [(Fixed(60), [60_000, 60_000]), (Exponential(60), [60_000, 120_000])],
    ids=["fixed", "exponential"],
)
async def test_retries_wait_as_toril_asked(node: Node, toril: Toril, backoff: Any, delays: list[int]) -> None:
    worker, events = (
        await node.worker("q", {"n": [{"fail": "not yet", "times": 2}, {"return": 1}]}),
        await node.events("q"),
    )
    waited = []
    async with toril.queue("q") as queue:
        job = await queue.add("n", attempts=3, backoff=backoff)
        for turn in (1, 2):
            await events.until("delayed", jobId=job.id, times=turn)
            record = (await job.refresh()).record
            assert record is not None
            waited.append(round(record.delay * 1000))
            await job.promote()
        await worker.until("completed", jobId=job.id)
        await job.refresh()

    assert waited == delays
    assert job.attempts_made == 3


async def test_a_failure_carries_reason_and_stack_trace(node: Node, toril: Toril) -> None:
    await node.worker("q", {"n": [{"fail": "no such bull"}]})
    async with toril.queue("q") as queue:
        job = await queue.add("n", attempts=1)
        with pytest.raises(JobFailed, match="no such bull"):
            await job.result(15)
        await job.refresh()

    assert job.error == "no such bull"
    assert job.record is not None
    assert job.record.failure is not None
    assert "Error: no such bull" in job.record.failure.traceback
    assert job.record.state is State.FAILED


async def test_progress_and_logs_are_read_by_toril(node: Node, toril: Toril) -> None:
    worker = await node.worker("q", {"n": [{"progress": {"done": 0.5}}, {"log": "first"}, {"log": "second é"}]})
    async with toril.queue("q") as queue:
        job = await queue.add("n")
        await worker.until("completed", jobId=job.id)
        await job.refresh()

        assert job.progress == {"done": 0.5}
        assert await job.logs() == ["first", "second é"]


async def test_defaults_of_toril_hold_on_node(node: Node, toril: Toril) -> None:
    """Five attempts from one second, and nothing kept."""
    async with toril.queue("q", keep_completed=0, keep_failed=0) as queue:
        job: Job[Any] = await queue.add("n")
        options = (await node.queue("q").job(job.id))["opts"]
        worker = await node.worker("q", {"n": [{"fail": "not yet", "times": 1}]})
        await worker.until("failed", jobId=job.id)
        await job.promote()
        await worker.until("completed", jobId=job.id)

        assert await job.state() is None

    assert options["attempts"] == 5
    assert options["backoff"]["type"] == "exponential"
    assert options["backoff"]["delay"] == 1000
    assert await node.redis("EXISTS", f"bull:q:{job.id}") == 0


@pytest.mark.parametrize(
    ("keep", "left"), [(True, 6), (2, 2), (Keep(count=3), 3), (Keep(count=4, age=3600), 4)], ids=str
)
async def test_finished_jobs_are_kept_as_toril_asked(node: Node, toril: Toril, keep: Any, left: int) -> None:
    async with toril.queue("q", keep_completed=keep, keep_failed=keep) as queue:
        await queue.add_many([(name, None, {"attempts": 1}) for name in ("fine", "fails") * 6])
    worker = await node.worker("q", {"fine": [], "fails": [{"fail": "told to"}]})
    await worker.until("completed", times=6)
    await worker.until("failed", times=6)

    counts = await node.queue("q").counts()
    assert (counts["completed"], counts["failed"]) == (left, left)


@pytest.mark.covers("R074")
async def test_what_node_has_tried_in_vain_becomes_a_dead_letter_and_runs_again_in_node(
    node: Node, toril: Toril
) -> None:
    async with toril.queue("q", keep_completed=0, keep_failed=0) as queue:
        job = await queue.add("fails", {"a": 1}, attempts=2, backoff=Fixed(0))
        worker = await node.worker("q", {"fails": [{"fail": "told to"}]})
        await worker.until("failed", jobId=job.id, times=2)
        assert (await node.queue("q").counts())["failed"] == 1, "Node keeps it for us"

        await queue.store.prune("q")
        (letter,) = (await queue.store.dead_letters.page()).items
        assert (await node.queue("q").counts())["failed"] == 0
        assert (letter.job_id, letter.failure.reason, letter.attempts_made) == (job.id, "told to", 2)
        shown = await node.queue("dead-letter").counts()
        assert shown.get("waiting", 0) + shown.get("paused", 0) == 1

        await queue.store.dead_letters.replay("q", [Replay(letter.id)])
        await worker.until("failed", jobId=job.id, times=4)
        assert await queue.store.dead_letters.count() == 0


@pytest.mark.parametrize("name", ["with space", "é ✓", "a:b/c", "__proto__", "x" * 100])
async def test_names_of_any_kind_pass(node: Node, toril: Toril, name: str) -> None:
    worker = await node.worker("q")
    async with toril.queue("q") as queue:
        job = await queue.add(name, {})
        (active,) = await worker.until("active", jobId=job.id)

    assert active["name"] == name


async def test_an_operators_changes_are_seen_by_node(node: Node, toril: Toril) -> None:
    async with toril.queue("q") as queue:
        low, high, late, gone = [await queue.add("n", **options) for options in _CHANGED]
        await low.set_priority(9)
        await high.set_priority(1)
        await high.update_data({"new": True})
        await late.set_delay(100)
        await gone.remove()

    view = node.queue("q")
    assert [job["id"] for job in await view.call("getPrioritized")] == [high.id, low.id]
    assert (await view.job(high.id))["data"] == {"new": True}
    assert (await view.job(late.id))["delay"] == 100_000
    assert await view.job(gone.id) is None
    assert (await view.counts())["delayed"] == 1


_CHANGED: list[dict[str, Any]] = [{"priority": 1}, {"priority": 5}, {"delay": 60}, {}]


async def test_a_promoted_job_wakes_an_idle_node(node: Node, toril: Toril) -> None:
    worker = await node.worker("q")
    async with toril.queue("q") as queue:
        job = await queue.add("n", delay=600)
        await job.promote()
        await worker.until("completed", jobId=job.id)


async def test_a_job_that_toril_delays_for_a_retry_wakes_an_idle_node(node: Node, toril: Toril) -> None:
    go = asyncio.Event()

    async def fails(ctx: JobContext[Any]) -> None:
        await go.wait()
        raise ValueError("not here")

    events = await node.events("q")
    async with toril.working("q", {"n": fails}) as queue:
        job = await queue.add("n", attempts=2, backoff=Fixed(0.5))
        await events.until("active", jobId=job.id)
        worker = await node.worker("q")
        go.set()
        await events.until("delayed", jobId=job.id)
    await worker.until("completed", jobId=job.id)


async def test_a_failed_job_retried_by_toril_runs_again(node: Node, toril: Toril) -> None:
    worker = await node.worker("q", {"n": [{"fail": "once", "times": 1}, {"return": "well"}]})
    async with toril.queue("q") as queue:
        job = await queue.add("n", attempts=1)
        await worker.until("failed", jobId=job.id)

        await job.retry()
        await worker.until("active", jobId=job.id, times=2)


async def test_a_cancelled_job_is_a_failed_one_to_node(node: Node, toril: Toril) -> None:
    events = await node.events("q")
    async with toril.queue("q") as queue:
        job = await queue.add("n")
        assert await job.cancel("not wanted") == "cancelled"

    (failed,) = await events.until("failed", jobId=job.id)

    assert "not wanted" in failed["failedReason"]
    assert await node.queue("q").state(job.id) == "failed"
