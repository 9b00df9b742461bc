"""Moves that are broken off, at every step and by kill -9 beside workers: nothing is lost or doubled."""

import asyncio
import os
import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

import pytest

from tests import servers
from tests.conformance.jobs import add, claim, claim_one, settle
from toril import App, JobContext, State
from toril.engines.redis import RedisEngine
from toril.engines.sqlite import SqliteEngine
from toril.engines.sqlite.url import parse
from toril.model import (
    Call,
    CatchUp,
    Completed,
    Failed,
    Failure,
    FlowNode,
    ImportOutcome,
    JobRef,
    NewJob,
    Schedule,
    TransferBatch,
    TransferPart,
)
from toril.operate.transfer import Transfer
from toril.store.engine import Store, connect
from toril.testing import ManualClock

JOBS = int(os.environ.get("TORIL_MOVE_JOBS", "1500"))
KILLS = int(os.environ.get("TORIL_MOVE_KILLS", "2"))
LIMIT = 120 + JOBS / 100  # seconds
MINUTE = 60_000
WAITING = frozenset({State.WAITING, State.PRIORITIZED, State.DELAYED, State.WAITING_CHILDREN})


class Died(BaseException):
    """The process of the move is no more."""


@dataclass
class Mortal:
    """A store whose caller dies before each step of a move the first time, and after it the second."""

    store: Store
    deaths: Counter[tuple[object, ...]] = field(default_factory=Counter)
    confirmed: int = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.store, name)

    @property
    def transfers(self) -> "_MortalTransfers":
        return _MortalTransfers(self)

    async def step(self, name: str, method: Callable[..., Any], *given: Any, **named: Any) -> Any:
        which = (name, self.confirmed, *(each.number if isinstance(each, TransferBatch) else each for each in given))
        self.deaths[which] += 1
        if self.deaths[which] == 1:
            raise Died
        answer = await method(*given, **named)
        if self.deaths[which] == 2:
            raise Died
        self.confirmed += name == "confirm_export"
        return answer


@dataclass
class _MortalTransfers:
    mortal: Mortal

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.mortal.store.transfers, name)
        steps = {"export_batch", "import_batch", "confirm_export"}
        return partial(self.mortal.step, name, found) if name in steps else found


@pytest.fixture(params=["sqlite-redis", "redis-sqlite", "sqlite-sqlite", "redis-redis"])
async def ends(request: pytest.FixtureRequest, clock: ManualClock) -> AsyncIterator[tuple[Store, Store]]:
    """Two stores: which is the source, and which the target."""
    server = servers.running()
    assert server.tell("FLUSHALL") == b"+OK"
    async with AsyncExitStack() as stack:
        stores: list[Store] = []
        for prefix, kind in zip(("one", "two"), request.param.split("-"), strict=True):
            redis = kind == "redis"
            store: Store = (
                RedisEngine.from_url(server.url, clock=clock, prefix=prefix)
                if redis
                else SqliteEngine(parse("memory://"), clock=clock)
            )
            await store.open()
            stack.push_async_callback(store.close)
            stores.append(store)
        yield stores[0], stores[1]


class Cut(BaseException):
    """The move ends here."""


@dataclass
class CutOff:
    """A store to which nothing is brought."""

    store: Store

    def __getattr__(self, name: str) -> Any:
        return getattr(self.store, name)

    @property
    def transfers(self) -> "_CutOffTransfers":
        return _CutOffTransfers(self.store)


@dataclass
class _CutOffTransfers:
    store: Store

    def __getattr__(self, name: str) -> Any:
        return getattr(self.store.transfers, name)

    async def import_batch(self, _batch: TransferBatch, **_: Any) -> Any:
        raise Cut


