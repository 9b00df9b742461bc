"""A server is lost, and its replica takes its place: who was told that a job is kept finds it there, if he asked for
that; the worker goes on either way; and a call that was sent again has no second effect."""

import asyncio
import os
import signal
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest

from tests.faults.proxy import proxied
from tests.faults.test_redis_network import life
from tests.groups import Pair, pair, until
from tests.servers import RedisServer
from toril import AddUncertain, App, EngineRefused, EngineUnavailable, JobContext
from toril.engines.redis import connect
from toril.engines.redis.connection import topology as way
from toril.model import NewJob
from toril.queue import Queue
from toril.runtime.calls import Caller
from toril.runtime.clock import SYSTEM

FAILOVERS = int(os.environ.get("TORIL_FAILOVERS", "2"))


@pytest.fixture(scope="module")
def servers() -> Iterator[Pair]:
    with pair() as made:
        yield made


def patient(servers: Pair) -> str:
    """For calls that may take as long as Sentinels that get no turn, on a machine that is busy."""
    return f"{servers.url}?timeout=60"


@dataclass(slots=True)
class Load:
    """What was added while servers came and went, and what ran."""

    told: set[int] = field(default_factory=set)  # add has returned
    uncertain: set[int] = field(default_factory=set)  # add has said that it does not know
    ran: Counter[int] = field(default_factory=Counter)
    producing: bool = True
    hurry: bool = False

    @property
    def lost(self) -> set[int]:
        """What was promised and has not run: when all has run that there is, it never will."""
        return self.told - self.ran.keys()

    def __str__(self) -> str:
        again = self.ran.total() - len(self.ran)
        return (
            f"{len(self.told)} told to be kept, {len(self.lost)} of them lost; {len(self.uncertain)} uncertain, "
            f"{len(self.uncertain - self.ran.keys())} of them lost; {again} ran again"
        )


async def in_thread(work: Callable[[], None]) -> None:
    await asyncio.get_running_loop().run_in_executor(None, work)


