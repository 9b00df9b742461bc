"""Engine.heartbeat, signal, lead, resign and once: what processes tell each other."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from tests.declared import declared
from toril import App
from toril.errors import InvalidOption
from toril.model import Claim, Heartbeat, JobRef, NewJob, StackRequest, WorkerCommand
from toril.store.engine import Store
from toril.testing import ManualClock

W1 = Heartbeat(
    worker="w1:host", queues=["a", "b"], slots=5, running=2, host="h", pid=7, version="1.0", started_at=3, lag=12,
    queue_slots={"a": (4, 2), "b": (1, 0)}, declares={"a": declared('odd "again": true')},
)  # fmt: skip


@pytest.mark.covers("R149", "R168")
async def test_a_worker_is_listed_while_it_beats(engine: Store, clock: ManualClock) -> None:
    await engine.heartbeat(W1, ttl=1000)
    await engine.heartbeat(Heartbeat(worker="w2", queues=["b"], slots=1, running=0), ttl=5000)

    (seen,) = await engine.workers("a")
    assert (seen.id, seen.queues, seen.slots, seen.running) == ("w1:host", ("a", "b"), 5, 2)
    assert (seen.host, seen.pid, seen.version, seen.started_at, seen.seen_at) == ("h", 7, "1.0", 3, clock.now())
    assert [(worker.id, worker.lag) for worker in await engine.workers()] == [("w1:host", 12), ("w2", 0)]
    assert [seen.slots_for(queue) for queue in ("a", "b", "c")] == [(4, 2), (1, 0), (0, 0)]
    clock.advance(1000)
    assert [worker.id for worker in await engine.workers()] == ["w2"]


async def test_a_worker_that_has_stopped_is_listed_no_more(engine: Store) -> None:
    await engine.heartbeat(W1, ttl=1000)
    await engine.signal("w1:host", WorkerCommand.QUIET)

    assert await engine.heartbeat(replace(W1, again=True), ttl=0) == ()
    assert await engine.workers() == []
    assert not await engine.signal("w1:host", WorkerCommand.STOP)
    assert await engine.heartbeat(W1, ttl=1000) == ()  # nothing was left behind for the next of that name
    assert await engine.prune("q") == 0


async def test_a_worker_that_stops_late_leaves_the_next_of_its_name_alone(engine: Store) -> None:
    await engine.heartbeat(W1, ttl=1000)
    await engine.heartbeat(replace(W1, started_at=4), ttl=1000)
    await engine.signal("w1:host", WorkerCommand.QUIET)

    assert await engine.heartbeat(replace(W1, again=True), ttl=0) == ()
    assert [(worker.started_at, worker.orders) for worker in await engine.workers()] == [(4, ("quiet",))]


async def test_orders_come_again_until_they_were_heard(engine: Store) -> None:
    assert await engine.heartbeat(W1, ttl=1000) == ()
    await engine.signal("w1:host", WorkerCommand.QUIET)
    await engine.signal("w1:host", WorkerCommand.QUIET)
    await engine.signal("w1:host", WorkerCommand.STOP)

    assert [worker.orders for worker in await engine.workers()] == [("quiet", "stop")]
    assert await engine.heartbeat(W1, ttl=1000) == (WorkerCommand.QUIET, WorkerCommand.STOP)
    assert await engine.heartbeat(replace(W1, heard=[WorkerCommand.QUIET]), ttl=1000) == (WorkerCommand.STOP,)
    assert await engine.heartbeat(replace(W1, heard=[WorkerCommand.STOP]), ttl=1000) == ()


async def test_orders_are_not_for_the_next_worker_of_that_name(engine: Store) -> None:
    await engine.heartbeat(W1, ttl=1000)
    await engine.signal("w1:host", WorkerCommand.STOP)

    assert await engine.heartbeat(replace(W1, started_at=4), ttl=1000) == ()
    assert [worker.orders for worker in await engine.workers()] == [()]


async def test_nobody_orders_the_dead(engine: Store, clock: ManualClock) -> None:
    await engine.heartbeat(W1, ttl=1000)
    clock.advance(1000)

    assert not await engine.signal("w1:host", WorkerCommand.STOP)
    assert not await engine.signal("never", WorkerCommand.STOP)


async def test_dead_workers_are_pruned(engine: Store, clock: ManualClock) -> None:
    await engine.heartbeat(W1, ttl=1000)
    clock.advance(1000 + 300_000)

    assert await engine.prune("q") == 1
    assert await engine.prune("q") == 0


@pytest.mark.covers("F23")
async def test_a_worker_that_stood_still_hears_what_it_was_told(engine: Store, clock: ManualClock) -> None:
    await engine.heartbeat(W1, ttl=1000)
    await engine.signal("w1:host", WorkerCommand.STOP)
    clock.advance(300_999)

    assert await engine.prune("q") == 0
    assert await engine.workers() == []
    assert await engine.heartbeat(replace(W1, again=True), ttl=1000) == (WorkerCommand.STOP,)
    assert await engine.heartbeat(replace(W1, again=True, heard=[WorkerCommand.STOP]), ttl=1000) == ()


@pytest.mark.covers("R155", "R160", "R151")
async def test_one_leads_until_its_time_is_up(shared_engine: Store, clock: ManualClock) -> None:
    engine = shared_engine
    assert await engine.lead("reaper", "a", ttl=30_000)
    assert not await engine.lead("reaper", "b", ttl=30_000)
    assert await engine.lead("other", "b", ttl=30_000)
    clock.advance(29_999)
    assert not await engine.lead("reaper", "b", ttl=30_000)
    clock.advance(1)

    assert await engine.lead("reaper", "b", ttl=30_000)
    assert not await engine.lead("reaper", "a", ttl=30_000)


@pytest.mark.covers("R156")
async def test_a_leader_that_renews_stays(shared_engine: Store, clock: ManualClock) -> None:
    engine = shared_engine
    for _ in range(5):
        assert await engine.lead("reaper", "a", ttl=30_000)
        assert not await engine.lead("reaper", "b", ttl=30_000)
        clock.advance(10_000)


@pytest.mark.covers("R157")
async def test_only_the_leader_resigns(shared_engine: Store) -> None:
    engine = shared_engine
    await engine.lead("reaper", "a", ttl=30_000)

    assert not await engine.resign("reaper", "b")
    assert await engine.resign("reaper", "a")

    assert await engine.lead("reaper", "b", ttl=30_000)


@pytest.mark.covers("R160")
async def test_of_many_at_once_one_leads(shared_engine: Store) -> None:
    answers = await asyncio.gather(*(shared_engine.lead("reaper", str(i), ttl=1000) for i in range(20)))

    assert sum(answers) == 1


@pytest.mark.covers("R161")
async def test_a_store_in_memory_has_no_leader(memory_engine: Store) -> None:
    with pytest.raises(InvalidOption, match="no leader to elect"):
        await memory_engine.lead("reaper", "a", ttl=1000)


async def test_once_is_once_in_its_time(engine: Store, clock: ManualClock) -> None:
    answers = await asyncio.gather(*(engine.once("alert", f"w{i}", ttl=1000) for i in range(5)))
    clock.advance(999)
    later = await engine.once("alert", "late", ttl=1000)
    again = await engine.once("alert", f"w{answers.index(True)}", ttl=1000)
    clock.advance(1)

    assert sum(answers) == 1
    assert not later
    assert again
    assert await engine.once("alert", "late", ttl=1000)
    assert await engine.once("another", "w1", ttl=1000)


@pytest.mark.covers("F75")
async def test_a_worker_that_the_store_has_forgotten_is_told_to_declare_again(engine: Store) -> None:
    assert await engine.heartbeat(W1, ttl=1000) == ()
    assert await engine.heartbeat(replace(W1, again=True), ttl=1000) == ()

    stranger = replace(W1, worker="w9", again=True)

    assert await engine.heartbeat(stranger, ttl=1000) == (WorkerCommand.DECLARE,)
    assert await engine.heartbeat(stranger, ttl=1000) == ()


@pytest.mark.covers("R149")
async def test_the_jobs_of_one_worker_are_listed_whether_it_lives_or_not(engine: Store, clock: ManualClock) -> None:
    app = App("memory://")
    vars(app.services).update(engine=engine, clock=clock, users=1)
    for number, (queue, worker) in enumerate([("b", "one"), ("a", "two"), ("a", "one")]):
        await engine.add(queue, [NewJob(name="n", data=str(number))])
        await engine.exchange(queue, [], Claim(want=1, token=f"t{number}", lease=30_000, worker=worker))
        clock.advance(10)

    async def listed(worker: str | None) -> list[Any]:
        return [(job.queue.name, job.data) for job in await app.running_jobs(worker)]

    assert await engine.workers() == []  # neither is known to be alive
    assert await listed("one") == [("b", 0), ("a", 2)]
    assert await listed(None) == [("b", 0), ("a", 1), ("a", 2)]
    assert await listed("nobody") == []
    assert list(app.queues) == []


@pytest.mark.parametrize("identity", ["7", "a b/c:%", "ö" * 200])
async def test_a_worker_is_asked_where_a_job_is_and_answers_with_its_next_beat(engine: Store, identity: str) -> None:
    request = StackRequest.of(JobRef("a", identity))
    assert not await engine.signal("w1:host", request)  # nobody of that name is alive
    await engine.heartbeat(W1, ttl=10_000)
    assert await engine.signal("w1:host", request)
    assert await engine.signal("w1:host", request)  # once more, by someone else
    await engine.signal("w1:host", WorkerCommand.QUIET)
    asked = await engine.heartbeat(W1, ttl=10_000)
    (before,) = await engine.workers("a")
    left = await engine.heartbeat(replace(W1, heard=[request], stacks={request: 'File "x.py"\n'}, silent=7), ttl=10_000)
    (after,) = await engine.workers("a")

    assert asked == (request, WorkerCommand.QUIET)
    assert [each.job for each in asked if isinstance(each, StackRequest)] == [JobRef("a", identity)]
    assert left == (WorkerCommand.QUIET,)
    assert (before.orders, before.stacks, before.silent) == (("quiet",), {}, 0)
    assert (after.orders, after.stacks, after.silent) == (("quiet",), {request: 'File "x.py"\n'}, 7)
