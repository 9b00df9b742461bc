"""What a relay hands over, in which order, beside whom, and what it does when something is in its way."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import opened
from tests.kinds import redis_of
from tests.outbox.places import LONG, Place, drained, finished, outbox_of, relay_of, write
from tests.postgres import postgres
from toril import App
from toril.errors import EngineUnavailable, NotFound
from toril.model import NewJob, SetMaxWaiting
from toril.outbox.database import Database, OutboxAway
from toril.store.engine import Store
from toril.testing import ManualClock


@pytest.fixture
async def store(clock: ManualClock, tmp_path: Path) -> AsyncIterator[Store]:
    async with opened("memory", clock, tmp_path) as store:
        yield store


async def order_of(store: Store, queue: str = "mail") -> list[str]:
    runs = Counter[str]()
    await finished(store, runs)
    return list(runs)


async def until(condition: Any) -> None:
    async with asyncio.timeout(LONG):
        while not condition():  # noqa: ASYNC110 - what is waited for happens in a thread, or another process
            await asyncio.sleep(0.01)


async def test_rows_go_in_their_order_and_leave_nothing(place: Place, store: Store) -> None:
    ids = [f"job-{number}" for number in range(250)]
    write(place, *ids)

    assert await drained(relay_of(place, store)) == 250

    assert await order_of(store) == ids
    assert place.left() == []
    assert len(place.all("SELECT name FROM toril_outbox_lanes")) == 1, "a relay needs one lane, however much it does"


async def test_a_transaction_that_commits_late_is_not_passed_over(store: Store) -> None:
    place = Place(postgres().database())
    place.create()
    late = place.connect()
    outbox_of(late).add("n", queue="mail", job_id="late")
    write(place, "early")
    relay = relay_of(place, store)

    await relay.drain()
    assert await order_of(store) == ["early"]
    late.commit()

    assert await drained(relay) == 1
    assert await order_of(store) == ["late"]
    place.close()


async def test_relays_beside_each_other_hand_over_each_row_once(place: Place, store: Store) -> None:
    ids = [f"job-{number}" for number in range(600)]
    write(place, *ids[:300], queue="mail")
    write(place, *ids[300:], queue="reports")

    handed = await asyncio.gather(*(drained(relay_of(place, store)) for _ in range(3)))
    while place.left():  # what one had taken while another looked for the last time
        handed.append(await drained(relay_of(place, store)))

    runs = Counter[str]()
    await finished(store, runs)
    assert runs == dict.fromkeys(ids, 1)
    assert sum(handed) == 600


async def test_a_delay_began_when_the_job_was_written(place: Place, store: Store) -> None:
    write(place, "now", delay=60, expires=90)
    write(place, "later", delay=3600)
    place.all("UPDATE toril_outbox SET created_at = created_at - 600000")

    await drained(relay_of(place, store))

    now, later = await store.jobs("mail", ["now", "later"])
    assert now is not None
    assert later is not None
    assert (now.state, later.state) == ("waiting", "delayed")
    assert 2_900_000 < later.delay <= 3_000_000


async def test_what_can_never_be_handed_over_is_kept_aside(place: Place, store: Store) -> None:
    write(place, "before")
    insert = "INSERT INTO toril_outbox (queue, job_id, request) VALUES (?, ?, ?)"
    place.all(insert, "mail", "no json", "{")
    place.all(insert, "no:queue", "no queue", '{"name": "n", "id": "x"}')
    write(place, "after")

    assert await drained(relay_of(place, store)) == 2

    assert await order_of(store) == ["before", "after"]
    database = Database(place.url)
    first, second = database.rows(0, 10)
    assert (first.job_id, second.job_id, first.lane, second.lane) == ("no json", "no queue", None, None)
    assert "cannot read the stored job" in str(first.error)
    assert "queue name" in str(second.error)
    assert (database.status().waiting, database.status().refused) == (0, 2)

    place.all("UPDATE toril_outbox SET queue = ? WHERE job_id = ?", "mail", "no queue")
    database.again(second.id)
    with pytest.raises(NotFound, match="there is no refused row 99"):
        database.again(99)
    database.close()
    await drained(relay_of(place, store))
    assert await order_of(store) == ["x"]


async def test_a_full_queue_holds_up_nothing_but_itself(place: Place, store: Store, clock: ManualClock) -> None:
    await store.configure("mail", [SetMaxWaiting(3)])
    write(place, *(f"m{number}" for number in range(5)))
    write(place, "r0", "r1", queue="reports")
    relay = relay_of(place, store, clock=clock)

    assert await relay.drain() == 5, "three fit, and the others of another queue"
    runs = Counter[str]()
    await finished(store, runs)
    clock.advance(2000)
    assert await drained(relay) == 2

    await finished(store, runs)
    assert runs == dict.fromkeys(["m0", "m1", "m2", "m3", "m4", "r0", "r1"], 1)
    assert place.left() == []


class Held:
    """A store in front of which one call stops, as if its process were paused, until it is let through."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.reached, self.go_on = asyncio.Event(), asyncio.Event()

    async def add(self, *given: Any, **options: Any) -> Any:
        self.reached.set()
        await self.go_on.wait()
        return await self._store.add(*given, **options)