@pytest.mark.parametrize("jobs", [1, 12])
async def test_a_load_on_its_way_comes_back_with_the_rest(
    ends: tuple[Store, Store], clock: ManualClock, jobs: int
) -> None:
    here, there = ends
    await add(here, *(NewJob(name="n", data=f"{n}") for n in range(jobs)))
    with pytest.raises(Cut):
        await Transfer(here, cast("Store", CutOff(there)), clock).move()
    with pytest.raises(Cut):  # the first was the queue's settings
        await Transfer(here, cast("Store", CutOff(there)), clock).move()
    load = await here.transfers.export_batch(TransferPart.JOBS, "q", to=await there.transfers.store_id(), mark="m")
    assert load is not None
    assert (
        await there.transfers.import_batch(load, sender=await here.transfers.store_id())
    ).outcome is ImportOutcome.STORED
    assert await here.transfers.confirm_export(load)
    assert (
        await here.transfers.export_batch(TransferPart.JOBS, "q", to=await there.transfers.store_id(), mark="n")
        is not None
    )
    assert (await here.counts("q")).waiting + (await there.counts("q")).waiting == 0, "they are in neither"

    await Transfer(there, here, clock).move()

    assert (await here.counts("q")).waiting == jobs
    assert sum((await there.counts("q")).values()) == 0


async def furnish(store: Store, clock: ManualClock) -> None:
    await add(store, *(NewJob(name="n", data=f"{n}", priority=n % 2) for n in range(12)))
    await add(store, *(NewJob(name="late", data=f"late-{n}", delay=MINUTE, group=f"g{n % 2}") for n in range(6)))
    await add(store, NewJob(name="dead", data="dead"), queue="other")
    await settle(store, (await claim_one(store, queue="other")).lease, Failed(Failure("no")))
    top = FlowNode(queue="other", job=NewJob(name="top", id="top", data="top"), waits=True)
    children = [
        FlowNode(queue="q", job=NewJob(name="c", id=f"c{n}", data=f"c{n}"), parent=top.ref) for n in range(3)
    ]  # fmt: skip
    await store.flows.add([top, *children], call=Call("f", 1))
    tick = Schedule(id="tick", job=NewJob(name="tick", data="tick"), every=MINUTE)
    await store.schedules.put("other", tick, clock.now() + MINUTE, expects=None)


async def run_some(store: Store, ran: Counter[str], want: int = 100, queues: Sequence[str] = ("q", "other")) -> int:
    """Work in the store, as workers would; what was run."""
    done = 0
    for queue in queues:
        for job in (await claim(store, want, queue=queue)).jobs:
            ran[job.data] += 1
            done += 1
            await settle(store, job.lease, Completed('"done"'))
    return done


async def test_a_move_that_dies_at_every_step_loses_and_doubles_nothing(
    ends: tuple[Store, Store], clock: ManualClock
) -> None:
    source, target = ends
    await furnish(source, clock)
    mortal = (Mortal(source), Mortal(target))
    ran, died, over = Counter[str](), 0, False

    while not over:
        try:
            await Transfer(cast("Store", mortal[0]), cast("Store", mortal[1]), clock, load=5).move()
            over = True
        except Died:
            died += 1
            if (await source.configure("q", [])).paused:
                assert await run_some(source, Counter(), queues=("q",)) == 0, "nothing starts where it leaves"
            await run_some(target, ran, want=2)

    assert died > 30
    clock.advance(2 * MINUTE)
    while await run_some(target, ran):
        clock.advance(1)
    expected = {*map(str, range(12)), *(f"late-{n}" for n in range(6)), "top", "c0", "c1", "c2", "tick"}
    assert set(ran) == expected
    assert set(ran.values()) == {1}
    assert [letter.data for letter in (await target.dead_letters.page()).items] == ["dead"]
    assert len((await target.flows.children(JobRef("other", "top"))).items) == 0, "it has ended, and is gone"
    for queue in ("q", "other"):
        assert sum((await source.counts(queue)).values()) == 0
    async for look in target.repairs.scan(["q", "other"]):
        assert list(look) == []


# With real processes.


@dataclass
class Bench:
    """A worker for each of two stores, in this process, that notes what was run."""

    urls: tuple[str, str]
    ran: Counter[int] = field(default_factory=Counter)
    ticks: Counter[str] = field(default_factory=Counter)

    def app(self, url: str) -> App:
        async def work(ctx: JobContext[int]) -> None:
            await asyncio.sleep(0.01)
            self.ran[ctx.data] += 1

        async def tick(ctx: JobContext[None]) -> None:
            self.ticks[ctx.job_id] += 1

        app = App(url)
        app.queue("q", {"work": work, "tick": tick}, concurrency=20, lease=300)
        return app


