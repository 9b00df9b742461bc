"""When a reaper acts, and who leads, in time that passes as the test wants it."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from toril.errors import EngineUnavailable, TorilError
from toril.events import Events
from toril.model import Claim, Claimed, Completed, Failure, NewJob, Retried, Settlement
from toril.operate.reaper import Election, Reaper
from toril.runtime.logs import watch
from toril.store.engine import Store, connect
from toril.testing import ManualClock
from toril.testing.faults import FlakyStore

LOOPS = 3  # of a reaper: it sweeps, prunes and mends


class Naps(ManualClock):
    """Time that passes once all of so many are asleep, up to when the first of them wakes."""

    def __init__(self) -> None:
        super().__init__()
        self._wakes: list[int] = []
        self._asleep = asyncio.Event()

    async def sleep(self, seconds: float) -> None:
        self._wakes.append(self.now() + round(seconds * 1000))
        self._asleep.set()
        await super().sleep(seconds)

    async def pass_to_next(self, sleepers: int) -> None:
        async with asyncio.timeout(30):
            while len(self._wakes) < sleepers:
                self._asleep.clear()
                await self._asleep.wait()
        first = min(self._wakes)
        self._wakes = [wake for wake in self._wakes if wake > first]
        self.advance(first - self.now())


@pytest.fixture
def clock() -> Naps:
    return Naps()


@pytest.fixture
async def store(tmp_path: Path, clock: Naps) -> AsyncIterator[Store]:
    store = connect(f"sqlite:///{tmp_path / 'jobs.db'}", clock=clock)
    await store.open()
    yield store
    await store.close()


@asynccontextmanager
async def at_work(*runs: Callable[[], Awaitable[None]]) -> AsyncIterator[None]:
    tasks = [asyncio.ensure_future(run()) for run in runs]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


async def claimed(store: Store, name: str, lease: int) -> Claimed:
    await store.add("q", [NewJob(name=name, id=name, attempts=2)])
    (job,) = (await store.exchange("q", [], Claim(want=1, token=name, lease=lease, worker="gone"))).jobs
    return job


@pytest.mark.covers("R115", "R130", "R131", "R132", "R138")
async def test_each_job_is_taken_back_when_its_own_lease_is_over(store: Store, clock: Naps) -> None:
    """The lease stands with the job, so a reaper needs not be told how long any is."""
    found: dict[str, int] = {}
    told: list[str] = []
    events = Events()
    start = clock.now()
    events.on("stalled", lambda event: found.setdefault(event.job_id, clock.now() - start))
    events.on("stalled", lambda event: told.append(event.job_id))
    await claimed(store, "short", 5_000)
    await claimed(store, "long", 20_000)
    renewed = await claimed(store, "renewed", 5_000)
    await store.renew([renewed.lease], ttl=9_000)
    ended = await claimed(store, "ended", 5_000)
    claim = Claim(want=0, token="none", lease=1000, worker="w")
    await store.exchange("q", [Settlement(ended.lease, Completed())], claim)
    first = await claimed(store, "again", 5_000)
    retried = [Settlement(first.lease, Retried(Failure("no", "E"), 0))]
    (again,) = (await store.exchange("q", retried, Claim(want=1, token="again", lease=12_000, worker="gone"))).jobs
    assert again.lease.id == "again"

    async with at_work(Reaper(store, clock, events, "reaper", elected=False).run):
        while clock.now() < start + 30_000:
            await clock.pass_to_next(LOOPS)

    assert sorted(told) == ["again", "long", "renewed", "short"]  # each once: a run that is over is not waited for
    for name, lease in (("short", 5_000), ("renewed", 9_000), ("long", 20_000), ("again", 12_000)):
        assert lease <= found[name] <= lease + 1_000


@pytest.mark.covers("R128")
async def test_a_reaper_has_no_timer_for_each_job(store: Store, clock: Naps) -> None:
    await store.add("q", [NewJob(name="n") for _ in range(1000)])
    for number in range(10):
        await store.exchange("q", [], Claim(want=100, token=f"t{number}", lease=30_000, worker="w"))
    before = len(asyncio.all_tasks())

    async with at_work(Reaper(store, clock, Events(), "reaper", elected=False).run):
        await clock.pass_to_next(LOOPS)
        await clock.pass_to_next(LOOPS)
        assert len(asyncio.all_tasks()) - before == 1 + LOOPS
        assert (await store.counts("q")).active == 1000


@pytest.mark.covers("R141", "X13")
@pytest.mark.parametrize("listened", [True, False], ids=["someone listens", "nobody listens"])
async def test_a_reaper_tells_of_its_errors_and_goes_on(
    store: Store, clock: Naps, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, listened: bool
) -> None:
    events, told, found = Events(), list[Any](), list[str]()
    watch(events)
    if listened:
        events.on("error", told.append)
    events.on("stalled", lambda event: found.append(event.job_id))
    await claimed(store, "job", 1_000)
    recover, failures = store.recover, [TorilError("no room"), TorilError("still no room")]

    async def trouble(queue: str) -> Any:
        if failures:
            raise failures.pop()
        return await recover(queue)

    monkeypatch.setattr(store, "recover", trouble)
    async with at_work(Reaper(store, clock, events, "reaper", elected=False).run):
        while not found:
            await clock.pass_to_next(LOOPS)

    assert found == ["job"]
    assert len(told) == (2 if listened else 0)
    assert "still no room" in caplog.text


class Partitioned:
    """A store that some cannot reach for a while."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.away = False

    async def lead(self, *args: Any, **options: Any) -> bool:
        if self.away:
            raise EngineUnavailable("nobody answers")
        return await self._store.lead(*args, **options)

    async def resign(self, *args: Any, **options: Any) -> bool:
        return await self._store.resign(*args, **options)


