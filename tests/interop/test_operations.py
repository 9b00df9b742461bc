"""What an operator of either side does to the jobs of either, and what both see and run afterwards."""

from typing import Any

import pytest

from tests.interop.node import Node, NodeError, NodeQueue
from tests.interop.operators import add_by, operator
from tests.interop.side import Steps, Toril
from toril import JobContext, PermanentError, Queue, WrongState

BOTH = ("node", "toril")
acts = pytest.mark.parametrize("who", BOTH)
LATE: list[dict[str, Any]] = [{}, {"priority": 3}, {"delay": 600_000}]


async def hashes(node: Node, queue: str = "q") -> set[str]:
    """The ids of all jobs that have a hash, whether they stand anywhere or not."""
    ids = {key.split(":", 2)[2] for key in await node.redis("KEYS", f"bull:{queue}:*")}
    return {each for each in ids if each.isdigit()}


async def seen(node: Node, queue: Queue) -> dict[str, int]:
    """How many are in each state, if both sides say the same."""
    ours, theirs = await queue.counts(), await node.queue(queue.name).counts()
    found = {state: getattr(ours, state) for state in ("waiting", "prioritized", "delayed", "completed", "failed")}
    assert found == {state: theirs[state] for state in found}
    return {state: number for state, number in found.items() if number}


async def fails(ctx: JobContext[Any]) -> None:
    if ctx.data.get("bad", True):
        raise PermanentError("told to")


async def fine(ctx: JobContext[Any]) -> Any:
    return ctx.data


ENDS = {"fine": "completed", "fails": "failed"}
HANDLERS = {"fine": fine, "fails": fails}
SCRIPT: dict[str, list[dict[str, Any]]] = {"fine": [{"echo": True}], "fails": [{"fail": "told to"}]}


async def ended(node: Node, toril: Toril, names: list[str]) -> list[str]:
    """Jobs that have ended: added by both in turn, and the first half run by Toril, the other by Node."""
    events, half = await node.events("q"), len(names) // 2

    async def add_some(queue: Queue, names: list[str]) -> list[str]:
        ids = []
        for by, name in zip(BOTH * half, names, strict=False):
            ids.append(await add_by(by, node, queue, name))
            await events.until(ENDS[name], jobId=ids[-1])
        return ids

    async with toril.working("q", HANDLERS) as queue:
        first = await add_some(queue, names[:half])
    worker = await node.worker("q", SCRIPT)
    async with toril.queue("q") as queue:
        rest = await add_some(queue, names[half:])
    await worker.close()
    return first + rest


@acts
@pytest.mark.parametrize("delayed", [False, True])
async def test_draining_removes_what_has_not_started(node: Node, toril: Toril, who: str, delayed: bool) -> None:
    async with toril.queue("q") as queue:
        ids = [await add_by(by, node, queue, "fine", **options) for options in LATE for by in BOTH]
        await operator(who, node, queue).drain(delayed=delayed)

        assert await seen(node, queue) == ({} if delayed else {"delayed": 2})
        assert await hashes(node) == (set() if delayed else set(ids[4:]))


@acts
@pytest.mark.parametrize("state", ["waiting", "prioritized", "delayed"])
async def test_cleaning_takes_the_old_ones_that_wait(node: Node, toril: Toril, who: str, state: str) -> None:
    options = dict(zip(("waiting", "prioritized", "delayed"), LATE, strict=True))[state]
    async with toril.queue("q") as queue:
        ids = [await add_by(by, node, queue, "fine", **options) for _ in range(2) for by in BOTH]
        for job in ids[:3]:
            added = int(await node.redis("HGET", f"bull:q:{job}", "timestamp"))
            await node.redis("HSET", f"bull:q:{job}", "timestamp", added - 60_000)
        acting = operator(who, node, queue)

        assert await acting.clean(state, 30_000, 2) == 2
        assert await seen(node, queue) == {state: 2}
        assert await acting.clean(state, 30_000, 1000) == 1
        assert await hashes(node) == {ids[3]}


@acts
@pytest.mark.parametrize("state", ["completed", "failed"])
async def test_cleaning_takes_the_old_ones_that_have_ended(node: Node, toril: Toril, who: str, state: str) -> None:
    ids = await ended(node, toril, ["fine" if state == "completed" else "fails"] * 4)
    for job in (ids[1], ids[2]):  # one that Toril ran, and one that Node ran
        await node.redis("ZINCRBY", f"bull:q:{state}", -60_000, job)
    events = await node.events("q")
    async with toril.queue("q") as queue:
        acting = operator(who, node, queue)

        assert await acting.clean(state, 30_000, 1) == 1
        assert await acting.clean(state, 30_000, 1000) == 1
        assert await seen(node, queue) == {state: 2}
        assert await hashes(node) == {ids[0], ids[3]}
        assert [event["count"] for event in await events.until("cleaned", times=2)] == ["1", "1"]
        assert await acting.clean(state, 0, 1000) == 2
        assert await hashes(node) == set()