async def until(true: Callable[[], bool]) -> None:
    while not true():  # noqa: ASYNC110 - what is waited for has no event
        await asyncio.sleep(0.05)


async def left(store: Store) -> int:
    counts = await store.counts("q")
    return sum(counts.values())


async def move(source: str, target: str) -> "asyncio.subprocess.Process":
    words = [sys.executable, "-m", "toril", "move", source, target, "--batch-size", str(max(10, JOBS // 150))]
    return await asyncio.create_subprocess_exec(*words, stdout=asyncio.subprocess.DEVNULL)


async def moved_with_kills(source: str, target: str, store: Store) -> int:
    """Move everything from `source`, of which this is the store; how often the process was killed on the way."""
    kills, first = 0, await left(store)
    for turn in range(1, KILLS + 1):
        process = await move(source, target)
        goal = first - first * turn // (KILLS + 1)
        while process.returncode is None and await left(store) > goal:  # noqa: ASYNC110 - nor has this
            await asyncio.sleep(0.01)  # a store tells nobody how many jobs it has
        if process.returncode is None:
            process.kill()
            kills += 1
        await process.wait()
    process = await move(source, target)
    assert await process.wait() == 0
    assert await left(store) == 0
    return kills


async def all_in(store: Store) -> Counter[int]:
    """What waits in a store."""
    found: Counter[int] = Counter()
    for state in WAITING:
        cursor = None
        while True:
            page = await store.page("q", state, cursor=cursor, limit=1000)
            found.update(int(job.data) for job in page if job.name == "work")
            cursor = page.cursor
            if cursor is None:
                break
    return found


async def test_there_and_back_with_kills_beside_workers_of_both(tmp_path: Path) -> None:
    server = servers.RedisServer("--save", "", "--appendonly", "no").start()
    bench = Bench((f"sqlite:///{tmp_path / 'jobs.db'}", server.url))
    try:
        async with asyncio.timeout(LIMIT * 4), AsyncExitStack() as stack:
            apps = [bench.app(url) for url in bench.urls]
            stores: list[Store] = []
            for url in bench.urls:
                store = connect(url)
                await store.open()
                stack.push_async_callback(store.close)
                stores.append(store)
            for start in range(0, JOBS, 500):
                numbers = range(start, min(start + 500, JOBS))
                jobs = [NewJob(name="work", data=str(n), delay=0 if n % 3 == 0 else 60 * MINUTE) for n in numbers]
                await stores[0].add("q", jobs)
            now = (await stores[0].health()).now
            tick = Schedule(id="tick", job=NewJob(name="tick", data="null"), every=1_000, catch_up=CatchUp.ALL)
            await stores[0].schedules.put("q", tick, now // 1_000 * 1_000 + 1_000, expects=None)
            working = [asyncio.create_task(app.run()) for app in apps]

            kills = await moved_with_kills(*bench.urls, stores[0])
            before = len(bench.ticks)
            await until(lambda: len(bench.ticks) >= before + 2)  # the schedule goes on there
            kills += await moved_with_kills(bench.urls[1], bench.urls[0], stores[1])
            await until(lambda: len(bench.ran) >= len(range(0, JOBS, 3)))

            for app in apps:
                app.stop()
            assert await asyncio.gather(*working) == [0, 0]
            waiting = await all_in(stores[0])
            assert await left(stores[1]) == 0
    finally:
        server.stop()

    assert set(bench.ran.values()) == {1}, "run twice"
    assert set(waiting.values()) == {1}, "there twice"
    assert bench.ran.keys() | waiting.keys() == set(range(JOBS))
    assert bench.ran.keys() & waiting.keys() == set()
    slots = sorted(int(run.rpartition(":")[2]) for run in bench.ticks)
    assert set(bench.ticks.values()) == {1}
    assert {after - before for before, after in pairwise(slots)} == {1_000}, "a slot was left out"
    print(f"{JOBS} jobs there and back, {kills} kills, {len(slots)} slots: none lost, none doubled")
