"""`durability="replicated"`: what callers are told is done, replicas have; what they do not have, callers are told."""

import asyncio
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest

from tests.groups import until
from tests.servers import RedisServer
from toril import AddUncertain, App, EngineUnavailable, InvalidOption
from toril.engines.redis import RedisEngine, connect
from toril.model import (
    AddOutcome,
    Call,
    Claim,
    Completed,
    NewJob,
    NewSignal,
    Pause,
    Rest,
    Rested,
    Settlement,
    StepKind,
    Verdict,
)

CALL = Call("producer", 1)


@pytest.fixture
def servers() -> Iterator[tuple[RedisServer, RedisServer]]:
    """A server and its replica."""
    first, second = (RedisServer("--save", "", "--repl-diskless-sync-delay", "0") for _ in range(2))
    first.start()
    second.start("--replicaof", "127.0.0.1", str(first.port))
    until(lambda: second.facts("replication").get("master_link_status") == "up", "in step")
    yield first, second
    second.signal(signal.SIGCONT)
    second.stop()
    first.stop()


@asynccontextmanager
async def opened(server: RedisServer, seconds: float) -> AsyncIterator[RedisEngine]:
    engine = connect(server.url + f"?timeout=30&replicas_timeout={seconds}", durability="replicated")
    await engine.open()
    try:
        yield engine
    finally:
        await engine.close()


@pytest.fixture
async def engine(servers: tuple[RedisServer, RedisServer]) -> AsyncIterator[RedisEngine]:
    """Waits for as long as a replica that is there may take."""
    async with opened(servers[0], 20) as engine:
        yield engine


@pytest.fixture
async def hasty(servers: tuple[RedisServer, RedisServer]) -> AsyncIterator[RedisEngine]:
    """Does not wait for long."""
    async with opened(servers[0], 0.2) as engine:
        yield engine


@pytest.mark.covers("F60")
async def test_an_add_returns_when_the_replica_has_it(
    servers: tuple[RedisServer, RedisServer], engine: RedisEngine
) -> None:
    for number in range(1, 20):
        (added,) = await engine.add("q", [NewJob(name="n")], call=Call("producer", number))

        assert servers[1].tell("EXISTS", f"bull:q:{added.id}") == b":1"


@pytest.mark.covers("F60")
async def test_an_add_that_no_replica_confirms_is_uncertain_and_can_be_made_again(
    servers: tuple[RedisServer, RedisServer], hasty: RedisEngine, engine: RedisEngine
) -> None:
    servers[1].signal(signal.SIGSTOP)
    job = NewJob(name="n", id="order-1")
    with pytest.raises(AddUncertain) as raised:
        await hasty.add("q", [job], call=CALL)

    assert raised.value.job_ids == ("order-1",)
    assert "is stored" in str(raised.value)
    assert "it is safe to add it again with the same job_id" in str(raised.value)

    servers[1].signal(signal.SIGCONT)
    (again,) = await engine.add("q", [job], call=Call("producer", 2))
    assert again.outcome is AddOutcome.DUPLICATE
    assert servers[1].tell("EXISTS", "bull:q:order-1") == b":1"


@pytest.mark.covers("F60")
async def test_a_remembered_answer_is_not_taken_for_a_confirmed_one(
    servers: tuple[RedisServer, RedisServer], hasty: RedisEngine
) -> None:
    servers[1].signal(signal.SIGSTOP)
    with pytest.raises(AddUncertain):
        await hasty.add("q", [NewJob(name="n")], call=CALL)
    servers[0].tell("CLIENT", "KILL", "TYPE", "normal")  # what the new connection has written is nothing

    with pytest.raises(AddUncertain):
        await hasty.add("q", [NewJob(name="n")], call=CALL)

    assert (await hasty.counts("q")).waiting == 1


async def test_many_adds_wait_for_the_replica_together(
    servers: tuple[RedisServer, RedisServer], engine: RedisEngine
) -> None:
    await asyncio.gather(*(engine.add("q", [NewJob(name="n")], call=Call(f"p{n}", 1)) for n in range(100)))

    waits = int(servers[0].facts("commandstats")["cmdstat_wait"].split(",")[0].removeprefix("calls="))
    assert waits < 50
    assert (await engine.counts("q")).waiting == 100


