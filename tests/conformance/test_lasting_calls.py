"""The last answer to an outbox's sender is kept for good, so that asking again is safe at any time."""

import pytest

from tests import servers
from tests.conformance.jobs import claim, settle
from toril.engines.redis import RedisEngine
from toril.errors import CallTooLate, QueueFull
from toril.model import LASTING, Call, NewJob, SetMaxWaiting
from toril.store.engine import Store
from toril.testing import ManualClock

SENDER = f"{LASTING}lane"
DAY = 86_400_000


async def test_an_add_of_days_ago_sent_again_makes_no_second_job(engine: Store, clock: ManualClock) -> None:
    jobs = [NewJob(name="n", id="a"), NewJob(name="n", id="b")]
    first = await engine.add("q", jobs, call=Call(SENDER, 1))
    for lease in (await claim(engine, want=2)).jobs:
        await settle(engine, lease.lease)
    clock.advance(2 * DAY)
    while await engine.prune("q") >= 1000:
        pass

    assert await engine.jobs("q", ["a", "b"]) == [None, None], "both have run, and their ids are free"
    assert await engine.add("q", jobs, call=Call(SENDER, 1)) == first
    assert (await engine.counts("q")).waiting == 0


async def test_other_senders_are_forgotten(memory_engine: Store, clock: ManualClock) -> None:
    await memory_engine.add("q", [NewJob(name="n")], call=Call("worker-a", 1))
    clock.advance(DAY)
    await memory_engine.prune("q")

    await memory_engine.add("q", [NewJob(name="n")], call=Call("worker-a", 1))

    assert (await memory_engine.counts("q")).waiting == 2


async def test_a_removal_of_nothing_shuts_out_what_was_sent_before(engine: Store) -> None:
    await engine.remove("q", [], call=Call(SENDER, 8))

    with pytest.raises(CallTooLate, match="came too late: call 8"):
        await engine.add("q", [NewJob(name="n", id="a")], call=Call(SENDER, 7))

    assert (await engine.counts("q")).waiting == 0


async def test_a_number_given_to_no_jobs_is_never_given_to_any(engine: Store) -> None:
    assert await engine.add("q", [], call=Call(SENDER, 7)) == []

    assert await engine.add("q", [NewJob(name="n", id="a")], call=Call(SENDER, 7)) == []
    assert await engine.jobs("q", ["a"]) == [None]
    assert "q" not in await engine.queues(), "a queue that nothing was added to is none"
    with pytest.raises(CallTooLate):
        await engine.add("q", [], call=Call(SENDER, 6))


async def test_a_number_of_jobs_that_were_added_is_not_given_to_none(engine: Store) -> None:
    first = await engine.add("q", [NewJob(name="n", id="a")], call=Call(SENDER, 7))

    assert await engine.add("q", [], call=Call(SENDER, 7)) == first
    assert (await engine.counts("q")).waiting == 1


async def test_what_a_full_queue_refused_is_refused_for_good_by_an_add_of_nothing(engine: Store) -> None:
    await engine.configure("q", [SetMaxWaiting(1)])
    await engine.add("q", [NewJob(name="n", id="first")])
    jobs = [NewJob(name="n", id="a")]
    with pytest.raises(QueueFull):
        await engine.add("q", jobs, call=Call(SENDER, 1))
    assert await engine.add("q", [], call=Call(SENDER, 1)) == []
    (taken,) = (await claim(engine)).jobs
    await settle(engine, taken.lease)

    assert await engine.add("q", jobs, call=Call(SENDER, 1)) == []
    assert (await engine.counts("q")).waiting == 0


@pytest.mark.parametrize("engine", ["redis"], indirect=True)
async def test_the_server_does_not_let_it_expire(engine: Store) -> None:
    assert isinstance(engine, RedisEngine)
    await engine.add("q", [NewJob(name="n")], call=Call(SENDER, 1))
    await engine.add("q", [NewJob(name="n")], call=Call("worker-a", 1))
    server = servers.running("redis")

    assert server.tell("PTTL", f"bull::toril:call:{SENDER}:call") == b":-1"
    assert int(server.tell("PTTL", "bull::toril:call:worker-a:call")[1:]) > 0
