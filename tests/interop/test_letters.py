"""Dead letters where both sides work: what is replayed is a job like any other, what Node exhausts arrives there."""

from typing import Any

import pytest

from tests.interop.node import Node
from tests.interop.side import Toril
from toril import App, DeadLetterFilter, Fixed, JobContext, Retry


async def limited(ctx: JobContext[Any]) -> None:
    raise ConnectionError("Rate limited" if ctx.data["n"] == 1 else "gone")


@pytest.mark.covers("R077", "R078")
async def test_a_letter_replayed_by_its_error_is_a_job_like_any_other_to_node(node: Node, toril: Toril) -> None:
    async with toril.working("q", {"send": limited}, retry=Retry(1), keep_failed=False) as queue:
        for n in (1, 2):
            await queue.add("send", {"n": n}, result_ttl=60)
        events = await node.events("q")
        await events.until("failed", times=2)

    async with App(toril.url) as app:
        done = await app.dead_letters.replay(DeadLetterFilter(error="Rate limited"), attempts=2)
        left = [letter.job_id for letter in (await app.dead_letters.page()).items]
    assert (done.count, left) == (1, ["2"])
    job = await node.queue("q").job("1")
    assert (job["name"], job["data"], job["opts"]["attempts"]) == ("send", {"n": 1}, 2)
    assert (job["attemptsMade"], job.get("failedReason")) == (0, None)
    assert await node.queue("q").state("1") == "waiting"

    await node.worker("q", {"send": [{"return": "sent"}]})

    (completed,) = await events.until("completed")
    assert completed["jobId"] == "1"


@pytest.mark.covers("R074")
async def test_a_job_that_node_exhausted_arrives_among_the_letters(node: Node, toril: Toril) -> None:
    async with toril.queue("q", keep_failed=False) as queue:
        job = await queue.add("send", {"n": 1}, attempts=2, backoff=Fixed(0.01))
        events = await node.events("q")
        await node.worker("q", {"send": [{"fail": "Node could not"}]})
        await events.until("failed")
        await queue.store.prune("q")

    async with App(toril.url) as app:
        (letter,) = (await app.dead_letters.page()).items
        errors = await app.store.errors("q", job.id, where="dead_letters")
    assert [(each.attempt, "Node could not" in each.failure.reason) for each in errors] == [(1, True), (2, True)]
    assert all("at " in each.failure.traceback for each in errors), "Node's own stack traces"
    assert (letter.queue, letter.job_id, letter.name, letter.data) == ("q", job.id, "send", {"n": 1})
    assert (letter.failure.reason, letter.attempts_made) == ("Node could not", 2)
    assert await node.queue("q").job(job.id) is None
    seen = await node.queue("dead-letter").job(letter.id)
    assert (seen["data"]["originalQueue"], seen["data"]["originalData"]) == ("q", {"n": 1})
    assert await node.queue("dead-letter").call("isPaused") is True


async def talking(ctx: JobContext[Any]) -> None:
    await ctx.log(f"attempt {ctx.attempt}")
    await ctx.update_progress({"done": ctx.attempt})
    raise ConnectionError("gone")


async def test_node_reads_the_log_and_the_progress_of_a_letter(node: Node, toril: Toril) -> None:
    async with toril.working("q", {"send": talking}, retry=Retry(2, Fixed(0.01)), keep_failed=False) as queue:
        job = await queue.add("send", {"n": 1})
        events = await node.events("q")
        await events.until("failed")

    dead = node.queue("dead-letter")
    logs = await dead.call("getJobLogs", f"q/{job.id}")
    assert (logs["logs"], logs["count"]) == (["attempt 1", "attempt 2"], 2)
    seen = await dead.job(f"q/{job.id}")
    assert (seen["progress"], len(seen["stacktrace"])) == ({"done": 2}, 2)
    async with App(toril.url) as app:
        await app.dead_letters.discard(f"q/{job.id}")
    assert (await dead.call("getJobLogs", f"q/{job.id}"))["count"] == 0


async def test_a_queue_of_nodes_that_never_had_a_job_is_neither_paused_nor_filled(node: Node, toril: Toril) -> None:
    mine = node.queue("dead-letter")
    assert await mine.call("isPaused") is False
    async with toril.working("q", {"send": limited}, retry=Retry(1), keep_failed=False) as queue:
        job = await queue.add("send", {"n": 1})
        events = await node.events("q")
        await events.until("failed")
        await queue.store.prune("q")
        assert (await queue.counts()).failed == 1

    assert await mine.call("isPaused") is False
    assert set((await mine.counts()).values()) <= {0}
    await node.worker("dead-letter", {"mine": [{"return": "ran"}]})
    own = await mine.add("mine", {})
    await (await node.events("dead-letter")).until("completed", jobId=own["id"])
    async with App(toril.url, dead_letter_queue="failed-jobs") as app:
        await app.store.prune("q")
        assert [letter.job_id for letter in (await app.dead_letters.page()).items] == [job.id]
    assert await node.queue("failed-jobs").call("isPaused") is True