@acts
async def test_a_job_can_be_removed_wherever_it_stands(node: Node, toril: Toril, who: str) -> None:
    ids = await ended(node, toril, ["fine", "fails", "fine", "fails"])
    events = await node.events("q")
    async with toril.queue("q") as queue:
        ids += [await add_by(by, node, queue, "fine", **options) for options in LATE for by in BOTH]
        for job in ids:
            await node.redis("RPUSH", f"bull:q:{job}:logs", "a line")
            await operator(who, node, queue).remove(job)

        assert await seen(node, queue) == {}
    assert await node.redis("KEYS", "bull:q:*:logs") == []
    assert await hashes(node) == set()
    removed = await events.until("removed", times=len(ids))
    places = ["completed", "failed"] * 2 + ["wait"] * 2 + ["prioritized"] * 2 + ["delayed"] * 2
    assert [(event["jobId"], event["prev"]) for event in removed] == list(zip(ids, places, strict=True))


async def test_a_running_job_is_removed_by_nobody(node: Node, toril: Toril) -> None:
    steps = Steps()
    worker = await node.worker("q2", {"hold": [{"hold": True}]})
    async with toril.working("q", {"hold": steps.hold}) as queue, toril.queue("q2") as other:
        ours = await add_by("node", node, queue, "hold")
        await steps.started()
        theirs = await add_by("toril", node, other, "hold")
        await worker.until("active", jobId=theirs)

        with pytest.raises(NodeError, match="locked"):
            await operator("node", node, queue).remove(ours)
        with pytest.raises(WrongState, match="is active"):
            await operator("toril", node, other).remove(theirs)
        steps.let_go()
        await worker.release(theirs)
        await worker.until("completed", jobId=theirs)


@acts
@pytest.mark.parametrize("works", BOTH)
async def test_a_promoted_job_runs_at_once(node: Node, toril: Toril, who: str, works: str) -> None:
    events = await node.events("q")
    async with toril.queue("q") as queue:
        late: dict[str, Any] = {"delay": 600_000}
        ids = [await add_by(by, node, queue, "fine", **late, **more) for more in ({"priority": 2}, {}) for by in BOTH]
        for job in ids:
            await operator(who, node, queue).promote(job)
        assert await seen(node, queue) == {"waiting": 2, "prioritized": 2}
        assert {(await node.queue("q").job(job))["delay"] for job in ids} == {0}
        await _work(node, toril, works, lambda: events.until("completed", times=4))

    started = [event["jobId"] for event in await events.seen(event="active")]
    assert started == [*ids[2:], *ids[:2]]


async def _work(node: Node, toril: Toril, who: str, until: Any) -> Any:
    """A worker of one side, until something has happened."""
    if who == "toril":
        async with toril.working("q", HANDLERS):
            return await until()
    worker = await node.worker("q", SCRIPT)
    found = await until()
    await worker.close()
    return found


async def test_all_that_are_delayed_are_promoted_by_node(node: Node, toril: Toril) -> None:
    events = await node.events("q")
    async with toril.working("q", HANDLERS) as queue:
        for by in BOTH * 3:
            await add_by(by, node, queue, "fine", delay=600_000)
        await node.queue("q").call("promoteJobs")
        await events.until("completed", times=6)


@acts
@pytest.mark.parametrize("works", BOTH)
async def test_an_ended_job_is_run_again(node: Node, toril: Toril, who: str, works: str) -> None:
    ids = await ended(node, toril, ["fine", "fails", "fine", "fails"])
    events = await node.events("q")
    async with toril.queue("q") as queue:
        acting = operator(who, node, queue)
        for job, state in zip(ids, ("completed", "failed") * 2, strict=True):
            await acting.retry(job, state)
            found = await node.queue("q").job(job)
            assert (found.get("finishedOn"), found.get("returnvalue"), found.get("failedReason")) == (None, None, None)
        assert await seen(node, queue) == {"waiting": 4}
        await _work(node, toril, works, lambda: events.until("failed", times=4))
        await events.until("completed", times=4)
        assert await seen(node, queue) == {"completed": 2, "failed": 2}

    retried = [event["prev"] for event in await events.seen(event="waiting") if "prev" in event]
    assert retried == ["completed", "failed"] * 2


@acts
@pytest.mark.parametrize("works", BOTH)
async def test_all_that_have_failed_are_run_again(node: Node, toril: Toril, who: str, works: str) -> None:
    ids = await ended(node, toril, ["fails"] * 4 + ["fine"])
    events = await node.events("q")
    async with toril.queue("q") as queue:
        await operator(who, node, queue).retry_failed()
        assert await seen(node, queue) == {"waiting": 4, "completed": 1}
        await _work(node, toril, works, lambda: events.until("failed", times=8))

    assert {(await node.queue("q").job(job))["failedReason"] for job in ids[:4]} == {"told to"}


