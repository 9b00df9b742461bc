"""BullMQ's port to Python adds what Toril works, and works what Toril adds."""

import asyncio
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
import redis

from tests.interop.port import Port
from tests.interop.side import Steps, Toril
from tests.interop.test_stalls import killed_while_holding
from tests.servers import RedisServer
from toril import Dedup, Fixed, Job, JobContext, JobFailed, PermanentError, Queue
from toril.model.states import State

DATA: dict[str, Any] = {"text": 'é ✓ \\/ "', "none": None, "float": 1.5, "big": 2**53 - 1, "list": [], "deep": [[{}]]}


@pytest.fixture
def toril(server: RedisServer) -> Iterator[Toril]:
    """Toril on an empty server, without Node."""
    with redis.Redis(port=server.port) as client:
        client.flushall()
        yield Toril(server.url)
        client.flushall()


@pytest.fixture
def port(toril: Toril) -> Port:
    return Port(toril.url)


async def ended(queue: Queue, job_id: str) -> Job[Any]:
    """A job as it stands when it has ended."""
    async with asyncio.timeout(15):
        while True:
            job = await queue.job(job_id)
            assert job is not None
            if await job.state() in {State.COMPLETED, State.FAILED}:
                return await job.refresh()
            await asyncio.sleep(0.01)


async def echo(job: Any) -> Any:
    return job.data


async def test_a_job_of_the_ports_runs_and_its_result_is_read(port: Port, toril: Toril) -> None:
    async def talks(ctx: JobContext[Any]) -> Any:
        await ctx.update_progress({"done": 0.5})
        await ctx.log("a line é")
        return ctx.data

    async with port.queue("q") as theirs, toril.working("q", {"talks": talks}) as queue:
        added = await theirs.add("talks", DATA)
        await ended(queue, added.id)

        found = await theirs.getJob(added.id)
        assert (found.returnvalue, found.data, found.progress) == (DATA, DATA, {"done": 0.5})
        assert found.attemptsMade == 1
        assert (await theirs.getJobLogs(added.id))["logs"] == ["a line é"]
        assert await theirs.getJobState(added.id) == "completed"


async def test_a_job_of_torils_runs_in_the_port_and_its_result_is_read(port: Port, toril: Toril) -> None:
    async def talks(job: Any) -> Any:
        await job.updateProgress({"done": 0.5})
        await job.log("a line é")
        return job.data

    async with toril.queue("q") as queue, port.working("q", {"talks": talks}):
        job = await queue.add("talks", DATA)
        assert await job.result(15) == DATA
        await job.refresh()

        assert (job.progress, job.attempts_made, job.data) == ({"done": 0.5}, 1, DATA)
        assert await job.logs() == ["a line é"]


@pytest.mark.parametrize("backoff", [None, {"type": "fixed", "delay": 30}, {"type": "exponential", "delay": 30}])
async def test_a_job_of_the_ports_is_tried_again(port: Port, toril: Toril, backoff: Any) -> None:
    async def shaky(ctx: JobContext[Any]) -> int:
        if ctx.attempt < 3:
            raise ValueError(f"attempt {ctx.attempt}")
        return ctx.attempt

    options = {"attempts": 3} | ({} if backoff is None else {"backoff": backoff})
    async with port.queue("q") as theirs, toril.working("q", {"shaky": shaky}) as queue:
        added = await theirs.add("shaky", {}, options)
        await ended(queue, added.id)

        found = await theirs.getJob(added.id)
        assert (found.returnvalue, found.attemptsMade, len(found.stacktrace)) == (3, 3, 2)


async def test_a_job_of_torils_is_tried_again_by_the_port(port: Port, toril: Toril) -> None:
    async def shaky(job: Any) -> int:
        if job.attemptsMade < 2:
            raise ValueError(f"attempt {job.attemptsMade}")
        return int(job.attemptsMade)

    async with toril.queue("q") as queue, port.working("q", {"shaky": shaky}):
        at_once = await queue.add("shaky", attempts=3, backoff=Fixed(0))
        later = await queue.add("shaky", attempts=3, backoff=Fixed(0.03))

        assert (await at_once.result(15), await later.result(15)) == (2, 2)
        assert ((await at_once.refresh()).attempts_made, (await later.refresh()).attempts_made) == (3, 3)


