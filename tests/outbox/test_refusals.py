"""What the store refuses: rows come to no harm by it, whoever else has sent the same call."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import opened
from tests.outbox.places import LONG, Place, drained, finished, relay_of, write
from toril.errors import Closed, EngineUnavailable, PayloadTooLarge, QueueFull, UsageError
from toril.model import SetMaxWaiting
from toril.store.engine import Store
from toril.testing import ManualClock


@pytest.fixture
async def store(clock: ManualClock, tmp_path: Path) -> AsyncIterator[Store]:
    async with opened("memory", clock, tmp_path) as store:
        yield store


class Slow:
    """A store whose calls stop on the way there, and on the way back, until each is let through."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.reached, self.go_on, self.answered, self.come_back = (asyncio.Event() for _ in range(4))

    async def add(self, *given: Any, **options: Any) -> Any:
        self.reached.set()
        await self.go_on.wait()
        try:
            return await self._store.add(*given, **options)
        finally:
            self.answered.set()
            await self.come_back.wait()


class Refusing:
    """A store after whose first refusal by a full queue something happens, before the relay hears of it."""

    def __init__(self, store: Store, meanwhile: Callable[[], Awaitable[None]]) -> None:
        self._store = store
        self._meanwhile: Callable[[], Awaitable[None]] | None = meanwhile

    async def add(self, *given: Any, **options: Any) -> Any:
        try:
            return await self._store.add(*given, **options)
        except QueueFull:
            if self._meanwhile is not None:
                meanwhile, self._meanwhile = self._meanwhile, None
                await meanwhile()
            raise


@pytest.mark.covers("F122")
@pytest.mark.parametrize("late", [True, False], ids=["by the first", "by the second"])
async def test_what_one_relay_was_refused_and_another_handed_over_runs_once(
    place: Place, store: Store, clock: ManualClock, late: bool
) -> None:
    """Two relays have the same batch. One is told that the queue is full; then there is room, the other's call is
    taken, and the jobs run before anything of that is known to the database."""
    write(place, "a", "b")
    await store.configure("mail", [SetMaxWaiting(1)])
    slow: Any = Slow(store)
    other = relay_of(place, slow, clock=clock)
    runs, tasks = Counter[str](), list[asyncio.Task[int]]()

    async def other_begins() -> None:
        tasks.append(asyncio.create_task(drained(other)))
        await slow.reached.wait()
        place.time_passes()

    async def others_call_arrives() -> None:
        if not late:
            place.time_passes()
            await other_begins()
        await store.configure("mail", [SetMaxWaiting(None)])
        slow.go_on.set()
        await slow.answered.wait()
        await finished(store, runs)

    async with asyncio.timeout(LONG):
        if late:
            await other_begins()
        refusing: Any = Refusing(store, others_call_arrives)
        await drained(relay_of(place, refusing, clock=clock))
        await finished(store, runs)
        slow.come_back.set()
        await asyncio.gather(*tasks)
        await drained(relay_of(place, store, clock=clock))

    await finished(store, runs)
    assert runs == {"a": 1, "b": 1}
    assert place.left() == []


class Raising:
    """A store that answers every add of jobs with an error."""

    def __init__(self, store: Store, error: Exception) -> None:
        self._store = store
        self._error = error

    async def add(self, queue: str, jobs: Any, **options: Any) -> Any:
        if jobs:
            raise self._error
        return await self._store.add(queue, jobs, **options)


async def test_only_what_is_wrong_with_a_row_puts_it_aside(place: Place, store: Store) -> None:
    write(place, "a")
    for error in (Closed("not open"), UsageError("who knows"), EngineUnavailable("away")):
        raising: Any = Raising(store, error)
        with pytest.raises(type(error)):
            await drained(relay_of(place, raising))
        place.time_passes()
        assert place.all("SELECT error FROM toril_outbox") == [(None,)]

    raising = Raising(store, PayloadTooLarge("too large"))
    assert await drained(relay_of(place, raising)) == 0
    assert place.all("SELECT error FROM toril_outbox") == [("too large",)]


async def test_a_row_that_somebody_wrote_without_an_id_is_kept_aside(place: Place, store: Store) -> None:
    place.all("INSERT INTO toril_outbox (queue, job_id, request) VALUES (?, ?, ?)", "mail", "a", '{"name": "n"}')
    write(place, "b")

    async with asyncio.timeout(LONG):
        assert await drained(relay_of(place, store)) == 1

    ((error,),) = place.all("SELECT error FROM toril_outbox")
    assert "no id" in error
    assert (await store.counts("mail")).waiting == 1


async def test_a_row_grows_older_while_the_store_is_away(place: Place, store: Store, clock: ManualClock) -> None:
    write(place, "a", delay=3600, expires=7200)
    raising: Any = Raising(store, EngineUnavailable("away"))
    relay = relay_of(place, raising, clock=clock)
    with pytest.raises(EngineUnavailable):
        await relay.round()

    clock.advance(1_800_000)
    relay._store = store
    assert await drained(relay) == 1

    (job,) = await store.jobs("mail", ["a"])
    assert job is not None
    assert job.delay <= 1_800_000