async def eventually(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(120):
        while not true():  # noqa: ASYNC110 - what is waited for has no event
            await asyncio.sleep(0.02)


@asynccontextmanager
async def under_load(app: App) -> AsyncIterator[Load]:
    """Four producers, and a worker that is slower than they are, so that there is always something to lose."""
    load = Load()

    async def handler(ctx: JobContext[int]) -> None:
        load.ran[ctx.data] += 1
        if not load.hurry:
            await asyncio.sleep(0.2)

    queue = app.queue("q", {"n": handler}, concurrency=8, lease=2)

    async def produce(number: int) -> None:
        while load.producing:
            try:
                await queue.add("n", number)
                load.told.add(number)
            except AddUncertain:
                load.uncertain.add(number)
            except EngineUnavailable:  # it took longer than a producer waits
                load.uncertain.add(number)
            number += 4
            await asyncio.sleep(0.02)

    async with app:
        working = asyncio.create_task(app.run())
        try:
            async with asyncio.TaskGroup() as producers:
                for lane in range(4):
                    producers.create_task(produce(lane))
                yield load
                load.producing = False
            load.hurry = True
            await queue.add("n", -1)
            await eventually(lambda: -1 in load.ran)
            await emptied(queue)
        finally:
            app.stop()
            ended = await working
        assert ended == 0


async def emptied(queue: Queue) -> None:
    """Until all has run that there is."""
    async with asyncio.timeout(120):
        while (counts := await queue.counts()).waiting + counts.active:  # noqa: ASYNC110 - the store has no event
            await asyncio.sleep(0.05)


async def fail_over_under(load: Load, servers: Pair, *, cut_off: bool) -> None:
    """`cut_off`: for a moment before, the replica hears nothing; what is added then can only be lost."""
    before = len(load.told)
    await eventually(lambda: len(load.told) >= before + 40)
    if cut_off:
        await in_thread(servers.cut_off)
        answered = len(load.told) + len(load.uncertain)
        await eventually(lambda: len(load.told) + len(load.uncertain) >= answered + 8)
    await in_thread(servers.fail_over)
    await in_thread(servers.rejoin)
    await in_thread(servers.settled)


@pytest.mark.covers("F60", "F58")
async def test_nothing_that_replicas_confirmed_is_lost_in_a_failover(servers: Pair) -> None:
    servers.servers[0].tell("FLUSHALL")
    async with under_load(App(patient(servers), durability="replicated")) as load:
        for number in range(FAILOVERS):
            await fail_over_under(load, servers, cut_off=number % 2 == 1)
    print(f"{FAILOVERS} failovers, replicated: {load}")

    assert load.lost == set()
    assert len(load.told) >= 40 * FAILOVERS


@pytest.mark.covers("F59", "F62")
async def test_without_that_what_is_lost_is_counted_and_the_worker_goes_on(servers: Pair) -> None:
    servers.servers[0].tell("FLUSHALL")
    async with under_load(App(patient(servers))) as load:
        for _ in range(max(1, FAILOVERS // 2)):
            await fail_over_under(load, servers, cut_off=True)
    print(f"{max(1, FAILOVERS // 2)} failovers, not replicated: {load}")

    assert load.lost


async def test_a_sentinel_that_is_away_is_passed_over(servers: Pair) -> None:
    engine = connect(patient(servers).replace("://", "://127.0.0.1:1,"))
    await engine.open()

    assert (await engine.health()).ok
    await engine.close()


async def test_a_service_that_no_sentinel_knows_is_named(servers: Pair) -> None:
    with pytest.raises(EngineRefused, match="does not know the service 'other'; correct the URL"):
        await connect(servers.url.replace("/toril/", "/other/")).open()


async def test_a_server_that_is_no_sentinel_is_named(servers: Pair) -> None:
    with pytest.raises(EngineRefused, match="is not a Sentinel; use redis:// for a single server"):
        await connect(f"redis+sentinel://127.0.0.1:{servers.servers[0].port}/toril").open()


@pytest.mark.covers("F61")
async def test_a_server_that_was_replaced_while_it_slept_is_left(
    servers: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(way, "CHECK", 0.2)
    engine = connect(patient(servers))
    await engine.open()
    await engine.add("q", [NewJob(name="n")])
    old, new = servers.servers
    line = engine._runner.client._pipeline._connection
    old.signal(signal.SIGSTOP)
    await in_thread(lambda: until(lambda: new.facts("replication").get("role") == "master", "promoted"))
    await eventually(
        lambda: engine._runner.client._pipeline._connection is not line
    )  # it has looked, and left its server
    old.signal(signal.SIGCONT)  # it takes writes again, until a Sentinel tells it that it is a replica

    (added,) = await engine.add("q", [NewJob(name="n", id="late")])

    assert added.id == "late"
    assert new.tell("EXISTS", "bull:q:late") == b":1"
    await engine.close()
    servers.servers.reverse()
    old.tell("REPLICAOF", "127.0.0.1", str(new.port))
    await in_thread(lambda: until(servers.in_step))


@pytest.mark.covers("F02", "F07")
@pytest.mark.parametrize("passed_on", ["passed on", "not passed on"])
async def test_a_call_sent_again_over_a_failover_has_no_second_effect(passed_on: str) -> None:
    """Whichever call it hits: its effect and the memory of it are both in the replica, or neither is."""
    quick = ("--save", "", "--repl-diskless-sync-delay", "0")
    first, second = RedisServer(*quick).start(), RedisServer(*quick).start()

    def follow() -> None:
        second.tell("REPLICAOF", "127.0.0.1", str(first.port))
        until(lambda: second.facts("replication").get("master_link_status") == "up")

    def in_step() -> bool:
        known = int(first.facts("replication")["master_repl_offset"])
        return int(second.facts("replication")["slave_repl_offset"]) >= known

    try:
        async with proxied(first.port) as proxy:

            async def lived(cut_at: int) -> list[object]:
                first.tell("FLUSHALL")
                proxy.target = first.port
                follow()
                engine = connect(proxy.url)
                await engine.open()

                def cut(number: int) -> bool:
                    if number == (cut_at if passed_on == "passed on" else cut_at - 1):
                        until(in_step)
                        second.tell("REPLICAOF", "NO", "ONE")
                    if number == cut_at:
                        proxy.target = second.port
                    return number == cut_at

                proxy.answers = proxy.cuts = 0
                proxy.cut = cut
                if cut_at == 1 and passed_on != "passed on":
                    cut(0)
                try:
                    return await life(engine, Caller("c", SYSTEM))
                finally:
                    await engine.close()

            await lived(-1)  # from here on the server knows the scripts
            expected = await lived(-1)
            answers = proxy.answers
            for cut_at in range(1, answers + 1):
                assert await lived(cut_at) == expected, cut_at
                assert proxy.cuts == 1
    finally:
        second.stop()
        first.stop()

    assert answers > 10
