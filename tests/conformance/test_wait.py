"""Engine.wait and finished: rest until something happens, never through it."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from tests.conformance.jobs import add, claim, claim_one, settle
from toril.errors import Closed
from toril.model import (
    KEEP_ALL,
    Cancelled,
    Completed,
    Failed,
    Failure,
    Gone,
    Heartbeat,
    JobOptions,
    NewJob,
    Outcome,
    Pause,
    Pending,
    Released,
    Resume,
    SetConcurrency,
    WorkerCommand,
    control,
)
from toril.model.states import State
from toril.store.engine import Store
from toril.testing import ManualClock

LONG = 60_000


async def exhausted(engine: Store, queue: str = "q") -> None:
    """A claim that finds nothing: from here on only news counts."""
    assert (await claim(engine, queue=queue)).jobs == ()


async def resting(engine: Store, *queues: str) -> "asyncio.Task[set[str]]":
    """A waiter that has come to rest."""
    waiter = asyncio.create_task(engine.wait(queues, timeout=LONG))
    for _ in range(3):  # each is answered after what the waiter asked before it
        await engine.health()
    assert not waiter.done()
    return waiter


async def test_an_add_wakes_who_waits_for_that_queue(engine: Store) -> None:
    for queue in ("a", "b"):
        await exhausted(engine, queue)
    waiter = await resting(engine, "a", "b")

    await add(engine, NewJob(name="n"), queue="b")

    assert await waiter == {"b"}


async def test_what_came_before_the_wait_is_not_slept_through(engine: Store) -> None:
    await exhausted(engine)
    await add(engine, NewJob(name="n"))

    assert await engine.wait(["q"], timeout=LONG) == {"q"}


async def test_a_wait_ends_when_its_time_is_up(engine: Store) -> None:
    await exhausted(engine)

    assert await engine.wait(["q"], timeout=20) == set()


async def test_a_queue_that_was_never_looked_into_may_have_work(engine: Store) -> None:
    await add(engine, NewJob(name="n"))

    assert await engine.wait(["q", "empty"], timeout=LONG) == {"q"}


async def test_a_delayed_job_wakes_so_that_its_time_is_known(engine: Store) -> None:
    await exhausted(engine)
    waiter = await resting(engine, "q")

    await add(engine, NewJob(name="n", delay=5000))

    assert await waiter == {"q"}


async def test_jobs_that_return_wake(engine: Store) -> None:
    await add(engine, NewJob(name="a"), NewJob(name="b"))
    a, b = (await claim(engine, 5)).jobs
    waiter = await resting(engine, "q")

    await settle(engine, a.lease, Released())
    first = await waiter
    await claim(engine)
    waiter = await resting(engine, "q")
    await engine.recover("q", dead=[b.lease])

    assert first == await waiter == {"q"}


async def test_a_queue_made_anew_is_news(engine: Store) -> None:
    await add(engine, NewJob(name="n"))
    await settle(engine, (await claim(engine)).jobs[0].lease)
    await engine.obliterate("q")
    await add(engine, NewJob(name="n"))

    assert await engine.wait(["q"], timeout=LONG) == {"q"}


async def test_a_suspect_wakes_an_idle_worker_beside_a_busy_one(engine: Store, clock: ManualClock) -> None:
    await add(engine, NewJob(name="n"))
    await claim(engine, lease=1000)
    await exhausted(engine)
    waiter = await resting(engine, "q")
    clock.advance(1000)

    await engine.recover("q")
    assert (await claim(engine)).suspects == 1  # by the busy one, which cannot take it

    assert await waiter == {"q"}


async def test_resuming_wakes(engine: Store) -> None:
    await engine.configure("q", [Pause()])
    await add(engine, NewJob(name="n"))
    await exhausted(engine)
    waiter = await resting(engine, "q")

    await engine.configure("q", [Resume()])

    assert await waiter == {"q"}


async def test_a_slot_of_the_fleet_that_becomes_free_wakes(engine: Store) -> None:
    await engine.configure("q", [SetConcurrency(1)])
    await add(engine, NewJob(name="a"), NewJob(name="b"))
    running = await claim_one(engine)
    await exhausted(engine)
    waiter = await resting(engine, "q")

    await settle(engine, running.lease)

    assert await waiter == {"q"}


@pytest.mark.covers("R094")
async def test_a_cancellation_wakes_the_worker_that_runs_the_job(engine: Store) -> None:
    await add(engine, NewJob(name="n"))
    await claim(engine, worker="w7")
    waiter = await resting(engine, "other", control("w7"))

    await engine.cancel("q", ["1"], reason="stop")

    assert await waiter == {control("w7")}
    await resting_again(engine, control("w7"))


async def resting_again(engine: Store, name: str) -> None:
    """What was heard is not heard twice."""
    waiter = await resting(engine, name)
    waiter.cancel()
    await asyncio.gather(waiter, return_exceptions=True)


async def test_an_order_wakes_its_worker(engine: Store) -> None:
    await engine.heartbeat(Heartbeat(worker="w1", queues=["q"], slots=1, running=0), ttl=LONG)
    waiter = await resting(engine, control("w1"))

    assert await engine.signal("w1", WorkerCommand.QUIET)

    assert await waiter == {control("w1")}


async def test_a_worker_is_woken_by_the_next_call_once_the_last_was_pruned(engine: Store, clock: ManualClock) -> None:
    await engine.heartbeat(Heartbeat(worker="w1", queues=["q"], slots=1, running=0), ttl=100 * LONG)
    await engine.signal("w1", WorkerCommand.QUIET)
    assert await engine.wait([control("w1")], timeout=LONG) == {control("w1")}
    clock.advance(2 * 3_600_000)
    await engine.prune("q")
    await engine.heartbeat(Heartbeat(worker="w1", queues=["q"], slots=1, running=0), ttl=100 * LONG)

    await engine.signal("w1", WorkerCommand.STOP)

    assert await engine.wait([control("w1")], timeout=1000) == {control("w1")}


async def test_closing_ends_every_wait(engine: Store) -> None:
    waiter = await resting(engine, "q")

    await engine.close()

    assert await waiter == set()


async def test_closing_ends_the_wait_for_a_result_and_says_so(engine: Store) -> None:
    await add(engine, NewJob(name="n"))
    waiter = asyncio.create_task(engine.finished("q", ["1"], timeout=LONG))
    await asyncio.sleep(0.05)

    await engine.close()

    with pytest.raises(Closed):
        await waiter


@pytest.mark.covers("X01", "R029")
async def test_a_result_is_awaited(engine: Store) -> None:
    await add(engine, NewJob(name="n", options=JobOptions(result_ttl=LONG)))
    claimed = await claim_one(engine)
    waiters = [asyncio.create_task(engine.finished("q", ["1"], timeout=LONG)) for _ in range(3)]
    await asyncio.sleep(0)

    await settle(engine, claimed.lease, Completed('{"n": 1}'))

    for waiter in waiters:
        (finished,) = await waiter
        assert (finished.id, finished.ended) == ("1", Completed('{"n": 1}'))


@pytest.mark.covers("X01", "P7")
async def test_nothing_returned_is_a_result_too(engine: Store) -> None:
    await add(engine, NewJob(name="n"))
    await settle(engine, (await claim_one(engine)).lease, Completed("null"))

    (finished,) = await engine.finished("q", ["1"], timeout=0)

    assert finished.ended == Completed("null")


async def test_a_new_job_of_the_same_id_is_not_answered_with_the_last_ones_result(engine: Store) -> None:
    await add(engine, NewJob(name="n", id="same", options=JobOptions(result_ttl=LONG)))
    await settle(engine, (await claim_one(engine)).lease, Completed("1"))
    await add(engine, NewJob(name="n", id="same"))
    await settle(engine, (await claim_one(engine)).lease, Completed("2"))

    (finished,) = await engine.finished("q", ["same"], timeout=0)

    assert finished.ended == Completed("2")


REMOVALS: dict[str, Callable[[Store], Awaitable[object]]] = {
    "remove": lambda engine: engine.remove("q", ["1"]),
    "drain": lambda engine: engine.drain("q", states=frozenset({State.WAITING})),
    "clean": lambda engine: engine.clean("q", state=State.WAITING, grace=0),
    "obliterate": lambda engine: engine.obliterate("q"),
}


@pytest.mark.parametrize("how", REMOVALS)
async def test_who_waits_for_a_job_that_is_removed_is_told_at_once(engine: Store, how: str) -> None:
    await add(engine, NewJob(name="n"))
    waiter = asyncio.create_task(engine.finished("q", ["1"], timeout=5000))
    for _ in range(3):
        await engine.health()

    await REMOVALS[how](engine)

    (finished,) = await waiter
    assert finished.ended == Gone()


async def test_a_result_that_was_heard_is_not_lost_while_others_are_awaited(engine: Store, clock: ManualClock) -> None:
    large = '"' + "x" * 2000 + '"'
    await add(engine, NewJob(name="n", id="a", options=JobOptions(result_ttl=1000)), NewJob(name="n", id="b"))
    a, b = (await claim(engine)).jobs
    waiter = asyncio.create_task(engine.finished("q", ["a", "b", "a"], timeout=LONG))
    second = asyncio.create_task(engine.finished("q", ["a"], timeout=LONG))  # is answered after the first
    await asyncio.sleep(0.1)
    await settle(engine, a.lease, Completed(large))
    await second
    for _ in range(3):
        await engine.health()
    clock.advance(1000)

    await settle(engine, b.lease, Completed("2"))

    assert [each.ended for each in await waiter] == [Completed(large), Completed("2"), Completed(large)]


async def test_what_has_not_ended_is_pending(engine: Store) -> None:
    await add(engine, NewJob(name="n"), NewJob(name="m", delay=9))
    await claim(engine)

    found = await engine.finished("q", ["1", "2"], timeout=10)

    assert [each.ended for each in found] == [Pending(), Pending()]


@pytest.mark.covers("S24")
@pytest.mark.parametrize("kept", [True, False])
async def test_every_ending_is_told_whether_the_job_was_kept_or_not(engine: Store, kept: bool) -> None:
    keep = JobOptions(keep_completed=KEEP_ALL, keep_failed=KEEP_ALL) if kept else JobOptions()
    await add(engine, *(NewJob(name="n", id=i, options=keep) for i in ("c", "f", "x")))
    endings: tuple[Outcome, ...] = (Completed("1"), Failed(Failure("boom")), Cancelled("stop"))
    for claimed, outcome in zip((await claim(engine)).jobs, endings, strict=True):
        await settle(engine, claimed.lease, outcome)

    completed, failed, cancelled = await engine.finished("q", ["c", "f", "x"], timeout=0)

    assert completed.ended == Completed("1")
    assert isinstance(failed.ended, Failed)
    assert failed.ended.failure.reason == "boom"
    assert cancelled.ended == Cancelled("stop")


@pytest.mark.covers("S24")
async def test_a_large_result_that_was_not_kept_is_gone(engine: Store) -> None:
    await add(engine, NewJob(name="n"))
    await settle(engine, (await claim_one(engine)).lease, Completed('"' + "x" * 2000 + '"'))

    found = await engine.finished("q", ["1", "never"], timeout=LONG)

    assert [each.ended for each in found] == [Gone(), Gone()]


async def test_a_large_result_is_kept_whole_under_its_own_time(engine: Store) -> None:
    large = '"' + "x" * 2000 + '"'
    await add(
        engine,
        NewJob(name="n", id="a", options=JobOptions(result_ttl=1000)),
        NewJob(name="n", id="b", options=JobOptions(result_ttl=2000)),
    )
    for claimed in (await claim(engine)).jobs:
        await settle(engine, claimed.lease, Completed(large))

    before = await engine.finished("q", ["a", "b"], timeout=0)
    assert [each.ended for each in before] == [Completed(large), Completed(large)]