async def test_a_replica_that_is_away_does_not_hold_up_workers(
    servers: tuple[RedisServer, RedisServer], engine: RedisEngine
) -> None:
    await engine.add("q", [NewJob(name="n")], call=CALL)
    servers[1].signal(signal.SIGSTOP)
    adding = asyncio.create_task(engine.add("q", [NewJob(name="n")], call=Call("producer", 2)))
    await asyncio.sleep(0.05)

    claim = Claim(want=1, token="t", lease=60_000, worker="w")
    (job,) = (await engine.exchange("q", [], claim, call=Call("worker", 1))).jobs
    batch = [Settlement(job.lease, Completed("1"))]
    answer = await engine.exchange("q", batch, Claim(want=0, token="u", lease=1, worker="w"), call=Call("worker", 2))

    assert answer.verdicts == (Verdict.OK,)
    assert not adding.done()
    servers[1].signal(signal.SIGCONT)
    assert len(await adding) == 1


async def test_what_a_job_has_recorded_as_it_rests_is_confirmed(
    servers: tuple[RedisServer, RedisServer], hasty: RedisEngine, engine: RedisEngine
) -> None:
    await engine.add("q", [NewJob(name="n")], call=CALL)
    claim = Claim(want=1, token="t", lease=60_000, worker="w")
    (job,) = (await engine.exchange("q", [], claim, call=Call("worker", 1))).jobs
    batch = [Settlement(job.lease, Rested(rests=(Rest(key="s", kind=StepKind.SLEEP, delay=60_000),)))]
    nothing = Claim(want=0, token="u", lease=1, worker="w")
    servers[1].signal(signal.SIGSTOP)
    with pytest.raises(EngineUnavailable, match=r"only 0 of 1 replicas confirmed it within 0\.2 s"):
        await hasty.exchange("q", batch, nothing, call=Call("worker", 2))
    with pytest.raises(EngineUnavailable, match=r"only 0 of 1 replicas confirmed it within 0\.2 s"):
        await hasty.steps.deliver("q", [NewSignal(name="ok", job_id=job.lease.id)], call=Call("producer", 2))

    servers[1].signal(signal.SIGCONT)
    assert (await engine.exchange("q", batch, nothing, call=Call("worker", 2))).verdicts == (Verdict.OK,)
    (delivered,) = await engine.steps.deliver(
        "q", [NewSignal(name="ok", job_id=job.lease.id)], call=Call("producer", 2)
    )
    assert delivered.outcome == "kept"
    assert servers[1].tell("HEXISTS", f"bull:q:{job.lease.id}", "toril:rest") == b":1"


async def test_a_control_that_no_replica_confirms_is_not_known_to_have_happened(
    servers: tuple[RedisServer, RedisServer], hasty: RedisEngine, engine: RedisEngine
) -> None:
    servers[1].signal(signal.SIGSTOP)
    with pytest.raises(EngineUnavailable, match=r"only 0 of 1 replicas confirmed it within 0\.2 s"):
        await hasty.configure("q", [Pause()], call=CALL)

    servers[1].signal(signal.SIGCONT)
    assert (await engine.configure("q", [Pause()], call=CALL)).paused
    assert servers[1].tell("HGET", "bull:q:meta", "paused") == b"$1"


async def test_an_app_asks_for_it_by_name(servers: tuple[RedisServer, RedisServer]) -> None:
    patient = App(f"{servers[0].url}?timeout=30&replicas_timeout=20", durability="replicated")
    queue = patient.queue("q")
    async with patient:
        job = await queue.add("n", 1)
        assert servers[1].tell("EXISTS", f"bull:q:{job.id}") == b":1"

    servers[1].signal(signal.SIGSTOP)
    usual = App(servers[0].url, durability="replicated")
    queue = usual.queue("q")
    async with usual:
        with pytest.raises(AddUncertain):
            await queue.add("n", 2)


def test_a_file_has_no_replicas() -> None:
    with pytest.raises(InvalidOption, match="durability='replicated' works with Redis only; sqlite:// has no replicas"):
        App("sqlite:///jobs.db", durability="replicated")
