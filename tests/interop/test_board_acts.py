"""What people do in Bull Board, through its API, to jobs that Toril has added and run."""

from typing import Any

import pytest

from tests.interop.node import Node
from tests.interop.side import Steps, Toril
from toril import JobContext, PermanentError, RateLimit

OLD = 10_000  # ms: the board cleans what is older than five seconds


class Board:
    """The board's routes for one queue, and for its jobs."""

    def __init__(self, node: Node) -> None:
        self._node = node

    async def act(self, what: str, method: str = "put", body: Any = None, **params: str) -> Any:
        given = {"queueName": "q", **params}
        route = f"/api/queues/:queueName/{what}"
        return await self._node.board("q", route, method, params=given, body={} if body is None else body)

    async def of_job(self, job_id: str, what: str, method: str = "put", body: Any = None, **params: str) -> Any:
        return await self.act(f":jobId/{what}", method, body, jobId=job_id, **params)


@pytest.fixture
def board(node: Node) -> Board:
    return Board(node)


async def either(ctx: JobContext[Any]) -> Any:
    await ctx.log("a line")
    if ctx.data.get("bad"):
        raise PermanentError("bad data")
    return ctx.data


HANDLERS = {"either": either}


async def test_it_retries_one_and_all(node: Node, toril: Toril, board: Board) -> None:
    events = await node.events("q")
    async with toril.working("q", HANDLERS) as queue:
        jobs = [await queue.add("either", {"bad": True}) for _ in range(3)]
        good = await queue.add("either", {})
        await events.until("failed", times=3)
        await events.until("completed")
        for job in jobs:
            await job.update_data({"bad": False})
        await board.of_job(jobs[0].id, "retry", queueStatus="failed")
        await events.until("completed", jobId=jobs[0].id)
        assert await board.act("retry/:queueStatus", queueStatus="failed") == {"retried": 2, "skipped": 0}
        await events.until("completed", times=4)
        await board.of_job(good.id, "retry", queueStatus="completed")
        await events.until("completed", jobId=good.id, times=2)

        assert ((await queue.counts()).failed, (await queue.counts()).completed) == (0, 4)


async def test_it_promotes_one_and_all(node: Node, toril: Toril, board: Board) -> None:
    events = await node.events("q")
    async with toril.working("q", HANDLERS) as queue:
        jobs = [await queue.add("either", {}, delay=600) for _ in range(3)]
        await board.of_job(jobs[0].id, "promote")
        await events.until("completed", jobId=jobs[0].id)
        await board.act("promote")
        await events.until("completed", times=3)


async def test_it_removes_cleans_and_empties(node: Node, toril: Toril, board: Board) -> None:
    events = await node.events("q")
    async with toril.working("q", HANDLERS) as queue:
        for bad in (False, True) * 2:
            await queue.add("either", {"bad": bad})
        await events.until("completed", times=2)
        await events.until("failed", times=2)
    async with toril.queue("q") as queue:
        late = await queue.add("either", delay=600)
        waiting = [await queue.add("either") for _ in range(2)]
        await board.of_job(waiting[0].id, "clean")
        await board.of_job(late.id, "clean")
        assert (await queue.counts()).waiting == 1
        for state, old, young in (("completed", "1", "3"), ("failed", "2", "4")):
            await node.redis("ZINCRBY", f"bull:q:{state}", -OLD, old)
            await node.redis("ZINCRBY", f"bull:q:{state}", 60_000, young)  # however slow this machine is
            await board.act("clean/:queueStatus", queueStatus=state)
        counts = await queue.counts()
        assert (counts.completed, counts.failed, counts.delayed) == (1, 1, 0)
        assert await queue.job("1") is await queue.job("2") is await queue.job(late.id) is None
        await board.act("empty")
        assert (await queue.counts()).waiting == 0
        await board.act("pause")
        await board.act("obliterate")
        assert (await queue.counts()).completed == 0


@pytest.mark.parametrize("what", ["one", "all"])
async def test_it_pauses_and_resumes(node: Node, toril: Toril, board: Board, what: str) -> None:
    steps, events = Steps(), await node.events("q")

    async def press(button: str) -> None:
        if what == "one":
            await board.act(button)
        else:
            await node.board("q", f"/api/queues/{button}", "put")

    async with toril.working("q", {"note": steps.note}) as queue:
        await press("pause")
        job = await queue.add("note")
        assert (await queue.counts()).paused
        assert steps.ran == []
        await press("resume")
        # Version 5 wakes nobody for what others have added meanwhile; the next job does.
        await queue.add("note")
        await events.until("completed", times=2)
        assert not (await queue.counts()).paused

    assert steps.ran[0] == job.id


async def test_it_changes_jobs_and_settings(node: Node, toril: Toril, board: Board) -> None:
    async with toril.queue("q") as queue:
        late, low = await queue.add("either", delay=600), await queue.add("either", priority=5)
        now, _ = await node.redis("TIME")
        due = int(now) * 1000 + 900_000
        await board.of_job(late.id, "delay", "patch", {"runAt": due})
        await board.of_job(low.id, "priority", "patch", {"priority": 2})
        await board.of_job(low.id, "update-data", "patch", {"jobData": {"new": True}})
        await board.act("concurrency", body={"concurrency": 3})
        await board.act("rate-limit", body={"max": 5, "duration": 2000})
        await late.refresh()
        await low.refresh()

        assert late.record is not None
        assert low.record is not None
        assert abs(late.record.delay - 900) < 60
        assert (low.record.priority, low.data) == (2, {"new": True})
        settings = await queue.settings()
        assert (settings.concurrency, settings.rate) == (3, RateLimit(5, 2, window="fixed"))


async def test_it_shows_logs_and_adds_a_job(node: Node, toril: Toril, board: Board) -> None:
    events = await node.events("q")
    async with toril.working("q", HANDLERS):
        made = await board.act("add", "post", {"name": "either", "data": {"a": 1}, "options": {"attempts": 2}})
        job = made["job"]["id"]
        await events.until("completed", jobId=job)

        assert await board.of_job(job, "logs", "get") == ["a line"]


async def test_it_runs_and_removes_torils_schedules(node: Node, toril: Toril, board: Board) -> None:
    events = await node.events("q")
    async with toril.working("q", HANDLERS) as queue:
        await queue.schedules.put("nightly", "either", {"a": 1}, cron="0 2 * * *", tz="UTC")
        await board.act("job-schedulers/:schedulerId/run", schedulerId="nightly")
        (completed,) = await events.until("completed")
        await board.act("job-schedulers/:schedulerId/remove", schedulerId="nightly")

        assert completed["returnvalue"] == {"a": 1}
        assert (await queue.schedules.list()).items == ()
        assert (await queue.counts()).delayed == 0