@acts
async def test_attempts_are_counted_over_retries_as_each_side_does(node: Node, toril: Toril, who: str) -> None:
    """Node gives a job one more attempt, and Toril all of them again."""

    async def shaky(ctx: JobContext[Any]) -> None:
        raise ValueError("not yet")

    events = await node.events("q")
    async with toril.working("q", {"shaky": shaky}) as queue:
        job = (await node.queue("q").add("shaky", attempts=3))["id"]
        await events.until("failed", jobId=job)
        await operator(who, node, queue).retry(job, "failed")
        await events.until("failed", jobId=job, times=2)

    found = await node.queue("q").job(job)
    assert (found["attemptsMade"], found["attemptsStarted"]) == ((4, 4) if who == "node" else (3, 6))


@acts
async def test_changes_of_priority_delay_and_data_are_seen_by_both(node: Node, toril: Toril, who: str) -> None:
    async with toril.queue("q") as queue:
        acting = operator(who, node, queue)
        ids = [await add_by(by, node, queue, "fine", **options) for options in LATE for by in BOTH]
        for job, priority in zip(ids[:4], (5, 1, 0, 4), strict=True):
            await acting.set_priority(job, priority)
        for job, delay in zip(ids[4:], (900_000, 800_000), strict=True):
            await acting.set_delay(job, delay)
        for job in ids:
            await acting.update_data(job, {"new": [job]})

        theirs: NodeQueue = node.queue("q")
        assert await seen(node, queue) == {"waiting": 1, "prioritized": 3, "delayed": 2}
        assert [each["id"] for each in await theirs.call("getPrioritized")] == [ids[1], ids[3], ids[0]]
        assert [each["id"] for each in await theirs.call("getDelayed")] == [ids[5], ids[4]]
        for job, priority in zip(ids, (5, 1, 0, 4, 0, 0), strict=True):
            found, mine = await theirs.job(job), await queue.job(job)
            assert mine is not None
            assert mine.record is not None
            assert found["data"] == mine.data == {"new": [job]}
            assert found["priority"] == mine.record.priority == priority
        assert [(await theirs.job(job))["delay"] for job in ids[4:]] == [900_000, 800_000]


@acts
async def test_a_job_whose_delay_was_shortened_wakes_an_idle_worker(node: Node, toril: Toril, who: str) -> None:
    events = await node.events("q")
    async with toril.working("q", HANDLERS) as queue:
        job = await add_by("node", node, queue, "fine", delay=600_000)
        await operator(who, node, queue).set_delay(job, 100)
        await events.until("completed", jobId=job, deadline=7)
    worker = await node.worker("q", SCRIPT)
    async with toril.queue("q") as queue:
        job = await add_by("toril", node, queue, "fine", delay=600_000)
        await operator(who, node, queue).set_delay(job, 100)
        await worker.until("completed", jobId=job, deadline=7)


@acts
async def test_obliterating_by_force_leaves_nothing_of_a_running_job(node: Node, toril: Toril, who: str) -> None:
    """Whoever ran it cannot finish it any more, and goes on with the next."""
    steps = Steps()
    async with toril.working("q", {"hold": steps.hold, **HANDLERS}) as queue:
        await add_by("node", node, queue, "hold")
        await steps.started()
        worker = await node.worker("q", {"hold": [{"hold": True}], **SCRIPT})
        theirs = await add_by("toril", node, queue, "hold")
        await worker.until("active", jobId=theirs)
        await add_by("node", node, queue, "fine", delay=600_000)
        await node.queue("q").call("pause")
        with pytest.raises(Exception, match=r"running|active"):
            await operator(who, node, queue).obliterate(force=False)
        await operator(who, node, queue).obliterate(force=True)
        assert await seen(node, queue) == {}
        steps.let_go()
        await worker.release(theirs)
        await worker.until("error")
        assert await hashes(node) == set()

        for _ in range(2):  # one for each of them
            job = await queue.job(await add_by("node", node, queue, "fine", {"after": True}))
            assert job is not None
            assert await job.result(15) == {"after": True}


async def test_what_toril_kept_of_a_queue_goes_with_it_when_node_obliterates_it(node: Node, toril: Toril) -> None:
    """Numbers of jobs begin anew then: the new job 1 is not the old one."""
    async with toril.working("q", HANDLERS, keep_completed=0) as queue:
        old = await queue.add("fine", {"old": True}, result_ttl=600)
        assert await old.result(15) == {"old": True}
        await queue.pause()
        await node.queue("q").call("obliterate")
        await node.queue("q").call("pause")
        new = await queue.add("fine", {"old": False})

        assert new.id == old.id
        assert [run.id for run in (await queue.runs()).items] == []
        with pytest.raises(TimeoutError):
            await new.result(0.1)