async def test_a_failure_of_a_job_of_the_ports_is_read_by_it(port: Port, toril: Toril) -> None:
    async def fails(ctx: JobContext[Any]) -> None:
        raise PermanentError("no such bull")

    async with port.queue("q") as theirs, toril.working("q", {"fails": fails}) as queue:
        added = await theirs.add("fails", {}, {"attempts": 5})
        await ended(queue, added.id)

        found = await theirs.getJob(added.id)
        assert (found.failedReason, found.attemptsMade) == ("no such bull", 1)
        assert "no such bull" in found.stacktrace[-1]
        assert [job.id for job in await theirs.getFailed()] == [added.id]


async def test_a_failure_in_the_port_is_read_by_toril(port: Port, toril: Toril) -> None:
    async def fails(job: Any) -> None:
        raise ValueError("no such bull")

    async with toril.queue("q") as queue, port.working("q", {"fails": fails}):
        job = await queue.add("fails", attempts=2, backoff=Fixed(0))
        with pytest.raises(JobFailed, match="no such bull"):
            await job.result(15)
        await job.refresh()

        assert (job.error, job.attempts_made) == ("no such bull", 2)


async def test_delays_and_priorities_of_the_port_are_kept(port: Port, toril: Toril) -> None:
    steps = Steps()
    async with port.queue("q") as theirs:
        late = await theirs.add("note", {}, {"delay": 300})
        ranked = [(await theirs.add("note", {}, {"priority": priority})).id for priority in (7, 2, 0)]
        async with toril.working("q", {"note": steps.note}) as queue:
            for each in ranked:
                await ended(queue, each)
            job = await ended(queue, late.id)

    assert [each for each in steps.ran if each != late.id] == ranked[::-1]  # the late one may be due before they run
    assert job.added_at is not None
    assert job.started_at is not None
    assert job.started_at >= job.added_at + timedelta(milliseconds=300)


async def test_delays_and_priorities_of_toril_are_kept_by_the_port(port: Port, toril: Toril) -> None:
    ran: list[str] = []

    async def note(job: Any) -> None:
        ran.append(job.id)

    async with toril.queue("q") as queue:
        late = await queue.add("note", delay=0.3)
        ranked = [(await queue.add("note", priority=priority)).id for priority in (7, 2, 0)]
        async with port.working("q", {"note": note}):
            for each in ranked:
                await ended(queue, each)
            job = await ended(queue, late.id)

    assert [each for each in ran if each != late.id] == ranked[::-1]  # the late one may be due before they run
    assert job.added_at is not None
    assert job.started_at is not None
    assert job.started_at >= job.added_at + timedelta(milliseconds=300)


async def test_both_wake_each_other(port: Port, toril: Toril) -> None:
    """An idle worker of the port looks by itself only once a minute."""
    async with toril.queue("q") as queue, port.working("q", {"echo": echo}, drainDelay=60):
        for turn in range(2):
            assert await (await queue.add("echo", turn)).result(7) == turn
    async with port.queue("q2") as theirs, toril.working("q2") as queue:
        for turn in range(2):
            await ended(queue, (await theirs.add("echo", turn)).id)


OPTIONS: list[dict[str, Any]] = [{}, {"delay": 60}, {"priority": 3}]


async def test_an_operators_changes_cross_over(port: Port, toril: Toril) -> None:
    async with port.queue("q") as theirs, toril.queue("q") as queue:
        ours = [await queue.add("n", **options) for options in OPTIONS]
        others = [await theirs.add("n", {}, options) for options in ({}, {"delay": 60_000}, {"priority": 3})]
        waiting, late, ranked = [await theirs.getJob(job.id) for job in ours]
        await waiting.updateData({"new": 1})
        await late.promote()
        await ranked.changePriority({"priority": 1})
        mine = [await queue.job(job.id) for job in others]
        assert mine[0] is not None
        assert mine[1] is not None
        assert mine[2] is not None
        await mine[0].update_data({"new": 2})
        await mine[1].promote()
        await mine[2].set_priority(2)

        assert (await ours[0].refresh()).data == {"new": 1}
        assert (await theirs.getJob(others[0].id)).data == {"new": 2}
        assert [job.id for job in await theirs.getPrioritized()] == [ours[2].id, others[2].id]
        counts = await queue.counts()
        assert (counts.waiting, counts.prioritized, counts.delayed) == (4, 2, 0)
        await theirs.pause()
        assert (await queue.counts()).paused
        await queue.resume()
        assert not await theirs.isPaused()
        await theirs.remove(ours[0].id)
        assert await queue.job(ours[0].id) is None
        await queue.drain()
        assert await theirs.getWaitingCount() == 0


