"""A relay killed before and after every statement, every commit and every call: each job is run exactly once."""

import os
from collections import Counter
from collections.abc import Sequence
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import opened
from tests.outbox.places import QUEUES, Place, finished, relay_of
from toril import App
from toril.model import SetMaxWaiting
from toril.outbox.database import Database
from toril.store.engine import Store
from toril.testing import ManualClock

ALL = bool(os.environ.get("TORIL_OUTBOX_ALL"))  # of the longer way too, every boundary and not each fifth
DAYS = 3 * 86_400_000


class Killed(BaseException):
    """The process is gone."""


class Life:
    """Counts the boundaries that a relay comes to, and ends it at one of them."""

    def __init__(self, end: int | None) -> None:
        self.end = end
        self.passed = 0

    def boundary(self) -> None:
        if self.passed == self.end:
            raise Killed
        self.passed += 1


class MortalDatabase(Database):
    """Between any two statements the process may end; so it may within a commit, before and after it counts."""

    def __init__(self, url: str, life: Life) -> None:
        super().__init__(url)
        self._life = life

    def _execute(self, sql: str, parameters: Sequence[Any]) -> list[Any]:
        self._life.boundary()
        found = super()._execute(sql, parameters)
        self._life.boundary()
        return found


class MortalStore:
    """The same for calls to the store."""

    def __init__(self, store: Store, life: Life) -> None:
        self._store = store
        self._life = life

    async def add(self, *given: Any, **options: Any) -> Any:
        self._life.boundary()
        answer = await self._store.add(*given, **options)
        self._life.boundary()
        return answer


async def lived(place: Place, store: Store, clock: ManualClock, end: int | None) -> bool:
    """A relay hands over until it is done, or comes to that boundary: whether it was killed there."""
    life = Life(end)
    mortal: Any = MortalStore(store, life)
    relay = relay_of(place, mortal, clock=clock, database=MortalDatabase(place.url, life))
    try:
        await relay.drain()
    except Killed:
        return True
    finally:
        await relay.close()
    return False


def write(place: Place) -> set[str]:
    """Jobs of two queues in three transactions, of which one is rolled back; and a row that is no job."""
    app = App("memory://")
    for name in QUEUES:
        app.queue(name)
    place.all("DELETE FROM toril_outbox")
    place.all("DELETE FROM toril_outbox_lanes")
    connection = place.connect()
    outbox = app.outbox(connection)
    kept = {outbox.add("n", {"a": 1}, queue="mail"), outbox.add("n", queue="reports"), outbox.add("n", queue="mail")}
    connection.commit()
    outbox.add("never", queue="mail")
    connection.rollback()
    kept |= {outbox.add("n", queue="reports", job_id="chosen")}
    connection.commit()
    connection.close()
    place.all("INSERT INTO toril_outbox (queue, job_id, request) VALUES (?, ?, ?)", "mail", "none", "no job")
    return kept


@pytest.mark.covers("F122")
@pytest.mark.parametrize("room", [None, 1], ids=["open", "full"])
async def test_each_committed_job_is_run_once_wherever_the_relay_ended(
    place: Place, clock: ManualClock, tmp_path: Path, room: int | None
) -> None:
    """In a queue with room for one job only, batches are refused, and made smaller, on the way."""
    for end in count(step=5 if room and not ALL else 1):
        async with opened("memory", clock, tmp_path) as store:
            await store.configure("mail", [SetMaxWaiting(room)])
            kept, runs = write(place), Counter[str]()
            killed = await lived(place, store, clock, end)
            await finished(store, runs)
            clock.advance(DAYS)
            for queue in QUEUES:
                await store.prune(queue)
            place.time_passes()
            for _ in kept:
                await lived(place, store, clock, None)
                await finished(store, runs)
                clock.advance(DAYS)
                if place.left() == ["none"]:
                    break

            assert runs == dict.fromkeys(kept, 1), f"killed at boundary {end}"
            assert place.left() == ["none"], f"killed at boundary {end}"
        if not killed:
            assert end > 30, "so many boundaries there are"
            break
