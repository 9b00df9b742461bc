"""The last answer to an outbox's sender is kept for good, so that asking again is safe at any time."""

import pytest

from tests import servers
from tests.conformance.claims import claim, settle
from toril.engine import Store
from toril.engines.redis import RedisEngine
from toril.errors import CallTooLate
from toril.model import LASTING, Call, NewJob
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

    with pytest.raises(CallTooLate, match="came too late: 8"):
        await engine.add("q", [NewJob(name="n", id="a")], call=Call(SENDER, 7))

    assert (await engine.counts("q")).waiting == 0


@pytest.mark.parametrize("engine", ["redis"], indirect=True)
async def test_the_server_does_not_let_it_expire(engine: Store) -> None:
    assert isinstance(engine, RedisEngine)
    await engine.add("q", [NewJob(name="n")], call=Call(SENDER, 1))
    await engine.add("q", [NewJob(name="n")], call=Call("worker-a", 1))
    server = servers.running("redis")

    assert server.tell("PTTL", f"bull::toril:call:{SENDER}:call") == b":-1"
    assert int(server.tell("PTTL", "bull::toril:call:worker-a:call")[1:]) > 0