@pytest.mark.covers("F92")
async def test_a_leader_that_cannot_reach_the_store_stops_before_another_begins(store: Store, clock: Naps) -> None:
    apart: Any = Partitioned(store)
    errors: list[TorilError] = []
    one = Election(apart, clock, "one", lambda _: None, failed=errors.append)
    taken: list[tuple[int, bool]] = []
    two = Election(store, clock, "two", lambda _: taken.append((clock.now() - since, one.leads)))
    await one.stand()
    apart.away, since = True, clock.now()

    async with at_work(one.run, two.run):
        while not taken:
            await clock.pass_to_next(2)

    assert errors
    when, both = taken[0]
    assert not both
    assert when <= 30_000 + 5_000  # the lease, and the time between two tries


@pytest.mark.covers("F94")
async def test_a_bad_line_to_the_store_hardly_ever_changes_the_leader(store: Store, clock: Naps) -> None:
    flaky: Any = FlakyStore(store, rate=0.2, seed=94)
    terms: list[str] = []

    def note(name: str) -> Callable[[bool], None]:
        return lambda leads: terms.append(name) if leads else None

    elections = [Election(flaky, clock, name, note(name)) for name in ("one", "two", "three")]
    start = clock.now()
    async with at_work(*(election.run for election in elections)):
        while clock.now() < start + 600_000:
            await clock.pass_to_next(3)

    changes = sum(before != after for before, after in pairwise(terms))
    print(f"{flaky.lost} calls lost in 10 minutes, {changes} changes of the leader")
    assert flaky.lost > 20
    assert changes <= 10


class Calls:
    """A store that notes when each one has asked for the lead, or given it up."""

    def __init__(self, store: Store, clock: Naps) -> None:
        self._store = store
        self._clock = clock
        self._start = clock.now()
        self.asked: dict[str, list[float]] = {}

    @property
    def seconds(self) -> float:
        return (self._clock.now() - self._start) / 1000

    async def lead(self, role: str, owner: str, **options: Any) -> bool:
        self.asked.setdefault(owner, []).append(self.seconds)
        return await self._store.lead(role, owner, **options)

    async def resign(self, role: str, owner: str) -> bool:
        return await self._store.resign(role, owner)

    def rests(self, owner: str) -> list[float]:
        return [later - earlier for earlier, later in pairwise(self.asked[owner])]