@pytest.mark.covers("F122")
async def test_redis_knows_a_batch_that_was_handed_over_and_not_deleted(place: Place, clock: ManualClock) -> None:
    write(place, "a", "b")
    store = redis_of("redis", clock)
    await store.open()
    relay, runs = relay_of(place, store), Counter[str]()
    done = relay._database.done
    relay._database.done = lambda _: None  # type: ignore[method-assign, assignment]
    await relay.round()
    await finished(store, runs)
    relay._database.done = done  # type: ignore[method-assign]
    place.time_passes()

    assert await drained(relay) == 2

    await finished(store, runs)
    await store.close()
    assert runs == {"a": 1, "b": 1}
    assert place.left() == []


@pytest.mark.covers("F122")
@pytest.mark.parametrize("full", [False, True], ids=["handed over", "refused"])
async def test_a_relay_that_was_taken_for_dead_does_no_harm(
    place: Place, store: Store, clock: ManualClock, full: bool
) -> None:
    """It is paused just before its call. Another has handed all of it over, or was refused, when it goes on."""
    write(place, "a", "b")
    held: Any = Held(store)
    dead, other = relay_of(place, held, clock=clock), relay_of(place, store, clock=clock)
    paused, runs = asyncio.create_task(dead.round()), Counter[str]()
    async with asyncio.timeout(LONG):
        await held.reached.wait()
    place.time_passes()
    if full:
        await store.add("mail", [NewJob(name="n", id="filler")])
        await store.configure("mail", [SetMaxWaiting(1)])
    assert await other.drain() == (0 if full else 2)
    await finished(store, runs)
    await store.configure("mail", [SetMaxWaiting(None)])

    held.go_on.set()
    await paused
    await finished(store, runs)
    clock.advance(2000)
    await drained(other)
    await drained(dead)

    await finished(store, runs)
    assert runs == {"a": 1, "b": 1} | ({"filler": 1} if full else {})
    assert place.left() == []


async def test_a_database_that_was_set_back_goes_on_with_another_lane(place: Place, store: Store) -> None:
    write(place, "a")
    await drained(relay_of(place, store))
    ((lane, seq),) = place.all("SELECT name, seq FROM toril_outbox_lanes")
    write(place, "b")
    await drained(relay_of(place, store))
    place.all("UPDATE toril_outbox_lanes SET seq = ?", seq - 1)
    write(place, "c")

    assert await drained(relay_of(place, store)) == 1

    assert await order_of(store) == ["a", "b", "c"]
    assert lane not in [name for (name,) in place.all("SELECT name FROM toril_outbox_lanes")]