@pytest.mark.parametrize("end", ["completed", "failed", "removed"])
async def test_a_key_that_is_taken_once_is_let_go_by_whoever_ends_the_job(port: Port, toril: Toril, end: str) -> None:
    async def either(ctx: JobContext[Any]) -> None:
        if end == "failed":
            raise PermanentError("told to")

    async def theirs(job: Any) -> None:
        if end == "failed":
            raise ValueError("told to")

    async with port.queue("q") as producer, toril.queue("q") as queue:
        other = await producer.add("either", {}, {"deduplication": {"id": "p"}})
        mine = await queue.add("either", dedup=Dedup("t"), attempts=1)
        assert (await producer.add("either", {}, {"deduplication": {"id": "t"}})).id == mine.id
        assert not (await queue.add("either", dedup=Dedup("p"))).added
        if end == "removed":
            found = await queue.job(other.id)
            assert found is not None
            await found.remove()
            await producer.remove(mine.id)
        else:
            async with toril.working("q", {"either": either}):
                await ended(queue, other.id)
                await ended(queue, mine.id)
            mine = await queue.add("either", dedup=Dedup("t"), attempts=1)
            async with port.working("q", {"either": theirs}):
                await ended(queue, mine.id)

        assert (await queue.add("either", dedup=Dedup("p"))).added
        assert (await queue.add("either", dedup=Dedup("t"))).added


PROGRAM = """
import asyncio, sys
from bullmq import Worker

async def hold(job, token):
    print(job.id, flush=True)
    await asyncio.Event().wait()

async def main():
    await Worker("q", hold, {"connection": sys.argv[1], "autorun": False, "lockDuration": 1000}).run()

asyncio.run(main())
"""


async def test_toril_takes_up_what_a_dead_port_held(port: Port, toril: Toril, server: RedisServer) -> None:
    steps = Steps()
    async with toril.queue("q") as queue:
        job = await queue.add("note")
        assert await killed_while_holding(server, PROGRAM) == job.id
        async with toril.working("q", {"note": steps.note}, lease=1):
            found = await ended(queue, job.id)

    assert (steps.ran, found.stalls, found.attempts_made) == ([job.id], 1, 1)


async def test_the_port_takes_up_what_a_dead_toril_held(port: Port, toril: Toril, server: RedisServer) -> None:
    async with toril.queue("q") as queue:
        job = await queue.add("hold", {"a": 1})
        assert await killed_while_holding(server) == job.id
        async with port.working("q", {"hold": echo}, stalledInterval=300, lockDuration=1000):
            assert await job.result(15) == {"a": 1}

        assert (await job.refresh()).stalls == 1


async def test_every_job_of_a_mixed_fleet_runs_once(port: Port, toril: Toril) -> None:
    ran: Counter[str] = Counter()

    async def theirs(job: Any) -> None:
        ran[job.id] += 1
        await asyncio.sleep(0)

    async def ours(ctx: JobContext[Any]) -> None:
        ran[ctx.job_id] += 1

    async with (
        toril.working("q", {"n": ours}, concurrency=3) as queue,
        port.working("q", {"n": theirs}, concurrency=3),
        port.queue("q") as producer,
    ):
        for _ in range(4):
            await queue.add_many([("n", None)] * 20)
            await producer.addBulk([{"name": "n", "data": {}, "opts": {}}] * 20)
        async with asyncio.timeout(15):
            while (await queue.counts()).completed < 160:  # noqa: ASYNC110 - the port tells nobody
                await asyncio.sleep(0.02)

    assert set(ran.values()) == {1}
    assert len(ran) == 160