@pytest.mark.covers("R152", "R153")
@pytest.mark.parametrize(
    ("options", "renew", "interval"),
    [({}, 10, 5), ({"lease": 6.0}, 2, 1), ({"lease": 30.0, "renew": 3.0, "interval": 20.0}, 3, 20)],
    ids=["by default", "a short lease", "as is asked for"],
)
async def test_a_leader_renews_at_a_third_of_its_lease_and_others_try_at_a_sixth(
    store: Store, clock: Naps, options: dict[str, Any], renew: float, interval: float
) -> None:
    calls: Any = Calls(store, clock)
    leader = Election(calls, clock, "leader", lambda _: None, **options)
    follower = Election(calls, clock, "follower", lambda _: None, **options)
    await leader.stand()

    async with at_work(leader.run, follower.run):
        while calls.seconds < 10 * max(renew, interval):
            await clock.pass_to_next(2)
        assert (leader.leads, follower.leads) == (True, False)

    for owner, pace in (("leader", renew), ("follower", interval)):
        rests = [rest for rest in calls.rests(owner) if rest > 0]
        assert len(rests) >= 10
        assert all(0.9 * pace - 0.01 <= rest <= pace + 0.01 for rest in rests), (owner, rests)


@pytest.mark.covers("R153")
async def test_a_lead_that_is_given_up_is_taken_at_the_next_try(store: Store, clock: Naps) -> None:
    calls: Any = Calls(store, clock)
    taken: list[float] = []
    leader = Election(calls, clock, "leader", lambda _: None)
    follower = Election(calls, clock, "follower", lambda leads: taken.append(calls.seconds) if leads else None)
    await leader.stand()

    async with at_work(follower.run):
        async with at_work(leader.run):
            while len(calls.asked.get("follower", ())) < 3:  # so its next try is as far away as can be
                await clock.pass_to_next(2)
        given_up = calls.seconds
        while not taken and calls.seconds < given_up + 60:
            await clock.pass_to_next(1)

    assert taken == [calls.asked["follower"][-1]]
    assert taken[0] - given_up <= 5


async def stalls_of(reaper: Reaper, events: Events, clock: Naps, until: int) -> dict[str, int]:
    """When each job was taken back, in ms, up to this time."""
    found: dict[str, int] = {}
    start = clock.now()
    events.on("stalled", lambda event: found.setdefault(event.job_id, clock.now() - start))
    async with at_work(reaper.run):
        while clock.now() < start + until and not found:
            asleep = LOOPS + 1 if clock.now() < start + 30_000 else LOOPS  # one waits for the lead by then
            await clock.pass_to_next(asleep)
    return found


@pytest.mark.covers("R135", "R144")
async def test_a_new_reaper_does_not_wait_for_the_lead_of_a_dead_one(store: Store, clock: Naps) -> None:
    """Whoever has the lead may have died just now: until that has run out, what is lost is taken back without it."""
    await store.lead("reaper", "dead", ttl=30_000)
    await claimed(store, "job", 2_000)
    events = Events()

    found = await stalls_of(Reaper(store, clock, events, "new", unled=30), events, clock, 60_000)

    assert 2_000 <= found["job"] <= 3_000


async def test_a_reaper_that_is_not_new_leaves_the_work_to_the_leader(store: Store, clock: Naps) -> None:
    await store.lead("reaper", "alive", ttl=300_000)
    await claimed(store, "job", 90_000)
    events = Events()

    found = await stalls_of(Reaper(store, clock, events, "second", unled=30), events, clock, 120_000)

    assert found == {}


@pytest.mark.covers("R144")
async def test_a_queue_that_is_younger_than_the_reaper_is_found_at_the_next_look(store: Store, clock: Naps) -> None:
    events, found = Events(), dict[str, int]()
    events.on("stalled", lambda event: found.setdefault(event.queue, clock.now()))
    async with at_work(Reaper(store, clock, events, "reaper", elected=False).run):
        start = clock.now()
        while clock.now() < start + 500:
            await clock.pass_to_next(LOOPS)
        await store.add("young", [NewJob(name="n", attempts=2)])
        await store.exchange("young", [], Claim(want=1, token="t", lease=2_000, worker="gone"))
        start = clock.now()
        while not found and clock.now() < start + 60_000:
            await clock.pass_to_next(LOOPS)

    assert found["young"] - start <= 4_000