async def test_an_answer_to_another_databases_call_counts_for_nothing(place: Place, store: Store) -> None:
    write(place, "a")
    await drained(relay_of(place, store))
    place.all("UPDATE toril_outbox_lanes SET seq = seq - 1")  # as in a copy, which goes on from the same number
    write(place, "b")

    assert await drained(relay_of(place, store)) == 1

    assert await order_of(store) == ["a", "b"]


class Away:
    """A store that does not answer at first, whether or not it did what was asked."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.calls = 0

    async def add(self, *given: Any, **options: Any) -> Any:
        self.calls += 1
        if self.calls < 5:
            if self.calls % 2:
                await self._store.add(*given, **options)
            raise EngineUnavailable("it is away")
        return await self._store.add(*given, **options)


async def test_a_store_that_does_not_answer_is_asked_again(place: Place, store: Store) -> None:
    write(place, "a", "b")
    away: Any = Away(store)
    relay, runs = relay_of(place, away), Counter[str]()
    for _ in range(4):
        with pytest.raises(EngineUnavailable):
            await relay.round()
        await finished(store, runs)

    assert await drained(relay) == 2

    await finished(store, runs)
    assert runs == {"a": 1, "b": 1}


async def test_a_server_that_is_restarted_is_waited_for_and_told_of_once(store: Store) -> None:
    place = Place(postgres().database())
    place.create()
    relay, told = relay_of(place, store), list[Any]()
    relay._events.on("error", told.append)
    work = asyncio.create_task(relay.run())
    try:
        write(place, "before")
        await until(lambda: relay.handed == 1)
        postgres().stop()
        await until(lambda: told)
        await asyncio.to_thread(postgres().start)
        write(place, "after")
        await until(lambda: relay.handed == 2)
    finally:
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)

    (event,) = told
    assert event.kind == OutboxAway.__name__
    assert await order_of(store) == ["before", "after"]
    place.close()


async def test_a_database_without_an_outbox_says_how_to_make_one(tmp_path: Path) -> None:
    (tmp_path / "app.db").touch()
    for url in (f"sqlite:///{tmp_path / 'app.db'}", postgres().database()):
        database = Database(url)
        with pytest.raises(OutboxAway, match="create it with: toril outbox create"):
            database.anything()
        database.create()
        assert not database.anything()
        database.close()


class Pooled(Database):
    """As behind PgBouncer in transaction mode: what a session knew is gone after every transaction."""

    discarded = 0

    def _execute(self, sql: str, parameters: Sequence[Any]) -> list[Any]:
        found = super()._execute(sql, parameters)
        if sql == "COMMIT":
            super()._execute("DISCARD ALL", ())
            self.discarded += 1
        return found


async def test_nothing_is_kept_in_a_session(store: Store) -> None:
    place = Place(postgres().database())
    place.create()
    database = Pooled(place.url)
    relay = relay_of(place, store, database=database)
    for number in range(8):  # often enough for a driver that would prepare what it says often
        write(place, f"a{number}", f"b{number}")
        await relay.drain()
    await relay.close()

    assert database.discarded > 20
    assert len(await order_of(store)) == 16
    place.close()


async def test_what_is_written_in_the_same_process_is_looked_for_at_once(
    place: Place, store: Store, clock: ManualClock
) -> None:
    relay = relay_of(place, store, clock=clock)
    app = App("memory://")
    app.queue("mail")
    app._outbox._relay = relay
    looks = 0
    anything = relay._database.anything

    def counted() -> bool:
        nonlocal looks
        looks += 1
        return anything()

    def rests() -> bool:
        return any(not future.done() for _, future in clock._sleeping)

    relay._database.anything = counted  # type: ignore[method-assign]
    work = asyncio.create_task(relay.run())
    try:
        for number in range(1, 10):  # it looks ever more seldom, and in the end once in about a second
            await until(lambda number=number: looks == number and rests())
            clock.advance(2000)
        await until(lambda: looks == 10 and rests())
        connection = place.connect()
        app.outbox(connection).add("n", job_id="a")
        await until(lambda: looks == 11)
        connection.commit()
        await until(rests)
        clock.advance(100)
        await until(lambda: relay.handed == 1)
    finally:
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)
